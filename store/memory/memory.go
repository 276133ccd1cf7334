// Package memory is the storage port in memory: for tests, and for sessions that need
// not outlive the process.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Backend keeps sessions in memory. The zero value is empty and ready.
type Backend struct {
	mu       sync.RWMutex
	closed   bool
	sessions map[string]*session
	shared   map[string][]byte
	staged   map[string]*session // by creation id
}

var _ backend.Backend = (*Backend)(nil)

type session struct {
	creation string
	meta     []byte
	records  [][]byte
	snapshot []byte
	ids      map[string]uint64
}

// ready reports whether calls are accepted. The caller holds the lock.
func (b *Backend) ready(ctx context.Context) error {
	if b.closed {
		return backend.ErrClosed
	}
	return ctx.Err()
}

// find returns the session. The caller holds the lock.
func (b *Backend) find(ctx context.Context, name string) (*session, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	s, ok := b.sessions[name]
	if !ok {
		return nil, backend.ErrNotFound
	}
	return s, nil
}

// findCreated is find for a session that must have been created under the given id.
func (b *Backend) findCreated(ctx context.Context, name, creation string) (*session, error) {
	s, err := b.find(ctx, name)
	if err == nil && s.creation != creation {
		return nil, backend.ErrNotFound
	}
	return s, err
}

func (s *session) head() backend.Head {
	return backend.Head{Creation: s.creation, Meta: bytes.Clone(s.meta), Last: uint64(len(s.records))}
}

// Head implements [backend.Backend].
func (b *Backend) Head(ctx context.Context, name string) (backend.Head, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s, err := b.find(ctx, name)
	if err != nil {
		return backend.Head{}, err
	}
	return s.head(), nil
}

// Append implements [backend.Backend].
func (b *Backend) Append(ctx context.Context, name string, batch backend.Batch) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ctx, name)
	switch {
	case batch.Create && err == nil:
		return backend.ErrExists
	case batch.Create && err == backend.ErrNotFound:
		if s = b.staged[batch.Creation]; s == nil {
			s = newSession(batch.Creation)
		}
	case err != nil:
		return err
	case s.creation != batch.Creation:
		return backend.ErrNotFound
	}
	if err := s.append(batch.After, batch.Records); err != nil {
		return err
	}
	if batch.Create {
		s.meta = bytes.Clone(batch.Meta)
		delete(b.staged, batch.Creation)
	}
	if b.sessions == nil {
		b.sessions, b.shared = map[string]*session{}, map[string][]byte{}
	}
	b.sessions[name] = s
	for _, v := range batch.Shared {
		b.shared[v.Name] = bytes.Clone(v.Data)
	}
	return nil
}

func newSession(creation string) *session {
	return &session{creation: creation, ids: map[string]uint64{}}
}

// append adds records to the log, all or none.
func (s *session) append(after uint64, records []backend.Record) error {
	last := uint64(len(s.records))
	if last != after {
		return backend.ErrMoved
	}
	for i, r := range records {
		if r.Seq != last+1+uint64(i) {
			return fmt.Errorf("record %d of the batch has seq %d after %d", i, r.Seq, last)
		}
	}
	for _, r := range records {
		s.records = append(s.records, bytes.Clone(r.Data))
		for _, id := range r.IDs {
			s.ids[id] = r.Seq
		}
	}
	return nil
}

// Stage implements [backend.Backend].
func (b *Backend) Stage(ctx context.Context, creation string, after uint64, records []backend.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ready(ctx); err != nil {
		return err
	}
	s, ok := b.staged[creation]
	if !ok {
		s = newSession(creation)
	}
	if err := s.append(after, records); err != nil {
		return err
	}
	if b.staged == nil {
		b.staged = map[string]*session{}
	}
	b.staged[creation] = s
	return nil
}

// Unstage implements [backend.Backend].
func (b *Backend) Unstage(creation string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.staged, creation)
}

// Read implements [backend.Backend].
func (b *Backend) Read(ctx context.Context, name, creation string, from uint64, maxRecords, maxBytes int) ([]backend.Record, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s, err := b.findCreated(ctx, name, creation)
	if err != nil {
		return nil, err
	}
	var out []backend.Record
	size := 0
	for seq := max(from, 1); seq <= uint64(len(s.records)); seq++ {
		data := s.records[seq-1]
		if size += len(data); len(out) > 0 && (len(out) >= maxRecords || size > maxBytes) {
			break
		}
		out = append(out, backend.Record{Seq: seq, Data: bytes.Clone(data)})
	}
	return out, nil
}

// Pick implements [backend.Backend].
func (b *Backend) Pick(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s, err := b.findCreated(ctx, name, creation)
	if err != nil {
		return nil, err
	}
	var out []backend.Record
	size := 0
	for _, seq := range seqs {
		if seq == 0 || seq > uint64(len(s.records)) {
			break
		}
		data := s.records[seq-1]
		if size += len(data); len(out) > 0 && size > maxBytes {
			break
		}
		out = append(out, backend.Record{Seq: seq, Data: bytes.Clone(data)})
	}
	return out, nil
}

// Lookup implements [backend.Backend].
func (b *Backend) Lookup(ctx context.Context, name, creation string, ids []string) ([]uint64, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s, err := b.findCreated(ctx, name, creation)
	if err != nil {
		return nil, err
	}
	seqs := make([]uint64, len(ids))
	for i, id := range ids {
		seqs[i] = s.ids[id]
	}
	return seqs, nil
}

// PutSnapshot implements [backend.Backend].
func (b *Backend) PutSnapshot(ctx context.Context, name, creation string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.findCreated(ctx, name, creation)
	if err == nil {
		s.snapshot = bytes.Clone(data)
	}
	return err
}

// Snapshot implements [backend.Backend].
func (b *Backend) Snapshot(ctx context.Context, name, creation string) ([]byte, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s, err := b.findCreated(ctx, name, creation)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(s.snapshot), nil
}

// Shared implements [backend.Backend].
func (b *Backend) Shared(ctx context.Context, prefix string) ([]backend.Value, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	var out []backend.Value
	for _, name := range slices.Sorted(maps.Keys(b.shared)) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, backend.Value{Name: name, Data: bytes.Clone(b.shared[name])})
		}
	}
	return out, nil
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	var out []backend.Listed
	for _, name := range slices.Sorted(maps.Keys(b.sessions)) {
		if len(out) == limit {
			break
		}
		if strings.HasPrefix(name, prefix) && name > after {
			out = append(out, backend.Listed{Session: name, Head: b.sessions[name].head()})
		}
	}
	return out, nil
}

// Delete implements [backend.Backend].
func (b *Backend) Delete(ctx context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.find(ctx, name); err != nil {
		return err
	}
	delete(b.sessions, name)
	return nil
}

// Close implements [backend.Backend].
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return backend.ErrClosed
	}
	b.closed = true
	b.sessions, b.shared, b.staged = nil, nil, nil
	return nil
}
