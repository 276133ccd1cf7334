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
	"unicode"

	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// screen is a fake terminal with a given width.
type screen struct {
	bytes.Buffer
	columns int
}

func (s *screen) Columns() int { return s.columns }

func TestTerminal(t *testing.T) {
	t.Chdir(t.TempDir())
	long := strings.Replace(twoEvents, "hello", strings.Repeat("many words ", 50), 1)
	must(t, long, "import", "a/u/s", "-")
	shown := func(columns int, env map[string]string, args ...string) string {
		t.Helper()
		out := screen{columns: columns}
		var stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &out, &stderr, func(name string) string { return env[name] }); code != 0 {
			t.Fatalf("exit code %d, stderr %q", code, stderr.String())
		}
		return out.String()
	}
	if out := shown(80, nil, "log", "a/u/s"); !strings.Contains(out, "\x1b[32muser\x1b[0m") {
		t.Errorf("no colours in %q", out)
	}
	for _, env := range []map[string]string{{"NO_COLOR": "1"}, {"TERM": "dumb"}} {
		out := shown(80, env, "log", "a/u/s")
		if strings.Contains(out, "\x1b") {
			t.Errorf("colours in %q", out)
		}
		for line := range strings.Lines(out) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("%d runes in %q", n, line)
			}
		}
	}
	if out := shown(0, map[string]string{"COLUMNS": "50", "NO_COLOR": "1"}, "audit", "a/u/s", "--from", "1"); !strings.Contains(out, "…") {
		t.Errorf("not cut: %q", out)
	}
	if out := shown(80, nil, "log", "a/u/s", "--json"); strings.Contains(out, "\x1b") {
		t.Errorf("colours in JSON: %q", out)
	}
}

// Seqs, indices and counts are written without commas, so that users can copy them into a command.
func TestNumbersAsTyped(t *testing.T) {
	t.Chdir(t.TempDir())
	var text strings.Builder
	for i := range 1234 {
		fmt.Fprintf(&text, `{"id":"e%d","author":"user","content":{"role":"user","parts":[{"text":"%d words"}]}}`+"\n", i, i)
	}
	out := must(t, text.String(), "import", "a/u/s", "-") + must(t, "", "log", "a/u/s", "--last", "1001") +
		must(t, "", "patch", "a/u/s", "10", "1100", "--dry-run") +
		must(t, "", "patch", "a/u/s", "10", "1100") + must(t, "", "audit", "a/u/s", "--from", "1234")
	thousands := regexp.MustCompile(`\d,\d\d\d`)
	for line := range strings.Lines(out) {
		if thousands.MatchString(line) && !strings.HasPrefix(line, "tokens, about") {
			t.Errorf("a number that cannot be typed back: %s", line)
		}
	}
	for _, want := range []string{"1234 records added", "last 1001 of 1234 visible events", "\n 1233  1234  ", "1100 events hidden", "index 10 to 1109", "\n1235     0  "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if sessions := must(t, "", "sessions"); !strings.Contains(sessions, "  1235      134   4,836  ") { // only the number of tokens has a comma
		t.Errorf("sessions lists\n%s", sessions)
	}
	if stats := must(t, "", "stats", "a/u/s"); !thousands.MatchString(stats) {
		t.Errorf("bytes are hard to read:\n%s", stats)
	}
}

// hostile contains every kind of character that could control a terminal.
const hostile = "\x1b[2J\x07\x7f\u0085\u009b31m\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\x00\r\t"

// own matches the control codes that the command itself writes to a terminal.
var own = regexp.MustCompile("\x1b\\[(0|1|2|31|32|33|35|36)m|\r|\x1b\\[K")

// checkSafe fails the test if a command's output could control a terminal.
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

// hostileLog returns the lines of a log in which every text contains hostile characters.
func hostileLog(t *testing.T) []string {
	t.Helper()
	quoted := testlog.Must(json.Marshal(hostile))(t)
	// Escape only what JSON requires, so that other escapes in the output come from the command.
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

// No output of a command, or of a wrong command line, can control a terminal. The output is text or JSON, on a
// terminal or not. TestExportBytes checks the files that export writes.
func TestNothingControlsATerminal(t *testing.T) {
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
	nul := strings.ReplaceAll(hostile, "\x00", "") // the name of a file cannot contain NUL, but an argument can
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
		{"rewind", "a/u/plain", "--invocation", hostile}, {"rewind", "a/u/plain", "--invocation", hostile + "i3", "--dry-run"}, {"rewind", "a/u/plain", "--invocation", hostile + "i3"},
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

// runHostile runs a command with hostile text in the environment.
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

// export writes the imported text unchanged to a file, and with escapes to a terminal.
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

// inOneForm encodes each JSON line again, with encoding/json.
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

// With 80 columns, no output line is longer. Tables drop columns before they cut texts, and lines are wrapped between
// words.
func TestEightyColumns(t *testing.T) {
	t.Chdir(t.TempDir())
	const key = "shop/Jürgen Müller/0b828046-2398-4ae4-b3b8-9e5093413ccb"
	long := strings.ReplaceAll(strings.Replace(twoEvents, "hello", strings.Repeat("many words ", 50), 1), `"e1"`, `"0b828046-2398-4ae4-b3b8-9e5093413ccb"`)
	long = strings.ReplaceAll(long, `"author"`, `"invocationId":"i","author"`)
	must(t, long, "import", key, "-")
	must(t, "", "patch", key, "0", "1", "--summary", "much was said", "--allow-orphans")
	shown := func(columns string, args ...string) string {
		t.Helper()
		var out, stderr bytes.Buffer
		env := func(name string) string { return map[string]string{"COLUMNS": columns}[name] }
		if code := run(t.Context(), args, strings.NewReader(""), &out, &stderr, env); code != 0 {
			t.Fatalf("%v: exit code %d, stderr %q", args, code, stderr.String())
		}
		return out.String()
	}
	for _, args := range [][]string{
		{"audit", key}, {"sessions"}, {"diff", key, "2"}, {"log", key}, {"log", key, "--history"}, {"stats", key}, {"search", key, "words"}, {"loss", key},
		{"rewind", key, "--record", "2", "--dry-run"}, {"revert", key, "3", "--dry-run"},
	} {
		for line := range strings.Lines(shown("80", args...)) {
			if n := terminal.Width(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%v: %d columns in %q", args, n, line)
			}
		}
	}
	if out := shown("80", "sessions"); !strings.Contains(out, "shop/Jürgen%20Müller/0b828046-2398-4ae4-b3b8-9e5093413ccb ") {
		t.Errorf("the key does not stand whole in\n%s", out)
	} else if !strings.Contains(out, "last activity") {
		t.Errorf("no session can be recognized by its time in\n%s", out)
	}
	if out := shown("40", "stats", key); strings.Contains(out, "…") {
		t.Errorf("a value is cut in\n%s", out)
	}
	for _, columns := range []string{"30", "80"} { // a key is written whole even on a narrower terminal, so that users can copy it
		longest := "shop/" + strings.Repeat("user-", 12) + "/" + strings.Repeat("x", 40)
		if columns == "30" {
			must(t, twoEvents, "import", longest, "-")
		}
		if out := shown(columns, "sessions"); !strings.Contains(out, longest+"\n") || strings.Contains(out, "…") {
			t.Errorf("the key of a session is cut at %s columns, or columns beside it stay, in\n%s", columns, out)
		}
	}
	if out := shown("", "diff", key, "2"); !strings.Contains(out, "0b828046  user") || strings.Contains(out, "0b828046-2398-4ae4-b3b8-9e5093413ccb  user") {
		t.Errorf("the id is not shortened in\n%s", out)
	}
	if want, out := "a/u/s: there is\n  nothing to say\n", terminal.Wrap("a/u/s: there is nothing to say\n", 16, "  "); out != want {
		t.Errorf("got %q want %q", out, want)
	}
}
