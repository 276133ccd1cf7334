package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	bbolt "go.etcd.io/bbolt"
)

// So many findings are enough to know that a file is damaged.
const maxFindings = 20

// Check reads the whole file and reports what does not fit together: pages, sessions,
// records and the index of ids. nil means that nothing was found. Writers wait
// meanwhile. What records say is not looked at.
func (b *Backend) Check(ctx context.Context) error {
	unlock, err := b.lockWriter(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var found []error
	if err := b.use(ctx, func(h *handle) error {
		if metas, err := readMetas(h.file); err == nil {
			return metas.doubt()
		} else {
			return err
		}
	}); err != nil {
		found = append(found, err)
	}
	err = b.view(ctx, func(tx *bbolt.Tx) error {
		// What the later checks would not survive is looked for first.
		if err := errors.Join(overlong(tx), b.tangled(tx)); err != nil {
			found = append(found, err)
			return nil
		}
		found = append(found, walk(tx)...)
		for err := range tx.Check(bbolt.WithKVStringer(beginnings{})) { // to be read to its end
			found = append(found, err)
		}
		found = append(found, checkSessions(tx)...)
		return nil
	})
	if len(found) > maxFindings {
		found = append(found[:maxFindings], fmt.Errorf("and %d more", len(found)-maxFindings))
	}
	return errors.Join(append(found, err)...)
}

// beginnings shows of a key or value its beginning alone: a damaged one may claim to go
// on beyond the end of the file.
type beginnings struct{}

func (beginnings) KeyToString(k []byte) string   { return fmt.Sprintf("%x", k[:min(len(k), 32)]) }
func (beginnings) ValueToString(v []byte) string { return fmt.Sprintf("%x", v[:min(len(v), 32)]) }

// walk reads each key and value, and looks each key up. bbolt's own check runs in another
// goroutine, where a fault of the memory map ends the process; what makes it fault is
// met here first, where it is recovered from.
func walk(tx *bbolt.Tx) (found []error) {
	sum := uint32(0)
	err := tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		seek := bucket.Cursor()
		return bucket.ForEach(func(k, v []byte) error {
			sum = crc32.Update(crc32.Update(sum, castagnoli, k), castagnoli, v)
			if at, _ := seek.Seek(k); !bytes.Equal(at, k) {
				found = append(found, fmt.Errorf("bucket %q: key %x is there, but not to be found", name, k))
			}
			return nil
		})
	})
	if err != nil {
		found = append(found, err)
	}
	return found
}

// overlong returns an error if a page claims to go on beyond the end of the file. bbolt's
// own check would take note of each of the pages claimed, of which there may be billions.
func overlong(tx *bbolt.Tx) error {
	pages := int(tx.Size()) / tx.DB().Info().PageSize
	for id := 0; id < pages; id++ {
		p, err := tx.Page(id)
		switch {
		case err != nil:
			return err
		case p == nil || p.Type == "free": // what is in it does not count
		case p.OverflowCount >= pages-id:
			return fmt.Errorf("page %d claims %d more of %d", id, p.OverflowCount, pages)
		default:
			id += p.OverflowCount
		}
	}
	return nil
}

// tangled returns an error if a page is reached by two ways, which may be a circle. It
// reads the file: whatever a page says, that does not fault.
func (b *Backend) tangled(tx *bbolt.Tx) error {
	file, err := os.Open(b.path)
	if err != nil {
		return err
	}
	defer file.Close()
	const headerBytes, elementBytes, branch = 16, 16, 1
	pageSize := tx.DB().Info().PageSize
	seen := map[uint64]bool{}
	var visit func(id uint64) error
	visit = func(id uint64) error {
		switch {
		case id >= uint64(tx.Size())/uint64(pageSize):
			return fmt.Errorf("page %d is beyond the end", id)
		case seen[id]:
			return fmt.Errorf("page %d is reached by two ways", id)
		}
		seen[id] = true
		at := int64(id) * int64(pageSize)
		header := make([]byte, headerBytes)
		if _, err := file.ReadAt(header, at); err != nil {
			return err
		}
		if binary.NativeEndian.Uint16(header[8:]) != branch {
			return nil
		}
		elements := make([]byte, int(binary.NativeEndian.Uint16(header[10:]))*elementBytes)
		if _, err := file.ReadAt(elements, at+headerBytes); err != nil {
			return err
		}
		for ; len(elements) > 0; elements = elements[elementBytes:] {
			if err := visit(binary.NativeEndian.Uint64(elements[8:])); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(uint64(tx.Cursor().Bucket().Root())); err != nil {
		return err
	}
	return tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error {
		if root := uint64(bucket.Root()); root != 0 { // 0: it stands in its parent's page
			return visit(root)
		}
		return nil
	})
}

// checkSessions checks that each session has a number of its own that has been given
// out, its records no gap, and that no record, index row or snapshot is without its
// session or record.
func checkSessions(tx *bbolt.Tx) (found []error) {
	report := func(format string, args ...any) { found = append(found, fmt.Errorf(format, args...)) }
	sessions := tx.Bucket(bucketSessions)
	last := map[string]uint64{} // by number
	for k, v := range pairs(sessions) {
		s, err := decodeSession(string(k), v)
		if err != nil {
			found = append(found, err)
			continue
		}
		if _, ok := last[string(s.number)]; ok {
			report("session %q: its number %x is another's too", k, s.number)
		}
		if n := binary.BigEndian.Uint64(s.number); n == 0 || n > sessions.Sequence() {
			report("session %q: its number %d has not been given out", k, n)
		}
		last[string(s.number)] = 0
	}
	unlinked := checkUnlinked(tx, last, report)
	for k := range pairs(tx.Bucket(bucketRecords)) {
		if len(k) != 16 {
			report("record key %x", k)
			continue
		}
		if unlinked[string(k[:8])] {
			continue // whatever is left
		}
		n, ok := last[string(k[:8])]
		seq := binary.BigEndian.Uint64(k[8:])
		switch {
		case !ok:
			report("record %d of session number %x, which is not there", seq, k[:8])
		case seq != n+1:
			report("session number %x: record %d after record %d", k[:8], seq, n)
		}
		last[string(k[:8])] = seq
	}
	for k, v := range pairs(tx.Bucket(bucketIDs)) {
		if len(k) != 8+idHashBytes || len(v) != 8 {
			report("id key %x with %d bytes", k, len(v))
			continue
		}
		if unlinked[string(k[:8])] {
			continue
		}
		if seq := binary.BigEndian.Uint64(v); seq == 0 || seq > last[string(k[:8])] {
			report("session number %x: the id with hash %x is in record %d, which is not there", k[:8], k[8:], seq)
		}
	}
	for k := range pairs(tx.Bucket(bucketSnapshots)) {
		if _, ok := last[string(k)]; !ok && !unlinked[string(k)] {
			report("snapshot of session number %x, which is not there", k)
		}
	}
	return found
}

// checkUnlinked checks that no unlinked number is a session's, and returns them all.
func checkUnlinked(tx *bbolt.Tx, sessions map[string]uint64, report func(format string, args ...any)) map[string]bool {
	numbers := map[string]bool{}
	bucket := tx.Bucket(bucketUnlinked)
	if bucket == nil {
		return numbers
	}
	for k, v := range pairs(bucket) {
		if !wholeUnlinked(k, v) {
			report("the checksum of the unlinked number %x", k)
			continue
		}
		numbers[string(k)] = true
		if _, ok := sessions[string(k)]; ok {
			report("number %x is unlinked, but a session's", k)
		}
		if n := binary.BigEndian.Uint64(k); n == 0 || n > tx.Bucket(bucketSessions).Sequence() {
			report("number %d is unlinked, but has not been given out", n)
		}
	}
	return numbers
}

func pairs(bucket *bbolt.Bucket) func(yield func(k, v []byte) bool) {
	return func(yield func(k, v []byte) bool) {
		c := bucket.Cursor()
		for k, v := c.First(); k != nil && yield(bytes.Clone(k), v); k, v = c.Next() {
		}
	}
}
