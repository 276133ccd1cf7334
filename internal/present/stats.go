package present

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Sizes are a figure of the whole log and of the part that a model sees.
type Sizes struct {
	Raw     int `json:"raw"`
	Visible int `json:"visible"`
}

// String says how much of the whole is visible.
func (s Sizes) String() string {
	text := fmt.Sprintf("%s of %s visible", Grouped(s.Visible), Grouped(s.Raw))
	if share := s.Share(); share != "" {
		text += " (" + share + ")"
	}
	return text
}

// Share says which part of the whole is visible; "" if there is no whole.
func (s Sizes) Share() string {
	if s.Raw <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*float64(s.Visible)/float64(s.Raw))
}

// Stats are the figures of a session. As JSON they are what 'patchlog stats --json' writes.
type Stats struct {
	Key       string             `json:"key"`
	Created   time.Time          `json:"created"`
	Records   uint64             `json:"records"`
	Patches   map[patch.Type]int `json:"patches"` // how many there are, by type
	Skipped   int                `json:"skipped"` // patches that could not be applied
	Visible   int                `json:"visible"` // events
	Bytes     Sizes              `json:"bytes"`   // in the text form
	Tokens    Sizes              `json:"tokens"`  // estimated; raw is as if there were no patch
	StateKeys int                `json:"stateKeys"`

	Compaction CompactionStats `json:"compaction"`
}

// Measure returns the figures of a session and its state, after the record of a seq, or now if at is
// nil. The values that sessions share are part of the state now alone. It reads the log once, and calls
// progress, if that is not nil, after each record: with its seq, and that of the last one that is read.
// What is logged while it reads does not count. It fails as [store.Store.Get], [store.Store.ViewAt] and
// [store.Store.RawEvents] do.
func Measure(ctx context.Context, s *store.Store, key store.Key, at *uint64, progress func(seq, of uint64)) (Stats, map[string]patch.Value, error) {
	info, err := s.Info(ctx, key)
	if err != nil {
		return Stats{}, nil, err
	}
	session, err := s.Get(ctx, key)
	if err != nil {
		return Stats{}, nil, err
	}
	values := session.Values()
	if at != nil {
		if session.View, err = s.ViewAt(ctx, key, *at); err != nil {
			return Stats{}, nil, err
		}
		values = maps.Collect(session.View.Values())
	}
	var t Tally
	end := session.View.Seq()
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return Stats{}, nil, err
		}
		if r.Seq > end {
			break
		}
		t.Add(r)
		if progress != nil {
			progress(r.Seq, end)
		}
	}
	stats := t.Stats(info, session)
	stats.StateKeys = len(values)
	return stats, values, nil
}

// Tally adds up, record by record, what the visible log does not tell of a session: what was
// ever logged. So the figures of a session that grows cost what is new. The zero Tally is that
// of an empty log. It is not to be used by several goroutines at a time.
type Tally struct {
	seq           uint64
	patches       map[patch.Type]int
	bytes, tokens int
	passes        int
	last          *LastPass
}

// Add counts a record. Each of a log is to be added once, in the order of the log.
func (t *Tally) Add(r patch.Record) {
	t.seq = r.Seq
	text, _ := r.MarshalJSON() // it fails for an empty record alone
	t.bytes += len(text) + 1
	if r.Event != nil {
		t.tokens += r.Event.EstimatedTokens()
	}
	if r.Patch != nil {
		if t.patches == nil {
			t.patches = map[patch.Type]int{}
		}
		t.patches[r.Patch.Type()]++
		t.addPass(r)
	}
}

// Seq returns the seq of the record that was added last, or 0. The next one to add is the one
// after it.
func (t *Tally) Seq() uint64 { return t.seq }

// Stats returns the figures of the session of which the tally has the records: what was ever
// logged from the tally, all else from the session. They are of one moment if the session's view
// ends where the tally does. It takes time in the number of visible events. Later calls of Add
// leave what it returned as it is.
func (t *Tally) Stats(info store.Info, session store.Session) Stats {
	v := session.View
	s := Stats{
		Key: info.Key.String(), Created: info.Created, Records: v.Seq(), Patches: map[patch.Type]int{},
		Skipped: v.SkippedCount(), Visible: v.Len(), StateKeys: len(session.Values()), Compaction: t.compaction(v),
	}
	maps.Copy(s.Patches, t.patches)
	s.Bytes.Raw, s.Tokens.Raw = t.bytes, t.tokens
	s.Bytes.Visible, s.Tokens.Visible = SizeOf(v)
	return s
}

// SizeOf returns how many bytes the visible events take in the text form, and about how many
// tokens in a model's prompt.
func SizeOf(v fold.View) (bytes, tokens int) {
	for _, e := range v.Events() {
		bytes += patch.Record{Event: e}.Size() + 1
	}
	return bytes, tokensOf(v)
}

func tokensOf(v fold.View) int {
	n := 0
	for _, e := range v.Events() {
		n += e.EstimatedTokens()
	}
	return n
}

// pluralOf returns what several patches of a type are called.
func pluralOf(kind patch.Type) string {
	switch kind {
	case patch.Splice, patch.Pin, patch.Unpin, patch.Revert:
		return string(kind) + "s"
	case patch.TruncateBefore:
		return "truncations"
	case patch.Summarise:
		return "summaries"
	case patch.Erase:
		return "erasures"
	}
	return "of type " + Printable(string(kind))
}

// Rows returns the figures as 'patchlog stats' shows them.
func (s Stats) Rows() []Row {
	rows := []Row{
		{"session", s.Key},
		{"created", s.Created.Format(time.RFC3339)},
		{"records", fmt.Sprint(s.Records)},
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Patches)) {
		rows = append(rows, Row{"  " + pluralOf(kind), fmt.Sprint(s.Patches[kind])})
	}
	rows = append(rows,
		Row{"skipped patches", fmt.Sprint(s.Skipped)},
		Row{"visible events", fmt.Sprint(s.Visible)},
		Row{"bytes", s.Bytes.String()},
		Row{"tokens, about", s.Tokens.String()},
		Row{"state keys", fmt.Sprint(s.StateKeys)},
	)
	return append(rows, s.Compaction.Rows()...)
}

// Clone returns a tally of its own, to which the same records were added.
func (t *Tally) Clone() Tally {
	own := *t
	own.patches = maps.Clone(t.patches)
	return own
}

// LastActivity returns the time of a session's newest event or patch, or else of its creation.
func LastActivity(i store.Info) time.Time {
	if i.Active.IsZero() {
		return i.Created
	}
	return i.Active
}
