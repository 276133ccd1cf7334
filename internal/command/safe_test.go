package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// hostile has every kind of character that drives a terminal.
const hostile = "\x1b[2J\x07\x7f\u0085\u009b31m\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\x00\r\t"

// own are the codes that the command itself writes to a terminal.
var own = regexp.MustCompile("\x1b\\[(0|1|2|31|32|33|35|36)m|\r|\x1b\\[K")

// checkSafe fails the test if the output of a command could drive a terminal.
func checkSafe(t *testing.T, what any, output string, terminal bool) {
	t.Helper()
	if terminal {
		output = own.ReplaceAllString(output, "")
	}
	for i, r := range output {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029') {
			t.Errorf("%q: %U in %q", what, r, output[max(0, i-40):min(i+10, len(output))])
			return
		}
	}
}

// hostileLog is a log in which every text is hostile, one record a line.
func hostileLog(t *testing.T) []string {
	t.Helper()
	quoted := testlog.Must(json.Marshal(hostile))(t)
	// Raw where JSON allows it, so that the escapes in the output are the command's own.
	text := strings.Trim(string(quoted), `"`)
	for _, r := range hostile {
		if r >= 0x7f {
			text = strings.ReplaceAll(text, fmt.Sprintf(`\u%04x`, r), string(r))
		}
	}
	lines := []string{
		`{"patchlog":1,"initialState":{"Xfirst":"X","own":{"X":["X"]}}}`,
		`{"id":"Xe1","invocationId":"Xi1","branch":"Xb","author":"Xa","content":{"role":"user","parts":[{"text":"Xtext"},{"functionCall":{"id":"Xc","name":"Xn","args":{"X":"X"}}}]},"actions":{"stateDelta":{"Xkey":"Xvalue","user:X":"X","app:X":{"X":"X"}},"artifactDelta":{"X":1}},"longRunningToolIds":["Xc"],"customMetadata":{"X":"X"},"Xunknown":"X","errorMessage":"X"}`,
		`{"id":"Xe2","invocationId":"Xi1","branch":"Xb","author":"Xa","content":{"role":"user","parts":[{"functionResponse":{"id":"Xc","name":"Xn","response":{"X":"X"}}},{"inlineData":{"mimeType":"X","data":""}},{"fileData":{"mimeType":"X","fileUri":"X"}},{"executableCode":{"code":"X","language":"X"}}]}}`,
		`{"id":"Xe3","invocationId":"Xi2","author":"user","actions":{"stateDelta":{"X":"X"}}}`,
		`{"id":"Xe4","invocationId":"Xi3","author":"user","content":{"role":"X","parts":[{"text":"X","thought":true},{"X":"X"}]}}`,
		`{"id":"Xp1","author":"Xa","patchType":"splice","start":2,"count":1,"replacement":[{"id":"Xr1","author":"X","content":{"role":"user","parts":[{"text":"X"}]}}]}`,
		`{"id":"Xp2","author":"Xa","patchType":"X","X":"X"}`,
		`{"id":"Xp3","author":"Xa","patchType":"truncate_before","eventId":"X"}`,
		`{"id":"Xp4","author":"Xa","patchType":"splice","start":"X","count":1}`,
		`{"id":"Xp5","author":"Xa","patchType":"revert","patchId":"X"}`,
	}
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(line, "X", text)
	}
	return lines
}

// TestNothingDrivesATerminal runs every command, and bad command lines, with hostile text
// wherever a text can be, and looks at every byte that comes out: on a terminal and off
// it, for people and as JSON. What export writes to a file is let be: see TestExportBytes.
func TestNothingDrivesATerminal(t *testing.T) {
	t.Chdir(t.TempDir())
	lines := hostileLog(t)
	key := "a/" + url.PathEscape(hostile) + "/s"
	file, plain := hostileName(".jsonl"), hostileName("-plain.jsonl")
	writeText(t, file, strings.Join(lines, "\n"))
	writeText(t, plain, strings.Join(lines[1:5], "\n"))
	writeText(t, "bad"+hostileName(".jsonl"), `{"id":"x","`+"\u009b\u202e\u007f"+`":1,"`+"\u009b\u202e\u007f"+`":2}`)
	must(t, "", "import", key, file)
	must(t, "", "import", "a/u/plain", plain)
	must(t, "", "patch", "a/u/plain", "2", "1", "--allow-orphans")
	patchID := ""
	for line := range strings.Lines(must(t, "", "audit", "a/u/plain", "--json")) {
		var r struct {
			Record struct{ ID, PatchType string }
		}
		testlog.NoError(t, json.Unmarshal([]byte(line), &r))
		if r.Record.PatchType != "" {
			patchID = r.Record.ID
		}
	}
	nul := strings.ReplaceAll(hostile, "\x00", "") // no file has such a name, but an argument may
	commands := [][]string{
		{"log", key}, {"log", key, "--last", "1"}, {"log", key, "--at", "1"}, {"audit", key}, {"loss", key}, {"loss", key, "--patch", hostile}, {"audit", key, "--from", "99"},
		{"search", key, hostile}, {"search", key, hostile, "--all", "--hidden"}, {"search", key, "31m", "--limit", "9"}, {"search", "a/u/plain", hostile + "e1"}, {"search", hostile, hostile},
		{"search", key, "x", "--author", hostile}, {"search", key, "x", "--since", hostile}, {"search", key, "x", "--limit", hostile}, {"search", "a/" + url.PathEscape(hostile) + "/none", "x", "--all"},
		{"stats", key}, {"stats", key, "--at", "1"}, {"sessions"}, {"sessions", nul}, {"verify"}, {"verify", key},
		{"import", key, file, "--dry-run"}, {"import", "a/u/none", plain, "--dry-run"}, {"import", key, "bad" + hostileName(".jsonl"), "--dry-run"},
		{"diff", key, "1", "6"}, {"diff", key, "99"},
		{"import", key, file}, {"import", key, plain}, {"import", key, nul}, {"import", key, "bad" + hostileName(".jsonl")}, {"import", key, file, "--compactions", "adopt"},
		{"import", key, file, "--app", hostile}, {"import", hostile, file}, {"import", "a/" + nul + "/s/x", file},
		{"patch", key, "0", "1"},
		{"patch", "a/u/plain", "0", "1", "--dry-run"},
		{"patch", "a/u/plain", "0", "9"},
		{"patch", "a/u/plain", hostile, "1"}, {"patch", "a/u/plain", "0", "1", "--state", hostile}, {"log", key, "--type", "splice"}, {"log", key, "--type", "event"}, {"log", key, "--type", hostile},
		{"erase", "a/u/plain", hostile + "e1", "--dry-run"}, {"erase", "a/u/plain", hostile, "--dry-run"},
		{"patch", "a/u/plain", "0", "1", "--dry-run", "--summary", hostile},
		{"pin", "a/u/plain", hostile}, {"pin", "a/u/plain", hostile + "e1", "--dry-run"}, {"pin", "a/u/plain", hostile + "e1"}, {"log", "a/u/plain"}, {"audit", "a/u/plain"},
		{"patch", "a/u/plain", "0", "1"}, {"pin", "a/u/plain", hostile + "e1", "--remove", "--dry-run"}, {"pin", "a/u/plain", hostile + "e1", "--remove"},
		{"__complete", "log", hostile}, {"__complete", hostile, ""}, {"docs", "man", nul}, {"docs", hostile}, {"completion", "bash", hostile}, {"help", "patch", hostile}, {"-" + hostile}, {"--db=" + hostile, hostile},
		{"compact", "a/u/plain", "--dry-run", "--interval", "1"}, {"compact", "a/u/plain", "--interval", "1"}, {"compact", "a/u/plain", "--summarizer", hostile},
		{"revert", "a/u/plain", hostile}, {"revert", "a/u/plain", patchID, "--dry-run"}, {"revert", "a/u/plain", patchID},
		{"rewind", "a/u/plain", hostile}, {"rewind", "a/u/plain", hostile + "i3", "--dry-run"}, {"rewind", "a/u/plain", hostile + "i3"},
		{"fork", key, "a/" + url.PathEscape(hostile) + "/fork", "--dry-run"}, {"fork", "a/u/plain", "a/u/plain"}, {"fork", "a/u/" + hostile, "a/u/x"},
		{"export", key}, {"export", key, "--visible"}, {"export", "a/" + hostile + "/none"}, {"log", "a/" + url.PathEscape(hostile) + "/none"},
		{hostile}, {"patch", hostile}, {"log", "--" + hostile}, {"log", key, hostile}, {"help", hostile}, {"help"}, {"log", "--help"}, {"completion", hostile},
		{"log", key, "--db", nul}, {"sessions", "--db", nul + "/" + nul}, {"sessions", "--db", hostile},
	}
	for _, terminal := range []bool{true, false} {
		for _, asJSON := range []bool{true, false} {
			for _, c := range commands {
				if c[0] == "export" && !terminal {
					continue
				}
				if asJSON {
					c = append([]string{"--json"}, c...)
				}
				out, errs := runHostile(t, terminal, c)
				checkSafe(t, c, out, terminal)
				checkSafe(t, c, errs, terminal)
				if asJSON && c[1] != "help" && c[1] != "completion" && c[1] != "__complete" && c[len(c)-1] != "--help" {
					for line := range strings.Lines(out) {
						if !json.Valid([]byte(line)) {
							t.Errorf("%q: not JSON: %q", c, line)
						}
					}
				}
			}
		}
	}
	for _, c := range [][]string{{"delete", key}, {"--json", "delete", "a/u/plain"}, {"delete", "a/" + url.PathEscape(hostile) + "/none"}} {
		out, errs := runHostile(t, true, c)
		checkSafe(t, c, out, true)
		checkSafe(t, c, errs, true)
	}
}

func hostileName(end string) string {
	return strings.NewReplacer("\x00", "", "/", "").Replace(hostile) + end
}

func writeText(t *testing.T, name, text string) {
	t.Helper()
	testlog.NoError(t, os.WriteFile(name, []byte(text+"\n"), 0o600))
}

// runHostile runs a command as a person would, in an environment that is hostile too.
func runHostile(t *testing.T, terminal bool, args []string) (stdout, stderr string) {
	t.Helper()
	env := func(name string) string {
		if name == "PATCHLOG_DB" && args[len(args)-1] == "--help" {
			return hostile
		}
		return ""
	}
	if terminal {
		out, errs := screen{columns: 70}, screen{columns: 70}
		run(t.Context(), args, strings.NewReader(""), &out, &errs, env)
		return out.String(), errs.String()
	}
	var out, errs bytes.Buffer
	run(t.Context(), args, strings.NewReader(""), &out, &errs, env)
	return out.String(), errs.String()
}

// TestExportBytes checks that export writes to a file or pipe what was imported, character
// by character, and to a terminal the same in escapes.
func TestExportBytes(t *testing.T) {
	t.Chdir(t.TempDir())
	lines := hostileLog(t)
	must(t, strings.Join(lines, "\n"), "import", "a/u/s", "-")
	var buffer bytes.Buffer
	out := screen{columns: 70}
	for _, w := range []interface{ Write([]byte) (int, error) }{&buffer, &out} {
		var errs bytes.Buffer
		if code := run(t.Context(), []string{"export", "a/u/s"}, strings.NewReader(""), w, &errs, func(string) string { return "" }); code != 0 {
			t.Fatal(errs.String())
		}
	}
	if !strings.Contains(buffer.String(), "\u009b31m\u061c") {
		t.Errorf("characters became escapes: %q", buffer.String())
	}
	must(t, buffer.String(), "import", "a/u/file", "-")
	if got := must(t, "", "export", "a/u/file"); got != buffer.String() {
		t.Errorf("another session came back from a file:\n%q\n%q", got, buffer.String())
	}
	must(t, out.String(), "import", "a/u/terminal", "-")
	if got := must(t, "", "export", "a/u/terminal"); inOneForm(t, got) != inOneForm(t, buffer.String()) {
		t.Errorf("another session came back from a terminal:\n%q\n%q", got, buffer.String())
	}
}

// inOneForm returns lines of JSON as encoding/json writes them.
func inOneForm(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(text) {
		var v any
		testlog.NoError(t, json.Unmarshal([]byte(line), &v))
		again := testlog.Must(json.Marshal(v))(t)
		out.Write(append(again, '\n'))
	}
	return out.String()
}

// TestSafeJSON checks that text split anywhere between writes comes out as one.
func TestSafeJSON(t *testing.T) {
	const text, want = "{\"a\":\"é😀\u007f\u009b\u202e\u2029\\u001b\"}\n", `{"a":"é😀\u007f\u009b\u202e\u2029\u001b"}` + "\n"
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			var b bytes.Buffer
			w := &safeJSON{w: &b}
			for _, piece := range []string{text[:i], text[i:j], text[j:]} {
				if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
					t.Fatal(n, err)
				}
			}
			if b.String() != want {
				t.Fatalf("split at %d and %d: %q", i, j, b.String())
			}
		}
	}
}

// TestOutputIsSafe checks that the stream itself lets nothing through, whoever forgot to
// make a text printable.
func TestOutputIsSafe(t *testing.T) {
	s := &screen{columns: 400}
	o := newOutput(s, func(string) string { return "" })
	o.line(hostile, o.paint(red, hostile))
	o.linef("%s\n", hostile+"\xff")
	tab := newTable("", "head")
	tab.add(cell{hostile, plain}, cell{hostile, cyan})
	o.table(tab)
	o.flush()
	bar := (&app{errs: o}).progress(hostile)
	bar.next = time.Time{}
	bar.update(1, 2, hostile)
	if !bar.drawn {
		t.Error("no bar")
	}
	checkSafe(t, "output", s.String(), true)
	if n := strings.Count(s.String(), `\u001b[2J\u0007\u007f\u0085\u009b31m\u061c`); n != 7 {
		t.Errorf("%d of 7 texts in %q", n, s.String())
	}
	if !strings.Contains(s.String(), `\xff`+"\n\n") {
		t.Errorf("no line breaks, or a byte that is not UTF-8, in %q", s.String())
	}
}
