package bolt

import (
	"bytes"
	"context"
	"fmt"
	"math"

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

// PutShared implements [backend.Backend].
func (b *Backend) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	return b.update(ctx, func(tx *bbolt.Tx) error {
		var values []backend.Value
		paths := b.handle.paths(tx)
		for _, c := range changes {
			name := []byte(c.Name)
			if err := backend.CheckName("a shared name", c.Name, 1); err != nil {
				return err
			}
			if err := paths.check(name, bucketShared, bucketSharedNames); err != nil {
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
	for _, n := range names(tx.Bucket(bucketShared), tx.Bucket(bucketSharedNames), prefix, "", math.MaxInt) {
		v := backend.Value{Name: n.name}
		if v.Data, v.Err = sharedData(tx, n.name, n.rows[0], n.rows[1]); v.Err != nil || v.Data != nil {
			out = append(out, v)
		}
	}
	return out
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
