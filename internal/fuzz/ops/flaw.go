package ops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Flaws wrap a backend with a planted flaw, which the test harnesses must detect.
var Flaws = map[string]func(backend.Backend) backend.Backend{
	"": func(b backend.Backend) backend.Backend { return b },
	"stale": func(b backend.Backend) backend.Backend {
		return &staleReads{Backend: b, heads: map[string]backend.Fetched{}}
	},
	"overrun":  replaceAppend(ignoreConflict),
	"torn":     replaceAppend(appendFirstOnly),
	"unshared": replaceAppend(dropShared),
	"early": func(b backend.Backend) backend.Backend {
		return &earlyAck{Backend: b, inFlight: map[string]chan struct{}{}}
	},
	"half":     replaceAppend(splitCommit),
	"sparing":  func(b backend.Backend) backend.Backend { return skipBlanking{b} },
	"optimist": replaceAppend(ignoreUnknown),
}

// staleReads returns the result of the previous read for every second read.
type staleReads struct {
	backend.Backend
	mu    sync.Mutex
	heads map[string]backend.Fetched
}

func (s *staleReads) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	if len(q.Shared) == 0 { // only the query of a Get has shared keys
		return s.Backend.Fetch(ctx, q)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := cmp.Or(q.Session, q.Shared[0])
	old, ok := s.heads[name]
	delete(s.heads, name)
	if ok && (q.Session == "" || old.Creation == q.Creation && old.Last == q.After) {
		old.Records = nil
		return old, nil
	}
	fetched, err := s.Backend.Fetch(ctx, q)
	if err == nil {
		s.heads[name] = fetched
	}
	return fetched, err
}

// appendFunc commits a batch.
type appendFunc func(ctx context.Context, b backend.Backend, session string, batch backend.Batch) error

// withAppend is a backend that calls write to commit a batch.
type withAppend struct {
	backend.Backend
	write appendFunc
}

func replaceAppend(w appendFunc) func(backend.Backend) backend.Backend {
	return func(b backend.Backend) backend.Backend { return withAppend{b, w} }
}

func (w withAppend) Append(ctx context.Context, session string, batch backend.Batch) error {
	return w.write(ctx, w.Backend, session, batch)
}

// ignoreConflict reports success although another writer committed first.
func ignoreConflict(ctx context.Context, b backend.Backend, session string, batch backend.Batch) error {
	err := b.Append(ctx, session, batch)
	if errors.Is(err, backend.ErrMoved) && !batch.Create {
		return nil
	}
	return err
}

// appendFirstOnly writes only the first record of a batch.
func appendFirstOnly(ctx context.Context, b backend.Backend, session string, batch backend.Batch) error {
	if len(batch.Records) > 1 && !batch.Create {
		batch.Records = batch.Records[:1]
	}
	return b.Append(ctx, session, batch)
}

// dropShared drops writes of shared values.
func dropShared(ctx context.Context, b backend.Backend, session string, batch backend.Batch) error {
	batch.Shared = nil
	return b.Append(ctx, session, batch)
}

// earlyAck acknowledges a write before it is committed.
type earlyAck struct {
	backend.Backend
	mu       sync.Mutex
	inFlight map[string]chan struct{} // key: session; value: a channel that is closed when the write is committed
}

func (e *earlyAck) wait(session string) {
	e.mu.Lock()
	done := e.inFlight[session]
	e.mu.Unlock()
	if done != nil {
		<-done
	}
}

func (e *earlyAck) Append(ctx context.Context, session string, batch backend.Batch) error {
	if batch.Create {
		return e.Backend.Append(ctx, session, batch)
	}
	e.wait(session)
	done := make(chan struct{})
	e.mu.Lock()
	e.inFlight[session] = done
	e.mu.Unlock()
	go func() {
		defer close(done)
		time.Sleep(time.Millisecond)
		_ = e.Backend.Append(context.WithoutCancel(ctx), session, batch)
	}()
	return nil
}

func (e *earlyAck) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	e.wait(q.Session)
	return e.Backend.Fetch(ctx, q)
}

func (e *earlyAck) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	e.wait(session)
	return e.Backend.Delete(ctx, session, creation, seen)
}

// splitCommit splits a write into two commits.
func splitCommit(ctx context.Context, b backend.Backend, session string, batch backend.Batch) error {
	n := len(batch.Records) / 2
	if batch.Create || n == 0 {
		return b.Append(ctx, session, batch)
	}
	first := batch
	first.Records, first.Shared, first.Next = batch.Records[:n], nil, batch.Next^1
	if err := b.Append(ctx, session, first); err != nil {
		return err
	}
	for _, r := range first.Records {
		batch.Chain = batch.Chain.Add(r.Sum)
	}
	batch.ExpectedToken, batch.ExpectedLast, batch.Records = first.Next, batch.Records[n-1].Seq, batch.Records[n:]
	return b.Append(ctx, session, batch)
}

// skipBlanking logs the receipts of erasures, but does not blank the events.
type skipBlanking struct{ backend.Backend }

func (s skipBlanking) Replace(ctx context.Context, session, creation string, make func(backend.Head) (backend.Replacement, error)) error {
	return s.Backend.Replace(ctx, session, creation, func(head backend.Head) (backend.Replacement, error) {
		r, err := make(head)
		r.Records = slices.DeleteFunc(r.Records, func(x backend.Replaced) bool {
			is, err := patch.DecodeRecord(x.Data)
			return err != nil || is.Patch == nil || is.Patch.Type() != patch.Erase
		})
		return r, err
	})
}

// ignoreUnknown reports success for a commit of unknown outcome.
func ignoreUnknown(ctx context.Context, b backend.Backend, session string, batch backend.Batch) error {
	if err := b.Append(ctx, session, batch); !errors.Is(err, backend.ErrUnknown) {
		return err
	}
	return nil
}
