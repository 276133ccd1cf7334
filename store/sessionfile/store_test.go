package sessionfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

func open(t testing.TB) (*store.Store, store.Key) {
	return teststore.Memory(t, store.Options{}), store.Key{App: "a", User: "u", Session: "s"}
}

func bring(t testing.TB, s *store.Store, key store.Key, format sessionfile.Format, data []byte) (store.Imported, error) {
	t.Helper()
	var text bytes.Buffer
	if _, err := sessionfile.NewDecoder(bytes.NewReader(data), format, "f").WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	return s.Import(t.Context(), key, &text, store.ImportOptions{})
}

// A store takes a file as it grows, line by line, and gives it back.
func TestStoreTakesGrowingFile(t *testing.T) {
	eachFile(t, func(t *testing.T, f file) {
		if !f.ours {
			t.Skip("too long")
		}
		s, key := open(t)
		for end := 0; end < len(f.data); {
			end += bytes.IndexByte(f.data[end:], '\n') + 1
			want := len(linesOf(f.data[:end]))
			done, err := bring(t, s, key, f.format, f.data[:end])
			if err != nil || done.Added == 0 {
				t.Fatal(want, done.Added, err)
			}
			if done, err = bring(t, s, key, f.format, f.data[:end]); err != nil || done.Added > 0 {
				t.Fatal("again:", want, done.Added, err)
			}
			records, _ := read(t, f.format, f.data[:end])
			if got, want := says(done.View), says(view(t, records)); !slices.Equal(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		var out bytes.Buffer
		if err := sessionfile.WriteLines(&out, s.RawEvents(t.Context(), key, 1)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), append(bytes.Join(linesOf(f.data), []byte("\n")), '\n')) {
			t.Fatal("the file comes back otherwise")
		}
	})
}

// Where the session went on by itself, what a file has got since is added if no patch is
// needed for it, and refused if one is.
func TestFileAndSessionGrow(t *testing.T) {
	say := func(id, parent, text string) string {
		return fmt.Sprintf(`{"type":"message","id":%q,"parentId":%q,"message":{"role":"user","content":%q}}`+"\n", id, parent, text)
	}
	s, key := open(t)
	data := piHead + say("a", "", "one") + say("b", "a", "two")
	done, err := bring(t, s, key, sessionfile.Pi, []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ApplyPatch(t.Context(), key, store.PatchOptions{On: done.View}, patch.NewSplice(1, 1)); err != nil {
		t.Fatal(err)
	}
	data += say("c", "b", "three")
	if done, err = bring(t, s, key, sessionfile.Pi, []byte(data)); err != nil || done.Added != 1 {
		t.Fatal(done, err)
	}
	if got, want := shown(done.View), []string{"two", "three"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	if _, err := bring(t, s, key, sessionfile.Pi, []byte(data+say("d", "b", "four"))); !errors.Is(err, store.ErrConflict) {
		t.Fatal(err)
	}
}

// Calls and results pair as they do in the file, before and after the session is compacted,
// and each summary of the agent's own is one for compaction.
func TestCompaction(t *testing.T) {
	eachFile(t, func(t *testing.T, f file) {
		s, key := open(t)
		done, err := bring(t, s, key, f.format, f.data)
		if err != nil {
			t.Fatal(err)
		}
		paired(t, done.View)
		before := done.View.Len()
		c, err := compaction.New(compaction.Log[store.Key](s), compaction.Config{Enabled: true, CompactionInterval: 1, OverlapSize: 0, TokenThreshold: 100, EventRetentionSize: 2, Summarizer: compaction.Extractive{}},
			compaction.Options[store.Key]{})
		if err != nil {
			t.Fatal(err)
		}
		written, err := c.Compact(context.Background(), key, compaction.Run{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		v := got.View
		if strings.HasPrefix(f.name, "pi-real") && (len(written) == 0 || v.Len() >= before) {
			t.Errorf("%d of %d events are visible after %d windows", v.Len(), before, len(written))
		}
		paired(t, v)
		if v.SkippedCount() > 0 {
			t.Error("a patch does not apply")
		}
		sameLines(t, f.data, slicesCollect(t, s, key))
	})
}

func slicesCollect(t *testing.T, s *store.Store, key store.Key) []patch.Record {
	var records []patch.Record
	for r, err := range s.RawEvents(t.Context(), key, 1) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// paired fails if a visible response has no call before it.
func paired(t testing.TB, v fold.View) {
	t.Helper()
	answered := map[string]bool{}
	for _, c := range v.Calls() {
		for _, i := range c.Responses {
			answered[fmt.Sprint(i, " ", c.ID)] = true
		}
	}
	for i, e := range v.Events() {
		for p := range e.FunctionParts() {
			if p.Response && !answered[fmt.Sprint(i, " ", p.ID)] {
				t.Errorf("the response to %q in event %d has no call", p.ID, i)
			}
		}
	}
}
