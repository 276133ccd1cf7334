package bench_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkAppend appends events of 512 bytes, one a call; each writer waits for its commit. The baseline
// is bare bbolt with the same rows, a record and the head of its session: one goroutine commits the rows of
// all waiting writers.
func BenchmarkAppend(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct{ writers, sessions int }{{1, 1}, {16, 1}, {64, 1}, {256, 1}, {64, 1000}, {256, 1000}} {
		b.Run(fmt.Sprintf("how=store/writers=%d/sessions=%d", c.writers, c.sessions), func(b *testing.B) {
			s := openStore(b, store.Options{})
			for i := range c.sessions {
				if _, err := s.Create(ctx, sessionKey(i), nil); err != nil {
					b.Fatal(err)
				}
			}
			events := make([]*patch.Event, b.N)
			for i := range events {
				events[i] = eventOf(512)
			}
			inParallel(b, c.writers, func(i int) error {
				_, err := s.AppendEvents(ctx, sessionKey(i%c.sessions), store.AppendOptions{}, events[i])
				return err
			})
		})
		b.Run(fmt.Sprintf("how=bbolt/writers=%d/sessions=%d", c.writers, c.sessions), func(b *testing.B) {
			bare := openBare(b)
			inParallel(b, c.writers, func(i int) error { return bare.append(i%c.sessions, uint64(i)) })
		})
	}
}

// bare is a bbolt file without a store.
type bare struct {
	db      *bbolt.DB
	row     []byte
	waiting chan barePut
}

type barePut struct {
	session int
	seq     uint64
	done    chan error
}

func openBare(b *testing.B) *bare {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "bare.db"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	form, err := patch.AppendRecord(nil, patch.Record{Seq: 1, Event: eventOf(512)})
	if err != nil {
		b.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{"records", "heads"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	out := &bare{db, append(bytes.Repeat([]byte{1}, 20), recordform.Compress(form)...), make(chan barePut, 1024)}
	go out.commit()
	b.Cleanup(func() {
		close(out.waiting)
		_ = db.Close()
	})
	return out
}

// append puts the rows of a record, compressed, and waits for the commit.
func (d *bare) append(session int, seq uint64) error {
	done := make(chan error, 1)
	d.waiting <- barePut{session, seq, done}
	return <-done
}

func (d *bare) commit() {
	for first := range d.waiting {
		group := []barePut{first}
		for more := true; more && len(group) < 1024; {
			select {
			case p, ok := <-d.waiting:
				if more = ok; ok {
					group = append(group, p)
				}
			default:
				more = false
			}
		}
		err := d.db.Update(func(tx *bbolt.Tx) error {
			records, heads := tx.Bucket([]byte("records")), tx.Bucket([]byte("heads"))
			records.FillPercent = 0.9
			for _, p := range group {
				key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(p.session)), p.seq)
				if err := records.Put(key, d.row); err != nil {
					return err
				}
				if err := heads.Put(fmt.Appendf(nil, "app\x00user\x00%d\x00", p.session), d.row[:36]); err != nil {
					return err
				}
			}
			return nil
		})
		for _, p := range group {
			p.done <- err
		}
	}
}
