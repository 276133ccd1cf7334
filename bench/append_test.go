package bench_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkAppend appends events of 512 bytes, one per call. Each writer waits for its commit. The baseline is a
// bbolt file in which one goroutine commits the same rows for all waiting writers. The rows of an append are the
// record and the head of its session.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ writers, sessions int }{{1, 1}, {256, 1}, {256, 1000}} {
		b.Run(fmt.Sprintf("how=store/writers=%d/sessions=%d", c.writers, c.sessions), func(b *testing.B) {
			s := openStore(b, store.Options{})
			for i := range c.sessions {
				create(b, s, i)
			}
			events := make([]*patch.Event, b.N)
			for i := range events {
				events[i] = eventOf(512)
			}
			inParallel(b, c.writers, func(i int) error {
				_, err := s.AppendEvents(b.Context(), sessionKey(i%c.sessions), []*patch.Event{events[i]}, store.AppendOptions{})
				return err
			})
		})
		b.Run(fmt.Sprintf("how=bbolt/writers=%d/sessions=%d", c.writers, c.sessions), func(b *testing.B) {
			bare := openBare(b)
			inParallel(b, c.writers, func(i int) error { return bare.append(i%c.sessions, uint64(i)) })
		})
	}
}

// BenchmarkAppendBeside appends events one by one while the store runs another operation. It reports the longest time
// that an append took. The file has about 200 MB, and half of its pages are free.
func BenchmarkAppendBeside(b *testing.B) {
	ctx := context.Background()
	for _, beside := range []struct {
		name string
		do   func(*store.Store) error
	}{
		{"nothing", func(*store.Store) error { time.Sleep(time.Second); return nil }},
		{"backup", func(s *store.Store) error { return s.Backup(ctx, io.Discard) }},
		{"vacuum", func(s *store.Store) error { _, err := s.Vacuum(ctx, store.VacuumOptions{}); return err }},
	} {
		b.Run("beside="+beside.name, func(b *testing.B) {
			var longest time.Duration
			for range b.N {
				s := openFull(b)
				ended := make(chan error, 1)
				go func() { ended <- beside.do(s) }()
				for running := true; running; {
					start := time.Now()
					appendEvents(b, s, 0, eventOf(512))
					longest = max(longest, time.Since(start))
					select {
					case err := <-ended:
						running = false
						testlog.NoError(b, err)
					default:
					}
				}
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}

// openFull opens a store with 51 sessions of 2 MB each, after 50 other sessions were deleted.
func openFull(b *testing.B) *store.Store {
	s := openStore(b, store.Options{})
	text := make([]byte, 3<<10)
	for i := range 101 {
		events := make([]*patch.Event, 500)
		for j := range events {
			_, _ = rand.Read(text)
			events[j] = testlog.Text(uuid.NewString(), "", "agent", base64.StdEncoding.EncodeToString(text))
		}
		create(b, s, i)
		appendEvents(b, s, i, events...)
	}
	for i := range 50 {
		testlog.NoError(b, s.Delete(b.Context(), sessionKey(2*i+1)))
	}
	return s
}

// bare is a bbolt file to which rows are written without a store.
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
	options := &bbolt.Options{FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30}
	db := testlog.Must(bbolt.Open(filepath.Join(b.TempDir(), "bare.db"), 0o600, options))(b)
	form := testlog.Must(patch.AppendRecord(nil, patch.Record{Seq: 1, Event: eventOf(512)}))(b)
	out := &bare{db, append(bytes.Repeat([]byte{1}, 20), recordform.Compress(form)...), make(chan barePut, 1024)}
	go out.commit()
	b.Cleanup(func() {
		close(out.waiting)
		_ = db.Close()
	})
	return out
}

// append writes the compressed rows of a record and waits for the commit.
func (d *bare) append(session int, seq uint64) error {
	done := make(chan error, 1)
	d.waiting <- barePut{session, seq, done}
	return <-done
}

func (d *bare) commit() {
	for first := range d.waiting {
		group := []barePut{first}
		for len(d.waiting) > 0 {
			group = append(group, <-d.waiting)
		}
		err := d.db.Update(func(tx *bbolt.Tx) error { return d.put(tx, group) })
		for _, p := range group {
			p.done <- err
		}
	}
}

func (d *bare) put(tx *bbolt.Tx, group []barePut) error {
	records, err := tx.CreateBucketIfNotExists([]byte("records"))
	if err != nil {
		return err
	}
	heads, err := tx.CreateBucketIfNotExists([]byte("heads"))
	if err != nil {
		return err
	}
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
}
