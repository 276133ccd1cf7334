package inspector

import (
	"context"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// ReportOptions say how much of a session a report has. The zero value means the defaults.
type ReportOptions struct {
	// MaxEvents is how many records of the log a report has, and how many visible events and keys
	// of the state: the newest ones, of keys the first. It says how many it left out. 0 means
	// [DefaultMaxEvents].
	MaxEvents int

	// Redact, if not nil, replaces secrets by placeholders in all that the report says, the session's
	// key too. Images are as they are. A copy of the session is kept in memory meanwhile.
	Redact *redact.Redactor
}

// DefaultMaxEvents is the default of ReportOptions.MaxEvents.
const DefaultMaxEvents = 2_000

// Validate reports whether the options make sense. The error matches [patch.ErrInvalid] and
// names the option.
func (o ReportOptions) Validate() error {
	if o.MaxEvents < 0 {
		return &patch.FieldError{Field: "ReportOptions.MaxEvents", Problem: fmt.Sprintf("%d is below 0", o.MaxEvents)}
	}
	return nil
}

// Report writes a session as one HTML file to share, which shows what the session's page does: its
// figures, the raw log with what each patch did, what a model sees of it, what summaries lose, and the
// state. Of each text it has 16 KiB. The file needs no other one, has no script in it, and asks for nothing;
// whatever the session says is text in it.
//
// The session may be written to meanwhile; the report is of the newest record that it found. It is
// made in memory before its first byte is written, so that nothing is written if the session cannot
// be read. Errors are the store's, the writer's, or that of [ReportOptions.Validate].
func Report(ctx context.Context, w io.Writer, s *store.Store, key store.Key, opts ReportOptions) error {
	i, err := New(s, Options{CacheBytes: -1})
	if err != nil {
		return err
	}
	return i.report(ctx, w, key, opts)
}

// reportBody is a report. From is the first record that it has, and First the first visible event.
type reportBody struct {
	Title, At  string
	Last, From uint64
	First      int
	Style      template.CSS
	Headline   string
	Stats      []present.Row
	Drawing    *drawing
	Log        []reportRow
	Visible    []reportVisible
	Seen       int
	State      []reportState
	StateLeft  int // keys behind these
}

// reportRow is a record of the log, with what is in it.
type reportRow struct {
	logRow
	Contents []shownEvent
}

// reportVisible is a visible event, with what it says, if the report does not have its record, and what it lost if it
// is a summary.
type reportVisible struct {
	visibleRow
	Content *shownEvent
	Loss    []string
}

// reportState is a key of the state.
type reportState struct {
	Key    string
	Shared bool
	Value  block
}

// Bytes of a text, and of an image, that a report has, and runes of a line about what a summary lost.
const (
	reportText  = 16 << 10
	reportImage = 1 << 20
	lossRunes   = 4_000
)

func (i *Inspector) report(ctx context.Context, w io.Writer, key store.Key, opts ReportOptions) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	if opts.Redact != nil {
		return i.redacted(ctx, w, key, opts)
	}
	if opts.MaxEvents == 0 {
		opts.MaxEvents = DefaultMaxEvents
	}
	t, err := i.timeline(ctx, key)
	if err != nil {
		return err
	}
	session, shared, err := i.sessionAt(ctx, key, t.last(), t.last())
	if err != nil {
		return err
	}
	v := session.View
	left := max(int(t.last())-opts.MaxEvents, 0)
	b := reportBody{
		Title: key.String(), At: when(t.at(t.last()).Time), Last: t.last(), From: uint64(left) + 1, First: max(v.Len()-opts.MaxEvents, 0),
		Seen: v.Len(), Headline: t.headline(v.Seq()), Stats: t.stats(session),
	}
	style, err := files.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	b.Style = template.CSS(style)
	b.Drawing = newDrawing(t, v, func(seq uint64) template.URL {
		if seq < b.From {
			return "#raw"
		}
		return template.URL(fmt.Sprintf("#r%d", seq))
	})
	show := &showing{Left: math.MaxInt, Most: reportText, Image: inlined}
	err = i.eachRow(ctx, key, t, v, left, int(t.last()), nil, func(r patch.Record, row logRow) {
		out := reportRow{logRow: row}
		for _, e := range r.Events() {
			out.Contents = append(out.Contents, show.event(e, r.Seq))
		}
		b.Log = append(b.Log, out)
	})
	if err != nil {
		return err
	}
	parts, err := i.store.HistoryParts(ctx, key, v)
	if err != nil {
		return err
	}
	losses, err := compaction.Losses(v, parts)
	if err != nil {
		return err
	}
	for _, row := range rowsOf(t, v, b.First, b.Seen) {
		out := reportVisible{visibleRow: row}
		if row.Seq < b.From {
			content := show.event(v.At(row.Index), row.Seq)
			out.Content = &content
		}
		for _, l := range losses {
			if l.Index == row.Index {
				for _, line := range present.LossOf(key, v, l).Lines() {
					out.Loss = append(out.Loss, clip(line, lossRunes))
				}
			}
		}
		b.Visible = append(b.Visible, out)
	}
	keys, more := cutTo(stateRows(v, shared), opts.MaxEvents)
	b.StateLeft = more
	for _, k := range keys {
		b.State = append(b.State, reportState{k.Key, k.Shared, show.json("", "", k.Value)})
	}
	return templates.ExecuteTemplate(w, "report.html", b)
}

// inlined is the image in a part as a file can hold it.
func inlined(_ uint64, _ *patch.Event, _ int, p patch.Part) template.URL {
	data, mimeType, ok := imageOf(p)
	if !ok || len(data) > reportImage {
		return ""
	}
	return template.URL("data:" + mimeType + ";base64," + base64.StdEncoding.EncodeToString(data))
}
