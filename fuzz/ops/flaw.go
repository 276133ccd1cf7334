package ops

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Flaws are faults of a backend, planted to see the harnesses find them.
var Flaws = map[string]func(backend.Backend) backend.Backend{
	"":          func(b backend.Backend) backend.Backend { return b },
	"exclusive": func(b backend.Backend) backend.Backend { return exclusive{b} },
	"unfenced":  func(b backend.Backend) backend.Backend { return unfenced{b} },
	"stale": func(b backend.Backend) backend.Backend {
		return &stale{Backend: b, heads: map[string]backend.News{}, values: map[string][]backend.Value{}}
	},
	"dropped":   func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: dropped} },
	"overrun":   func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: overrun} },
	"torn":      func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: torn} },
	"twice":     func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: twice} },
	"unshared":  func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: unshared} },
	"early":     func(b backend.Backend) backend.Backend { return &early{Backend: b, busy: map[string]chan struct{}{}} },
	"half":      func(b backend.Backend) backend.Backend { return half{b} },
	"apart":     func(b backend.Backend) backend.Backend { return apart{b} },
	"undead":    func(b backend.Backend) backend.Backend { return undead{b} },
	"forgetful": func(b backend.Backend) backend.Backend { return forgetful{b} },
	"sparing":   func(b backend.Backend) backend.Backend { return sparing{b} },
	"optimist":  func(b backend.Backend) backend.Backend { return optimist{b} },
}

// exclusive says that no other process writes.
type exclusive struct{ backend.Backend }

func (exclusive) Exclusive() bool { return true }

// unfenced fences no commit.
type unfenced struct{ backend.Backend }

func (unfenced) Fence(context.Context, string, string, backend.Token, backend.Token) (bool, error) {
	return false, nil
}

// stale gives every second look what the one before it saw.
type stale struct {
	backend.Backend
	mu     sync.Mutex
	heads  map[string]backend.News
	values map[string][]backend.Value
}

func (s *stale) Since(ctx context.Context, session string, seen backend.Seen, prefixes ...string) (backend.News, error) {
	if len(prefixes) == 0 { // it is no Get
		return s.Backend.Since(ctx, session, seen)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.heads[session]
	delete(s.heads, session)
	if ok && old.Creation == seen.Creation && old.Last == seen.Last {
		old.Records = nil
		return old, nil
	}
	news, err := s.Backend.Since(ctx, session, seen, prefixes...)
	if err == nil {
		s.heads[session] = news
	}
	return news, err
}

func (s *stale) Shared(ctx context.Context, prefix string) ([]backend.Value, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.values[prefix]
	delete(s.values, prefix)
	if ok {
		return old, nil
	}
	values, err := s.Backend.Shared(ctx, prefix)
	if err == nil {
		s.values[prefix] = slices.Clone(values)
	}
	return values, err
}

// writes makes some batches wrongly.
type writes struct {
	backend.Backend
	n      atomic.Int64
	append func(ctx context.Context, b backend.Backend, session string, batch backend.Batch, now bool) error
}

// Every so many batches are written wrongly.
const wrongly = 8

func (w *writes) Append(ctx context.Context, session string, batch backend.Batch) error {
	return w.append(ctx, w.Backend, session, batch, len(batch.Records) > 0 && !batch.Create && w.n.Add(1)%wrongly == 0)
}

// dropped acknowledges what it does not write.
func dropped(ctx context.Context, b backend.Backend, session string, batch backend.Batch, now bool) error {
	if now {
		return nil
	}
	return b.Append(ctx, session, batch)
}

// overrun loses a writer's update where another one was faster.
func overrun(ctx context.Context, b backend.Backend, session string, batch backend.Batch, _ bool) error {
	err := b.Append(ctx, session, batch)
	if errors.Is(err, backend.ErrMoved) && !batch.Create {
		return nil
	}
	return err
}

// torn writes the first record of a batch alone.
func torn(ctx context.Context, b backend.Backend, session string, batch backend.Batch, _ bool) error {
	if len(batch.Records) > 1 && !batch.Create {
		batch.Records = batch.Records[:1]
	}
	return b.Append(ctx, session, batch)
}

// unshared writes no shared values.
func unshared(ctx context.Context, b backend.Backend, session string, batch backend.Batch, _ bool) error {
	batch.Shared = nil
	return b.Append(ctx, session, batch)
}

// twice writes what it wrote once more, under no ids.
func twice(ctx context.Context, b backend.Backend, session string, batch backend.Batch, now bool) error {
	err := b.Append(ctx, session, batch)
	if err != nil || !now {
		return err
	}
	again := backend.Batch{Creation: batch.Creation, After: batch.After + uint64(len(batch.Records)), Seen: batch.Next, Next: batch.Next ^ 1, Chain: batch.Chain}
	for _, raw := range batch.Records {
		again.Chain = again.Chain.Add(raw.Sum)
		r, err := patch.DecodeRecord(raw.Data)
		if err != nil {
			return err
		}
		r.Seq += uint64(len(batch.Records))
		data, err := patch.AppendRecord(nil, r)
		if err != nil {
			return err
		}
		again.Records = append(again.Records, backend.Record{Seq: r.Seq, Sum: recordform.Checksum(data), Data: data})
	}
	_ = b.Append(ctx, session, again) // another writer may have been faster
	return nil
}

// early acknowledges a write before it makes it.
type early struct {
	backend.Backend
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the session's write is made
}

func (e *early) wait(session string) {
	e.mu.Lock()
	done := e.busy[session]
	e.mu.Unlock()
	if done != nil {
		<-done
	}
}

func (e *early) Append(ctx context.Context, session string, batch backend.Batch) error {
	if batch.Create {
		return e.Backend.Append(ctx, session, batch)
	}
	e.wait(session)
	done := make(chan struct{})
	e.mu.Lock()
	e.busy[session] = done
	e.mu.Unlock()
	go func() {
		defer close(done)
		time.Sleep(time.Millisecond)
		_ = e.Backend.Append(context.WithoutCancel(ctx), session, batch)
	}()
	return nil
}

func (e *early) Head(ctx context.Context, session string) (backend.Head, error) {
	e.wait(session)
	return e.Backend.Head(ctx, session)
}

func (e *early) Since(ctx context.Context, session string, seen backend.Seen, prefixes ...string) (backend.News, error) {
	e.wait(session)
	return e.Backend.Since(ctx, session, seen, prefixes...)
}

func (e *early) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	e.wait(session)
	return e.Backend.Delete(ctx, session, creation, seen)
}

// half splits a write into two.
type half struct{ backend.Backend }

func (h half) Append(ctx context.Context, session string, batch backend.Batch) error {
	n := len(batch.Records) / 2
	if batch.Create || n == 0 || !h.Exclusive() {
		return h.Backend.Append(ctx, session, batch)
	}
	first := batch
	first.Records, first.Shared = batch.Records[:n], nil
	if err := h.Backend.Append(ctx, session, first); err != nil {
		return err
	}
	batch.After, batch.Records = batch.Records[n-1].Seq, batch.Records[n:]
	return h.Backend.Append(ctx, session, batch)
}

// apart writes shared values in another commit than the records.
type apart struct{ backend.Backend }

func (a apart) Append(ctx context.Context, session string, batch backend.Batch) error {
	first := batch
	first.Shared = nil
	err := a.Backend.Append(ctx, session, first)
	if err != nil || len(batch.Shared) == 0 || !a.Exclusive() {
		return err
	}
	time.Sleep(20 * time.Millisecond)
	after := batch.After + uint64(len(batch.Records))
	return a.Backend.Append(ctx, session, backend.Batch{Creation: batch.Creation, After: after, Shared: batch.Shared})
}

// undead acknowledges a deletion before it makes it.
type undead struct{ backend.Backend }

func (u undead) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	done := make(chan error, 1)
	go func() {
		time.Sleep(2 * time.Millisecond)
		done <- u.Backend.Delete(context.WithoutCancel(ctx), session, creation, seen)
	}()
	return nil
}

// forgetful finds no id.
type forgetful struct{ backend.Backend }

func (f forgetful) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	seqs, err := f.Backend.Lookup(ctx, session, creation, ids)
	clear(seqs)
	return seqs, err
}

// sparing acknowledges erasures and makes none.
type sparing struct{ backend.Backend }

func (s sparing) Replace(context.Context, string, backend.Replacement) error { return nil }

// optimist takes a commit of unknown outcome for done.
type optimist struct{ backend.Backend }

func (o optimist) Append(ctx context.Context, session string, batch backend.Batch) error {
	if err := o.Backend.Append(ctx, session, batch); !errors.Is(err, backend.ErrUnknown) {
		return err
	}
	return nil
}
