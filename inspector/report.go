package inspector

import (
	"context"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// ReportOptions say how much of a session a report has. The zero value means the defaults.
type ReportOptions struct {
	// MaxEvents is how many records of the log a report has, and how many visible events, keys
	// of the state, and events behind summaries: the newest ones, of keys the first. It says how
	// many it left out. 0 means [DefaultMaxEvents].
	MaxEvents int

	// MaxContent is how many bytes of each text in an event a report has. It says where it cut one
	// off. Images of up to 1 MiB are in it whole. 0 means [DefaultMaxContent].
	MaxContent int

	// Redact, if not nil, replaces secrets by placeholders in all that the report says, the session's
	// key too. Images are as they are. A copy of the session is kept in memory meanwhile.
	Redact *redact.Redactor
}

// Defaults of [ReportOptions].
const (
	DefaultMaxEvents  = 2_000
	DefaultMaxContent = 16 << 10
)

// Validate reports whether the options make sense. The error matches [patch.ErrInvalid] and
// names the option.
func (o ReportOptions) Validate() error {
	switch {
	case o.MaxEvents < 0:
		return &patch.FieldError{Field: "ReportOptions.MaxEvents", Problem: fmt.Sprintf("%d is below 0", o.MaxEvents)}
	case o.MaxContent < 0:
		return &patch.FieldError{Field: "ReportOptions.MaxContent", Problem: fmt.Sprintf("%d is below 0", o.MaxContent)}
	}
	return nil
}

// Report writes a session as one HTML file to share, which shows what the session's page does: its
// figures, the raw log with what each patch did, what a model sees of it, what summaries stand for
// and lose, and the state. The file needs no other one, has no script in it, and asks for nothing;
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

// reportBody is a report.
type reportBody struct {
	Title, At string
	Last      uint64
	Style     template.CSS
	Headline  string
	Stats     []present.Row
	Drawing   *drawing
	Log       []reportRow
	LogLeft   int // records before these
	Records   int
	Visible   []reportVisible
	SeenLeft  int // visible events before these
	Seen      int
	Summaries []reportSummary
	State     []reportState
	StateLeft int // keys behind these
}

// reportRow is a record of the log, with what is in it.
type reportRow struct {
	logRow
	Here     bool // the record of the patch that hides it is in the report
	Seen     bool // its row among the visible events is in the report
	Contents []shownEvent
}

// reportVisible is a visible event. Its contents are in the row of its record, if the report has
// that.
type reportVisible struct {
	visibleRow
	Here     bool
	Contents []shownEvent
}

// reportSummary is a visible summary with what it stands for.
type reportSummary struct {
	Index int
	Seen  bool // its row among the visible events is in the report
	Text  shownEvent
	Loss  []string
	For   []standsFor
	Left  int // events behind these
}

// standsFor is an event that a summary stands for.
type standsFor struct {
	Seq    uint64
	Here   bool // its record is in the report
	Kind   present.Kind
	Author string
	Text   string
}

// reportState is a key of the state.
type reportState struct {
	Key    string
	Shared bool
	Value  block
}

// So many characters of a row are shown, and of a line about what a summary lost.
const (
	rowRunes  = 400
	lossRunes = 4_000
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
	if opts.MaxContent == 0 {
		opts.MaxContent = DefaultMaxContent
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
	b := reportBody{
		Title: key.String(), At: when(t.at(t.last()).Time), Last: t.last(),
		Records: int(t.last()), Seen: v.Len(), Headline: t.headline(v.Seq()), Stats: t.stats(session),
	}
	style, err := files.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	b.Style = template.CSS(style)
	b.LogLeft = max(b.Records-opts.MaxEvents, 0)
	b.SeenLeft = max(b.Seen-opts.MaxEvents, 0)
	here := func(seq uint64) bool { return seq > uint64(b.LogLeft) }
	place := func(seq uint64) template.URL {
		if !here(seq) {
			return "#raw"
		}
		return template.URL(fmt.Sprintf("#r%d", seq))
	}
	b.Drawing = newDrawing(t, v, place)
	show := &showing{Left: math.MaxInt, Most: opts.MaxContent, Image: inlined}
	err = i.eachRow(ctx, key, t, v, b.LogLeft, b.Records, func(r patch.Record, row logRow) {
		out := reportRow{logRow: row, Here: here(row.By), Seen: row.Visible && row.Index >= b.SeenLeft}
		out.Calls = slices.DeleteFunc(slices.Clone(row.Calls), func(seq uint64) bool { return !here(seq) })
		for _, e := range r.Events() {
			out.Contents = append(out.Contents, show.event(e, r.Seq))
		}
		b.Log = append(b.Log, out)
	})
	if err != nil {
		return err
	}
	for _, row := range rowsOf(v, b.SeenLeft, b.Seen) {
		out := reportVisible{visibleRow: row, Here: here(row.Seq)}
		out.Calls = slices.DeleteFunc(row.Calls, func(index int) bool { return index < b.SeenLeft })
		if !out.Here {
			out.Contents = []shownEvent{show.event(v.At(row.Index), row.Seq)}
		}
		b.Visible = append(b.Visible, out)
	}
	if b.Summaries, err = i.reportSummaries(ctx, key, v, opts, show, here); err != nil {
		return err
	}
	keys := stateRows(v, shared)
	b.StateLeft = max(len(keys)-opts.MaxEvents, 0)
	for _, k := range keys[:len(keys)-b.StateLeft] {
		b.State = append(b.State, reportState{k.Key, k.Shared, show.json("", "", k.Value)})
	}
	return templates.ExecuteTemplate(w, "report.html", b)
}

// So many bytes may an image have that is in a report.
const reportImage = 1 << 20

// inlined is the image in a part as a file can hold it.
func inlined(_ uint64, _ *patch.Event, _ int, p patch.Part) template.URL {
	data, mimeType, ok := imageOf(p)
	if !ok || len(data) > reportImage {
		return ""
	}
	return template.URL("data:" + mimeType + ";base64," + base64.StdEncoding.EncodeToString(data))
}

// reportSummaries are the visible summaries, with what 'patchlog loss' says of them.
func (i *Inspector) reportSummaries(ctx context.Context, key store.Key, v fold.View, opts ReportOptions, show *showing, here func(uint64) bool) ([]reportSummary, error) {
	parts, err := i.store.HistoryParts(ctx, key, v)
	if err != nil {
		return nil, err
	}
	losses, err := compaction.Losses(v, parts)
	if err != nil {
		return nil, err
	}
	left := opts.MaxEvents
	var out []reportSummary
	for _, l := range losses {
		s := reportSummary{Index: l.Index, Seen: l.Index >= v.Len()-opts.MaxEvents}
		s.Text = show.event(l.Summary, v.Entry(l.Index).Seq)
		for _, line := range present.LossOf(key, v, l).Lines() {
			s.Loss = append(s.Loss, clip(line, lossRunes))
		}
		shown := parts[l.Index]
		shown = shown[max(len(shown)-left, 0):]
		left -= len(shown)
		s.Left = len(parts[l.Index]) - len(shown)
		for _, e := range shown {
			s.For = append(s.For, standsFor{e.Seq, here(e.Seq), present.KindOf(e), e.Event.Author(), present.EntryText(e)})
		}
		out = append(out, s)
	}
	return out, nil
}
