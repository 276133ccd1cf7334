package kill

import (
	"context"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Flaws are what [Flawed] knows to break.
var Flaws = []string{"early", "half", "apart", "undead", "forgetful", "sparing"}

// Flawed returns the backend with a flaw, which [Harness.Round] must report. "" is none.
func Flawed(b backend.Backend, flaw string) backend.Backend {
	switch flaw {
	case "":
		return b
	case "early":
		return &early{Backend: b, busy: map[string]chan struct{}{}}
	case "half":
		return half{b}
	case "apart":
		return apart{b}
	case "undead":
		return undead{b}
	case "forgetful":
		return forgetful{b}
	case "sparing":
		return sparing{b}
	}
	panic("no such flaw: " + flaw)
}

// early acknowledges a write that it has still to make.
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

func (e *early) Delete(ctx context.Context, session, creation string) error {
	e.wait(session)
	return e.Backend.Delete(ctx, session, creation)
}

// half makes two writes of one.
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

// apart writes shared values after the records.
type apart struct{ backend.Backend }

func (a apart) Append(ctx context.Context, session string, batch backend.Batch) error {
	first := batch
	first.Shared = nil
	err := a.Backend.Append(ctx, session, first)
	if err != nil || len(batch.Shared) == 0 || !a.Exclusive() {
		return err
	}
	time.Sleep(time.Millisecond)
	after := batch.After + uint64(len(batch.Records))
	return a.Backend.Append(ctx, session, backend.Batch{Creation: batch.Creation, After: after, Shared: batch.Shared})
}

// undead says of a session that it is deleted, some time before it is.
type undead struct{ backend.Backend }

func (u undead) Delete(ctx context.Context, session, creation string) error {
	done := make(chan error, 1)
	go func() {
		time.Sleep(2 * time.Millisecond)
		done <- u.Backend.Delete(context.WithoutCancel(ctx), session, creation)
	}()
	return nil
}

// forgetful does not know an id again.
type forgetful struct{ backend.Backend }

func (f forgetful) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	seqs, err := f.Backend.Lookup(ctx, session, creation, ids)
	clear(seqs)
	return seqs, err
}

// sparing says that it has erased what it has not.
type sparing struct{ backend.Backend }

func (s sparing) Replace(context.Context, string, backend.Replacement) error { return nil }
