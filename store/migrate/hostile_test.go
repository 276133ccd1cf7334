package migrate

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var (
	mutations     = flag.Int("mutations", 400, "how many damaged files TestDamagedFiles reads")
	firstMutation = flag.Int("first-mutation", 0, "the number of the first one")
)

func seedFiles(t testing.TB) (names []string, texts [][]byte) {
	testlog.NoError(t, filepath.WalkDir("testdata", func(path string, entry fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); err == nil && (ext == ".json" || ext == ".jsonl") {
			if text := testlog.Must(os.ReadFile(path))(t); len(text) < 64<<10 {
				names, texts = append(names, filepath.Base(path)), append(texts, text)
			}
		}
		return err
	}))
	return names, texts
}

var (
	jsonString = regexp.MustCompile(`"[^"\\\n]{0,200}"`)
	jsonScalar = regexp.MustCompile(`:\s*("[^"\\\n]{0,80}"|-?[0-9.]+|true|false|null)`)
	oddValues  = []string{
		"null", "[]", "{}", `""`, "0", "-1", "1e999", "99999999999999999999", "true", `[[[[[[[[[[{}]]]]]]]]]]`, `{"a":{"a":{"a":{"a":1}}}}`, `"\ud800"`, `"\u0000"`,
		`[null]`, `[{"type":"text"}]`, `[{"type":"text","text":null}]`, `{"type":"tool_result"}`, strings.Repeat("[", 2000), strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500), `"` + strings.Repeat("x", 5000) + `"`,
	}
)

// damage returns a copy of texts[which] with one to four kinds of damage.
func damage(r *rand.Rand, texts [][]byte, which int) []byte {
	text := bytes.Clone(texts[which])
	for range 1 + r.IntN(4) {
		if len(text) == 0 {
			return text
		}
		at := r.IntN(len(text))
		lines := bytes.SplitAfter(text, []byte("\n"))
		a, b := r.IntN(len(lines)), r.IntN(len(lines))
		switch r.IntN(18) {
		case 0:
			text[at] = byte(r.IntN(256))
		case 1:
			text = append(text[:at], text[min(len(text), at+1+r.IntN(40)):]...)
		case 2:
			text = text[:at]
		case 3:
			lines[a], lines[b] = lines[b], lines[a]
			text = bytes.Join(lines, nil)
		case 4:
			lines[a] = append(bytes.Clone(lines[b]), lines[a]...)
			text = bytes.Join(lines, nil)
		case 5:
			text = bytes.Join([][]byte{text[:at], make([]byte, 1+r.IntN(300)), text[at:]}, nil)
		case 6, 7, 8: // replace a value by a value of another type
			if found := jsonScalar.FindAllSubmatchIndex(text, -1); len(found) > 0 {
				f := found[r.IntN(len(found))]
				text = bytes.Join([][]byte{text[:f[2]], []byte(oddValues[r.IntN(len(oddValues))]), text[f[3]:]}, nil)
			}
		case 9, 10, 11: // make ids equal, or make the parents cyclic
			if found := jsonString.FindAllIndex(text, -1); len(found) > 1 {
				f, g := found[r.IntN(len(found))], found[r.IntN(len(found))]
				text = bytes.Join([][]byte{text[:f[0]], text[g[0]:g[1]], text[f[1]:]}, nil)
			}
		case 12:
			text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
		case 13:
			text = append([]byte("\ufeff"), text...)
		case 14:
			other := texts[r.IntN(len(texts))]
			text = append(text[:at:at], other[r.IntN(len(other)):]...)
		case 15:
			units := utf16.Encode([]rune(string(text)))
			text = []byte{0xff, 0xfe}
			for _, u := range units {
				text = append(text, byte(u), byte(u>>8))
			}
		case 16:
			text = bytes.Repeat(text, 2)
		case 17:
			text = append(append([]byte("["), bytes.ReplaceAll(bytes.TrimSpace(text), []byte("\n"), []byte(","))...), ']')
		}
	}
	return text
}

// importHostile imports a text and fails the test in three cases: a session that failed is in the store, another
// session is invalid, or importing the text again changes anything.
func importHostile(t testing.TB, name string, text []byte) {
	s := testlog.Must(store.OpenMemory(store.Options{}))(t)
	defer s.Close()
	run := func() (results []Result, err error) {
		source, err := OpenFile(bytes.Clone(text), FileOptions{Name: name, AdoptLines: true})
		if err != nil {
			return nil, err
		}
		_, err = Run(context.Background(), s, source, Options{Session: func(r Result) error {
			results = append(results, r)
			return nil
		}})
		return results, err
	}
	first, err := run()
	if err != nil && !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("the error is of no kind: %v", err)
	}
	failed := map[store.Key]bool{}
	for _, r := range first {
		failed[r.Key] = failed[r.Key] || r.Err != nil
		if len(first) == 1 && r.Err != nil {
			if _, err := s.Get(t.Context(), r.Key); err == nil && r.Status != Created {
				t.Errorf("%s failed (%v), but the session exists", r.Key, r.Err)
			}
		}
	}
	for info, err := range s.List(t.Context(), store.ListOptions{}) {
		testlog.NoError(t, err)
		testlog.Must(s.Get(t.Context(), info.Key))(t)
	}
	second, again := run()
	if (err == nil) != (again == nil) || len(first) != len(second) {
		t.Errorf("first %v (%d sessions), then %v (%d)", err, len(first), again, len(second))
		return
	}
	for i, r := range second {
		if !failed[r.Key] && r.Added > 0 {
			t.Errorf("session %d, %s: %d records were added again", i, r.Key, r.Added)
		}
		if (r.Err == nil) != (first[i].Err == nil) && !failed[r.Key] {
			t.Errorf("session %d, %s: first %v, then %v", i, r.Key, first[i].Err, r.Err)
		}
	}
}

// Reading a damaged file gives an error or complete sessions, and never panics.
func TestDamagedFiles(t *testing.T) {
	names, texts := seedFiles(t)
	slowest, which := time.Duration(0), 0
	for i := *firstMutation; i < *firstMutation+*mutations; i++ {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		n := r.IntN(len(texts))
		text := damage(r, texts, n)
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("mutation %d of %s: panic: %v\n%s", i, names[n], p, debug.Stack())
				}
			}()
			failed := t.Failed()
			start := time.Now()
			importHostile(t, names[n], text)
			if d := time.Since(start); d > slowest {
				slowest, which = d, i
			}
			if t.Failed() && !failed {
				file := filepath.Join(os.TempDir(), fmt.Sprintf("mutation-%d-%s", i, names[n]))
				os.WriteFile(file, text, 0o600)
				t.Fatalf("mutation %d of %s, kept in %s", i, names[n], file)
			}
		}()
	}
	t.Logf("%d files; the slowest, %d, took %v", *mutations, which, slowest)
}

// If an import would need much more memory or time than the size of the file justifies, the import is refused early.
func TestOutOfProportion(t *testing.T) {
	repeat := func(head string, n int, line func(i int) string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	claude := func(id, parent string) string {
		return fmt.Sprintf(`{"type":"user","uuid":%q,"parentUuid":%q,"sessionId":"s","message":{"role":"user","content":"x"}}`+"\n", id, parent)
	}
	for name, text := range map[string]string{
		// Each branch hides all events of the other branch.
		"branches that take turns": repeat(claude("a0", "")+claude("b0", ""), 2000, func(i int) string {
			return claude(fmt.Sprint("ab"[i%2:i%2+1], 1+i/2), fmt.Sprint("ab"[i%2:i%2+1], i/2))
		}),
		"messages written again": repeat(`{"sessionId":"s","projectHash":"p","startTime":"2026-01-01T00:00:00Z"}`+"\n", 20_000, func(i int) string {
			return fmt.Sprintf(`{"id":"m%d","type":"gemini","content":"%d","timestamp":"2026-01-01T00:00:00Z"}`+"\n", i%50, i)
		}),
		"lines between NULs": claude("a", "") + strings.Repeat("\x00a", 200_000),
		"rewinds": repeat("", 4000, func(i int) string {
			return fmt.Sprintf(`{"id":"e%d","author":"a","invocationId":"i%d","actions":{"rewindBeforeInvocationId":"i%d"}}`+"\n", i, i, max(0, i-3))
		}),
		"short events":   `{"id":"1","appName":"a","userId":"u","state":{},"events":[` + strings.Repeat(`{},`, 20_000) + `{}]}`,
		"short messages": "[" + strings.Repeat(`{"role":"user","content":""},`, 60_000) + `{"role":"user","content":"x"}]`,
	} {
		source, err := OpenFile([]byte(text), FileOptions{Name: "file"})
		if err == nil {
			for _, e := range source.Sessions(t.Context()) {
				err = e
			}
		}
		if !errors.Is(err, store.ErrTooLarge) && !errors.Is(err, patch.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// newID does not try again the ids that it has already used for pieces of the same line.
	var d decoder
	d.unit, d.usedIDs, d.idCounts = &unit{number: 1}, map[string]bool{}, map[string]int{}
	for range 3 {
		d.newID("event")
	}
	testlog.Equal(t, "ids tried", d.idCounts["event"], 3)
	_, err := OpenFile([]byte("\xff\xfe{\x00}\x00"), FileOptions{Name: "file"})
	if err == nil || !strings.Contains(err.Error(), "it is in UTF-16; convert it to UTF-8") {
		t.Error(err)
	}
}
