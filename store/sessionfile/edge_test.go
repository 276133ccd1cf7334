package sessionfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

const (
	piHead     = `{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00Z"}` + "\n"
	claudeHead = `{"type":"mode","sessionId":"s"}` + "\n"
	codexHead  = `{"type":"session_meta","payload":{"id":"s"}}` + "\n"
)

var heads = map[sessionfile.Format]string{sessionfile.Pi: piHead, sessionfile.ClaudeCode: claudeHead, sessionfile.Codex: codexHead}

func TestRefused(t *testing.T) {
	said := func(id, text string) string {
		return `{"type":"message","id":"` + id + `","parentId":null,"message":{"role":"user","content":"` + text + `"}}` + "\n"
	}
	for name, c := range map[string]struct {
		format sessionfile.Format
		data   string
		want   string
		is     error
	}{
		"no such format":         {"cursor", piHead, `file:0: invalid: field "format": there is no format "cursor"; the formats are pi, claude-code, codex`, patch.ErrInvalid},
		"nothing":                {sessionfile.Pi, "\n \n", "file:3: invalid: the file has no line of a session of pi", patch.ErrInvalid},
		"another agent's":        {sessionfile.Pi, codexHead, "file:1: invalid: the file is a session file of codex, not of pi", patch.ErrInvalid},
		"another agent's, too":   {sessionfile.Codex, claudeHead, "file:1: invalid: the file is a session file of claude-code, not of codex", patch.ErrInvalid},
		"nobody's":               {sessionfile.ClaudeCode, `{"a":1}` + "\n", "file:1: invalid: the first line is not one of a session file of claude-code", patch.ErrInvalid},
		"no JSON":                {sessionfile.ClaudeCode, "hello\n", "file:1: invalid: the first line is not one of a session file of claude-code", patch.ErrInvalid},
		"begun":                  {sessionfile.Pi, `{"type":"sess`, "file:1: invalid: the first line is not written to its end", patch.ErrInvalid},
		"an id for two messages": {sessionfile.Pi, piHead + said("a", "x") + said("a", "y"), `file:3: invalid: field "id": "a" is that of an earlier line, which says something else`, patch.ErrInvalid},
		"a long line":            {sessionfile.Pi, piHead + said("a", strings.Repeat("x", 2000)), "file:2: too large: the line is longer than 1000 bytes", patch.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			d := sessionfile.NewDecoder(strings.NewReader(c.data), c.format, "file")
			d.MaxLineBytes = 1000
			var err error
			for err == nil {
				_, err = d.Next()
			}
			if err.Error() != c.want || !errors.Is(err, c.is) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if _, again := d.Next(); again != err {
				t.Errorf("again: %v", again)
			}
			var at *patch.LineError
			if !errors.As(err, &at) {
				t.Errorf("%T", err)
			}
		})
	}
	if _, err := sessionfile.NewDecoder(nil, sessionfile.Pi, "f").Next(); !errors.Is(err, patch.ErrInvalid) {
		t.Error(err)
	}
	broken := errors.New("broken")
	d := sessionfile.NewDecoder(io.MultiReader(strings.NewReader(piHead), iotest.ErrReader(broken)), sessionfile.Pi, "f")
	if _, err := d.Next(); err != nil {
		t.Error(err)
	}
	if _, err := d.Next(); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// What no log takes as JSON is kept all the same, and says what can be said of it.
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
	}
	data := []byte(piHead + strings.Join(odd, "\n") + "\n")
	records, d := read(t, sessionfile.Pi, data)
	sameLines(t, data, records)
	check(t, says(view(t, records)), []string{
		"user/user: half a \uFFFD pair", "user/user: twice", "user/user: not \uFFFD Unicode", "user/user: deep",
		`pi/model: call t f{"arguments":[1]}`, `pi/user: response t f{"result":{"type":"odd"}}`, "pi/model: other types", "user/user: long id",
	})
	if r := d.Report(); r.Unreadable != 1 || r.Lines != len(odd)+1 {
		t.Errorf("%+v", r)
	}
}

// What is said of a message that is told once more is not doubled.
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
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"listed, one of them told later": {
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
		"what follows what is kept": {
			talk + boundary("b", "a2", `"preservedSegment":{"headUuid":"u2","tailUuid":"a2"}`) + summary("c", "b", "sum") +
				message("u3", "a2", "user", "five") + message("u4", "a2", "user", "six"),
			[]string{"sum", "three", "four", "six"},
		},
		"from before the compaction": {
			talk + boundary("b", "a2", `"preservedSegment":{"headUuid":"u2","tailUuid":"a2"}`) + summary("c", "b", "sum") +
				message("u3", "a2", "user", "five") + message("u4", "a1", "user", "six"),
			[]string{"one", "two", "six"},
		},
		"what is kept, from before the compaction": {
			talk + boundary("b", "a2", `"preservedSegment":{"headUuid":"u2","tailUuid":"a2"}`) + summary("c", "b", "sum") +
				message("u3", "a1", "user", "five") + message("u4", "a2", "user", "six"),
			[]string{"sum", "three", "four", "six"},
		},
		"back behind the summary": {
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
			records, d := read(t, sessionfile.ClaudeCode, []byte(c.data))
			if got := shown(view(t, records)); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			sameLines(t, []byte(c.data), records)
			if d.Report().Compactions == 0 || d.Report().Left > 0 {
				t.Errorf("%+v", d.Report())
			}
		})
	}
}

// A row that the next message does not follow is no branch.
func TestNoRewind(t *testing.T) {
	data := claudeHead +
		`{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","message":{"role":"user","content":"one"}}` + "\n" +
		`{"type":"assistant","uuid":"a","parentUuid":"u","sessionId":"s","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"two"}]}}` + "\n" +
		`{"type":"system","subtype":"turn_duration","uuid":"y","parentUuid":"a","sessionId":"s"}` + "\n" +
		`{"type":"user","uuid":"v","parentUuid":"a","sessionId":"s","message":{"role":"user","content":"three"}}` + "\n"
	records, _ := read(t, sessionfile.ClaudeCode, []byte(data))
	for _, r := range records {
		if r.Patch != nil {
			t.Errorf("%s", r.Patch)
		}
	}
	data += `{"type":"system","subtype":"turn_duration","uuid":"z","parentUuid":"u","sessionId":"s"}` + "\n" +
		`{"type":"user","uuid":"w","parentUuid":"z","sessionId":"s","message":{"role":"user","content":"four"}}` + "\n"
	records, _ = read(t, sessionfile.ClaudeCode, []byte(data))
	var hidden []int
	for _, r := range records {
		if r.Patch != nil {
			hidden = append(hidden, r.Patch.Start(), r.Patch.Count())
		}
	}
	if want := []int{2, 3}; !slices.Equal(hidden, want) { // from the answer to the message that followed it
		t.Errorf("hidden: %v, want %v", hidden, want)
	}
}

// A compaction does not part a call from its result.
func TestCompactionKeepsPairs(t *testing.T) {
	data := piHead +
		`{"type":"message","id":"u","parentId":null,"message":{"role":"user","content":"go"}}` + "\n" +
		`{"type":"message","id":"a","parentId":"u","message":{"role":"assistant","content":[{"type":"toolCall","id":"t","name":"f","arguments":{}}]}}` + "\n" +
		`{"type":"message","id":"r","parentId":"a","message":{"role":"toolResult","toolCallId":"t","toolName":"f","content":[{"type":"text","text":"ok"}]}}` + "\n" +
		`{"type":"compaction","id":"c","parentId":"r","summary":"sum","firstKeptEntryId":"r"}` + "\n"
	records, _ := read(t, sessionfile.Pi, []byte(data))
	if got, want := shown(view(t, records)), []string{"sum", "call t", "result t"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A compaction that does not say what it stands for is an event.
func TestCompactionLeft(t *testing.T) {
	data := piHead +
		`{"type":"message","id":"u","parentId":null,"message":{"role":"user","content":"go"}}` + "\n" +
		`{"type":"compaction","id":"c","parentId":"u","summary":"sum","firstKeptEntryId":"nowhere"}` + "\n" +
		`{"type":"compaction","id":"d","parentId":"c","summary":"sum 2","firstKeptEntryId":"u"}` + "\n"
	records, d := read(t, sessionfile.Pi, []byte(data))
	if got, want := shown(view(t, records)), []string{"go", "sum", "sum 2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if d.Report().Left != 2 || !strings.Contains(find(t, records, "c").String(), "left as an event: it does not say") || !strings.Contains(find(t, records, "d").String(), "left as an event: nothing") {
		t.Errorf("%+v", d.Report())
	}
}

// The first entry that it keeps may be one that an earlier compaction covers.
func TestCompactionKeepsWhatIsHidden(t *testing.T) {
	say := func(id, parent, text string) string {
		return line(fields{"type": "message", "id": id, "parentId": parent, "message": fields{"role": "user", "content": text}})
	}
	data := piHead + say("a", "", "one") + say("b", "a", "two") +
		line(fields{"type": "compaction", "id": "c", "parentId": "b", "summary": "sum", "firstKeptEntryId": "b"}) +
		line(fields{"type": "compaction", "id": "d", "parentId": "c", "summary": "sum 2", "firstKeptEntryId": "a"})
	records, _ := read(t, sessionfile.Pi, []byte(data))
	if got, want := shown(view(t, records)), []string{"sum", "two", "sum 2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if e := find(t, records, "d"); !strings.Contains(e.String(), "left as an event: the first that it keeps is not in sight") {
		t.Errorf("%s", e)
	}
}

// What the user ran without telling the agent is not told.
func TestPiCommands(t *testing.T) {
	run := func(id, more string) string {
		return `{"type":"message","id":"` + id + `","parentId":null,"timestamp":"2026-01-01T00:00:00Z","message":{"role":"bashExecution","command":"ls","output":"a","exitCode":2,"cancelled":false,"truncated":true,"fullOutputPath":"/tmp/x"` + more + `}}` + "\n"
	}
	records, _ := read(t, sessionfile.Pi, []byte(piHead+run("a", `,"excludeFromContext":true`)))
	check(t, says(view(t, records)), nil)
	records, _ = read(t, sessionfile.Pi, []byte(piHead+run("a", "")))
	check(t, says(view(t, records)), []string{"user/user: Ran `ls`\n```\na\n```\n\nCommand exited with code 2\n\n[Output truncated. Full output: /tmp/x]"})
}

// A line without a time has that of the line before.
func TestTimes(t *testing.T) {
	records, _ := read(t, sessionfile.Codex, testdata(t, "codex-bare.jsonl"))
	for _, r := range records {
		if got := r.Event.Timestamp().Format("2006-01-02 15:04"); got != "2025-07-01 12:00" {
			t.Errorf("%s", r.Event)
		}
	}
}

func TestSubagentsFile(t *testing.T) {
	data := `{"type":"user","uuid":"u","parentUuid":null,"isSidechain":true,"agentId":"x1","sessionId":"s","message":{"role":"user","content":"look"}}` + "\n" +
		`{"type":"assistant","uuid":"a","parentUuid":"u","isSidechain":true,"agentId":"x1","sessionId":"s","message":{"role":"assistant","content":[{"type":"text","text":"seen"}]}}` + "\n"
	records, d := read(t, sessionfile.ClaudeCode, []byte(data))
	check(t, says(view(t, records)), []string{"user/user: look", "claude-code/model: seen"})
	if d.SessionID() != "s-agent-x1" {
		t.Error(d.SessionID())
	}
}

// A transcript may begin with lines of the session that it continues.
func TestClaudeCodeContinued(t *testing.T) {
	_, d := read(t, sessionfile.ClaudeCode, []byte(claudeHead+line(fields{"type": "mode", "sessionId": "newer"})))
	if d.SessionID() != "newer" {
		t.Error(d.SessionID())
	}
}

// A fork's file repeats that of its origin, after its own head.
func TestCodexFork(t *testing.T) {
	_, d := read(t, sessionfile.Codex, []byte(codexHead+`{"type":"session_meta","payload":{"id":"origin"}}`+"\n"))
	if d.SessionID() != "s" {
		t.Error(d.SessionID())
	}
}

func TestCodexCompactedWithoutHistory(t *testing.T) {
	say := func(role, text string) string {
		return fmt.Sprintf(`{"type":"response_item","payload":{"type":"message","role":%q,"content":[{"type":"input_text","text":%q}]}}`+"\n", role, text)
	}
	data := codexHead + say("user", "one") + say("assistant", "two") + say("user", "three") + `{"type":"compacted","payload":{"message":"sum"}}` + "\n" + say("user", "four")
	records, _ := read(t, sessionfile.Codex, []byte(data))
	if got, want := shown(view(t, records)), []string{"one", "three", "sum", "four"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A file made to be slow is refused before long.
func TestBackAndForth(t *testing.T) {
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
	if _, _, err := tryRead(sessionfile.Pi, b.Bytes()); !errors.Is(err, patch.ErrTooLarge) {
		t.Fatal(err)
	}
}
