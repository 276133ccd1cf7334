package sessionfile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

var own = flag.String("files", "", "session files to try beside those of testdata: `FORMAT=GLOB`")

// file is a session file of testdata, or one that the flag names.
type file struct {
	name   string
	format sessionfile.Format
	data   []byte
	ours   bool
}

func files(t testing.TB) []file {
	t.Helper()
	var all []file
	for name, format := range map[string]sessionfile.Format{
		"pi": sessionfile.Pi, "pi-v1": sessionfile.Pi, "pi-real-cut": sessionfile.Pi,
		"claude-code": sessionfile.ClaudeCode, "codex": sessionfile.Codex, "codex-bare": sessionfile.Codex,
	} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file{name, format, data, true})
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.name, b.name) })
	format, glob, ok := strings.Cut(*own, "=")
	if !ok {
		return all
	}
	names, err := filepath.Glob(glob)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s names no file (%v)", glob, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file{name, sessionfile.Format(format), data, false})
	}
	return all
}

// eachFile runs a test on each file.
func eachFile(t *testing.T, run func(t *testing.T, f file)) {
	for _, f := range files(t) {
		t.Run(f.name, func(t *testing.T) { run(t, f) })
	}
}

func read(t testing.TB, format sessionfile.Format, data []byte) ([]patch.Record, *sessionfile.Decoder) {
	t.Helper()
	records, d, err := tryRead(format, data)
	if err != nil {
		t.Fatal(err)
	}
	return records, d
}

func tryRead(format sessionfile.Format, data []byte) ([]patch.Record, *sessionfile.Decoder, error) {
	d := sessionfile.NewDecoder(bytes.NewReader(data), format, "file")
	var records []patch.Record
	for {
		r, err := d.Next()
		if errors.Is(err, io.EOF) {
			return records, d, nil
		}
		if err != nil {
			return records, d, err
		}
		records = append(records, r)
	}
}

// view folds records as a log.
func view(t testing.TB, records []patch.Record) fold.View {
	t.Helper()
	var logged []patch.Record
	for i, r := range records {
		r.Seq = uint64(i + 1)
		logged = append(logged, r)
	}
	v, err := fold.New("c", nil).Apply(logged...)
	if err != nil {
		t.Fatal(err)
	}
	if skipped, err := v.Skipped(); err != nil || len(skipped) > 0 {
		t.Fatalf("skipped: %v (%v)", skipped, err)
	}
	return v
}

// says returns what the visible events with content say, each as author and texts, calls
// and responses.
func says(v fold.View) []string {
	var all []string
	for _, e := range v.Events() {
		if e.HasContent() {
			all = append(all, said(e))
		}
	}
	return all
}

func said(e *patch.Event) string {
	text := e.Author() + "/" + e.Role()
	if e.Branch() != "" {
		text += "@" + e.Branch()
	}
	text += ":"
	for _, p := range e.Content().Parts() {
		switch p.Kind {
		case patch.PartCall:
			text += fmt.Sprintf(" call %s %s%s", p.ID, p.Name, records.JSON(p.Args))
		case patch.PartResponse:
			text += fmt.Sprintf(" response %s %s%s", p.ID, p.Name, records.JSON(p.Response))
		default:
			if p.Thought {
				text += " thought"
			}
			text += " " + p.Text + p.MIMEType
		}
	}
	return text
}

func sequence(records []patch.Record) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// linesOf returns the lines of a file as they should come back: without white space between
// the elements of their JSON, and without a last line that is neither JSON nor ended.
func linesOf(data []byte) [][]byte {
	var lines [][]byte
	rest := data
	for len(rest) > 0 {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		text := bytes.TrimSpace(line)
		switch {
		case len(text) == 0:
		case json.Valid(text):
			var compact bytes.Buffer
			json.Compact(&compact, text)
			lines = append(lines, compact.Bytes())
		case ended:
			lines = append(lines, line)
		}
	}
	return lines
}

func sameLines(t testing.TB, data []byte, records []patch.Record) {
	t.Helper()
	want := linesOf(data)
	i := 0
	for line, err := range sessionfile.Lines(sequence(records)) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(want) || !bytes.Equal(line, want[i]) {
			t.Fatalf("line %d comes back as %s", i+1, line)
		}
		i++
	}
	if i != len(want) {
		t.Fatalf("%d of %d lines come back", i, len(want))
	}
}

// Every line comes back, byte for byte: from the records, and when they have been text and
// bytes.
func TestLinesComeBack(t *testing.T) {
	eachFile(t, func(t *testing.T, f file) {
		records, _ := read(t, f.format, f.data)
		sameLines(t, f.data, records)
		var stored []patch.Record
		size, whole := 0, 0
		for i, r := range records {
			r.Seq = uint64(i + 1)
			form, err := patch.AppendRecord(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			back, err := patch.DecodeRecord(form)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, back)
			size += len(form)
			whole += len(form)
			if line, ok, err := sessionfile.Line(r); ok && err == nil {
				e := r.Event
				if r.Patch != nil {
					e = r.Patch.NewEvents()[0]
				}
				metadata, _ := e.Field("customMetadata")
				whole += len(line) - len(metadata)
			}
		}
		sameLines(t, f.data, stored)
		t.Logf("a record form is %.2f times the file; with whole lines it would be %.2f times", ratio(size, f.data), ratio(whole, f.data))
		if len(f.data) > 20_000 && ratio(size, f.data) > 1.6 {
			t.Errorf("the log is %.2f times the file", ratio(size, f.data))
		}

		var text bytes.Buffer
		if n, err := sessionfile.NewDecoder(bytes.NewReader(f.data), f.format, "f").WriteTo(&text); err != nil || n != int64(text.Len()) {
			t.Fatal(n, err)
		}
		parsed, _, err := readAll(patch.NewDecoder(&text, "f"))
		if err != nil {
			t.Fatal(err)
		}
		sameLines(t, f.data, parsed)
		var out bytes.Buffer
		if err := sessionfile.WriteLines(&out, sequence(parsed)); err != nil {
			t.Fatal(err)
		}
		if want := append(bytes.Join(linesOf(f.data), []byte("\n")), '\n'); !bytes.Equal(out.Bytes(), want) {
			t.Fatal("WriteLines writes something else")
		}
	})
}

func ratio(n int, data []byte) float64 { return float64(n) / float64(len(data)) }

// The first lines of a file give the first records, wherever it is cut.
func TestFileGrows(t *testing.T) {
	eachFile(t, func(t *testing.T, f file) {
		if !f.ours {
			t.Skip("too long")
		}
		all, _ := read(t, f.format, f.data)
		for cut := 1; cut <= len(f.data); cut++ {
			if cut < len(f.data) && f.data[cut-1] != '\n' && cut%997 != 0 {
				continue
			}
			records, d, err := tryRead(f.format, f.data[:cut])
			if err != nil {
				if bytes.IndexByte(f.data[:cut], '\n') < 0 {
					continue // not one line
				}
				t.Fatal(err)
			}
			if (f.data[cut-1] == '\n') != (d.Report().Unfinished == 0) {
				t.Fatalf("cut at %d: %d bytes are unfinished", cut, d.Report().Unfinished)
			}
			sameRecords(t, records, all[:len(records)])
		}
	})
}

func sameRecords(t testing.TB, a, b []patch.Record) {
	t.Helper()
	for i := range a {
		x, _ := json.Marshal(a[i])
		y, _ := json.Marshal(b[i])
		if !bytes.Equal(x, y) {
			t.Fatalf("record %d is\n%s\nand\n%s", i, x, y)
		}
	}
}

func check(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("event %d says\n  %s, want\n  %s", i, g, w)
		}
	}
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestPi(t *testing.T) {
	records, d := read(t, sessionfile.Pi, testdata(t, "pi.jsonl"))
	v := view(t, records)
	check(t, says(v), []string{
		"pi/user: The kettle's loop compared floats for equality; it now stops at 100 or above.",
		"user/user: No library. Compare with >= instead.",
		`pi/model: call call_3 edit{"path":"kettle.go","oldText":"for t != 100 {","newText":"for t < 100 { // the water boils at 100 degrees, or just above it"}`,
		`pi/user: response call_3 edit{"result":"Edited."}`,
		"user/user: Ran `go test ./...`\n```\nok\n```",
		"pi/user: Tests must pass.",
		"user/user: Commit it.",
		"pi/model: Committed.",
	})
	if id := d.SessionID(); id != "0b6f2a10-1111-4c1a-9a4e-7c5d0e9b2a01" {
		t.Errorf("the session is %q", id)
	}
	if got, want := d.Report(), (sessionfile.Report{Lines: 21, Rewinds: 1, Compactions: 1}); got != want {
		t.Errorf("report %+v, want %+v", got, want)
	}
	// Before the compaction, with all that it covers.
	check(t, says(view(t, records[:slices.IndexFunc(records, func(r patch.Record) bool { return r.Patch != nil && r.Patch.Type() == patch.Summarise })]))[:5], []string{
		"user/user: Why does the kettle simulation stop at 99.99 degrees? Please look at kettle.go.",
		`pi/model: thought The loop compares floats for equality, I guess. I should read the file first. Let me read it, and run its tests as well. call call_1 read{"path":"kettle.go","limit":120.0} call call_2 bash{"command":"go test ./..."}`,
		`pi/user: response call_1 read{"result":"package kettle\n\n// Boil heats until the water boils. ☕\nfunc Boil(t float64) float64 {\n\tfor t != 100 {\n\t\tt += 0.1\n\t}\n\treturn t\n}\n"}`,
		`pi/user: response call_2 bash{"error":"panic: test timed out after 10m0s"}`,
		"pi/model: It compares floating-point numbers for equality, and 0.1 cannot be written exactly.",
	})
	e := find(t, records, "a0000001")
	if promptTokens(e) != 3160 || e.InvocationID() != "u0000001" || e.Timestamp().Format("15:04:05") != "09:00:04" {
		t.Errorf("%s", e)
	}
	if e := find(t, records, "a0000003"); !strings.Contains(e.String(), `"errorMessage":"Request was aborted"`) || !strings.Contains(e.String(), `"interrupted":true`) || e.HasContent() {
		t.Errorf("%s", e)
	}
	if e := find(t, records, "a0000005"); e.InvocationID() != "u0000004" {
		t.Errorf("%s", e)
	}
	if e := find(t, records, "r0000001"); !strings.Contains(e.String(), `"parts":[{"inlineData":{"mimeType":"image/png","data":"aGVsbG8gd29ybGQ="}}]`) {
		t.Errorf("%s", e)
	}
}

func find(t testing.TB, records []patch.Record, id string) *patch.Event {
	t.Helper()
	for _, r := range records {
		if r.Event != nil && r.Event.ID() == id {
			return r.Event
		}
	}
	t.Fatalf("there is no event %q", id)
	return nil
}

func TestPiWithoutIDs(t *testing.T) {
	records, d := read(t, sessionfile.Pi, testdata(t, "pi-v1.jsonl"))
	check(t, says(view(t, records)), []string{"pi/user: one and two", "user/user: three", "pi/model: four", "pi/user: five"})
	if d.Report().Compactions != 1 {
		t.Errorf("%+v", d.Report())
	}
}

func TestClaudeCode(t *testing.T) {
	records, d := read(t, sessionfile.ClaudeCode, testdata(t, "claude-code.jsonl"))
	check(t, says(view(t, records)), []string{
		"claude-code/user: This session is being continued from a previous conversation. The gate was pushed without a pause, since wait() did nothing.",
		"user/user: Let wait() sleep for a second.",
		"claude-code/model: Done: it sleeps for a second between two pushes.",
		"claude-code/user: <local-command-caveat>Caveat: the messages below were made by local commands.</local-command-caveat>",
		"user/user: Add a test.",
		"claude-code/model: A test is there.",
		"user/user: And one for the timer.",
	})
	if id := d.SessionID(); id != "7e2f0c44-3333-4a6b-8d0a-11aa22bb33cc" {
		t.Errorf("the session is %q", id)
	}
	if got, want := d.Report(), (sessionfile.Report{Lines: 27, Rewinds: 1, Compactions: 1, Copies: 1}); got != want {
		t.Errorf("report %+v, want %+v", got, want)
	}
	i := slices.IndexFunc(records, func(r patch.Record) bool { return r.Patch != nil })
	check(t, says(view(t, records[:i])), []string{
		"user/user: The garden gate controller never closes. Find out why, and look at both files.",
		"claude-code/model: thought Two files: gate.py and timer.py. I read them side by side.",
		`claude-code/model: call toolu_1 Read{"file_path":"/home/ada/gate/gate.py"}`,
		`claude-code/model: call toolu_2 Read{"file_path":"/home/ada/gate/timer.py","offset":1.0}`,
		`claude-code/user: response toolu_1 Read{"result":"def close(gate):\n    while gate.open:\n        wait()\n        gate.push()\n"}`,
		`claude-code/user: response toolu_2 Read{"result":"def wait(): pass"}`,
		`claude-code/model: I let a subagent check the motor. call toolu_3 Task{"description":"check the motor","prompt":"Look at motor.py","subagent_type":"general-purpose"}`,
		"claude-code/user@claude-code.e1c84ba5: Look at motor.py",
		"e1c84ba5/model@claude-code.e1c84ba5: The motor is fine.",
		`claude-code/user: response toolu_3 Task{"result":"The motor is fine."}`,
		"claude-code/model: wait() does nothing, so the gate is pushed without a pause.",
		"user/user: Rewrite it in Rust.",
		"claude-code/model: A rewrite it is.",
	})
	if e := find(t, records, "a1"); promptTokens(e) != 14003 || e.InvocationID() != "u1" {
		t.Errorf("%s", e)
	}
	if e := find(t, records, "a2"); promptTokens(e) != 0 {
		t.Errorf("the usage of a message is told twice: %s", e)
	}
	if e := find(t, records, "e1"); !strings.Contains(e.String(), `"errorMessage":"API Error: overloaded"`) {
		t.Errorf("%s", e)
	}
}

func TestCodex(t *testing.T) {
	records, d := read(t, sessionfile.Codex, testdata(t, "codex.jsonl"))
	check(t, says(view(t, records)), []string{
		"codex/user: Why does the clock run backwards? Another model began this task. The clock was fixed and counts in seconds.",
		"user/user: Thanks.",
		"codex/model: You are welcome.",
	})
	if id := d.SessionID(); id != "019a2d7a-4444-78b1-b7cc-a45d62a89cd5" {
		t.Errorf("the session is %q", id)
	}
	if got, want := d.Report(), (sessionfile.Report{Lines: 27, Rewinds: 1, Compactions: 1, Left: 1}); got != want {
		t.Errorf("report %+v, want %+v", got, want)
	}
	i := slices.IndexFunc(records, func(r patch.Record) bool { return r.Patch != nil && r.Patch.Type() == patch.Summarise })
	check(t, says(view(t, records[:i])), []string{
		"codex/user: <environment_context>\n  <cwd>/home/ada/clock</cwd>\n</environment_context>",
		"user/user: Why does the clock run backwards? image/png",
		"codex/model: thought **Looking for a sign error**",
		`codex/model: call call_A shell{"command":["bash","-lc","cat clock.c"],"timeout_ms":1000.0}`,
		`codex/model: call call_B local_shell{"type":"exec","command":["ls"]}`,
		`codex/user: response call_B local_shell{"result":"clock.c"}`,
		`codex/user: response call_A shell{"result":"{\"output\":\"int tick(int t) { return t - 1; }\\n\",\"metadata\":{\"exit_code\":0,\"duration_seconds\":0.0}}"}`,
		`codex/model: call call_C apply_patch{"input":"*** Begin Patch\n*** Update File: clock.c\n-int tick(int t) { return t - 1; }\n+int tick(int t) { return t + 1; }\n*** End Patch"}`,
		`codex/user: response call_C apply_patch{"result":"Success."}`,
		"codex/model: It subtracted where it had to add. Fixed.",
		"user/user: Make it count in seconds.",
		"codex/model: It counts in seconds.",
	})
	measured := slices.IndexFunc(records, func(r patch.Record) bool { return r.Event != nil && promptTokens(r.Event) == 5000 })
	if measured < 0 {
		t.Error("no event has the usage")
	}
	for _, r := range records {
		if r.Event == nil {
			continue
		}
		if line, _, _ := sessionfile.Line(r); bytes.Contains(line, []byte("gAAAAABx")) != strings.Contains(r.Event.String(), "compaction left as an event") {
			t.Errorf("%s", r.Event)
		}
	}
}

func TestCodexWithoutEnvelopes(t *testing.T) {
	records, d := read(t, sessionfile.Codex, testdata(t, "codex-bare.jsonl"))
	check(t, says(view(t, records)), []string{
		"user/user: Say hello.", `codex/model: call call_1 shell{"arguments":"not an object"}`,
		`codex/user: response call_1 shell{"result":"hello"}`, "codex/model: hello",
	})
	if d.SessionID() != "5973b6c0-5555-4b3b-9a8e-0f6f1d2c3b4a" {
		t.Errorf("the session is %q", d.SessionID())
	}
}

func promptTokens(e *patch.Event) int { return records.PromptTokens(e) }

func readAll(d *patch.Decoder) ([]patch.Record, map[string]patch.Value, error) {
	return records.ReadAll(d)
}
