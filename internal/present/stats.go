package present

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Sizes is a figure for the raw log and for its visible part.
type Sizes struct {
	Raw     int `json:"raw"`
	Visible int `json:"visible"`
}

// String says how much is visible.
func (s Sizes) String() string {
	text := fmt.Sprintf("%s of %s visible", Grouped(s.Visible), Grouped(s.Raw))
	if share := s.Share(); share != "" {
		text += " (" + share + ")"
	}
	return text
}

// Share returns the visible share in percent, or "" if Raw is 0.
func (s Sizes) Share() string {
	if s.Raw <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*float64(s.Visible)/float64(s.Raw))
}

// Stats are the figures of a session as of a record. Their JSON form is the output of 'patchlog stats --json'.
type Stats struct {
	Key       string             `json:"key"`
	Created   time.Time          `json:"created"`
	Records   uint64             `json:"records"`
	Patches   map[patch.Type]int `json:"patches"` // number of patches by type
	Skipped   int                `json:"skipped"` // number of patches that could not be applied
	Visible   int                `json:"visible"` // number of events
	Tokens    Sizes              `json:"tokens"`  // estimates; Raw counts all logged events
	StateKeys int                `json:"stateKeys"`

	Compaction CompactionStats `json:"compaction"`
}

// Measure returns the figures and the state of a session as of a record. The argument at is the seq of this
// record. If it is nil, they are as of the newest record, and the state includes shared values. Measure reads
// the log once, and ignores records that are logged meanwhile. If progress is not nil, it is called after each
// record with the record's seq and the last seq. Errors come from [store.Store.Get], [store.Store.ViewAt] and
// [store.Store.RawEvents].
func Measure(ctx context.Context, s *store.Store, key store.Key, at *uint64, progress func(seq, of uint64)) (Stats, map[string]patch.Value, error) {
	info, err := s.Info(ctx, key)
	if err != nil {
		return Stats{}, nil, err
	}
	session, err := s.Get(ctx, key)
	if err != nil {
		return Stats{}, nil, err
	}
	v, values := session.View, session.Values()
	if at != nil {
		if v, err = s.ViewAt(ctx, key, *at); err != nil {
			return Stats{}, nil, err
		}
		values = maps.Collect(v.Values())
	}
	stats := Stats{Patches: map[patch.Type]int{}}
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return Stats{}, nil, err
		}
		if r.Seq > v.Seq() {
			break
		}
		if r.Patch != nil {
			stats.CountPatch(r.Seq, r.Patch.Type(), r.Patch.Timestamp(), PassOf(r.Patch))
		} else {
			stats.Tokens.Raw += r.Event.EstimatedTokens()
		}
		if progress != nil {
			progress(r.Seq, v.Seq())
		}
	}
	stats.Complete(info, v, len(values))
	return stats, values, nil
}

// CountPatch counts a patch. If compaction did not log the patch, pass must be nil. Patches must be counted in
// log order, and s.Patches must not be nil.
func (s *Stats) CountPatch(seq uint64, kind patch.Type, at time.Time, pass *compaction.Written) {
	s.Patches[kind]++
	if pass != nil {
		s.Compaction.Passes++
		s.Compaction.Last = &LastPass{seq, at, *pass}
	}
}

// Complete sets all figures that do not come from CountPatch, except the raw tokens. It takes time linear in
// the visible events.
func (s *Stats) Complete(info store.Info, v fold.View, stateKeys int) {
	s.Key, s.Created, s.Records, s.Skipped, s.Visible, s.StateKeys = info.Key.String(), info.Created, v.Seq(), v.SkippedCount(), v.Len(), stateKeys
	s.Compaction.Summaries, s.Compaction.Prompt, s.Tokens.Visible = map[int]int{}, PromptOf(v), countTokens(v)
	for _, e := range v.Entries() {
		if e.Summary {
			s.Compaction.Summaries[compaction.LineageOf(e.Event).Level]++
		}
	}
}

func countTokens(v fold.View) int {
	n := 0
	for _, e := range v.Events() {
		n += e.EstimatedTokens()
	}
	return n
}

// pluralOf returns the plural name of a patch type.
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

// Rows returns the rows of 'patchlog stats'.
func (s Stats) Rows() []Row {
	rows := []Row{
		{"session", s.Key},
		{"created", s.Created.UTC().Format(time.DateTime)},
		{"records", fmt.Sprint(s.Records)},
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Patches)) {
		rows = append(rows, Row{"  " + pluralOf(kind), fmt.Sprint(s.Patches[kind])})
	}
	rows = append(rows,
		Row{"skipped patches", fmt.Sprint(s.Skipped)},
		Row{"visible events", fmt.Sprint(s.Visible)},
		Row{"tokens, about", s.Tokens.String()},
		Row{"state keys", fmt.Sprint(s.StateKeys)},
	)
	return append(rows, s.Compaction.Rows()...)
}

// LastActivity returns the time of a session's newest record, or of its creation if the session has no record.
func LastActivity(i store.Info) time.Time {
	if i.Active.IsZero() {
		return i.Created
	}
	return i.Active
}
