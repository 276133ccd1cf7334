package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// The name of a shared value is also a key of bucketSharedNames, so that the loss of one of the two rows is detected.

// putShared writes shared values and new versions of their scopes.
func putShared(tx *bbolt.Tx, values []backend.Value) error {
	for _, scope := range backend.Scopes(values) {
		key := []byte(scope)
		if err := tx.Bucket(bucketScopes).Put(key, seal(kindScope, key, number(uint64(backend.NewToken())))); err != nil {
			return err
		}
	}
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

// scopeVersion returns the version of a scope, or 0 if the version is missing or unreadable.
func scopeVersion(tx *bbolt.Tx, scope string) backend.Token {
	if scope == "" {
		return 0
	}
	value, ok := unseal(kindScope, []byte(scope), tx.Bucket(bucketScopes).Get([]byte(scope)))
	if !ok || len(value) != 8 {
		return 0
	}
	return backend.Token(binary.BigEndian.Uint64(value))
}

// checkSharedPaths checks the pages that a write of a shared value will copy.
func checkSharedPaths(paths *pathChecker, name string) error {
	err := paths.check([]byte(name), bucketShared, bucketSharedNames)
	if scope := backend.Scope(name); scope != "" {
		err = errors.Join(err, paths.check([]byte(scope), bucketScopes))
	}
	return err
}

// PutShared implements [backend.Backend].
func (b *Backend) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	return b.update(ctx, func(tx *bbolt.Tx) error {
		var values []backend.Value
		paths := b.handle.newPathChecker(tx)
		for _, c := range changes {
			if err := backend.CheckName("a shared name", c.Name, 1); err != nil {
				return err
			}
			if err := checkSharedPaths(paths, c.Name); err != nil {
				return err
			}
			var now *backend.Value
			if found := sharedWith(tx, c.Name); len(found) > 0 && found[0].Name == c.Name { // the values in found are ordered by name
				now = &found[0]
			}
			if !c.Matches(now) {
				return backend.ErrMoved
			}
			values = append(values, backend.Value{Name: c.Name, Data: c.Data})
		}
		return putShared(tx, values)
	})
}

// sharedWith returns the shared values whose names begin with prefix.
func sharedWith(tx *bbolt.Tx, prefix string) (out []backend.Value) {
	for _, n := range namesInEither(tx.Bucket(bucketShared), tx.Bucket(bucketSharedNames), prefix, "", math.MaxInt) {
		v := backend.Value{Name: n.name}
		if data, ok := unseal(kindShared, []byte(n.name), n.rows[0]); ok {
			v.Data = append([]byte{}, data...)
		} else if _, own := unseal(kindName, []byte(n.name), n.rows[1]); own || n.rows[0] != nil && n.rows[1] != nil {
			v.Err = fmt.Errorf("%w: it is missing, or its checksum is wrong", backend.ErrDamaged)
		} else {
			continue // damage has changed the name
		}
		out = append(out, v)
	}
	return out
}
