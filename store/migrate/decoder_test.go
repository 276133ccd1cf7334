package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	logs "github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

type testFile struct {
	name   string
	format Format
	data   []byte
}

func testFiles(t testing.TB) []testFile {
	all := []testFile{
		{name: "claude-code", format: claudeCode},
		{name: "codex", format: codex}, {name: "codex-bare", format: codex},
		{name: "pi", format: pi}, {name: "pi-real-cut", format: pi}, {name: "pi-v1", format: pi},
	}
	for i, f := range all {
		all[i].data = testdata(t, f.name+".jsonl")
	}
	return all
}

func forEachFile(t *testing.T, run func(t *testing.T, f testFile)) {
	for _, f := range testFiles(t) {
		t.Run(f.name, func(t *testing.T) { run(t, f) })
	}
}

func decodeFile(t rapid.TB, format Format, data []byte) ([]patch.Record, *decoder) {
	t.Helper()
	records, d, err := tryDecode(format, data)
	testlog.NoError(t, err)
	return records, d
}

func tryDecode(format Format, data []byte) ([]patch.Record, *decoder, error) {
	d := &decoder{file: "file", format: &format, ctx: context.Background()}
	pieces, err := splitSessions(bytes.TrimPrefix(trimNULs(data), byteOrderMark), &format, "file")
	if err != nil {
		return nil, d, err
	}
	records, err := d.decode(pieces[0].units)
	return records, d, err
}

func foldRecords(t rapid.TB, records []patch.Record) fold.View {
	t.Helper()
	var logged []patch.Record
	for i, r := range records {
		r.Seq = uint64(i + 1)
		logged = append(logged, r)
	}
	v := testlog.Must(fold.New("c", nil).Apply(logged...))(t)
	if skipped, err := v.Skipped(); err != nil || len(skipped) > 0 {
		t.Fatalf("skipped: %v (%v)", skipped, err)
	}
	return v
}

// describeEvents returns one text for each visible event that has content, with its author, texts, calls and
// responses.
func describeEvents(v fold.View) []string {
	var all []string
	for _, e := range v.Events() {
		if e.SaysSomething() {
			all = append(all, describeEvent(e))
		}
	}
	return all
}

func describeEvent(e *patch.Event) string {
	text := e.Author() + "/" + e.Role()
	if e.Branch() != "" {
		text += "@" + e.Branch()
	}
	text += ":"
	for _, p := range e.Content().Parts() {
		switch p.Kind {
		case patch.PartCall:
			text += fmt.Sprintf(" call %s %s%s", p.ID, p.Name, logs.JSON(p.Args))
		case patch.PartResponse:
			text += fmt.Sprintf(" response %s %s%s", p.ID, p.Name, logs.JSON(p.Response))
		default:
			if p.Thought {
				text += " thought"
			}
			text += " " + p.Text + p.MIMEType
		}
	}
	return text
}

// expectedLines returns the lines that WriteLines should write for a file. It omits NULs and an incomplete last
// line.
func expectedLines(data []byte) [][]byte {
	var lines [][]byte
	for line := range bytes.Lines(bytes.TrimPrefix(trimNULs(data), byteOrderMark)) {
		line, ended := bytes.CutSuffix(line, []byte("\n"))
		for _, line := range bytes.FieldsFunc(line, func(r rune) bool { return r == 0 }) {
			if len(trim(line)) > 0 && (ended || json.Valid(trim(line))) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func wantLines(t rapid.TB, data []byte, records []patch.Record) {
	t.Helper()
	var out bytes.Buffer
	testlog.NoError(t, WriteLines(&out, recordsSeq(records)))
	if want := bytes.Join(append(expectedLines(data), nil), []byte("\n")); !bytes.Equal(out.Bytes(), want) {
		t.Fatalf("the lines come back as\n%s\nwant\n%s", out.Bytes(), want)
	}
}

// wantWritten fails the test unless WriteLines writes the lines of the file.
func wantWritten(t *testing.T, data []byte, records iter.Seq2[patch.Record, error]) {
	t.Helper()
	var out bytes.Buffer
	testlog.NoError(t, WriteLines(&out, records))
	if want := append(bytes.Join(expectedLines(data), []byte("\n")), '\n'); !bytes.Equal(out.Bytes(), want) {
		t.Fatal("WriteLines writes something else")
	}
}

// WriteLines writes every line byte for byte, even if the record stores the line as text or as bytes.
func TestLinesRoundTrip(t *testing.T) {
	forEachFile(t, func(t *testing.T, f testFile) {
		records, _ := decodeFile(t, f.format, f.data)
		wantLines(t, f.data, records)
		var stored []patch.Record
		size := 0
		for i, r := range records {
			r.Seq = uint64(i + 1)
			form := testlog.Must(patch.AppendRecord(nil, r))(t)
			back, err := patch.DecodeRecord(form)
			testlog.NoError(t, err)
			stored = append(stored, back)
			size += len(recordform.Compress(form))
		}
		wantLines(t, f.data, stored)
		if ratio := float64(size) / float64(len(f.data)); len(f.data) > 20_000 && ratio > 1.6 {
			t.Errorf("the log is %.2f times the file", ratio)
		}

		var text bytes.Buffer
		for _, r := range records {
			r.Seq = 0
			testlog.NoError(t, patch.WriteRecord(&text, r))
		}
		parsed, _, err := logs.ReadAll(patch.NewDecoder(&text, "f"))
		testlog.NoError(t, err)
		wantLines(t, f.data, parsed)
	})
}

// If a file is cut at any point, the remaining lines give the same record ids as in the whole file.
func TestFileGrows(t *testing.T) {
	forEachFile(t, func(t *testing.T, f testFile) {
		all, _ := decodeFile(t, f.format, f.data)
		for cut := 1; cut <= len(f.data); cut++ {
			if cut < len(f.data) && f.data[cut-1] != '\n' && cut%997 != 0 {
				continue
			}
			records, d, err := tryDecode(f.format, f.data[:cut])
			if err != nil {
				if bytes.IndexByte(f.data[:cut], '\n') < 0 {
					continue // the first JSON value spans several lines, and cannot be read without its end
				}
				t.Fatal(err)
			}
			if (f.data[cut-1] == '\n') != (d.report.Unfinished == 0) {
				t.Fatalf("cut at %d: %d bytes are unfinished", cut, d.report.Unfinished)
			}
			for i, r := range records { // compare only ids, because times and usage may depend on later lines
				testlog.Equal(t, "id", r.ID(), all[i].ID())
			}
		}
	})
}

func wantSameRecords(t testing.TB, a, b []patch.Record) {
	t.Helper()
	for i := range a {
		x, _ := json.Marshal(a[i])
		y, _ := json.Marshal(b[i])
		if !bytes.Equal(x, y) {
			t.Fatalf("record %d is\n%s\nand\n%s", i, x, y)
		}
	}
}

func recordsSeq(records []patch.Record) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func wantVisible(t *testing.T, got, want []string) {
	t.Helper()
	testlog.Equal(t, "what is visible", got, want)
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	data := testlog.Must(os.ReadFile(filepath.Join("testdata", name)))(t)
	return data
}

// checkDecoded decodes a file and returns its records. It fails the test if the visible events, the session id or
// the report differ from the arguments.
func checkDecoded(t *testing.T, name string, format Format, session string, report report, want []string) []patch.Record {
	t.Helper()
	records, d := decodeFile(t, format, testdata(t, name+".jsonl"))
	wantVisible(t, describeEvents(foldRecords(t, records)), want)
	if d.tree.session != session || d.report != report {
		t.Errorf("session %q, report %+v, want %q, %+v", d.tree.session, d.report, session, report)
	}
	return records
}

func TestOldFiles(t *testing.T) {
	checkDecoded(t, "pi-v1", pi, "0b6f2a10-2222-4c1a-9a4e-7c5d0e9b2a02", report{Lines: 7, Compactions: 1}, []string{"pi/user: one and two", "user/user: three", "pi/model: four", "pi/user: five"})
	records := checkDecoded(t, "codex-bare", codex, "5973b6c0-5555-4b3b-9a8e-0f6f1d2c3b4a", report{Lines: 7}, []string{
		"user/user: Say hello.", `codex/model: call call_1 shell{"arguments":"not an object"}`,
		`codex/user: response call_1 shell{"result":"hello"}`, "codex/model: hello",
	})
	for _, r := range records { // only the header has a time, so all records get that time
		testlog.Equal(t, r.ID(), r.Event.Timestamp().Format("2006-01-02 15:04"), "2025-07-01 12:00")
	}
}

func TestPi(t *testing.T) {
	records := checkDecoded(t, "pi", pi, "0b6f2a10-1111-4c1a-9a4e-7c5d0e9b2a01", report{Lines: 21, Rewinds: 1, Compactions: 1}, []string{
		"pi/user: The kettle's loop compared floats for equality; it now stops at 100 or above.",
		"user/user: No library. Compare with >= instead.",
		`pi/model: call call_3 edit{"path":"kettle.go","oldText":"for t != 100 {","newText":"for t < 100 { // the water boils at 100 degrees, or just above it"}`,
		`pi/user: response call_3 edit{"result":"Edited."}`,
		"user/user: Ran `go test ./...`\n```\nok\n```",
		"pi/user: Tests must pass.",
		"user/user: Commit it.",
		"pi/model: Committed.",
	})
	// Before the compaction, the visible log still has all events that the compaction covers.
	wantVisible(t, describeEvents(foldRecords(t, records[:slices.IndexFunc(records, func(r patch.Record) bool { return r.Patch != nil && r.Patch.Type() == patch.Summarise })]))[:5], []string{
		"user/user: Why does the kettle simulation stop at 99.99 degrees? Please look at kettle.go.",
		`pi/model: thought The loop compares floats for equality, I guess. I should read the file first. Let me read it, and run its tests as well. call call_1 read{"path":"kettle.go","limit":120.0} call call_2 bash{"command":"go test ./..."}`,
		`pi/user: response call_1 read{"result":"package kettle\n\n// Boil heats until the water boils. ☕\nfunc Boil(t float64) float64 {\n\tfor t != 100 {\n\t\tt += 0.1\n\t}\n\treturn t\n}\n"} image/png`,
		`pi/user: response call_2 bash{"error":"panic: test timed out after 10m0s"}`,
		"pi/model: It compares floating-point numbers for equality, and 0.1 cannot be written exactly.",
	})
	e := findEvent(t, records, "a0000001")
	if logs.PromptTokens(e) != 3160 || e.InvocationID() != "u0000001" || e.Timestamp().Format("15:04:05") != "09:00:04" {
		t.Errorf("%s", e)
	}
	if e := findEvent(t, records, "a0000003"); !strings.Contains(e.String(), `"errorMessage":"Request was aborted"`) || !strings.Contains(e.String(), `"interrupted":true`) || e.SaysSomething() {
		t.Errorf("%s", e)
	}
	if e := findEvent(t, records, "a0000005"); e.InvocationID() != "u0000004" {
		t.Errorf("%s", e)
	}
	if e := findEvent(t, records, "r0000001"); !strings.Contains(e.String(), `"parts":[{"inlineData":{"mimeType":"image/png","data":"aGVsbG8gd29ybGQ="}}]`) {
		t.Errorf("%s", e)
	}
}

func findEvent(t testing.TB, records []patch.Record, id string) *patch.Event {
	t.Helper()
	for _, r := range records {
		if r.Event != nil && r.Event.ID() == id {
			return r.Event
		}
	}
	t.Fatalf("there is no event %q", id)
	return nil
}

func TestClaudeCode(t *testing.T) {
	records := checkDecoded(t, "claude-code", claudeCode, "7e2f0c44-3333-4a6b-8d0a-11aa22bb33cc", report{Lines: 27, Rewinds: 1, Compactions: 1, Copies: 1}, []string{
		"claude-code/user: This session is being continued from a previous conversation. The gate was pushed without a pause, since wait() did nothing.",
		"user/user: Let wait() sleep for a second.",
		"claude-code/model: Done: it sleeps for a second between two pushes.",
		"claude-code/user: <local-command-caveat>Caveat: the messages below were made by local commands.</local-command-caveat>",
		"user/user: Add a test.",
		"claude-code/model: A test is there.",
		"user/user: And one for the timer.",
	})
	i := slices.IndexFunc(records, func(r patch.Record) bool { return r.Patch != nil })
	wantVisible(t, describeEvents(foldRecords(t, records[:i])), []string{
		"user/user: The garden gate controller never closes. Find out why, and look at both files.",
		"claude-code/model: thought Two files: gate.py and timer.py. I read them side by side.",
		`claude-code/model: call toolu_1 Read{"file_path":"/home/ada/gate/gate.py"}`,
		`claude-code/model: call toolu_2 Read{"file_path":"/home/ada/gate/timer.py","offset":1.0}`,
		`claude-code/user: response toolu_1 Read{"result":"def close(gate):\n    while gate.open:\n        wait()\n        gate.push()\n"}`,
		`claude-code/user: response toolu_2 Read{"result":"def wait(): pass"} image/png`,
		`claude-code/model: I let a subagent check the motor. call toolu_3 Task{"description":"check the motor","prompt":"Look at motor.py","subagent_type":"general-purpose"}`,
		"claude-code/user@claude-code.e1c84ba5: Look at motor.py",
		"claude-code/model@claude-code.e1c84ba5: The motor is fine.",
		`claude-code/user: response toolu_3 Task{"result":"The motor is fine."}`,
		"claude-code/model: wait() does nothing, so the gate is pushed without a pause.",
		"user/user: Rewrite it in Rust.",
		"claude-code/model: A rewrite it is.",
	})
	if e := findEvent(t, records, "a1"); logs.PromptTokens(e) != 0 || e.InvocationID() != "u1" {
		t.Errorf("the usage of a message is on a piece before the last: %s", e)
	}
	if e := findEvent(t, records, "a3"); logs.PromptTokens(e) != 14003 {
		t.Errorf("%s", e)
	}
	if e := findEvent(t, records, "e1"); !strings.Contains(e.String(), `"errorMessage":"API Error: overloaded"`) {
		t.Errorf("%s", e)
	}
}

func TestCodex(t *testing.T) {
	records := checkDecoded(t, "codex", codex, "019a2d7a-4444-78b1-b7cc-a45d62a89cd5", report{Lines: 27, Rewinds: 1, Compactions: 1, Encrypted: 1, VisibleEvents: 3}, []string{
		"codex/user: Why does the clock run backwards? Another model began this task. The clock was fixed and counts in seconds.",
		"user/user: Thanks.",
		"codex/model: You are welcome.",
	})
	i := slices.IndexFunc(records, func(r patch.Record) bool { return r.Patch != nil && r.Patch.Type() == patch.Summarise })
	wantVisible(t, describeEvents(foldRecords(t, records[:i])), []string{
		"codex/user: <environment_context>\n  <cwd>/home/ada/clock</cwd>\n</environment_context>",
		"user/user: Why does the clock run backwards? image/png",
		"codex/model: thought **Looking for a sign error**",
		`codex/model: call call_A shell{"command":["bash","-lc","cat clock.c"],"timeout_ms":1000.0}`,
		`codex/model: call call_B local_shell{"type":"exec","command":["ls"]}`,
		`codex/user: response call_B local_shell{"result":"clock.c"}`,
		`codex/user: response call_A shell{"result":"{\"output\":\"int tick(int t) { return t - 1; }\\n\",\"metadata\":{\"exit_code\":0,\"duration_seconds\":0.0}}"}`,
		`codex/model: call call_C apply_patch{"input":"*** Begin Patch\n*** Update File: clock.c\n-int tick(int t) { return t - 1; }\n+int tick(int t) { return t + 1; }\n*** End Patch"}`,
		`codex/user: response call_C apply_patch{"result":"Success."}`,
		`codex/model: call  web_search{"type":"search","query":"clock direction"}`, `codex/user: response  web_search{"result":"completed"}`,
		"codex/model: It subtracted where it had to add. Fixed.",
		"user/user: Make it count in seconds.",
		"codex/model: It counts in seconds.",
	})
	measured := slices.IndexFunc(records, func(r patch.Record) bool { return r.Event != nil && logs.PromptTokens(r.Event) == 5000 })
	if measured < 0 {
		t.Error("no event has the usage")
	}
	for _, r := range records {
		if r.Event == nil {
			continue
		}
		if line, _ := recordLine(r); bytes.Contains(line.bytes(), []byte("gAAAAABx")) != strings.Contains(r.Event.String(), "compaction left as an event") {
			t.Errorf("%s", r.Event)
		}
	}
}

func openStore(t testing.TB) (*store.Store, store.Key) {
	return teststore.Memory(t, store.Options{}), store.Key{App: "a", User: "u", Session: "s"}
}

func importText(t testing.TB, s *store.Store, key store.Key, format Format, data []byte) (store.Imported, error) {
	t.Helper()
	name := key.Session
	source, err := OpenFile(data, FileOptions{Name: name, Key: key})
	if err != nil {
		return store.Imported{}, err
	}
	var result Result
	_, err = Run(t.Context(), s, source, Options{Session: func(r Result) error { result = r; return nil }})
	if err = errors.Join(err, result.Err); err != nil {
		return store.Imported{}, err
	}
	got, err := s.Get(t.Context(), key)
	return store.Imported{Committed: store.Committed{View: got.View}, Created: result.Status == Created, Added: result.Added, Present: result.Present}, err
}

// If a file is imported again after each new line, all its lines can be written back.
func TestImportGrowingFile(t *testing.T) {
	forEachFile(t, func(t *testing.T, f testFile) {
		s, key := openStore(t)
		for end := 0; end < len(f.data); {
			end += bytes.IndexByte(f.data[end:], '\n') + 1
			want := len(expectedLines(f.data[:end]))
			done, err := importText(t, s, key, f.format, f.data[:end])
			if errors.Is(err, store.ErrInvalid) && strings.Contains(err.Error(), "no message") {
				continue
			}
			if err != nil || done.Added == 0 {
				t.Fatal(want, done.Added, err)
			}
			if done, err = importText(t, s, key, f.format, f.data[:end]); err != nil || done.Added > 0 {
				t.Fatal("again:", want, done.Added, err)
			}
			records, _ := decodeFile(t, f.format, f.data[:end])
			wantVisible(t, describeEvents(done.View), describeEvents(foldRecords(t, records)))
		}
		wantWritten(t, f.data, s.RawEvents(t.Context(), key, 1))
	})
}

// If records that are not in the file were added to the session, an import still adds new lines of the file. If the
// new lines need a patch, the import is refused.
func TestFileAndSessionGrow(t *testing.T) {
	say := func(id, parent, text string) string {
		return fmt.Sprintf(`{"type":"message","id":%q,"parentId":%q,"message":{"role":"user","content":%q}}`+"\n", id, parent, text)
	}
	s, key := openStore(t)
	data := piHead + say("a", "", "one") + say("b", "a", "two")
	done := testlog.Must(importText(t, s, key, pi, []byte(data)))(t)
	testlog.NoError(t, testlog.ErrorOf(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{patch.NewSplice(1, 1)}, store.PatchOptions{On: done.View})))
	data += say("c", "b", "three")
	done, err := importText(t, s, key, pi, []byte(data))
	if err != nil || done.Added != 1 {
		t.Fatal(done, err)
	}
	wantVisible(t, visibleTexts(done.View), []string{"two", "three"})
	testlog.ErrorIs(t, testlog.ErrorOf(importText(t, s, key, pi, []byte(data+say("d", "b", "four")))), store.ErrConflict)
}

// In the imported session, each result follows its call, before and after a compaction. A summary that the agent
// wrote counts as a summary.
func TestCompaction(t *testing.T) {
	forEachFile(t, func(t *testing.T, f testFile) {
		s, key := openStore(t)
		done := testlog.Must(importText(t, s, key, f.format, f.data))(t)
		checkPaired(t, done.View)
		before := done.View.Len()
		c := testlog.Must(compaction.New(compaction.Log[store.Key](s), compaction.Config{Enabled: true, CompactionInterval: 1, OverlapSize: 0, TokenThreshold: 100, EventRetentionSize: 2, Summarizer: compaction.Extractive{}},
			compaction.Options[store.Key]{}))(t)
		written := testlog.Must(c.Compact(context.Background(), key, compaction.Run{}))(t)
		v := testlog.Must(s.Get(t.Context(), key))(t).View
		if strings.HasPrefix(f.name, "pi-real") && (len(written) == 0 || v.Len() >= before) {
			t.Errorf("%d of %d events are visible after %d windows", v.Len(), before, len(written))
		}
		checkPaired(t, v)
		testlog.Equal(t, "patches that do not apply", v.SkippedCount(), 0)
		wantWritten(t, f.data, s.RawEvents(t.Context(), key, 1))
	})
}

// checkPaired fails the test if a visible response has no call before it.
func checkPaired(t testing.TB, v fold.View) {
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

func FuzzPi(f *testing.F)         { fuzzFormat(f, pi) }
func FuzzClaudeCode(f *testing.F) { fuzzFormat(f, claudeCode) }
func FuzzCodex(f *testing.F)      { fuzzFormat(f, codex) }

// fuzzFormat fuzzes the lines that follow a valid start of a file. No line may be lost, every patch must apply, and
// decoding must be deterministic.
func fuzzFormat(f *testing.F, format Format) {
	for _, file := range testFiles(f) {
		if file.format.Name != format.Name || len(file.data) > 20_000 {
			continue
		}
		f.Add(file.data)
		for lines := range slices.Chunk(bytes.SplitAfter(file.data, []byte("\n")), 3) {
			f.Add(bytes.Join(lines, nil))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkFuzz(t, format, append([]byte(heads[format.Name]), data...))
	})
}

func checkFuzz(t *testing.T, format Format, data []byte) {
	records, d, err := tryDecode(format, data)
	again, _, err2 := tryDecode(format, data)
	if fmt.Sprint(err) != fmt.Sprint(err2) || len(records) != len(again) {
		t.Fatal(err, err2)
	}
	wantSameRecords(t, records, again)
	if err != nil {
		if !errors.Is(err, patch.ErrInvalid) && !errors.Is(err, patch.ErrTooLarge) {
			t.Fatal(err)
		}
		return
	}
	foldRecords(t, records)
	if d.report.WithoutParent == 0 {
		wantLines(t, data, records)
	}
	testlog.Equal(t, "lines", d.report.Lines+d.report.WithoutParent, len(expectedLines(data)))
	ids := map[string]bool{}
	for _, r := range records {
		for id := range r.IDs() {
			if id == "" || ids[id] {
				t.Fatalf("id %q occurs twice", id)
			}
			ids[id] = true
		}
	}
}

const (
	piHead     = `{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00Z"}` + "\n"
	claudeHead = `{"type":"mode","sessionId":"s"}` + "\n"
	codexHead  = `{"type":"session_meta","payload":{"id":"s"}}` + "\n"
)

var heads = map[string]string{"pi": piHead, "claude-code": claudeHead, "codex": codexHead}

func TestRefused(t *testing.T) {
	said := func(id, text string) string {
		return `{"type":"message","id":"` + id + `","parentId":null,"timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":"` + text + `"}}` + "\n"
	}
	for name, c := range map[string]struct {
		data string
		want string
		is   error
	}{
		"nothing":     {"\n \n", "file: it is empty", store.ErrInvalid},
		"nobody's":    {`{"a":1}` + "\n", "file: its format is unknown", store.ErrInvalid},
		"no JSON":     {"hello\n", "file: its format is unknown", store.ErrInvalid},
		"no message":  {piHead, "file: invalid: the file has no messages", store.ErrInvalid},
		"a long line": {piHead + said("a", "x") + said("b", strings.Repeat("x", maxLineBytes)), fmt.Sprintf("file:3: too large: the line is longer than %d bytes", maxLineBytes), patch.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := OpenFile([]byte(c.data), FileOptions{Name: "file"})
			if err == nil {
				for _, e := range source.Sessions(t.Context()) {
					err = e
				}
			}
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || !errors.Is(err, c.is) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// If a line is not a valid event, the line is kept, together with the content that can be read.
func TestOddLines(t *testing.T) {
	odd := []string{
		`{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"half a \ud83d pair"}}`,
		`{"type":"message","id":"b","parentId":"a","message":{"role":"user","content":"twice"},"x":1,"x":2}`,
		"{\"type\":\"message\",\"id\":\"c\",\"parentId\":\"b\",\"message\":{\"role\":\"user\",\"content\":\"not \xff Unicode\"}}",
		`{"type":"message","id":"d","parentId":"c","message":{"role":"user","content":"deep"},"x":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`,
		`{"type":"mess` + `{"type":"message","id":"e","parentId":"d"}`,
		`[1,2]`, `null`, `"text"`, `17`, `{}`, `{"type":7,"id":{},"parentId":[]}`,
		`{"type":"message","id":"f","parentId":"d","message":{"role":"assistant","content":[{"type":"toolCall","id":"t","name":"f","arguments":[1]},{"type":"text"},{"type":"odd","text":"?"},7]}}`,
		`  {"type" : "message", "id":"g","parentId":"nowhere", "timestamp":"yesterday","message":{"role":"toolResult","toolCallId":"t","toolName":"f","content":[{"type":"odd"}]}}  ` + "\r",
		`{"type":"message","id":"h","parentId":"g","timestamp":"9999-12-31T23:59:59-23:00","version":[],"message":{"role":"assistant","model":7,"usage":"much","content":"other types"}}`,
		`{"type":"message","id":"` + strings.Repeat("i", 2000) + `","parentId":"h","message":{"role":"user","content":"long id"}}`,
		`{"type":"message","id":"a","parentId":"h","message":{"role":"user","content":"another a"}}`, `{"type":"message","id":"k","parentId":"a","message":{"role":"user","content":"behind it"}}`,
	}
	data := []byte(piHead + strings.Join(odd, "\n") + "\n")
	records, d := decodeFile(t, pi, data)
	wantLines(t, data, records)
	wantVisible(t, describeEvents(foldRecords(t, records)), []string{
		"user/user: half a \uFFFD pair", "user/user: twice", "user/user: not \uFFFD Unicode", "user/user: deep",
		`pi/model: call t f{"arguments":[1]}`, `pi/user: response t f{"result":{"type":"odd"}}`, "pi/model: other types", "user/user: another a", "user/user: behind it",
	})
	if r := d.report; r.Unreadable != 1 || r.ReusedIDs != 1 || r.Lines != len(odd)+1 {
		t.Errorf("%+v", r)
	}
}

// A message that the file repeats after a compaction is visible only once.
func TestPreservedMessages(t *testing.T) {
	message := func(uuid, parent, role, text string) string {
		if parent = `"` + parent + `"`; parent == `""` {
			parent = "null"
		}
		return fmt.Sprintf(`{"type":%q,"uuid":%q,"parentUuid":%s,"sessionId":"s","message":{"id":"m%s","role":%q,"content":%q}}`+"\n", role, uuid, parent, uuid, role, text)
	}
	boundary := func(uuid, logical, kept string) string {
		return fmt.Sprintf(`{"type":"system","subtype":"compact_boundary","uuid":%q,"parentUuid":null,"logicalParentUuid":%q,"sessionId":"s","compactMetadata":{%s}}`+"\n", uuid, logical, kept)
	}
	summary := func(uuid, parent, text string) string {
		return fmt.Sprintf(`{"type":"user","uuid":%q,"parentUuid":%q,"sessionId":"s","isCompactSummary":true,"message":{"role":"user","content":%q}}`+"\n", uuid, parent, text)
	}
	talk := claudeHead + message("u1", "", "user", "one") + message("a1", "u1", "assistant", "two") + message("u2", "a1", "user", "three") + message("a2", "u2", "assistant", "four")
	kept := talk + boundary("b", "a2", `"preservedSegment":{"headUuid":"u2","tailUuid":"a2"}`) + summary("c", "b", "sum") // the boundary keeps u2 and a2
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"listed, one of them repeated later": {
			talk + boundary("b", "a3", `"preservedMessages":{"anchorUuid":"c","uuids":["u2","a2","a3"]},"preservedSegment":{"headUuid":"u2","tailUuid":"a3"}`) +
				summary("c", "b", "sum") + message("a3", "c", "assistant", "five") + message("u3", "a3", "user", "six"),
			[]string{"sum", "three", "four", "five", "six"},
		},
		"the end is a row that follows another message": {
			talk + message("u1", "", "user", "one") +
				`{"type":"system","subtype":"stop_hook_summary","uuid":"h","parentUuid":"u1","sessionId":"s"}` + "\n" +
				boundary("b", "h", `"preservedSegment":{"headUuid":"a2","tailUuid":"h"}`) + summary("c", "b", "sum") + message("u3", "c", "user", "six"),
			[]string{"sum", "four", "six"},
		},
		"gone back, then compacted": {
			talk + boundary("b", "a1", `"preservedSegment":{"headUuid":"a1","tailUuid":"a1"}`) + summary("c", "b", "sum") + message("u3", "a1", "user", "six"),
			[]string{"sum", "two", "six"},
		},
		"messages after the kept ones": {
			kept + message("u3", "a2", "user", "five") + message("u4", "a2", "user", "six"),
			[]string{"sum", "three", "four", "six"},
		},
		"from before the compaction": {
			kept + message("u3", "a2", "user", "five") + message("u4", "a1", "user", "six"),
			[]string{"one", "two", "six"},
		},
		"back to a kept message": {
			kept + message("u3", "a1", "user", "five") + message("u4", "a2", "user", "six"),
			[]string{"sum", "three", "four", "six"},
		},
		"back to after the summary": {
			talk + boundary("b", "a2", "") + summary("c", "b", "sum") + message("u3", "c", "user", "five") +
				message("u4", "a1", "user", "six") + message("u5", "u3", "user", "seven"),
			[]string{"sum", "five", "seven"},
		},
		"without a boundary": {
			talk + `{"type":"user","uuid":"c","parentUuid":null,"sessionId":"s","isCompactSummary":true,"message":{"role":"user","content":"sum"}}` + "\n" + message("u3", "c", "user", "five"),
			[]string{"sum", "five"},
		},
		"twice": {
			talk + boundary("b", "a2", "") + summary("c", "b", "sum") + message("u3", "c", "user", "five") + boundary("b2", "u3", "") + summary("c2", "b2", "sum of sum") + message("u4", "c2", "user", "six"),
			[]string{"sum of sum", "six"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			records, d := decodeFile(t, claudeCode, []byte(c.data))
			wantVisible(t, visibleTexts(foldRecords(t, records)), c.want)
			wantLines(t, []byte(c.data), records)
			if d.report.Compactions == 0 || d.report.NotAdopted > 0 {
				t.Errorf("%+v", d.report)
			}
		})
	}
}

// A row of type system is not a branch if the next message does not follow it. Such a row must hide no events.
func TestNoRewind(t *testing.T) {
	const turn = `{"type":"system","subtype":"turn_duration","uuid":%q,"parentUuid":%q,"sessionId":"s"}` + "\n"
	said := func(role, uuid, parent string) string {
		return line(fields{"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": fields{"id": "m" + uuid, "role": role, "content": uuid}})
	}
	hidden := func(data string) (all []int) {
		records, _ := decodeFile(t, claudeCode, []byte(data))
		for _, r := range records {
			if r.Patch != nil {
				all = append(all, r.Patch.Start(), r.Patch.Count())
			}
		}
		return all
	}
	data := claudeHead + said("user", "u", "") + said("assistant", "a", "u") + fmt.Sprintf(turn, "y", "a") + said("user", "v", "a")
	testlog.Equal(t, "hidden", hidden(data), nil)
	data += fmt.Sprintf(turn, "z", "u") + said("user", "w", "z")
	testlog.Equal(t, "hidden", hidden(data), []int{2, 3}) // hides the response "a", the row "y" and the message "v"
}

func TestConversationRules(t *testing.T) {
	say := func(id, parent, text string) string {
		return line(fields{"type": "message", "id": id, "parentId": parent, "message": fields{"role": "user", "content": text}})
	}
	compacts := func(id, parent, summary, kept string) string {
		return line(fields{"type": "compaction", "id": id, "parentId": parent, "summary": summary, "firstKeptEntryId": kept})
	}
	run := func(more string) string {
		return `{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-01T00:00:00Z","message":{"role":"bashExecution","command":"ls","output":"a","exitCode":2,"cancelled":false,"truncated":true,"fullOutputPath":"/tmp/x"` + more + `}}` + "\n"
	}
	item := func(role, text string) string {
		return line(fields{"type": "response_item", "payload": fields{"type": "message", "role": role, "content": []fields{{"type": "input_text", "text": text}}}})
	}
	const side = `"isSidechain":true,"agentId":"x1","sessionId":"s","message":`
	for name, c := range map[string]struct {
		format     Format
		data       string
		says       []string
		session    string
		notAdopted int
		reasons    map[string]string
	}{
		"a compaction does not part a call from its result": {format: pi, data: piHead + say("u", "", "go") +
			`{"type":"message","id":"a","parentId":"u","message":{"role":"assistant","content":[{"type":"toolCall","id":"t","name":"f","arguments":{}}]}}` + "\n" +
			`{"type":"message","id":"r","parentId":"a","message":{"role":"toolResult","toolCallId":"t","toolName":"f","content":[{"type":"text","text":"ok"}]}}` + "\n" +
			compacts("c", "r", "sum", "r"),
			says: []string{"pi/user: sum", "pi/model: call t f{}", `pi/user: response t f{"result":"ok"}`}, session: "s"},
		"a compaction that does not say what it covers is an event": {format: pi,
			data: piHead + say("u", "", "go") + compacts("c", "u", "sum", "nowhere") + compacts("d", "c", "sum 2", "u"),
			says: []string{"user/user: go", "pi/user: sum", "pi/user: sum 2"}, session: "s",
			notAdopted: 2, reasons: map[string]string{"c": "it does not say", "d": "no event that it covers"}},
		"the first entry that it keeps may be one that an earlier compaction covers": {format: pi,
			data: piHead + say("a", "", "one") + say("b", "a", "two") + compacts("c", "b", "sum", "b") + compacts("d", "c", "sum 2", "a"),
			says: []string{"pi/user: sum", "user/user: two", "pi/user: sum 2"}, session: "s",
			notAdopted: 1, reasons: map[string]string{"d": "the first event that it keeps is not visible"}},
		"a command run without telling the agent is left out": {format: pi, data: piHead + run(`,"excludeFromContext":true`), session: "s"},
		"a command run by the user": {format: pi, data: piHead + run(""), session: "s",
			says: []string{"user/user: Ran `ls`\n```\na\n```\n\nCommand exited with code 2\n\n[Output truncated. Full output: /tmp/x]"}},
		"a subagent's own file": {format: claudeCode, session: "s-agent-x1",
			data: `{"type":"user","uuid":"u","parentUuid":null,` + side + `{"role":"user","content":"look"}}` + "\n" +
				`{"type":"assistant","uuid":"a","parentUuid":"u",` + side + `{"role":"assistant","content":[{"type":"text","text":"seen"}]}}` + "\n",
			says: []string{"user/user: look", "claude-code/model: seen"}},
		"a transcript may begin with lines of the session that it continues": {format: claudeCode,
			data: claudeHead + line(fields{"type": "mode", "sessionId": "newer"}), session: "newer"},
		"a fork's file repeats that of its origin, after its own head": {format: codex,
			data: codexHead + line(fields{"type": "session_meta", "payload": fields{"id": "origin"}}), session: "s"},
		"a compaction without a history": {format: codex, session: "s",
			data: codexHead + item("user", "one") + item("assistant", "two") + item("user", "three") + `{"type":"compacted","payload":{"message":"sum"}}` + "\n" + item("user", "four"),
			says: []string{"codex/user: one three sum", "user/user: four"}},
	} {
		t.Run(name, func(t *testing.T) {
			records, d := decodeFile(t, c.format, []byte(c.data))
			wantVisible(t, describeEvents(foldRecords(t, records)), c.says)
			if d.tree.session != c.session || d.report.NotAdopted != c.notAdopted {
				t.Errorf("session %q, %+v", d.tree.session, d.report)
			}
			for id, why := range c.reasons {
				if e := findEvent(t, records, id); !strings.Contains(e.String(), "left as an event: "+why) {
					t.Errorf("%s", e)
				}
			}
		})
	}
}

// If the rewinds in a file would take too much time, the import is refused.
func TestTooManyRewinds(t *testing.T) {
	if testing.Short() {
		t.Skip("left out, for the run is short")
	}
	var b bytes.Buffer
	b.WriteString(piHead)
	say := func(id, parent string) {
		fmt.Fprintf(&b, `{"type":"message","id":%q,"parentId":%q,"message":{"role":"user","content":"x"}}`+"\n", id, parent)
	}
	const long = 4000
	for _, side := range []string{"a", "b"} {
		say(side+"0", "")
		for i := range long {
			say(fmt.Sprint(side, i+1), fmt.Sprint(side, i))
		}
	}
	for i := range 40_000 {
		say(fmt.Sprint("c", i), fmt.Sprint([]string{"a", "b"}[i%2], long))
	}
	if _, _, err := tryDecode(pi, b.Bytes()); !errors.Is(err, patch.ErrTooLarge) {
		t.Fatal(err)
	}
}
