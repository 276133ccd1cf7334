package quality

import (
	"context"
	"fmt"
	"iter"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// log is an in-memory log of one session. It implements [compaction.Log] and [recall.Log]. It is not safe for
// concurrent use.
type log struct {
	records   []patch.Record
	views     []fold.View // views by number of records
	onPatches func(before fold.View, patches []*patch.PatchEvent)
}

func newLog() *log { return &log{views: []fold.View{fold.New("", nil)}} }

func (l *log) view() fold.View { return l.views[len(l.records)] }

func (l *log) add(r patch.Record) error {
	r.Seq = uint64(len(l.records) + 1)
	next, err := l.view().Apply(r)
	if err != nil {
		return err
	}
	l.records, l.views = append(l.records, r), append(l.views, next)
	return nil
}

// View implements compaction.Log.
func (l *log) View(context.Context, string) (fold.View, error) { return l.view(), nil }

// RawEvents implements compaction.Log.
func (l *log) RawEvents(_ context.Context, _ string, from uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for _, r := range l.records[max(from, 1)-1:] {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Records implements recall.Log.
func (l *log) Records(_ context.Context, _ string, _ fold.View, seqs []uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for _, seq := range seqs {
			if !yield(l.records[seq-1], nil) {
				return
			}
		}
	}
}

// ApplyPatch implements compaction.Log.
func (l *log) ApplyPatch(_ context.Context, _ string, patches []*patch.PatchEvent, opts fold.PatchOptions) (fold.Committed, error) {
	before := l.view()
	if _, err := before.Preview(patches, opts.Check()); err != nil {
		return fold.Committed{}, err
	}
	for i, p := range patches {
		if p.ID() == "" {
			p = p.WithID(fmt.Sprintf("patch-%d", len(l.records)+1))
			patches[i] = p
		}
		if err := l.add(patch.Record{Patch: p}); err != nil {
			return fold.Committed{}, err
		}
	}
	if l.onPatches != nil {
		l.onPatches(before, patches)
	}
	return fold.Committed{View: l.view()}, nil
}
