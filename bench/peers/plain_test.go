package peers

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	bbolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	"google.golang.org/adk/v2/session"
)

// plain is a way to append bytes durably, without a session service, ids or state.
type plain struct {
	name string
	// open returns a function that appends the bytes of one event, and a function that closes the file.
	open func(tb testing.TB, path string) (appendEvent func(form []byte) error, done func())
}

var plains = []plain{
	{"file", func(tb testing.TB, path string) (func([]byte) error, func()) { // each append is one write and one fdatasync
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		no(tb, err)
		return func(form []byte) error {
			if _, err := f.Write(form); err != nil {
				return err
			}
			return unix.Fdatasync(int(f.Fd()))
		}, func() { no(tb, f.Close()) }
	}},
	{"bbolt", func(tb testing.TB, path string) (func([]byte) error, func()) { // each append puts one row with an ascending key
		db, err := bbolt.Open(path, 0o600, nil)
		no(tb, err)
		name := []byte("events")
		no(tb, db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists(name); return err }))
		var n uint64
		return func(form []byte) error {
			n++
			return db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket(name).Put(binary.BigEndian.AppendUint64(nil, n), form)
			})
		}, func() { no(tb, db.Close()) }
	}},
}

// formOf returns event i as a line of JSON.
func formOf(tb testing.TB, i int) []byte {
	tb.Helper()
	form, err := json.Marshal(event(i))
	no(tb, err)
	return append(form, '\n')
}

// appendPlain is the part of BenchmarkAppend that measures p.
func (p plain) appendPlain(b *testing.B) {
	appendEvent, done := p.open(b, filepath.Join(b.TempDir(), "events"))
	defer done()
	form := formOf(b, 1)
	for b.Loop() {
		no(b, appendEvent(form))
	}
}

// writeLines writes a file of n events as JSON lines.
func writeLines(tb testing.TB, path string, n int) {
	tb.Helper()
	var lines []byte
	for i := range n {
		lines = append(lines, formOf(tb, i)...)
	}
	no(tb, os.WriteFile(path, lines, 0o600))
}

// readLines reads a file of JSON lines and decodes each event.
func readLines(path string) (n int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReader(f))
	for {
		var e session.Event
		if err := lines.Decode(&e); err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
		if e.Content == nil {
			return n, fmt.Errorf("event %d has no content", n)
		}
		n++
	}
}

func TestPlains(t *testing.T) {
	for _, p := range plains {
		path := filepath.Join(t.TempDir(), "events")
		appendEvent, done := p.open(t, path)
		for i := range 3 {
			no(t, appendEvent(formOf(t, i)))
		}
		done()
		if info, err := os.Stat(path); err != nil || info.Size() < int64(3*len(formOf(t, 0))) {
			t.Errorf("%s: %v, %v", p.name, info, err)
		}
		if p.name != "file" {
			continue
		}
		if n, err := readLines(path); n != 3 || err != nil {
			t.Errorf("%d lines, %v", n, err)
		}
	}
}
