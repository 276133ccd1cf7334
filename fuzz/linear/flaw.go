package linear

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Flaws are ways in which a backend may be flawed, to find out that the checker finds them.
var Flaws = map[string]func(backend.Backend) backend.Backend{
	"exclusive": func(b backend.Backend) backend.Backend { return exclusive{b} },
	"unfenced":  func(b backend.Backend) backend.Backend { return unfenced{b} },
	"stale": func(b backend.Backend) backend.Backend {
		return &stale{Backend: b, heads: map[string]backend.News{}, values: map[string][]backend.Value{}}
	},
	"dropped":  func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: dropped} },
	"overrun":  func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: overrun} },
	"torn":     func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: torn} },
	"twice":    func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: twice} },
	"unshared": func(b backend.Backend) backend.Backend { return &writes{Backend: b, append: unshared} },
}

// exclusive says that nobody else writes.
type exclusive struct{ backend.Backend }

func (exclusive) Exclusive() bool { return true }

// unfenced settles nothing.
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

// writes makes some batches otherwise than it should.
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
		again.Records = append(again.Records, backend.Record{Seq: r.Seq, Sum: patch.Checksum(data), Data: data})
	}
	_ = b.Append(ctx, session, again) // somebody may have been faster
	return nil
}
