package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// A shared value's row is the checksum of its name and data, and the data. Its name
// stands in bucketSharedNames too, with its own checksum, so that neither is lost alone.

// putShared writes shared values.
func putShared(tx *txn, values []backend.Value) error {
	if len(values) == 0 {
		return nil
	}
	shared, sharedNames := tx.Bucket(bucketShared), tx.Bucket(bucketSharedNames)
	for _, v := range values {
		name := []byte(v.Name)
		row := append(binary.BigEndian.AppendUint32(nil, sumOf(name, v.Data)), v.Data...)
		if err := shared.Put(name, row); err != nil {
			return err
		}
		if mark := nameMark(name); !bytes.Equal(sharedNames.Get(name), mark) {
			if err := sharedNames.Put(name, mark); err != nil {
				return err
			}
		}
	}
	return nil
}

func nameMark(name []byte) []byte { return binary.BigEndian.AppendUint32(nil, sumOf(name, nil)) }

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
		err := h.view(func(tx *txn) error {
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
	return b.update(ctx, func(tx *txn) error {
		var values []backend.Value
		paths := pathsOf(tx)
		for _, c := range changes {
			name := []byte(c.Name)
			if len(name) == 0 || len(name) > backend.MaxNameBytes {
				return fmt.Errorf("a shared name of %d bytes; 1 to %d are allowed", len(name), backend.MaxNameBytes)
			}
			if err := errors.Join(paths.sound(bucketShared, name), paths.sound(bucketSharedNames, name)); err != nil {
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
func sharedWith(tx *txn, prefix string) (out []backend.Value) {
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

// sharedData returns the data of a shared value by its row and its name's mark as they
// were found, or nil if what was found is of another name.
func sharedData(tx *txn, name string, row, mark []byte) ([]byte, error) {
	if row == nil {
		_, row = near(tx.Bucket(bucketShared).Cursor(), []byte(name))
	}
	if len(row) >= 4 && binary.BigEndian.Uint32(row) == sumOf([]byte(name), row[4:]) {
		return append([]byte{}, row[4:]...), nil
	}
	if mark == nil {
		_, mark = near(tx.Bucket(bucketSharedNames).Cursor(), []byte(name))
	}
	switch own := bytes.Equal(mark, nameMark([]byte(name))); {
	case !own && (row == nil || mark == nil): // a name that damage has made of another
		return nil, nil
	case row == nil:
		return nil, fmt.Errorf("%w: it is missing", backend.ErrDamaged)
	}
	return nil, fmt.Errorf("%w: its checksum", backend.ErrDamaged)
}
