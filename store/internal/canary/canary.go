// Package canary puts texts into a store that are found again in the bytes of its files, to see
// what an erasing leaves.
package canary

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

var (
	canary  = regexp.MustCompile(`canary-[0-9]{5}`)
	encoded = regexp.MustCompile(`[A-Za-z0-9+/]{20,}={0,2}`)
)

// App and User are of the sessions with canaries.
const App, User = "a", "u"

// Sessions are how many there are; each has summaries, and every fifth is forked by another user.
const Sessions = 20

// Plant puts n canaries into the sessions, each in an event of its own: in what users and tools said,
// in data, in state and in metadata. Some are in initial states and summaries too.
func Plant(t testing.TB, s *store.Store, n int) {
	t.Helper()
	ctx := context.Background()
	each := n / Sessions
	for i := range Sessions {
		key := store.Key{App: App, User: User, Session: fmt.Sprint(i)}
		var events []*patch.Event
		for j := range each {
			c := name(i*each + j)
			long := c
			if j%50 == 0 { // too long for a page, and for a row
				for k := range 200 {
					long += fmt.Sprintf(" %x", sha256.Sum256(fmt.Append(nil, c, k)))
				}
			}
			data := base64.StdEncoding.EncodeToString([]byte("is " + c + " in it"))
			forms := []string{
				`{"id":"e%[2]d","author":"user","content":{"role":"user","parts":[{"text":"it is %[1]s"}]}}`,
				`{"id":"e%[2]d","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"x":["%[1]s"]}}}]}}`,
				`{"id":"e%[2]d","author":"user","actions":{"stateDelta":{"k%[2]d":"%[1]s","user:k%[2]d":"%[1]s"}}}`,
				`{"id":"e%[2]d","author":"user","content":{"parts":[{"inlineData":{"mimeType":"text/plain","data":"%[3]s"}}]}}`,
				`{"id":"e%[2]d","author":"user","customMetadata":{"note":"%[1]s"}}`,
			}
			e, err := patch.ParseEvent(fmt.Appendf(nil, forms[j%len(forms)], long, j, data))
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		last := name((i+1)*each - 1)
		if _, err := s.Create(ctx, key, map[string]any{"first": last}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, events...); err != nil {
			t.Fatal(err)
		}
		told, err := patch.NewEvent(patch.Fields{ID: "s", Content: patch.Text("user", "a summary of "+last)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, patch.NewSummarise(0, 50, told)); err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 {
			if _, err := s.Fork(ctx, key, store.Key{App: App, User: "other", Session: fmt.Sprint(i)}, store.ForkOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func name(n int) string { return fmt.Sprintf("canary-%05d", n) }

// Ends are the last bytes of records as they are stored, compressed or not, by which they are
// found in a file.
type Ends struct {
	of    map[[endBytes]byte]string
	begin [1 << 20]bool // by what they begin with
}

// endBytes are enough to tell records apart that end alike.
const endBytes = 32

func beginOf(b []byte) uint32 { return binary.LittleEndian.Uint32(b) % (1 << 20) }

func (e *Ends) at(b []byte) (record string, ok bool) {
	if !e.begin[beginOf(b)] {
		return "", false
	}
	record, ok = e.of[[endBytes]byte(b)]
	return record, ok
}

// EndsOf returns those of all records that a backend has.
func EndsOf(t testing.TB, b backend.Backend) *Ends {
	t.Helper()
	ctx := context.Background()
	out := &Ends{of: map[[endBytes]byte]string{}}
	listed, err := b.List(ctx, "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range listed {
		for from := uint64(1); from <= l.Last; {
			records, err := b.Read(ctx, l.Session, l.Creation, backend.Range(from, 1000), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				end := r.Data[len(r.Data)-endBytes:]
				out.of[[endBytes]byte(end)], out.begin[beginOf(end)] = fmt.Sprint(l.Session, r.Seq), true
			}
			from += uint64(len(records))
		}
	}
	return out
}

// Find returns how many of the canaries are in the files below a directory, plainly, in base64, or in
// a record as it was stored. Directories with the given names are left out.
func Find(t testing.TB, dir string, stored *Ends, without ...string) int {
	t.Helper()
	found := map[string]bool{}
	look := func(data []byte) {
		for _, c := range canary.FindAll(data, -1) {
			found[string(c)] = true
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(without, d.Name()):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for at := range max(len(data)-endBytes+1, 0) {
			if r, ok := stored.at(data[at:]); ok {
				found[r] = true
			}
		}
		look(data)
		for _, text := range encoded.FindAll(data, -1) {
			for shift := range 4 { // what stands before may be of the same letters
				text := text[min(shift, len(text)):]
				plain, _ := base64.StdEncoding.AppendDecode(nil, bytes.TrimRight(text[:len(text)/4*4], "="))
				look(plain)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}
