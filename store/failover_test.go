package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// failsOver is a backend that another server takes over from, which has lost the end of the log:
// the call with the given number, and all that follow, go there.
type failsOver struct {
	backend.Backend
	after backend.Backend
	calls atomic.Int64
	at    int64
}

func (b *failsOver) server() backend.Backend {
	if b.calls.Add(1) < b.at {
		return b.Backend
	}
	return b.after
}

func (b *failsOver) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	return b.server().Look(ctx, q)
}

func (b *failsOver) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	return b.server().Read(ctx, session, creation, seqs[:min(len(seqs), 2)], maxBytes)
}

func (b *failsOver) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	return b.server().Lookup(ctx, session, creation, ids)
}

func (b *failsOver) Snapshot(ctx context.Context, session, creation string) (backend.Snapshot, error) {
	return b.server().Snapshot(ctx, session, creation)
}

func (b *failsOver) Append(ctx context.Context, session string, batch backend.Batch) error {
	return b.server().Append(ctx, session, batch)
}

func (b *failsOver) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	return b.server().Delete(ctx, session, creation, seen)
}

func (b *failsOver) Close() error { return nil }

var fork = store.Key{App: "app", User: "user", Session: "fork"}

func from(id, invocation string) *patch.Event {
	return event(`{"id":%q,"invocationId":%q,"author":"user","content":{"role":"user","parts":[{"text":"needle %s"}]}}`, id, invocation, id)
}

// callsAcrossFailover are calls that read a log of 8 records, of which the new server has 5. The
// third is a patch, and the seventh reverts it.
var callsAcrossFailover = map[string]func(*store.Store) error{
	"Get": func(s *store.Store) error {
		_, err := s.Get(ctx, key)
		return err
	},
	"View": func(s *store.Store) error {
		_, err := s.View(ctx, key)
		return err
	},
	"ViewAt": func(s *store.Store) error {
		v, err := s.ViewAt(ctx, key, 4)
		if err == nil && v.Seq() != 4 {
			err = fmt.Errorf("the view is of record %d", v.Seq())
		}
		return err
	},
	"ViewAt, lost": func(s *store.Store) error {
		v, err := s.ViewAt(ctx, key, 8)
		if err == nil && v.Seq() != 8 {
			err = fmt.Errorf("the view is of record %d", v.Seq())
		}
		return err
	},
	"RawEvents":                 func(s *store.Store) error { return lastOf(s.RawEvents(ctx, key, 1)) },
	"RawEvents from the middle": func(s *store.Store) error { return lastOf(s.RawEvents(ctx, key, 4)) },
	"Receipts": func(s *store.Store) error {
		_, err := s.Receipts(ctx, key)
		return err
	},
	"Export": func(s *store.Store) error { return s.Export(ctx, key, io.Discard, store.ExportOptions{}) },
	"History": func(s *store.Store) error {
		v, err := s.View(ctx, key)
		if err == nil {
			_, err = s.History(ctx, key, v)
		}
		return err
	},
	"Fork": func(s *store.Store) error {
		_, err := s.Fork(ctx, key, fork, store.ForkOptions{})
		return err
	},
	"Fork at a record": func(s *store.Store) error {
		at := uint64(7)
		_, err := s.Fork(ctx, key, fork, store.ForkOptions{At: &at})
		return err
	},
	"CopyFrom": func(s *store.Store) error {
		into, err := store.New(&memory.Backend{}, store.Options{})
		if err != nil {
			return err
		}
		defer into.Close()
		_, err = into.CopyFrom(ctx, s, key, store.CopyOptions{})
		return err
	},
	"Rewind": func(s *store.Store) error {
		_, err := s.Rewind(ctx, key, store.UndoOptions{}, "i7")
		return err
	},
	"PreviewRewind": func(s *store.Store) error {
		_, err := s.PreviewRewind(ctx, key, store.UndoOptions{}, "i4")
		return err
	},
	"Revert": func(s *store.Store) error {
		_, err := s.Revert(ctx, key, store.UndoOptions{}, "p")
		return err
	},
	"append again": func(s *store.Store) error {
		_, err := s.AppendEvents(ctx, key, store.AppendOptions{}, from("e7", "i7"))
		return err
	},
	"Search": func(s *store.Store) error {
		_, err := s.Search(ctx, key, recall.Search{Query: "needle"})
		return err
	},
	"Retain": func(s *store.Store) error {
		for _, err := range s.Retain(ctx, map[string]store.Retention{"": {DeleteAfter: time.Hour}}, store.RetainOptions{}) {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"Verify": func(s *store.Store) error {
		for p, err := range s.Verify(ctx, store.VerifyOptions{Key: key}) {
			if err != nil {
				return err
			}
			return p.Err
		}
		return nil
	},
	"Watch": func(s *store.Store) error {
		n := 0
		for _, err := range s.Watch(ctx, key, 1) {
			if n++; err != nil || n == 5 {
				return err
			}
		}
		return nil
	},
}

// later returns options with a clock by which the sessions are due for [store.Store.Retain].
func later(opts store.Options) store.Options {
	opts.Now = func() time.Time { return now.Add(2 * time.Hour) }
	return opts
}

func lastOf(records func(yield func(patch.Record, error) bool)) (err error) {
	for _, err = range records {
	}
	return err
}

// A healthy log is never called damaged, whichever of a call's questions is the first that is asked
// of a server that took over and has lost the end of the log.
func TestReadAcrossFailover(t *testing.T) {
	for _, every := range []int{-1, 3} {
		for _, regrown := range []int{0, 1, 3, 5} {
			for name, call := range callsAcrossFailover {
				t.Run(fmt.Sprintf("%s/snapshots %d/%d records since", name, every, regrown), func(t *testing.T) {
					e := &env{T: t, opts: store.Options{Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
						Snapshots: snapshot.Policy{Every: every, Share: 1}}}
					first := &memory.Backend{}
					e.backend = &storetest.Faulty{Backend: first}
					e.open()
					e.create(nil)
					e.append(from("e1", "i1"), from("e2", "i2"))
					e.apply(parsePatch(`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r"}]}`))
					e.append(from("e4", "i4"), from("e5", "i5"))
					info := infoOf(e, e.store, key)
					e.append(from("e6", "i6"))
					e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "p"))
					e.append(from("e8", "i8"))
					all := infoOf(e, e.store, key)
					kept, err := first.Snapshot(ctx, e.nameOf(info), info.Creation)
					e.no(err)
					for at := int64(1); ; at++ {
						old, after := lostHistory(e, lostHistory(e, first, all), all), lostHistory(e, first, info)
						if kept.Data != nil {
							e.no(old.PutSnapshot(ctx, e.nameOf(info), info.Creation, kept))
						}
						s := newStore(e, unclosed{after}, e.opts)
						for i := range regrown {
							e.must(s.AppendEvents(ctx, key, store.AppendOptions{}, from(fmt.Sprint("n", i), "n")))
						}
						e.no(s.Close())
						b := &failsOver{Backend: old, after: after, at: at}
						s = newStore(e, b, later(e.opts))
						err = call(s)
						for _, allowed := range []error{store.ErrConflict, store.ErrNotFound, fold.ErrEventNotFound, fold.ErrBlocked} {
							if errors.Is(err, allowed) {
								t.Logf("call %d of the backend: %v", at, err)
								err = nil
							}
						}
						if err != nil {
							t.Errorf("call %d of the backend: %v", at, err)
						}
						e.no(s.Close())
						if b.calls.Load() < at {
							break
						}
					}
				})
			}
		}
	}
}

// hasGap is a shared backend whose records from the fourth on are gone. If busy, each head is
// another one.
type hasGap struct {
	backend.Backend
	busy bool
	n    atomic.Uint64
}

func (b *hasGap) Look(ctx context.Context, q backend.Query) (backend.News, error) {
	news, err := b.Backend.Look(ctx, q)
	if b.busy {
		news.Token += backend.Token(b.n.Add(1))
	}
	news.Records = beforeGap(news.Records)
	return news, err
}

func (b *hasGap) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	records, err := b.Backend.Read(ctx, session, creation, seqs, maxBytes)
	return beforeGap(records), err
}

func (b *hasGap) Close() error { return nil }

func beforeGap(records []backend.Record) []backend.Record {
	for i, r := range records {
		if r.Seq > 3 {
			return records[:i]
		}
	}
	return records
}

// A gap is damage, also while others write to the session, unless the call does not read so far.
func TestGapIsDamage(t *testing.T) {
	b := &memory.Backend{}
	e := &env{T: t, backend: &storetest.Faulty{Backend: b}, opts: store.Options{Now: func() time.Time { return now },
		Logger: slog.New(slog.DiscardHandler), Snapshots: snapshot.Policy{Every: -1}}}
	e.open()
	e.create(nil)
	for i := range 8 {
		e.append(from(fmt.Sprint("e", i+1), fmt.Sprint("i", i+1)))
	}
	for name, call := range callsAcrossFailover {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/busy %v", name, busy), func(t *testing.T) {
				s := newStore(e, &hasGap{Backend: b, busy: busy}, later(e.opts))
				defer s.Close()
				if err := call(s); !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("the error is %v, want ErrCorrupt", err)
				}
			})
		}
	}
}
