package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// A shared value's row is the checksum of its name and data, and the data. Its name
// stands in bucketSharedNames too, with its own checksum, so that neither is lost alone.
// In a file of version 1 a row is the data.

// putShared writes shared values.
func putShared(tx *bbolt.Tx, values []backend.Value) error {
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
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		out = sharedValues(tx, prefix)
		return nil
	})
	return out, err
}

func sharedValues(tx *bbolt.Tx, prefix string) (out []backend.Value) {
	for name, rows := range names(tx.Bucket(bucketShared), tx.Bucket(bucketSharedNames), prefix, "") {
		v := backend.Value{Name: name}
		if v.Data, v.Err = sharedData(tx, name, rows[0], rows[1]); v.Err != nil || v.Data != nil {
			out = append(out, v)
		}
	}
	return out
}

// sharedData returns the data of a shared value by its row and its name's mark as they
// were found, or nil if what was found is of another name.
func sharedData(tx *bbolt.Tx, name string, row, mark []byte) ([]byte, error) {
	if tx.Bucket(bucketSharedNames) == nil {
		return append([]byte{}, row...), nil
	}
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
