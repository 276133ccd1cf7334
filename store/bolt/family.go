package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// bucketFamilies has two rows for each session that was created with a family. When the first session of a family is
// forked, it gets two rows as well.
//
//	number of the session (8)                       → hash of the family (16)
//	hash of the family (16) ‖ number of the session → name of the session
//
// A deletion uses the first row to find the second.

func familyKey(family idHash, number []byte) []byte { return append(family[:], number...) }

// checkFamily checks the pages that a change of the session's rows in bucketFamilies will copy.
func (s session) checkFamily(paths *pathChecker, family idHash) error {
	return errors.Join(paths.check(s.number, bucketFamilies), paths.check(familyKey(family, s.number), bucketFamilies))
}

// putFamily adds the family rows of a new session. If the new session is a fork of the first session of the family,
// putFamily also adds the rows of that session.
func (s session) putFamily(tx *bbolt.Tx, batch backend.Batch) error {
	if batch.Family == "" {
		return nil
	}
	family := hashID(batch.Family)
	err := s.putFamilyRows(tx, family)
	if w := batch.ExpectedSource; w != nil && w.Creation == batch.Family {
		first, findErr := findCreated(tx, w.Session, w.Creation)
		if err = errors.Join(err, findErr); err == nil {
			err = first.putFamilyRows(tx, family)
		}
	}
	return err
}

func (s session) putFamilyRows(tx *bbolt.Tx, family idHash) error {
	bucket, key := tx.Bucket(bucketFamilies), familyKey(family, s.number)
	return errors.Join(bucket.Put(s.number, seal(kindFamily, s.number, family[:])), bucket.Put(key, seal(kindFamily, key, []byte(s.name))))
}

// removeFamily removes the family rows of a session that is being deleted.
func (b *Backend) removeFamily(tx *bbolt.Tx, s session) error {
	row := tx.Bucket(bucketFamilies).Get(s.number)
	if row == nil {
		return nil
	}
	family, ok := unseal(kindFamily, s.number, row)
	if !ok || len(family) != len(idHash{}) {
		return fmt.Errorf("%w: the family of session %q is damaged", backend.ErrDamaged, displayName(s.name))
	}
	if err := s.checkFamily(b.handle.newPathChecker(tx), idHash(family)); err != nil {
		return err
	}
	return errors.Join(tx.Bucket(bucketFamilies).Delete(s.number), tx.Bucket(bucketFamilies).Delete(familyKey(idHash(family), s.number)))
}

// Relatives implements [backend.Backend]. It omits the first session of a family if no session was forked from it in
// this file.
func (b *Backend) Relatives(ctx context.Context, family, after string, limit int) (out []backend.Listed, err error) {
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		prefix := hashID(family)
		var names []string
		for k, row := range rows(tx.Bucket(bucketFamilies), prefix[:]) {
			name, ok := unseal(kindFamily, k, row)
			if !ok {
				return fmt.Errorf("%w: the family of the session with number %x is damaged", backend.ErrDamaged, k[len(prefix):])
			}
			if string(name) > after {
				names = append(names, string(name))
			}
		}
		slices.Sort(names)
		for _, name := range names[:min(len(names), limit)] {
			l := backend.Listed{Session: name}
			s, err := find(tx, name)
			if err == nil {
				err = s.readMeta(tx)
			}
			if l.Err = err; err == nil {
				l.Head, l.Err = headOf(tx, s)
			}
			out = append(out, l)
		}
		return nil
	})
	return out, err
}

// readFamilies copies the rows of bucketFamilies and reports rows that are damaged or belong to no session.
func (m *directory) readFamilies(tx *bbolt.Tx, found *findings) {
	names := map[string]string{}
	for _, s := range m.sessions {
		names[string(s.number)] = s.name
	}
	for k, row := range rows(tx.Bucket(bucketFamilies), nil) {
		value, ok := unseal(kindFamily, k, row)
		name, exists := names[string(k[max(0, len(k)-8):])]
		if !ok || !exists || len(k) != 8 && string(value) != name {
			found.report("the family row %x is damaged or names another session (its checksum is valid: %t)", k, ok)
			continue
		}
		if len(k) == 8 && tx.Bucket(bucketFamilies).Get(slices.Concat(value, k)) == nil {
			found.report("session %q is missing from its family", displayName(name))
		}
		m.families = append(m.families, [2][]byte{bytes.Clone(k), bytes.Clone(row)})
	}
}
