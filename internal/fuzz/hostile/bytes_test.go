package hostile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/fuzz/memory"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealed sets the checksum of a form, so that a decoder accepts the rest of the form. The checksum follows the first
// head bytes of the form. It covers these bytes and all bytes after the checksum.
func sealed(form []byte, head int) []byte {
	form = append(bytes.Clone(form), make([]byte, max(0, head+4-len(form)))...)
	sum := crc32.Update(crc32.Checksum(form[:head], castagnoli), castagnoli, form[head+4:])
	binary.LittleEndian.PutUint32(form[head:], sum)
	return form
}

func records() []patch.Record {
	var out []patch.Record
	for i, text := range []string{
		`{"id":"a","author":"user","timestamp":"2024-01-01T00:00:00Z","content":{"role":"user","parts":[{"text":"hello"}]}}`,
		`{"id":"b","author":"m","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":{"n":1.0}}}]},"actions":{"stateDelta":{"k":[1,{"x":null}],"app:y":2}}}`,
		`{"id":"d","author":"user","content":{"parts":[{"functionResponse":{"id":"c","name":"f","response":{"r":"x"}}}]}}`,
		`{"id":"p","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"s","content":{"role":"model","parts":[{"text":"sum"}]}}}`,
		`{"id":"q","patchType":"splice","start":0,"count":1,"state":"keep","replacement":[{"id":"r","author":"x"}]}`,
		`{"id":"v","patchType":"revert","patchId":"q"}`, `{"id":"n","patchType":"pin","eventId":"d"}`,
	} {
		rec, err := patch.ParseRecord([]byte(text))
		if err != nil {
			panic(err)
		}
		rec.Seq = uint64(i + 1)
		out = append(out, rec)
	}
	return out
}

func FuzzRecord(f *testing.F) {
	for _, rec := range records() {
		form, err := patch.AppendRecord(nil, rec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(form)
		f.Add(recordform.Compress(form))
	}
	f.Fuzz(func(t *testing.T, form []byte) {
		// The second checksum covers the compressed part, and is set too.
		if len(form) > 0 && form[0] == 2 {
			form = sealed(form, 5)
		} else {
			form = sealed(form, 1)
		}
		memory.Within(t, len(form), func() {
			rec, err := patch.DecodeRecord(form)
			if err == nil {
				_, err = rec.MarshalJSON()
			}
			if err != nil && !errors.Is(err, patch.ErrCorrupt) {
				t.Errorf("%v", err)
			}
		})
	})
}

func FuzzValue(f *testing.F) {
	for _, text := range []string{`null`, `{"a":[1,2.0,"x",{"b":true}]}`, `"text"`} {
		v, err := patch.ParseValue([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		form, err := v.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(form)
	}
	f.Fuzz(func(t *testing.T, form []byte) {
		form = sealed(form, 1)
		memory.Within(t, len(form), func() {
			var v patch.Value
			if err := v.UnmarshalBinary(form); err != nil {
				if !errors.Is(err, patch.ErrCorrupt) {
					t.Errorf("%v", err)
				}
				return
			}
			again, err := v.MarshalBinary()
			if err != nil || !bytes.Equal(again, form) {
				t.Errorf("%x becomes %x, %v", form, again, err)
			}
		})
	})
}

func FuzzSnapshot(f *testing.F) {
	log := records()
	v, err := fold.New("creation", nil).Apply(log...)
	if err != nil {
		f.Fatal(err)
	}
	data, err := snapshot.Encode(v)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		data = sealed(data, 2)
		memory.Within(t, len(data), func() {
			_, err := snapshot.Decode(data, fold.New("creation", nil).WithRecords(log), uint64(len(log)))
			if err != nil && !errors.Is(err, snapshot.ErrUnusable) {
				t.Errorf("%v", err)
			}
		})
	})
}

// If any file is opened for reading, the store returns an error or readable sessions, and does not change the file.
func FuzzFile(f *testing.F) {
	f.Add([]byte{}, uint16(0), []byte{})
	f.Add([]byte{1, 2}, uint16(70), []byte{0xff})
	f.Add([]byte{}, uint16(4096+10), []byte{0xff, 0xff})
	whole := database(f)
	f.Fuzz(func(t *testing.T, data []byte, at uint16, over []byte) {
		if len(data) == 0 { // use a database with some changed bytes
			data = bytes.Clone(whole)
			copy(data[int(at)%len(data):], over)
		}
		path := filepath.Join(t.TempDir(), "log.db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		runWithTimeout(t, func() {
			memory.Within(t, len(data), func() {
				s, err := store.Open(path, store.Options{ReadOnly: true, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotDatabase) {
						t.Errorf("%v", err)
					}
					return
				}
				for info, err := range s.List(t.Context(), store.ListOptions{}) {
					if err == nil {
						err = s.Export(t.Context(), info.Key, io.Discard, store.ExportOptions{})
					}
					if err != nil && !errors.Is(err, store.ErrCorrupt) {
						t.Errorf("%v", err)
					}
				}
				for _, err := range s.Verify(t.Context(), store.VerifyOptions{}) {
					if err != nil && !errors.Is(err, store.ErrCorrupt) {
						t.Errorf("%v", err)
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
		after, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(after, data) {
			t.Errorf("the file was changed (%v)", err)
		}
	})
}

var key = store.Key{App: "shop", User: "ada", Session: "4711"}

func database(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(t.Context(), key, map[string]any{"tenant": "t", "app:x": 1}, store.CreateOptions{})
	for _, rec := range records() {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Event != nil {
			_, err = s.AppendEvents(t.Context(), key, []*patch.Event{rec.Event}, store.AppendOptions{})
		} else {
			_, err = s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{rec.Patch}, store.PatchOptions{AllowOrphans: true, AsOfNow: true})
		}
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data[:min(len(data), 64<<10)]
}

// testTimeout is the time after which a call is considered to hang, even on a busy machine.
const testTimeout = 25 * time.Minute

// runWithTimeout calls f and fails the test if f hangs.
func runWithTimeout(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(testTimeout):
		panic("it hangs") // prints the stacks of all goroutines
	}
}
