package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// A shared value's name stands in bucketSharedNames too, so that neither is lost alone.

// putShared writes shared values.
func putShared(tx *bbolt.Tx, values []backend.Value) error {
	for _, v := range values {
		name := []byte(v.Name)
		if err := tx.Bucket(bucketShared).Put(name, seal(kindShared, name, v.Data)); err != nil {
			return err
		}
		sharedNames, mark := tx.Bucket(bucketSharedNames), seal(kindName, name, nil)
		if bytes.Equal(sharedNames.Get(name), mark) {
			continue
		}
		if err := sharedNames.Put(name, mark); err != nil {
			return err
		}
	}
	return nil
}

// Shared implements [backend.Backend].
func (b *Backend) Shared(ctx context.Context, prefix string) (out []backend.Value, err error) {
	err = b.use(ctx, func(h *handle) error {
		if h.abandoned() {
			return h.lost
		}
		values, at, ok := b.values.get(h.db, prefix)
		if ok {
			out = values
			return nil
		}
		err := h.view(func(tx *bbolt.Tx) error {
			out = sharedWith(tx, prefix)
			return nil
		})
		if err == nil {
			b.values.put(h.db, prefix, out, at)
		}
		return err
	})
	return out, err
}

// PutShared implements [backend.Backend].
func (b *Backend) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	defer b.values.change()()
	return b.update(ctx, func(tx *bbolt.Tx) error {
		var values []backend.Value
		ways := b.handle.ways(tx)
		for _, c := range changes {
			name := []byte(c.Name)
			if len(name) == 0 || len(name) > backend.MaxNameBytes {
				return fmt.Errorf("a shared name of %d bytes; 1 to %d are allowed", len(name), backend.MaxNameBytes)
			}
			if err := errors.Join(ways.check(bucketShared, name), ways.check(bucketSharedNames, name)); err != nil {
				return err
			}
			var now *backend.Value
			if found := sharedWith(tx, c.Name); len(found) > 0 && found[0].Name == c.Name { // in name order
				now = &found[0]
			}
			if !c.Is(now) {
				return backend.ErrMoved
			}
			values = append(values, backend.Value{Name: c.Name, Data: c.Data})
		}
		return putShared(tx, values)
	})
}

// sharedWith returns the shared values whose names begin with prefix.
func sharedWith(tx *bbolt.Tx, prefix string) (out []backend.Value) {
	for name, rows := range names(tx.Bucket(bucketShared), tx.Bucket(bucketSharedNames), prefix, "") {
		v := backend.Value{Name: name}
		if v.Data, v.Err = sharedData(tx, name, rows[0], rows[1]); v.Err != nil || v.Data != nil {
			out = append(out, v)
		}
	}
	return out
}

// sharedValues remembers what [Backend.Shared] has found to be whole, until a shared value
// is written: like a session's view it is not read anew for each call. It forgets all when
// it has so many.
type sharedValues struct {
	mu      sync.Mutex
	db      *bbolt.DB // after a failed commit there is another one
	writes  uint64    // that have begun, and that have ended; odd while one is under way
	results map[string][]backend.Value
}

// So many results are remembered, none larger than so many bytes.
const (
	maxSharedResults = 1024
	maxSharedBytes   = 4 << 10
)

// get returns a result, the caller's own. If there is none, at is what put wants to know.
func (s *sharedValues) get(db *bbolt.DB, prefix string) (values []backend.Value, at uint64, ok bool) {
	s.mu.Lock()
	found, ok := s.results[prefix]
	at, ok = s.writes, ok && s.db == db && s.writes%2 == 0
	s.mu.Unlock()
	if ok {
		for _, v := range found {
			values = append(values, backend.Value{Name: v.Name, Data: bytes.Clone(v.Data)})
		}
	}
	return values, at, ok
}

// put remembers a result that was read since get was called, unless shared values have
// been written meanwhile, or are being written.
func (s *sharedValues) put(db *bbolt.DB, prefix string, values []backend.Value, at uint64) {
	size := 0
	kept := make([]backend.Value, 0, len(values))
	for _, v := range values {
		if size += len(v.Name) + len(v.Data); v.Err != nil || size > maxSharedBytes {
			return
		}
		kept = append(kept, backend.Value{Name: v.Name, Data: bytes.Clone(v.Data)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes != at || at%2 != 0 {
		return
	}
	if s.db != db || s.results == nil || len(s.results) == maxSharedResults {
		s.db, s.results = db, map[string][]backend.Value{}
	}
	s.results[prefix] = kept
}

// change forgets all, and remembers nothing until the function that it returns is called:
// shared values are being written.
func (s *sharedValues) change() (end func()) {
	step := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.writes++
		s.results = nil
	}
	step()
	return step
}

// sharedData returns the data of a shared value by its row and its name's row as they
// were found, or nil if what was found is of another name.
func sharedData(tx *bbolt.Tx, name string, row, mark []byte) ([]byte, error) {
	if row == nil {
		row = near(tx.Bucket(bucketShared).Cursor(), []byte(name), anyRow)
	}
	if data, ok := unseal(kindShared, []byte(name), row); ok {
		return append([]byte{}, data...), nil
	}
	if mark == nil {
		mark = near(tx.Bucket(bucketSharedNames).Cursor(), []byte(name), anyRow)
	}
	switch _, own := unseal(kindName, []byte(name), mark); {
	case !own && (row == nil || mark == nil): // a name that damage has made of another
		return nil, nil
	case row == nil:
		return nil, fmt.Errorf("%w: it is missing", backend.ErrDamaged)
	}
	return nil, fmt.Errorf("%w: its checksum", backend.ErrDamaged)
}
