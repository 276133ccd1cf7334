package migrate

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var patchlogText = Format{
	Name: "patchlog", Title: "events and patches as patchlog exports them", Versions: "the current one",
	Kept: "everything", Omitted: "values of shared scopes",
	count: func(b *fileHead) int {
		if !b.has(isPatchlogLine) {
			return 0
		}
		return b.count(func(o obj) bool { return isPatchlogLine(o) || isEvent(o) })
	},
	open: openLines,
}

var adkEvents = Format{
	Name: "adk", Title: "ADK events, one a line", Versions: "events of ADK for Go and for Python, and rows of their tables",
	Kept: "events, state, rewinds; compactions with --compactions adopt", Omitted: "values of shared scopes, partial events",
	count: func(b *fileHead) int {
		if !b.lines || b.has(isPatchlogLine) {
			return 0
		}
		return b.count(isEvent)
	},
	open: openLines,
}

// isPatchlogLine reports whether an object is a line of patchlog's text form. Such a line is a header, a patch, or
// an event with a seq.
func isPatchlogLine(o obj) bool {
	return o.has("patchlog") || isString(o.get("patchType")) || isString(o.get("patch_type")) || o.has("seq") && isEvent(o)
}

func isEvent(o obj) bool {
	switch {
	case o.has("event_data", "long_running_tool_ids_json"):
		return true
	case o.text("author") != "":
		return o.has("id", "content", "actions", "invocationId", "invocation_id", "timestamp")
	}
	return !o.has("role", "type") && (o.get("content.parts") != nil || o.object("actions") != nil)
}

func openLines(f *File) (Source, error) {
	f.sessions = make([]fileSession, 1)
	return f, nil
}

// lines yields the session in a file of patchlog's text form or of ADK events.
func (f *File) lines(ctx context.Context) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		s := &Session{adopt: f.opts.AdoptLines, file: f.opts.Name}
		text, err := f.text, error(nil)
		if f.Format.Name == adkEvents.Name {
			mended, changed := toValidUnicode(text)
			if text = mended; changed {
				s.Differences = append(s.Differences, Difference{What: "some texts are not Unicode: replaced by U+FFFD"})
			}
		}
		if text, err = adkjson.TranslateLines(text, f.opts.Name); err == nil && f.Format.Name == adkEvents.Name {
			text, err = withRewinds(text, f.opts.Name)
		}
		if err == nil {
			s.log, err = store.ReadText(ctx, bytes.NewReader(text), store.ImportOptions{
				Name: f.opts.Name, MaxBytes: int64(len(text)) + 1, MaxRecordBytes: f.opts.MaxRecordBytes,
			})
		}
		s.Key = f.sessionKey(s, "", 0)
		if s.namedAfterFile && err == nil {
			s.firstID, err = firstID(text, f.opts.Name)
		}
		yield(s, f.sessionError(s, err))
	}
}

// firstID returns the id of the first logged record in the lines of a file of events.
func firstID(text []byte, name string) (string, error) {
	d := patch.NewDecoder(bytes.NewReader(text), name)
	for {
		r, err := d.Next()
		if err == io.EOF || err == nil && (r.Event == nil || !r.Event.Partial()) {
			return r.ID(), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// withRewinds adds patches to lines of events. It inserts them after each event by which ADK for Python rewound the
// session. If there is no such event, withRewinds returns the lines unchanged.
func withRewinds(text []byte, name string) ([]byte, error) {
	if !bytes.Contains(text, []byte("rewindBefore")) {
		return text, nil
	}
	var out bytes.Buffer
	var log []patch.Record
	v, recordsRead := fold.New("lines", nil), 0
	d := patch.NewDecoder(bytes.NewReader(text), name)
	for {
		r, err := d.Next()
		if err == io.EOF {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		if r.Event == nil || r.Event.Partial() {
			continue
		}
		n := len(log) + 1
		newID := func() string { return uuid.NewSHA1(lineIDNamespace, fmt.Append(nil, n, r.Event)).String() }
		added := []patch.Record{patch.Complete(r, newID, time.Time{})}
		for i := 0; i < len(added); i++ {
			r := added[i]
			r.Seq = v.Seq() + 1
			if v, err = v.WithRecords(log).Apply(r); err != nil {
				return nil, err
			}
			log = append(log, r)
			if i == 0 {
				patches, err := rewindPatches(v, log, &recordsRead)
				if err != nil {
					return nil, err
				}
				for _, p := range patches {
					added = append(added, patch.Record{Patch: p})
				}
			}
		}
		for _, r := range added {
			if err := patch.WriteRecord(&out, r); err != nil {
				return nil, err
			}
		}
	}
}

// rewindPatches returns the patches that apply the rewind in the last event of a log. The patches hide all events
// from the first event of the rewound invocation on, including the last event. If the log does not have the
// invocation, the patches hide only the last event, as ADK does. rewindPatches adds the number of records that it
// reads to *recordsRead.
func rewindPatches(v fold.View, log []patch.Record, recordsRead *int) ([]*patch.PatchEvent, error) {
	last := log[len(log)-1]
	target := rewindTarget(last.Event)
	if target == "" {
		return nil, nil
	}
	if *recordsRead += len(log); *recordsRead > maxRewindReads {
		return nil, fmt.Errorf("%w: the session has too many rewinds", store.ErrTooLarge)
	}
	from := last.Seq
	for _, r := range log {
		if r.Event != nil && r.Event.InvocationID() == target {
			from = r.Seq
			break
		}
	}
	patches, err := v.WithRecords(log).Rewind(from)
	if err != nil {
		return nil, err
	}
	group := ""
	if len(patches) > 1 {
		group = uuid.NewSHA1(lineIDNamespace, []byte("group "+last.Event.ID())).String()
	}
	for i, p := range patches {
		if p.ID() == "" {
			p = p.WithID(uuid.NewSHA1(lineIDNamespace, fmt.Append(nil, "rewind ", i, last.Event.ID())).String())
		}
		p = p.WithAuthor(cmp.Or(last.Event.Author(), "adk")).WithTimestamp(last.Event.Timestamp()).WithGroup(group)
		if patches[i], err = p.WithCustomMetadata(map[string]any{metadataKey: map[string]any{migrationKey: markRewind}}); err != nil {
			return nil, err
		}
	}
	return patches, nil
}

// maxRewindReads limits the records that a session's rewinds may read. It allows hundreds of rewinds in a long session.
const maxRewindReads = 1 << 22

// rewindTarget returns the id of the invocation before which the event e rewinds the session, or "" if e is not a
// rewind.
func rewindTarget(e *patch.Event) string {
	if e == nil {
		return ""
	}
	actions, _ := e.Field("actions")
	return parse(actions).text("rewindBeforeInvocationId")
}
