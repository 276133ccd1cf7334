package store

import (
	"context"
	"errors"
	"sync"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// snapshotter writes snapshots in the background, one at a time.
type snapshotter struct {
	turn    chan struct{} // has an element while a snapshot is being written
	mu      sync.Mutex
	closed  bool
	writing sync.WaitGroup
}

// close refuses new snapshots, and waits until the queued snapshots are written.
func (n *snapshotter) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.writing.Wait()
}

// maybeSnapshot queues the session's snapshot if it is due. It does not block.
func (s *Store) maybeSnapshot(h *handle, v fold.View) {
	if s.opts.ReadOnly {
		return
	}
	at := h.snapshotSeq(v.Creation())
	if v.Seq() < at || !s.opts.Snapshots.Due(v.Len(), v.Seq()-at) || !h.queued.CompareAndSwap(false, true) {
		return
	}
	n := &s.snapshots
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	s.cache.acquire(h.key) // acquire returns this handle, because the handle is in use
	n.writing.Go(func() {
		n.turn <- struct{}{}
		s.writeSnapshot(h)
		<-n.turn
	})
}

// writeSnapshot writes the queued snapshot of a session.
func (s *Store) writeSnapshot(h *handle) {
	defer s.cache.release(h)
	h.queued.Store(false)
	c := h.cached.Load()
	if c == nil {
		return
	}
	v := c.View
	kept, err := encodeSnapshot(*c)
	if err == nil {
		err = s.backend.PutSnapshot(context.Background(), h.key.name(), v.Creation(), kept)
	}
	switch {
	case err == nil:
		h.snapshot.Store(&snapshotMark{v.Creation(), v.Seq()})
	case errors.Is(err, backend.ErrMoved): // records were erased after the view was made
	case !errors.Is(err, backend.ErrNotFound): // the session was deleted
		s.opts.Logger.Warn("patchlog: writing a snapshot failed", "session", h.key.String(), "error", err)
	}
}

// encodeSnapshot encodes a view, and lists the records that the snapshot refers to.
func encodeSnapshot(c write.State) (backend.Snapshot, error) {
	v := c.View
	data, err := snapshot.Encode(v)
	if err != nil {
		return backend.Snapshot{}, err
	}
	kept := backend.Snapshot{Seq: v.Seq(), Chain: c.Chain, Edition: v.Edition(), Data: data}
	var need *fold.MissingRecordsError
	if _, err := snapshot.Decode(data, fold.New(v.Creation(), nil), v.Seq()); errors.As(err, &need) {
		kept.Spans = backend.Spans(need.Seqs)
	}
	return kept, nil
}
