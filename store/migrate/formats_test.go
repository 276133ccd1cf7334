package migrate

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	logs "github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func importFile(t testing.TB, s *store.Store, name string, opts FileOptions) []Result {
	t.Helper()
	opts.Name = filepath.Join("testdata", name)
	source, err := OpenFile(testlog.Must(os.ReadFile(opts.Name))(t), opts)
	testlog.NoError(t, err)
	var results []Result
	testlog.Must(Run(t.Context(), s, source, Options{Session: func(r Result) error {
		results = append(results, r)
		testlog.NoError(t, r.Err)
		return nil
	}}))(t)
	return results
}

// importTwice imports a file with one session twice, and returns the session and the reported differences.
func importTwice(t testing.TB, name, key string) (*store.Store, store.Session, string) {
	t.Helper()
	s := teststore.Memory(t, store.Options{})
	r := importFile(t, s, name, FileOptions{})[0]
	testlog.Equal(t, "status", r.Status, Created)
	testlog.Equal(t, "key", r.Key.String(), key)
	got := testlog.Must(s.Get(t.Context(), r.Key))(t)
	again := importFile(t, s, name, FileOptions{})[0]
	if again.Status != Unchanged && again.Status != Ahead || again.Added > 0 || len(again.Differences) > 0 && again.Key.App != "shop" {
		t.Errorf("again: %+v", again)
	}
	var notes []string
	for _, note := range r.Describe(false)[1:] {
		notes = append(notes, strings.TrimPrefix(note, "  "))
	}
	return s, got, strings.Join(notes, "\n")
}

// Messages in each format become events in ADK's form.
func TestFormats(t *testing.T) {
	const unnamed = "the file has no session id: the session is named after the file; put a KEY before the file to name it differently"
	const untimed = "the file has no times: events get the time of the import\n"
	for name, c := range map[string]struct {
		key   string
		says  []string
		notes string
	}{
		"openai-chat.json": {"openai-chat/user/openai-chat", []string{
			"system/user: You book rooms.",
			"user/user: A room like this one, please. image/png  audio/wav",
			`openai-chat/model: thought Two look-ups. call call_1 find_rooms{"beds":2,"price":1.50} call call_2 note{"input":"asks for two beds"}`,
			`openai-chat/user: response call_1 find_rooms{"result":"[{\"room\": 7}]"}`,
			`openai-chat/user: response call_2 note{"result":"noted"}`,
			"openai-chat/model: Room 7 is free.",
			"user/user: Book it.",
			`openai-chat/model: call  book{"arguments":"room 7"}`,
			`openai-chat/user: response  book{"result":"booked"}`,
			"openai-chat/model: I cannot tell its price.",
		}, untimed + unnamed},
		"openai-chat.jsonl": {"openai-chat/user/openai-chat", []string{"user/user: Which day is it?", "openai-chat/model: It is Thursday.", "user/user: And tomorrow?"}, unnamed},
		"openai-responses.json": {"openai-responses/user/openai-responses", []string{
			"system/user: You read meters.", "user/user: Read the meter. image/png",
			"openai-responses/model: thought The meter is in the cellar.",
			`openai-responses/model: call call_1 read_meter{"cellar":true}`,
			`openai-responses/user: response call_1 read_meter{"result":"4711"}`,
			"openai-responses/model: It says 4711.",
		}, untimed + unnamed},
		"openai-responses.jsonl": {"openai-responses/user/openai-responses", []string{
			"user/user: Read the meter.", "openai-responses/model: call call_1 read_meter{}",
			`openai-responses/user: response call_1 read_meter{"result":"4711"}`, "openai-responses/model: It says 4711.",
		}, unnamed},
		"anthropic.json": {"anthropic/user/anthropic", []string{
			"user/user: Sort the post.",
			`anthropic/model: thought First look. I look. call toolu_1 look{"at":"box","n":1.50}`,
			`anthropic/user: response toolu_1 look{"result":"two letters"} image/png`,
			"anthropic/model: call toolu_2 open{}",
			`anthropic/user: response toolu_2 open{"error":"it is locked"} Use the key.`,
			"anthropic/model: Done.",
		}, untimed + unnamed + "\nleft out besides the messages: max_tokens, model, system"},
		"1767225600000/api_conversation_history.json": {"anthropic/user/1767225600000", []string{
			"anthropic/user: Summary: the door is red, and is to be painted.", "user/user: Go on.",
		}, "1 compaction adopted\n" + unnamed},
		"gemini-cli.json": {"gemini-cli/user/5b1e0c11-0000-4000-8000-000000000001", []string{
			"user/user: Water the plants.",
			`gemini-cli/model: thought Plants` + "\n\n" + `Which are dry? I look first. call look-1 look{"at":"window","n":1.50} call pour-1 pour{}`,
			`gemini-cli/user: response look-1 look{"output":"dry"} response pour-1 pour{"error":"cancelled"}`,
			"user/user: Like this:  image/png", "gemini-cli/model: Watered.",
		}, "left out besides the messages: lastUpdated, projectHash, startTime"},
		"gemini-cli.jsonl": {"gemini-cli/user/5b1e0c11-0000-4000-8000-000000000002", []string{
			"user/user: Count the birds.", "gemini-cli/model: call c1 count{}", `gemini-cli/user: response c1 count{"output":"3"}`,
			"gemini-cli/model: Three birds.", "user/user: And the dogs?",
		}, "1 rewind: the abandoned branch is hidden\n1 message written again with more content: the earlier version is hidden"},
		"opencode.json": {"opencode/user/ses_1", []string{"opencode/user: The roof is too high for the ladder.", "user/user: Take the long one."},
			"1 compaction adopted\nleft out besides the messages: info"},
	} {
		t.Run(name, func(t *testing.T) {
			s, got, notes := importTwice(t, name, c.key)
			wantVisible(t, describeEvents(got.View), c.says)
			testlog.Equal(t, "notes", notes, c.notes)
			checkPaired(t, got.View)
			var lines bytes.Buffer
			testlog.NoError(t, WriteLines(&lines, s.RawEvents(t.Context(), testlog.Must(store.ParseKey(c.key))(t), 1)))
			if data := testlog.Must(os.ReadFile(filepath.Join("testdata", name)))(t); strings.HasSuffix(name, ".jsonl") && !bytes.Equal(lines.Bytes(), data) {
				t.Errorf("the lines come back as\n%s", lines.Bytes())
			} else if strings.HasSuffix(name, ".json") && lines.Len() == 0 {
				t.Error("no line comes back")
			}
		})
	}
}

// If a file has models, usage and times, they are imported. A file with several conversations becomes several
// sessions.
func TestFormatDetails(t *testing.T) {
	for name, want := range map[string]string{
		"openai-chat.jsonl":      `"timestamp":"2026-01-01T00:00:00Z","content":{"role":"model","parts":[{"text":"It is Thursday."}]},"usageMetadata":{"cachedContentTokenCount":2,"candidatesTokenCount":4,"promptTokenCount":11,"totalTokenCount":15},"modelVersion":"model-4"`,
		"openai-responses.jsonl": `"usageMetadata":{"cachedContentTokenCount":3,"candidatesTokenCount":5,"promptTokenCount":20,"thoughtsTokenCount":1,"totalTokenCount":25},"modelVersion":"model-5"`,
		"anthropic.json":         `"usageMetadata":{"cachedContentTokenCount":8,"candidatesTokenCount":3,"promptTokenCount":48},"modelVersion":"model-3"`,
		"gemini-cli.json":        `"usageMetadata":{"cachedContentTokenCount":50,"candidatesTokenCount":9,"promptTokenCount":100,"thoughtsTokenCount":4,"toolUsePromptTokenCount":0,"totalTokenCount":113},"modelVersion":"gemini-9"`,
		"opencode.json":          `"usageMetadata":{"cachedContentTokenCount":5,"candidatesTokenCount":7,"promptTokenCount":56,"thoughtsTokenCount":2},"modelVersion":"model-1"`,
		"openai-chat.json":       `{"fileData":{"fileUri":"https://rooms.example/1.png"}}`,
		"codex.jsonl":            `"modelVersion":"gpt-5-codex"`,
	} {
		s := teststore.Memory(t, store.Options{})
		key := importFile(t, s, name, FileOptions{})[0].Key
		var text bytes.Buffer
		testlog.NoError(t, s.Export(t.Context(), key, &text, store.ExportOptions{}))
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s has no %s:\n%s", name, want, text.String())
		}
	}
	s := teststore.Memory(t, store.Options{})
	results := importFile(t, s, "openai-requests.jsonl", FileOptions{Key: store.Key{User: "ada"}})
	if len(results) != 2 || results[1].Key.String() != "openai-chat/ada/openai-requests-2" || results[1].Added != 2 {
		t.Errorf("%+v", results)
	}
}

func TestCases(t *testing.T) {
	const claude = "claude-code/user/5d0c7f10-0000-4000-8000-000000000001"
	const nul = "claude-code/user/nul"
	orders := []string{"user/user: one ORDER-1111", "claude-code/model: first ORDER-2222", "user/user: two ORDER-3333", "claude-code/model: second ORDER-4444", "user/user: three ORDER-5555"}
	noted := func(page string) string {
		return "claude-code/user: <task-notification>\n<task-id>b1</task-id>\n<event>page " + page + " of 9</event>\n</task-notification>"
	}
	rewound := []string{"user/user: What is Python?", "root/model: A language.", "user/user: What is Go?"}
	for name, c := range map[string]struct {
		key   string
		says  []string
		notes string
		also  func(t *testing.T, got store.Session)
	}{
		"claude-no-timestamp-first/in.jsonl": {claude, []string{"user/user: Go", "claude-code/model: Gone."}, "", func(t *testing.T, got store.Session) {
			testlog.Equal(t, "first time", got.View.At(0).Timestamp().Format("2006-01-02 15:04:05"), "2026-03-02 10:00:01")
		}},
		"claude-result-before-call/in.jsonl": {claude, []string{
			"user/user: Update both files", `claude-code/model: call toolu_a Edit{"file_path":"/w/a"}`, `claude-code/user: response toolu_a Edit{"result":"done a"}`,
			"claude-code/model: Now the second file.", `claude-code/model: call toolu_b Edit{"file_path":"/w/b"}`, `claude-code/user: response toolu_b Edit{"result":"done b"}`,
			"claude-code/model: Both files are updated.",
		}, "", nil},
		"claude-snapshot-first/in.jsonl": {claude, []string{"user/user: Rename the flag", "claude-code/model: Renamed."}, "", nil},
		"claude-task-notification/in.jsonl": {claude, []string{
			"user/user: Fetch the data", `claude-code/model: call toolu_a Bash{"command":"fetch &"}`, `claude-code/user: response toolu_a Bash{"result":"started"}`,
			noted("1"), noted("2"), "claude-code/model: Running.",
		}, "", func(t *testing.T, got store.Session) {
			for _, e := range got.View.Events() {
				testlog.Equal(t, "invocation", e.InvocationID(), got.View.At(0).InvocationID())
			}
		}},
		"claude-usage-of-last-piece/in.jsonl": {claude, []string{
			"user/user: Go", "claude-code/model: thought hm", "claude-code/model: Now.", `claude-code/model: call toolu_a Bash{"command":"ls"}`, `claude-code/user: response toolu_a Bash{"result":"a b"}`,
		}, "", func(t *testing.T, got store.Session) {
			for i, e := range got.View.Events() {
				usage, _ := e.Field("usageMetadata")
				testlog.Equal(t, "usage", strings.Contains(string(usage), `"candidatesTokenCount":351`), i == 3)
				testlog.Equal(t, "prompt", logs.PromptTokens(e) == 903, i == 3)
			}
		}},
		"codex-encrypted-compaction/in.jsonl": {"codex/user/019c0000-0000-7000-8000-000000000001", []string{
			"user/user: Fix the form", `codex/model: call c1 exec_command{"cmd":"ls"}`, `codex/user: response c1 exec_command{"result":"a"}`, "codex/model: The form is fixed.",
		}, "1 compaction not adopted: the provider keeps this summary encrypted; its 4 records stay visible: 'patchlog compact codex/user/019c0000-0000-7000-8000-000000000001' shortens them", nil},
		"nuls/head.jsonl":       {nul, orders, "", nil},
		"nuls/pad-after.jsonl":  {nul, orders, "", nil},
		"nuls/pad-before.jsonl": {nul, orders, "", nil},
		"notutf8/in.jsonl": {"adk/user/in", []string{"user/user: show e.txt", "root/model: half an emoji: \uFFFD"},
			"some texts are not Unicode: replaced by U+FFFD\nthe file has no session id: the session is named after the file; put a KEY before the file to name it differently", nil},
		"py-rewind/lines.jsonl":   {"adk/user/lines", rewound, "the file has no session id: the session is named after the file; put a KEY before the file to name it differently", checkRewound},
		"py-rewind/session.json":  {"shop/ada/s1", rewound, "", checkRewound},
		"py-rewind/python.jsonl":  {"adk/user/python", rewound, "the file has no session id: the session is named after the file; put a KEY before the file to name it differently", checkRewound},
		"py-rewind/unknown.jsonl": {"adk/user/unknown", []string{"user/user: What is Python?", "root/model: A language."}, "the file has no session id: the session is named after the file; put a KEY before the file to name it differently", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, got, notes := importTwice(t, filepath.Join("cases", name), c.key)
			wantVisible(t, describeEvents(got.View), c.says)
			testlog.Equal(t, "notes", notes, c.notes)
			if c.also != nil {
				c.also(t, got)
			}
		})
	}
	s := teststore.Memory(t, store.Options{})
	results := importFile(t, s, "cases/json-array-of-messages/in.json", FileOptions{})
	if len(results) != 1 || results[0].Added != 40 {
		t.Errorf("%+v", results)
	}
	_, err := OpenFile(testlog.Must(os.ReadFile("testdata/cases/jsonl-of-another-tool/in.jsonl"))(t), FileOptions{Name: "in.jsonl"})
	if err == nil || !strings.Contains(err.Error(), "or has the author, content or actions") || !strings.Contains(err.Error(), "claude-code") {
		t.Error(err)
	}
}

func checkRewound(t *testing.T, got store.Session) {
	topic, _ := got.View.Value("topic")
	testlog.Equal(t, "topic", topic.String(), `"python"`)
	testlog.Equal(t, "records", got.View.Seq(), 7)
}

// If a file matches two formats equally well, the file is refused with an error that names both formats.
func TestTies(t *testing.T) {
	_, err := Detect([]byte(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}`+"\n"+`{"role":"tool","tool_call_id":"a","content":"x"}`+"\n"), "f")
	if err == nil || !strings.Contains(err.Error(), "it could be messages of Anthropic's API or messages of OpenAI's Chat Completions") {
		t.Error(err)
	}
}

// Sessions of Qwen Code resemble sessions of Claude Code, but are refused with an error that names Qwen Code.
func TestQwenCode(t *testing.T) {
	row := `{"uuid":"a","parentUuid":null,"sessionId":"s","type":"user","message":{"role":"user","parts":[{"text":"Hello"}]}}` + "\n"
	_, err := Detect([]byte(row+row), "f")
	if err == nil || !strings.Contains(err.Error(), "it is a session of Qwen Code, which is not supported") {
		t.Error(err)
	}
}

// Bytes that are not Unicode are replaced. If a line has a truncated object followed by a second object, the second
// object is read.
func TestInvalidUnicode(t *testing.T) {
	for text, want := range map[string]string{
		`"plain \n \\ud83d"`: `"plain \n \\ud83d"`, `"\ud83d\ude00"`: `"\ud83d\ude00"`, `"\ud83d"`: `"\ufffd"`, `"\ude00\ud83d x"`: `"\ufffd\ufffd x"`,
		`"cut \`: `"cut \`, `"cut \ud8`: `"cut \ud8`, "\"\xff\xfe\"": "\"\uFFFD\"", `"\ud83d\u0041"`: `"\ufffd\u0041"`, `"\uD83D\uDE00\uD83D"`: `"\uD83D\uDE00\ufffd"`,
	} {
		got, changed := toValidUnicode([]byte(text))
		testlog.Equal(t, text, string(got), want)
		testlog.Equal(t, text, changed, text != want)
	}
	torn := `{"type":"user","uuid":"u1","sessionId":"s","mess{"type":"user","uuid":"u2","sessionId":"s","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":"two"}}`
	data := []byte(claudeHead + torn + "\n" + `{"type":"user","uuid":"u3","parentUuid":"u2","sessionId":"s","message":{"role":"user","content":"three"}}` + "\n")
	glued := `{"type":"user","uuid":"u1","sessionId":"s","message":{"role":"user","content":"one"}}` + "\x00\x00"
	records, _ := decodeFile(t, claudeCode, []byte(claudeHead+glued+`{"type":"user","uuid":"u2","parentUuid":"u1","sessionId":"s","message":{"role":"user","content":"two"}}`+"\n"))
	wantVisible(t, visibleTexts(foldRecords(t, records)), []string{"one", "two"})
	records, d := decodeFile(t, claudeCode, data)
	wantVisible(t, visibleTexts(foldRecords(t, records)), []string{"two", "three"})
	testlog.Equal(t, "unreadable", d.report.Unreadable, 1)
	wantLines(t, data, records)
}

// Claude Code writes or attaches some texts as user messages. The import distinguishes these texts from the texts of
// the user.
func TestClaudeTexts(t *testing.T) {
	row := func(more string) string {
		return `{"type":"user","uuid":"` + patchID(more) + `","sessionId":"s","timestamp":"2026-01-01T00:00:00Z",` + more + "}\n"
	}
	attached := func(attachment string) string {
		return `{"type":"attachment","uuid":"` + patchID(attachment) + `","sessionId":"s","timestamp":"2026-01-01T00:00:00Z","attachment":` + attachment + "}\n"
	}
	for line, want := range map[string]string{
		row(`"message":{"role":"user","content":"Hello"}`):                                                                              "user/user: Hello",
		row(`"origin":{"kind":"human"},"message":{"role":"user","content":"Hello"}`):                                                    "user/user: Hello",
		row(`"origin":{"kind":"task-notification"},"message":{"role":"user","content":"Done"}`):                                         "claude-code/user: Done",
		row(`"isMeta":true,"message":{"role":"user","content":"Caveat"}`):                                                               "claude-code/user: Caveat",
		row(`"message":{"role":"user","content":"<local-command-stdout>ok</local-command-stdout>"}`):                                    "claude-code/user: <local-command-stdout>ok</local-command-stdout>",
		row(`"message":{"role":"user","content":[{"type":"text","text":"[Request interrupted by user]"}]}`):                             "claude-code/user: [Request interrupted by user]",
		attached(`{"type":"queued_command","prompt":"And the tests","commandMode":"prompt"}`):                                           "user/user: And the tests",
		attached(`{"type":"queued_command","prompt":"x","commandMode":"task-notification"}`):                                            "claude-code/user: x",
		attached(`{"type":"queued_command","prompt":"y","isMeta":true}`):                                                                "claude-code/user: y",
		attached(`{"type":"file","filename":"/w/a.txt","content":{"type":"text","file":{"filePath":"/w/a.txt","content":"the text"}}}`): "claude-code/user: /w/a.txt\nthe text",
		attached(`{"type":"file","filename":"/w/a.png","content":{"type":"image","file":{"base64":"aGVsbG8=","type":"image/png"}}}`):    "claude-code/user: image/png",
		attached(`{"type":"edited_text_file","filename":"/w/b","snippet":"1 b"}`):                                                       "claude-code/user: /w/b\n1 b",
		attached(`{"type":"todo_reminder","itemCount":0}`):                                                                              "",
	} {
		records, _ := decodeFile(t, claudeCode, []byte(line))
		testlog.Equal(t, line, strings.Join(describeEvents(foldRecords(t, records)), "|"), want)
	}
}

// Rows that have null as parent form a sequence. If responses in the file have parents, a prompt with null as parent
// starts a new conversation instead.
func TestRowsWithoutParents(t *testing.T) {
	row := func(kind, id, parent, text string) string {
		return `{"type":"` + kind + `","uuid":"` + id + `",` + parent + `"sessionId":"s","timestamp":"2026-01-01T00:00:00Z","message":{"role":"` + kind + `","content":"` + text + `"}}` + "\n"
	}
	for parents, want := range map[[4]string][]string{
		{}: {"a", "b", "c", "d"},
		{`"parentUuid":null,`, `"parentUuid":null,`, `"parentUuid":null,`, `"parentUuid":null,`}: {"a", "b", "c", "d"},
		{`"parentUuid":null,`, `"parentUuid":"a",`, `"parentUuid":null,`, `"parentUuid":"c",`}:   {"c", "d"},
	} {
		data := row("user", "a", parents[0], "a") + row("assistant", "b", parents[1], "b") + row("user", "c", parents[2], "c") + row("assistant", "d", parents[3], "d")
		records, _ := decodeFile(t, claudeCode, []byte(data))
		wantVisible(t, visibleTexts(foldRecords(t, records)), want)
	}
}

func patchID(text string) string {
	return string(bytes.Map(func(r rune) rune { return 'a' + r%26 }, []byte(text)))
}

var _ patch.Record

// Files with complete API requests, with API responses and with early rollouts of Codex are recognised and read.
func TestDocuments(t *testing.T) {
	for text, want := range map[string]string{
		`{"model":"m","input":[{"role":"system","content":"Be short."},{"role":"user","content":"Hello"}],"store":false}`: "openai-responses: system/user: Be short.|user/user: Hello",
		`{"model":"m","input":"Hello"}`: "openai-responses: user/user: Hello",
		`{"id":"resp_1","object":"response","created_at":1700000000,"model":"m","output":[{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},` +
			`{"type":"mcp_call","id":"mcp_1","name":"ask","arguments":"{\"q\":1}","output":"so"},{"type":"image_generation_call","id":"ig_1","status":"completed","result":"aGVsbG8="},` +
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Done."}]}]}`: `openai-responses: openai-responses/model: call ws_1 web_search{"type":"search","query":"q"}|openai-responses/user: response ws_1 web_search{"result":"completed"}|` +
			`openai-responses/model: call mcp_1 ask{"q":1}|openai-responses/user: response mcp_1 ask{"result":"so"}|openai-responses/model: call ig_1 image_generation|openai-responses/user: response ig_1 image_generation{"result":"completed"} image/png|openai-responses/model: Done.`,
		`{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"I look."},{"type":"server_tool_use","id":"s1","name":"web_search","input":{"q":1}},` +
			`{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","title":"T"}]},{"type":"text","text":"Found."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4}}`: `anthropic: anthropic/model: I look. call s1 web_search{"q":1}|anthropic/user: response s1 web_search{"result":{"type":"web_search_result","title":"T"}}|anthropic/model: Found.`,
		`{"session":{"id":"s1","timestamp":"2025-05-01T10:00:00Z"},"items":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Fix it"}]},{"type":"function_call","call_id":"c1","name":"shell","arguments":"{}"},` +
			`{"type":"function_call_output","call_id":"c1","output":"a"}]}`: `codex: user/user: Fix it|codex/model: call c1 shell{}|codex/user: response c1 shell{"result":"a"}`,
	} {
		source, err := OpenFile([]byte(text), FileOptions{Name: "file.json"})
		testlog.NoError(t, err)
		s := teststore.Memory(t, store.Options{})
		var key store.Key
		testlog.Must(Run(t.Context(), s, source, Options{Session: func(r Result) error { key = r.Key; return r.Err }}))(t)
		testlog.Equal(t, text, source.(*File).Format.Name+": "+strings.Join(describeEvents(testlog.Must(s.Get(t.Context(), key))(t).View), "|"), want)
	}
}

// Other programs spell the members of events and patches differently. The import accepts their spellings.
func TestSpellings(t *testing.T) {
	const text = `{"id":"a","author":"x"}
{"id":"b","author":"x"}
{"id":"p1","patch_type":"truncate_before","event_id":"b"}
{"id":"p2","patch_type":"summarise","start":0,"count":1,"summary_event":{"id":"s","content":{"parts":[{"text":"s"}]}}}
`
	s, key := openStore(t)
	testlog.Equal(t, "added", testlog.Must(importText(t, s, key, patchlogText, []byte(text)))(t).Added, 4)
	got := testlog.Must(s.Get(t.Context(), key))(t)
	testlog.Equal(t, "visible", got.View.Len() == 1 && got.View.At(0).ID() == "s", true)
	_, err := importText(t, s, store.Key{App: "a", User: "u", Session: "t"}, patchlogText, []byte(strings.Replace(text, `"event_id"`, `"eventId":"a","event_id"`, 1)))
	testlog.Equal(t, "error", err.Error(), `t:3: invalid: field "eventId": the field occurs in two spellings`)
}

// Headers before the first message do not start a turn. An invocation begins with a message of the user. Before the
// first message of the user, it begins with a message of the model.
func TestHeadersStartNoTurn(t *testing.T) {
	item := func(role, text string) string {
		return fmt.Sprintf(`{"type":"response_item","payload":{"type":"message","role":%q,"content":[{"type":"input_text","text":%q}]}}`, role, text) + "\n"
	}
	meta := `{"type":"session_meta","payload":{"id":"s"}}` + "\n"
	for text, want := range map[string]string{
		`{"type":"summary","summary":"x","leafUuid":"y"}` + "\n" + claudeHead + `{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"one"}}` + "\n": "-|-|2",
		meta + item("user", "<environment_context>a</environment_context>") + item("user", "one") + item("assistant", "two"):                                                  "-|-|2|2",
		meta + item("assistant", "one") + item("user", "two"):                                                  "-|1|2",
		piHead + `{"type":"message","id":"u","parentId":null,"message":{"role":"user","content":"go"}}` + "\n": "-|1",
		`{"role":"system","content":"Be short."}` + "\n" + `{"role":"user","content":"one"}` + "\n":            "-|1",
	} {
		format := testlog.Must(Detect([]byte(text), "f.jsonl"))(t)
		records, _ := decodeFile(t, format, []byte(text))
		var got []string
		for _, r := range records {
			place := slices.IndexFunc(records, func(o patch.Record) bool { return o.ID() == r.Event.InvocationID() })
			got = append(got, strings.Replace(fmt.Sprint(place), "-1", "-", 1))
		}
		testlog.Equal(t, text, strings.Join(got, "|"), want)
	}
}

// If a call has no result yet, a repair may add an answer to the call. When the file has grown by the result, an
// import replaces the answer by the result.
func TestResultAfterRepair(t *testing.T) {
	const (
		claudeRow = `{"type":"%s","uuid":"%s","parentUuid":%s,"sessionId":"s","timestamp":"2026-01-01T00:00:00Z","message":{"role":"%[1]s","content":%[4]s}}` + "\n"
		calls     = `[{"type":"tool_use","id":"t1","name":"f","input":{}},{"type":"tool_use","id":"t2","name":"f","input":{}}]`
		result1   = `[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]`
	)
	for name, c := range map[string]struct {
		format           Format
		begin, call, end string
	}{
		"patchlog": {patchlogText, `{"id":"u","author":"user","content":{"role":"user","parts":[{"text":"go"}]}}` + "\n",
			`{"id":"a","author":"patchlog","content":{"role":"model","parts":[{"functionCall":{"id":"t1","name":"f","args":{}}},{"functionCall":{"id":"t2","name":"f","args":{}}}]}}` + "\n",
			`{"id":"r","author":"patchlog","content":{"role":"user","parts":[{"functionResponse":{"id":"t1","name":"f","response":{"result":"ok"}}}]}}` + "\n"},
		"anthropic": {anthropicMessages, `{"role":"user","content":"go"}` + "\n", `{"role":"assistant","content":` + calls + "}\n", `{"role":"user","content":` + result1 + "}\n"},
		"openai-chat": {openAIChat, `{"role":"user","content":"go"}` + "\n",
			`{"role":"assistant","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"t2","type":"function","function":{"name":"f","arguments":"{}"}}]}` + "\n",
			`{"role":"tool","tool_call_id":"t1","content":"ok"}` + "\n"},
		"claude-code": {claudeCode, fmt.Sprintf(claudeRow, "user", "u", "null", `"go"`), fmt.Sprintf(claudeRow, "assistant", "a", `"u"`, calls), fmt.Sprintf(claudeRow, "user", "r", `"a"`, result1)},
		"pi": {pi, piHead + `{"type":"message","id":"u","parentId":null,"message":{"role":"user","content":"go"}}` + "\n",
			`{"type":"message","id":"a","parentId":"u","message":{"role":"assistant","content":[{"type":"toolCall","id":"t1","name":"f","arguments":{}},{"type":"toolCall","id":"t2","name":"f","arguments":{}}]}}` + "\n",
			`{"type":"message","id":"r","parentId":"a","message":{"role":"toolResult","toolCallId":"t1","toolName":"f","content":[{"type":"text","text":"ok"}]}}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s, key := openStore(t)
			testlog.Must(importText(t, s, key, c.format, []byte(c.begin+c.call)))(t)
			v := testlog.Must(s.View(t.Context(), key))(t)
			patches := testlog.Must(compaction.CloseCalls(v, rand.Text, func(fold.Call) bool { return false }))(t)
			before := testlog.Must(s.ApplyPatch(t.Context(), key, patches, store.PatchOptions{On: v}))(t).View
			grown := []byte(c.begin + c.call + c.end)
			testlog.Must(importText(t, s, key, c.format, grown))(t)
			v = testlog.Must(s.View(t.Context(), key))(t)
			agent := c.format.Name
			wantVisible(t, describeEvents(v), []string{
				"user/user: go", agent + "/model: call t1 f{} call t2 f{}",
				agent + `/user: response t2 f{"error":"interrupted: no result was recorded"}`, agent + `/user: response t1 f{"result":"ok"}`,
			})
			testlog.Equal(t, "new records", v.Seq()-before.Seq(), 2)
			testlog.Equal(t, "skipped patches", v.SkippedCount(), 0)
			testlog.Equal(t, "added again", testlog.Must(importText(t, s, key, c.format, grown))(t).Added, 0)
		})
	}
}
