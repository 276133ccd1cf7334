package hostile

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/internal/fuzz/long"
	"github.com/patchlog-dev/patchlog/internal/fuzz/memory"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// readers are all functions of patchlog that read text, by name.
var readers = map[string]func(t testing.TB, text []byte) error{
	"record": func(_ testing.TB, text []byte) error {
		rec, err := patch.ParseRecord(text)
		if err == nil {
			_, err = patch.AppendRecord(nil, rec)
		}
		return err
	},
	"value": func(_ testing.TB, text []byte) error {
		_, err := patch.ParseValue(text)
		return err
	},
	"import": func(t testing.TB, text []byte) error {
		s := inMemory(t)
		defer s.Close()
		_, err := s.Import(t.Context(), key, bytes.NewReader(text), store.ImportOptions{})
		return err
	},
	"imported": importText,
	"REST": func(t testing.TB, text []byte) error {
		s := inMemory(t)
		defer s.Close()
		_, err := migrate.Run(t.Context(), s, migrate.NewREST(bytes.NewReader(text), "input"), migrate.Options{Session: func(migrate.Result) error { return nil }})
		return err
	},
	"file": migrateFile,
}

func inMemory(t testing.TB) *store.Store {
	s, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// importText imports a text into a store, adopts the compaction records in it, and exports the session.
func importText(t testing.TB, text []byte) error {
	s := inMemory(t)
	defer s.Close()
	if _, err := s.Import(t.Context(), key, bytes.NewReader(text), store.ImportOptions{}); err != nil {
		return err
	}
	v, err := s.View(t.Context(), key)
	if err != nil {
		t.Error(err)
		return nil
	}
	adkrecord.Adopt(v, adkrecord.Options{})
	var events []*patch.Event
	for _, e := range v.Events() {
		events = append(events, e)
	}
	adkrecord.FilterEventsForLLM(events)
	if err := s.Export(t.Context(), key, io.Discard, store.ExportOptions{}); err != nil {
		t.Error(err)
	}
	for p, err := range s.Verify(t.Context(), store.VerifyOptions{}) {
		t.Error(p, err)
	}
	return nil
}

// migrateFile migrates a text as a file of the format that Detect returns.
func migrateFile(t testing.TB, text []byte) error {
	source, err := migrate.OpenFile(text, migrate.FileOptions{Name: "file"})
	if err != nil {
		return err
	}
	s := inMemory(t)
	defer s.Close()
	failed := error(nil)
	_, err = migrate.Run(t.Context(), s, source, migrate.Options{Session: func(r migrate.Result) error {
		failed = errors.Join(failed, r.Err)
		return nil
	}})
	return errors.Join(err, failed)
}

func checkReader(t *testing.T, name string, text []byte) {
	t.Helper()
	runWithTimeout(t, func() {
		memory.Within(t, len(text), func() {
			if err := readers[name](t, text); err != nil && !errors.Is(err, patch.ErrInvalid) && !errors.Is(err, patch.ErrTooLarge) && !errors.Is(err, store.ErrDuplicateID) && !errors.Is(err, store.ErrConflict) {
				t.Errorf("%s: %v", name, err)
			}
		})
	})
}

func fuzzText(f *testing.F, names ...string) {
	for _, seed := range []string{
		`{"id":"e","author":"a","timestamp":1.5,"content":{"role":"user","parts":[{"text":"\u0000\ud834\udd1e"}]},"actions":{"stateDelta":{"k":1.0,"app:x":[]}}}`,
		`{"patchlog":1,"initialState":{"a":1}}` + "\n" + `{"seq":1,"id":"e"}` + "\n" + `{"seq":2,"patchType":"splice","start":0,"count":1,"replacement":[{"id":"r"}]}`,
		`{"id":"1","appName":"a","userId":"u","state":{"k":1,"app:x":null},"events":[{},{"id":"e"},{"id":"f","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2,"compactedContent":{"parts":[{"text":"s"}]}}}}]}`,
		`{"type":"session","version":3,"id":"s","timestamp":"2025-01-01T00:00:00Z","cwd":"/"}` + "\n" + `{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"x"}}`,
		`{"type":"user","uuid":"u","sessionId":"s","timestamp":"2025-01-01T00:00:00Z","message":{"role":"user","content":[{"type":"text","text":"x"}]}}`,
		`{"timestamp":"2025-01-01T00:00:00Z","type":"session_meta","payload":{"id":"s"}}` + "\n" + `{"timestamp":"2025-01-01T00:00:00Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}}`,
		`[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"y"}]`,
		`[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}]`,
		`[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]`,
		`{"sessionId":"s","projectHash":"h","startTime":"2025-01-01T00:00:00Z","messages":[{"id":"1","timestamp":"2025-01-01T00:00:00Z","type":"user","content":"x"}]}`,
		`{"sessionId":"s","projectHash":"h"}` + "\n" + `{"id":"1","timestamp":"2025-01-01T00:00:00Z","type":"user","content":"x"}` + "\n" + `{"$rewindTo":"1"}`,
		`{"info":{"id":"ses_1","time":{"created":1}},"messages":[{"info":{"id":"msg_1","sessionID":"ses_1","role":"user","time":{"created":1}},"parts":[{"type":"text","text":"x"}]}]}`,
		strings.Repeat("[", 2000), strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range names {
			checkReader(t, name, text)
		}
	})
}

func FuzzText(f *testing.F)   { fuzzText(f, "record", "value") }
func FuzzImport(f *testing.F) { fuzzText(f, "imported") }
func FuzzREST(f *testing.F)   { fuzzText(f, "REST") }
func FuzzFiles(f *testing.F)  { fuzzText(f, "file") }

func FuzzSearch(f *testing.F) {
	f.Add("getUserName 東京 don't", `name "user name" -tokyo`)
	f.Add("a b c", `"a b`)
	f.Fuzz(func(t *testing.T, text, query string) {
		v, err := patch.NewValue(map[string]any{"role": "user", "parts": []any{map[string]any{"text": text}}})
		if err != nil {
			return // the text is not Unicode
		}
		e, err := patch.ParseEvent([]byte(`{"id":"e","content":` + v.String() + `}`))
		if err != nil {
			t.Fatal(err)
		}
		memory.Within(t, len(text)+len(query), func() {
			s := inMemory(t)
			defer s.Close()
			if _, err := s.Create(t.Context(), key, nil, store.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.AppendEvents(t.Context(), key, []*patch.Event{e}, store.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			hits, err := recall.NewFinder(s, 0).Search(t.Context(), key, recall.Search{Query: query})
			if err != nil && !errors.Is(err, patch.ErrInvalid) {
				t.Error(err)
			}
			if len(hits) > 1 {
				t.Errorf("%d hits in one event", len(hits))
			}
		})
	})
}

// Every reader stays within the memory limit when it reads a long text. The constant part of the limit would hide
// the costs of a short text, so some texts are long even in a short run.
func TestLongText(t *testing.T) {
	const short, large = 64 << 10, 8 << 20
	size := short
	if long.Long() {
		size = large
	}
	for what, text := range longTexts(size) {
		for name := range readers {
			t.Run(name+" "+what, func(t *testing.T) { checkReader(t, name, text) })
		}
	}
	if testing.Short() || long.Long() {
		return
	}
	texts := longTexts(large)
	for _, what := range []string{"metadata keys", "parts", "many keys", "many patches", "short events"} {
		t.Run("large "+what, func(t *testing.T) { checkReader(t, "import", texts[what]) })
	}
}

// longTexts returns texts of about the given size. Some have many small items, some have a few large items, and some
// are deeply nested.
func longTexts(size int) map[string][]byte {
	rep := func(s string, around ...string) []byte {
		return []byte(around[0] + strings.Repeat(s, size/len(s)) + around[1])
	}
	// num repeats a text, with another number in each repetition.
	num := func(format string, around ...string) []byte {
		b := []byte(around[0])
		for i := 0; len(b) < size; i++ {
			b = fmt.Appendf(b, format, i)
		}
		return append(b, around[1]...)
	}
	// lines returns lines that have at most the given number of small items each.
	lines := func(most int, before, each, after string) []byte {
		var b []byte
		for n := 0; len(b) < size; n++ {
			b = fmt.Appendf(b, before, n)
			for i := range most {
				b = append(b, strings.ReplaceAll(each, "#", strconv.Itoa(i))...)
			}
			b = append(b[:len(b)-1], after+"\n"...)
		}
		return b
	}
	const pi = `{"type":"session","version":3,"id":"s","timestamp":"2025-01-01T00:00:00Z","cwd":"/"}` + "\n"
	return map[string][]byte{
		"lists":          rep("[],", `{"id":"e","customMetadata":{"a":[`, "[]]}}"),
		"numbers":        rep("1,", `{"id":"e","customMetadata":{"a":[`, "1]}}"),
		"metadata keys":  num(`"%x":1,`, `{"id":"e","customMetadata":{`, `"z":1}}`),
		"fields":         num(`"%x":1,`, `{"id":"e",`, `"z":1}`),
		"state keys":     num(`"%x":1,`, `{"id":"e","actions":{"stateDelta":{`, `"z":1}}}`),
		"shared keys":    num(`"app:%x":1,`, `{"id":"e","actions":{"stateDelta":{`, `"z":1}}}`),
		"initial state":  num(`"%x":1,`, `{"patchlog":1,"initialState":{`, `"z":1}}`+"\n"+`{"id":"a"}`),
		"long running":   rep(`"a",`, `{"id":"e","longRunningToolIds":[`, `"z"]}`),
		"a string":       rep("x", `{"id":"e","content":{"parts":[{"text":"`, `"}]}}`),
		"escapes":        rep(`\u0001`, `{"id":"e","content":{"parts":[{"text":"`, `"}]}}`),
		"parts":          rep(`{"text":"x"},`, `{"id":"e","content":{"parts":[`, `{}]}}`),
		"empty parts":    rep(`{},`, `{"id":"e","content":{"parts":[`, `{}]}}`),
		"calls":          rep(`{"functionCall":{"name":"f"}},`, `{"id":"e","content":{"parts":[`, `{}]}}`),
		"snake case":     num(`{"function_call":{"name":"%d"}},`, `{"id":"e","content":{"parts":[`, `{}]}}`),
		"many keys":      lines(patch.MaxStateKeys, `{"id":"%d","actions":{"stateDelta":{`, `"#":1,`, `}}}`),
		"many calls":     lines(patch.MaxFunctionParts, `{"id":"%d","content":{"parts":[`, `{"functionCall":{}},`, `]}}`),
		"many ids":       lines(patch.MaxLongRunning, `{"id":"%d","longRunningToolIds":[`, `"#",`, `]}`),
		"many fields":    lines(patch.MaxFields, `{"id":"%d",`, `"#":1,`, `}`),
		"many patches":   lines(patch.MaxReplacements, `{"id":"%d","patchType":"splice","start":0,"count":0,"replacement":[`, `{},`, `]}`),
		"exported":       num(`{"id":"%d","author":"a","timestamp":"2025-01-01T00:00:00Z"}`+"\n", "", ""),
		"nesting":        rep("[", "", ""),
		"lines":          rep("{}\n", "", ""),
		"lines of ids":   num(`{"id":"%x"}`+"\n", "", ""),
		"lines of one":   rep(`{"author":"a"}`+"\n", "", ""),
		"short events":   num(`{"id":"e%d","author":"user","timestamp":"2025-01-01T00:00:00Z","content":{"parts":[{"text":"ok"}]}}`+"\n", "", ""),
		"pins":           rep(`{"patchType":"pin","eventId":"x"}`+"\n", "", ""),
		"blank lines":    rep("\n", "", ""),
		"replacements":   rep("{},", `{"id":"p","patchType":"splice","start":0,"count":0,"replacement":[`, "{}]}"),
		"replacing":      num(`{"id":"%x"},`, `{"id":"p","patchType":"splice","start":0,"count":0,"replacement":[`, "{}]}"),
		"events of REST": num(`{"id":"%x"},`, `{"id":"1","appName":"a","userId":"u","events":[`, `{"id":"z"}]}`),
		"state of REST":  num(`"%x":1,`, `{"id":"1","appName":"a","userId":"u","state":{`, `"z":1},"events":[]}`),
		"pi's lines":     num(`{"type":"message","id":"%x","parentId":null}`+"\n", pi, ""),
		"pi's blocks":    rep(`{"type":"text","text":"x"},`, pi+`{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":[`, `{"type":"text","text":"x"}]}}`),
		"replies":        num(`{"role":"user","content":"%x"},`, "[", `{"role":"assistant","content":"ok"}]`),
		"calls of chats": rep(`{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},`, `[{"role":"assistant","content":null,"tool_calls":[`, `{}]}]`),
		"conversations":  rep(`{"messages":[{"role":"user","content":"`+strings.Repeat("x", 5000)+`"}]}`+"\n", "", ""),
		"rewound chats":  num(`{"id":"%x","timestamp":"2025-01-01T00:00:00Z","type":"user","content":"x"}`+"\n"+`{"$rewindTo":"0"}`+"\n", `{"sessionId":"s","projectHash":"h"}`+"\n", ""),
		"histories":      rep(`{"$set":{"messages":[{"id":"1","type":"user","content":"x"}]}}`+"\n", `{"sessionId":"s","projectHash":"h"}`+"\n", ""),
		"tools":          rep(`{"type":"tool","callID":"c","tool":"f","state":{"status":"completed","input":{},"output":"x"}},`, `{"info":{"id":"s","time":{}},"messages":[{"info":{"id":"m","role":"assistant"},"parts":[`, `{}]}]}`),
		"claude's rows":  num(`{"type":"user","uuid":"%[1]x","parentUuid":"%[1]xa","sessionId":"s","message":{"role":"user","content":"x"}}`+"\n", "", ""),
		"claude's way":   reversedParents(size),
		"claude's lines": num(`{"type":"user","uuid":"%x","message":{"role":"user","content":"x"}}`+"\n", "", ""),
	}
}

// reversedParents returns a transcript of Claude Code. The parent of each line is the next line.
func reversedParents(size int) []byte {
	var b []byte
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, `{"type":"user","uuid":"%x","parentUuid":"%x","sessionId":"s","message":{"role":"user","content":"x"}}`+"\n", i, i+1)
	}
	return b
}

// The output of Export can be imported with the default limits and within the memory limit. This is so even if the
// records are as short as possible, with only an id, a time and an author.
func TestLongExport(t *testing.T) {
	records := 100_000
	if testing.Short() {
		records = 50_000
	}
	text := []byte(`{"patchlog":1,"initialState":{}}` + "\n")
	for i := range records {
		text = fmt.Appendf(text, `{"seq":%d,"id":"%d","author":"a","timestamp":"2025-01-01T00:00:00Z"}`+"\n", i+1, i)
	}
	memory.Within(t, len(text), func() {
		s := inMemory(t)
		defer s.Close()
		imported, err := s.Import(t.Context(), key, bytes.NewReader(text), store.ImportOptions{})
		if err != nil || imported.Added != records {
			t.Fatalf("%d records are imported: %v", imported.Added, err)
		}
		exported := sha256.New()
		if err := s.Export(t.Context(), key, exported, store.ExportOptions{}); err != nil || [32]byte(exported.Sum(nil)) != sha256.Sum256(text) {
			t.Errorf("the export is another text: %v", err)
		}
	})
}
