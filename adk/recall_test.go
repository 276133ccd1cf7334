package adk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/adk/v2/tool/loadmemorytool"
	"google.golang.org/adk/v2/tool/preloadmemorytool"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// forgetful is a configuration with frequent compaction. Its summaries do not contain the facts in the events.
var forgetful = compaction.Config{Enabled: true, CompactionInterval: 3, OverlapSize: 1, Summarizer: adk.Summarizer(shortener{})}

// An agent can recall facts. In turn 55, it needs facts from turn 3. With compaction and the recall tools, it gives
// the same answers as without compaction, and its prompts are valid and shorter.
func TestAgentRecalls(t *testing.T) {
	type outcome struct {
		answers []string
		longest int
	}
	play := func(t *testing.T, sessions *adk.Service, recalls []tool.Tool) (out outcome) {
		report := functionTool(t, functiontool.Config{Name: "fetch_report"}, func(agent.Context, struct{}) (map[string]string, error) {
			return map[string]string{"report": longReport()}, nil
		})
		turn := 0
		code, tank, row := regexp.MustCompile(`locker code is (\S+)`), regexp.MustCompile(`tank holds (\d+) litres`), regexp.MustCompile(`row 0777: (\S+)`)
		// findFact returns a fact only if the prompt contains it, because the model may use nothing else.
		findFact := func(prompt []*genai.Content, what *regexp.Regexp) string {
			text, err := json.Marshal(prompt)
			noError(t, err)
			if m := what.FindSubmatch(text); m != nil {
				return strings.TrimRight(strings.Split(string(m[1]), `\`)[0], `.",`)
			}
			return ""
		}
		n := 0
		m := replyModel(func(prompt []*genai.Content) *genai.Part {
			checkPrompt(t, prompt)
			size := 0
			for _, c := range prompt {
				text, _ := json.Marshal(c)
				size += len(text)
			}
			out.longest = max(out.longest, size)
			n++
			id := fmt.Sprint("call", n)
			switch {
			case turn == 3 && !endsWithResponse(prompt):
				return call(id, "fetch_report", nil)
			case turn < 55:
				return &genai.Part{Text: "Noted, thank you" + padding + padding}
			}
			code, tank, row := findFact(prompt, code), findFact(prompt, tank), findFact(prompt, row)
			if code != "" && tank != "" && row != "" {
				return &genai.Part{Text: code + " " + tank + " " + row}
			}
			last := prompt[len(prompt)-1].Parts[0].FunctionResponse
			switch {
			case code == "":
				return call(id, "recall_search", map[string]any{"query": "locker code"})
			case last != nil && last.Name == "recall_read" && last.Response["nextOffset"] != nil:
				return call(id, "recall_read", map[string]any{"handle": reportHandle(t, prompt), "offset": last.Response["nextOffset"]})
			case last != nil && tank != "" && row == "":
				return call(id, "recall_read", map[string]any{"handle": reportHandle(t, prompt)})
			}
			if n > 10_000 {
				t.Fatalf("turn %d: the model still lacks a fact after 10,000 calls", turn)
			}
			return call(id, "recall_search", map[string]any{"query": "how many litres the tank holds in the report", "tool": "fetch_report"})
		})
		a := llmAgent(t, m, append([]tool.Tool{report}, recalls...)...)
		for turn = 1; turn <= 60; turn++ {
			text := fmt.Sprintf("turn %d, nothing of interest", turn)
			if turn == 3 {
				text = "By the way: my locker code is X-48213-B. Fetch the report."
			}
			events := ask(t, a, sessions, genai.NewContentFromText(text+padding+padding, "user"))
			if turn >= 55 {
				out.answers = append(out.answers, lastWords(events))
			}
		}
		return out
	}
	want := play(t, inMemory(t), nil)
	equal(t, "answers", want.answers[0], "X-48213-B 4200 value-0777")
	onStoreAndBases(t, bases[:1], adk.Options{Compaction: forgetful, MaxResultTokens: 500}, func(t *testing.T, sessions *adk.Service) {
		recalls, err := sessions.RecallTools(adk.RecallOptions{TurnTokens: 20_000})
		noError(t, err)
		got := play(t, sessions, recalls)
		equal(t, "answers", got.answers, want.answers)
		if got.longest > want.longest*3/4 {
			t.Errorf("the longest prompt has %d characters, without compaction %d", got.longest, want.longest)
		}
	})
}

func longReport() string {
	var b strings.Builder
	for i := range 1000 {
		if i == 500 {
			b.WriteString("The tank holds 4200 litres.\n")
		}
		fmt.Fprintf(&b, "row %04d: value-%04d\n", i, i)
	}
	return b.String()
}

// reportHandle returns the handle of the report. It reads the handle from the first search result in the prompt
// that mentions litres.
func reportHandle(t *testing.T, prompt []*genai.Content) string {
	t.Helper()
	text, err := json.Marshal(prompt)
	noError(t, err)
	for _, c := range prompt {
		for _, p := range c.Parts {
			if p.FunctionResponse == nil || p.FunctionResponse.Name != "recall_search" {
				continue
			}
			for _, r := range p.FunctionResponse.Response["results"].([]any) {
				if item := r.(map[string]any); strings.Contains(item["text"].(string), "litres") {
					return item["handle"].(string)
				}
			}
		}
	}
	t.Fatalf("no handle in %s", text)
	return ""
}

// callTools makes an agent call tools one after another, and returns the responses.
func callTools(t *testing.T, sessions session.Service, user, id string, tools []tool.Tool, calls ...*genai.Part) (got []map[string]any) {
	t.Helper()
	n := 0
	m := replyModel(func(prompt []*genai.Content) *genai.Part {
		if endsWithResponse(prompt) {
			for _, p := range prompt[len(prompt)-1].Parts {
				got = append(got, p.FunctionResponse.Response)
			}
		}
		if n++; n <= len(calls) {
			calls[n-1].FunctionCall.ID = fmt.Sprintf("%s-%d-%d", id, n, len(prompt))
			return calls[n-1]
		}
		return &genai.Part{Text: "done"}
	})
	a := llmAgent(t, m, tools...)
	for _, err := range newRunner(t, a, sessions).Run(t.Context(), user, id, genai.NewContentFromText("go on", "user"), agent.RunConfig{}) {
		noError(t, err)
	}
	return got
}

func resultTexts(response map[string]any) (all []string) {
	results, _ := response["results"].([]any)
	for _, r := range results {
		all = append(all, r.(map[string]any)["text"].(string))
	}
	return all
}

// newRecallSession creates a session in which some hidden events contain "needle". It also returns the recall
// tools.
func newRecallSession(t *testing.T, opts adk.RecallOptions) (*adk.Service, []tool.Tool, session.Session) {
	t.Helper()
	sessions := newQuietService(t, adk.Options{MaxResultTokens: 500})
	sess := create(t, sessions, "s", nil)
	recalls, err := sessions.RecallTools(opts)
	noError(t, err)
	return sessions, recalls, sess
}

// summariseFirst hides the first n events of a session behind a summary.
func summariseFirst(t *testing.T, sessions *adk.Service, sess session.Session, n int) {
	t.Helper()
	s, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", "in short")})
	noError(t, err)
	noError(t, errOf(sessions.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSummarise(0, n, s)}, store.PatchOptions{})))
}

// The recall tools find the events of their session that summaries cover. They do not find visible events, events
// that were cut by hand or rewound, or events of another branch, scope or session.
func TestRecallVisibility(t *testing.T) {
	sessions, recalls, sess := newRecallSession(t, adk.RecallOptions{})
	ctx := t.Context()
	say := func(sess session.Session, id, words, branch, scope string) {
		e := textEvent(id, "user", words)
		e.Branch, e.IsolationScope = branch, scope
		noError(t, sessions.AppendEvent(ctx, sess, e))
	}
	say(sess, "e1", "needle told", "", "")
	say(sess, "e2", "needle cut", "", "")
	say(sess, "e3", "needle in a branch", "other", "")
	say(sess, "e4", "needle in a scope", "", "scope")
	say(sess, "e5", "needle in sight", "", "")
	other, err := sessions.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "stranger", SessionID: "s"})
	noError(t, err)
	say(other.Session, "o1", "needle of a stranger", "", "")
	summariseFirst(t, sessions, other.Session, 1)
	second := create(t, sessions, "s2", nil)
	say(second, "t1", "needle of another session", "", "")
	summariseFirst(t, sessions, second, 1)
	noError(t, errOf(sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSplice(1, 1)}, store.PatchOptions{})))
	summariseFirst(t, sessions, sess, 3)

	search := func() *genai.Part { return call("", "recall_search", map[string]any{"query": "needle"}) }
	got := callTools(t, sessions, "user", "s", recalls, search())
	equal(t, "found", resultTexts(got[0]), []string{"needle in a branch", "needle told"}) // an agent without a branch sees the events of all branches
	equal(t, "found", resultTexts(callTools(t, sessions, "user", "s2", recalls, search())[0]), []string{"needle of another session"})
	equal(t, "found", resultTexts(callTools(t, sessions, "stranger", "s", recalls, search())[0]), []string{"needle of a stranger"})
	equal(t, "found", len(resultTexts(callTools(t, sessions, "nobody", "s", recalls, search())[0])), 0)

	// The tool that reads an event by its handle has the same restrictions as the search.
	for handle, want := range map[string]string{"1": "needle told", "2": "", "4": "", "5": "needle in sight", "id=e1": "needle told", "id=e2": "", "id=o1": "", "1/0": "", "99": "", "0": "", "": "", "-1": "", "x": "", "id=": ""} {
		got := callTools(t, sessions, "user", "s", recalls, call("", "recall_read", map[string]any{"handle": handle}))
		if said, _ := got[0]["text"].(string); said != want || (want == "") != (got[0]["error"] != nil) {
			t.Errorf("by handle %q: %v, want %q", handle, got[0], want)
		}
	}
	// An agent with a branch sees events of the branches above its own.
	sub := func(branch string) []string {
		var found []string
		m := replyModel(func(prompt []*genai.Content) *genai.Part {
			if endsWithResponse(prompt) {
				found = resultTexts(prompt[len(prompt)-1].Parts[0].FunctionResponse.Response)
				return &genai.Part{Text: "done"}
			}
			return search()
		})
		a := llmAgent(t, m, recalls...)
		within, err := agent.New(agent.Config{Name: "outer", SubAgents: []agent.Agent{a}, Run: func(ctx agent.InvocationContext) iter.Seq2[*session.Event, error] {
			return a.Run(ctx.WithICDelta(&agent.InvocationContextDelta{Branch: &branch}))
		}})
		noError(t, err)
		ask(t, within, sessions, genai.NewContentFromText("go on", "user"))
		return found
	}
	equal(t, "found in a new branch", sub("mine"), []string{"needle told"})
	equal(t, "found in the branch below", sub("other.mine"), []string{"needle in a branch", "needle told"})
	equal(t, "found in a branch whose name has the same prefix", sub("otherwise"), []string{"needle told"})
}

// The recall tools neither return nor match content that models never see: state, credentials that ADK requests,
// events of other scopes, and events that were cut by hand.
func TestRecallHidesSecrets(t *testing.T) {
	sessions, recalls, sess := newRecallSession(t, adk.RecallOptions{})
	ctx := t.Context()
	signed, asked := textEvent("e1", "user", "signed in"), textEvent("e2", "app", "")
	signed.Actions.StateDelta = map[string]any{"oauth": "token-4711-state"}
	asked.Content = &genai.Content{Role: "model", Parts: []*genai.Part{call("c1", "adk_request_credential", map[string]any{"for": "mail-4711-asked"})}}
	given := newEvent("e3", "i", "user", withResponse("c1", "adk_request_credential", map[string]any{"clientSecret": "hunter-4711-given"}))
	hidden := textEvent("e4", "user", "password-4711-scoped")
	hidden.IsolationScope = "other"
	appendAll(t, sessions, sess, signed, asked, given, hidden, textEvent("e5", "user", "hello there"), textEvent("e6", "user", "password-4711-cut"))
	noError(t, errOf(sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSplice(5, 1)}, store.PatchOptions{})))
	summariseFirst(t, sessions, sess, 5)
	for _, query := range []string{"oauth", "token-4711-state", "mail-4711-asked", "clientSecret", "hunter-4711-given", "password-4711-scoped", "password-4711-cut", "password"} {
		got := callTools(t, sessions, "user", "s", recalls, call("", "recall_search", map[string]any{"query": query}))[0]
		if found := resultTexts(got); len(found) > 0 {
			t.Errorf("%s: %q", query, found)
		}
		found, err := sessions.Memory().SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: query})
		noError(t, err)
		for _, m := range found.Memories {
			if said := m.Content.Parts[0].Text; strings.Contains(said, "4711") && !strings.Contains(said, "scoped") {
				t.Errorf("%s: the memory says %q", query, said)
			}
		}
	}
	for _, handle := range []string{"2", "3", "3/0", "4", "6"} {
		if got := callTools(t, sessions, "user", "s", recalls, call("", "recall_read", map[string]any{"handle": handle}))[0]; got["error"] == nil {
			t.Errorf("by handle %s: %v", handle, got)
		}
	}
	equal(t, "found", resultTexts(callTools(t, sessions, "user", "s", recalls, call("", "recall_search", map[string]any{"query": "signed"}))[0])[0], "signed in")
	if got := callTools(t, sessions, "user", "s", recalls, call("", "recall_read", map[string]any{"handle": "1"}))[0]; got["text"] != "signed in" {
		t.Errorf("%v", got)
	}
}

// A handle names exactly one event, even if a patch inserted several events, or if event ids look like handles.
func TestRecallHandles(t *testing.T) {
	sessions, recalls, sess := newRecallSession(t, adk.RecallOptions{})
	ctx := t.Context()
	noError(t, sessions.AppendEvent(ctx, sess, textEvent("e1", "user", "to be edited")))
	var edits []*patch.Event
	for i := range 3 {
		e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("e/", i), Author: "user", Content: patch.Text("user", fmt.Sprint("edited number", i))})
		noError(t, err)
		edits = append(edits, e)
	}
	noError(t, errOf(sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSplice(0, 1, edits...)}, store.PatchOptions{})))
	summariseFirst(t, sessions, sess, 3)
	for i := range 3 {
		query := fmt.Sprint("number", i)
		got := callTools(t, sessions, "user", "s", recalls, call("", "recall_search", map[string]any{"query": query}))[0]
		handle := got["results"].([]any)[0].(map[string]any)["handle"]
		for _, handle := range []any{handle, fmt.Sprint("id=e/", i)} {
			if read := callTools(t, sessions, "user", "s", recalls, call("", "recall_read", map[string]any{"handle": handle}))[0]; read["text"] != "edited "+query {
				t.Errorf("by handle %v: %v", handle, read)
			}
		}
	}
}

// Searches accept filters, and report whether there are more results or no results. Unused tokens are returned
// to the budget of the turn.
func TestRecallSearches(t *testing.T) {
	sessions, recalls, sess := newRecallSession(t, adk.RecallOptions{CallTokens: 400, TurnTokens: 1000})
	for i := range 20 {
		noError(t, sessions.AppendEvent(t.Context(), sess, textEvent(fmt.Sprint("e", i), []string{"user", "app"}[i%2], fmt.Sprintf("needle %d", i))))
	}
	noError(t, sessions.AppendEvent(t.Context(), sess, textEvent("rare", "user", "a rare word")))
	summariseFirst(t, sessions, sess, 21)
	records := func(args map[string]any) (all []string, note string) {
		got := callTools(t, sessions, "user", "s", recalls, call("", "recall_search", args))[0]
		for _, r := range got["results"].([]any) {
			item := r.(map[string]any)
			all = append(all, fmt.Sprint(item["record"], " ", item["author"]))
		}
		return all, got["note"].(string)
	}
	found, _ := records(map[string]any{"query": "needle", "author": "app", "from": 3, "to": 6})
	equal(t, "found", found, []string{"6 app", "4 app"})
	if _, note := records(map[string]any{"query": "needle"}); !strings.Contains(note, "more") {
		t.Errorf("with many results, the note is %q", note)
	}
	if _, note := records(map[string]any{"query": "rare"}); strings.Contains(note, "more") {
		t.Errorf("with one result, the note is %q", note)
	}
	if found, note := records(map[string]any{"query": "xylophone"}); len(found) > 0 || !strings.HasPrefix(note, "Nothing was found") {
		t.Errorf("without results, the note is %q", note)
	}
	var calls []*genai.Part
	for range 6 {
		calls = append(calls, call("", "recall_search", map[string]any{"query": "rare"}))
	}
	for i, got := range callTools(t, sessions, "user", "s", recalls, calls...) {
		if len(resultTexts(got)) == 0 {
			t.Errorf("small search %d: %v", i+1, got)
		}
	}
}

// The recall tools limit the tokens of their results per call and per turn, even if calls run in parallel. A
// result reports that the limit was reached.
func TestRecallIsBounded(t *testing.T) {
	sessions, recalls, sess := newRecallSession(t, adk.RecallOptions{CallTokens: 400, TurnTokens: 900})
	for i := range 50 {
		e := textEvent(fmt.Sprint("e", i), strings.Repeat("user", 1+300*(i%2)), fmt.Sprintf("needle %d ", i)+strings.Repeat("hay and ", 400))
		if i%5 < 3 { // text with characters that JSON escapes, and with characters of several bytes
			e.Content.Parts[0].Text = "needle hay" + strings.Repeat([]string{"\x01", "\"\"", "東京"}[i%5], 3000)
		}
		noError(t, sessions.AppendEvent(t.Context(), sess, e))
	}
	summariseFirst(t, sessions, sess, 50)
	size := func(response map[string]any) int {
		raw, err := json.Marshal(response)
		noError(t, err)
		return patch.EstimateTextTokens(string(raw))
	}
	for name, look := range map[string]func(i int) *genai.Part{
		"searches": func(int) *genai.Part { return call("", "recall_search", map[string]any{"query": "needle hay"}) },
		"reads":    func(i int) *genai.Part { return call("", "recall_read", map[string]any{"handle": fmt.Sprint(i + 1)}) },
	} {
		var calls []*genai.Part
		for i := range 6 {
			calls = append(calls, look(i))
		}
		got := callTools(t, sessions, "user", "s", recalls, calls...)
		total := 0
		for i, r := range got {
			total += size(r)
			if size(r) > 400 {
				t.Errorf("%s: the result of call %d has %d tokens", name, i+1, size(r))
			}
			if note := r["note"].(string); i < 2 && !strings.HasPrefix(note, "Old data") || i == 5 && !strings.Contains(note, "limit for lookups") {
				t.Errorf("%s: the note of call %d is %q", name, i+1, note)
			}
		}
		if total > 900+6*40 || total < 500 {
			t.Errorf("%s: the results of a turn have %d tokens", name, total)
		}
	}
	// In the next turn, there is a new budget, which parallel calls share.
	total, first := 0, true
	m := modelFunc(func(ctx context.Context, req *model.LLMRequest) responses {
		content := &genai.Content{Role: "model", Parts: []*genai.Part{{Text: "done"}}}
		if first {
			content.Parts = nil
			for i := range 8 {
				content.Parts = append(content.Parts, call(fmt.Sprint("p", i), "recall_search", map[string]any{"query": "needle"}))
			}
		} else {
			for _, p := range req.Contents[len(req.Contents)-1].Parts {
				total += size(p.FunctionResponse.Response)
			}
		}
		first = false
		return responseModel(&model.LLMResponse{Content: content})(ctx, req)
	})
	a := llmAgent(t, m, recalls...)
	ask(t, a, sessions, genai.NewContentFromText("go on", "user"))
	if total > 900+8*40 || total < 500 {
		t.Errorf("the results of parallel calls have %d tokens", total)
	}
	for _, query := range []string{"", " \n", strings.Repeat("needle ", 1<<17), "(a+)+$\x00\u202e"} {
		got := callTools(t, sessions, "user", "s", recalls, call("", "recall_search", map[string]any{"query": query}))
		if size(got[0]) > 400 {
			t.Errorf("%.20q: %d tokens", query, size(got[0]))
		}
	}
}

// Summaries in a prompt name the records that they cover only if the agent has the recall tools.
func TestSummariesNameRecords(t *testing.T) {
	sessions := newQuietService(t, adk.Options{Compaction: forgetful})
	sess := create(t, sessions, "s", nil)
	for i := range 8 {
		appendAll(t, sessions, sess, newEvent(fmt.Sprint("e", i), fmt.Sprint("inv", i/2), []string{"user", "app"}[i%2], withLongText))
	}
	sessions.WaitForCompaction(t)
	noError(t, errOf(sessions.Compact(t.Context(), sess, adk.CompactOptions{})))
	recalls, err := sessions.RecallTools(adk.RecallOptions{})
	noError(t, err)
	for _, tools := range [][]tool.Tool{nil, recalls} {
		var first []*genai.Part
		m := modelFunc(func(_ context.Context, req *model.LLMRequest) responses {
			first = req.Contents[0].Parts
			return responseModel(&model.LLMResponse{Content: genai.NewContentFromText("fine", "model")})(nil, req)
		})
		a := llmAgent(t, m, tools...)
		ask(t, a, sessions, genai.NewContentFromText("go on", "user"))
		equal(t, "has a note", len(first) == 2 && strings.Contains(first[1].Text, "records 1 to ") && strings.Contains(first[1].Text, "recall_search"), tools != nil)
		equal(t, "parts of the event", len(get(t, sessions, "s").Events().At(0).Content.Parts), 1)
	}
}

func TestRecallOptions(t *testing.T) {
	for _, o := range []adk.RecallOptions{{CallTokens: 1}, {TurnTokens: 1}, {CallTokens: -1}, {Results: -1}, {Results: 1 << 20}} {
		if _, err := inMemory(t).RecallTools(o); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), "RecallOptions.") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	// If another service keeps the session, the recall tools return an error.
	recalls, err := inMemory(t).RecallTools(adk.RecallOptions{})
	noError(t, err)
	got := callTools(t, session.InMemoryService(), "user", "s", recalls,
		call("", "recall_search", map[string]any{"query": "x"}), call("", "recall_read", map[string]any{"handle": "1"}))
	for _, r := range got {
		if said, _ := r["error"].(string); !strings.Contains(said, "runner uses this service") {
			t.Errorf("%v", r)
		}
	}
}

// ADK's memory tools find events of the user's other sessions, even after a restart.
func TestLogMemory(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, sessions *adk.Service) {
		ctx := t.Context()
		say := func(user, id string, words ...string) session.Session {
			r, err := sessions.Create(ctx, &session.CreateRequest{AppName: "app", UserID: user, SessionID: id})
			noError(t, err)
			for i, w := range words {
				noError(t, sessions.AppendEvent(ctx, r.Session, textEvent(fmt.Sprint("e", i), "user", w)))
			}
			return r.Session
		}
		old := say("user", "old", "My cat is called Mousebane", "and likes herring")
		say("user", "cut", "Mousebane, which was cut")
		say("stranger", "s", "Mousebane of a stranger")
		cut := get(t, sessions, "cut")
		noError(t, errOf(sessions.ApplyPatch(ctx, cut, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})))
		mem := sessions.Memory()
		noError(t, mem.AddSessionToMemory(ctx, old))
		summariseFirst(t, sessions, get(t, sessions, "old"), 2)

		var prompts []*model.LLMRequest
		n := 0
		m := modelFunc(func(ctx context.Context, req *model.LLMRequest) responses {
			prompts = append(prompts, req)
			part := &genai.Part{Text: "done"}
			if n++; n == 1 {
				part = call("c1", "load_memory", map[string]any{"query": "what is the cat called"})
			}
			return responseModel(&model.LLMResponse{Content: &genai.Content{Role: "model", Parts: []*genai.Part{part}}})(ctx, req)
		})
		a := llmAgent(t, m, []tool.Tool{loadmemorytool.New(), preloadmemorytool.New()}...)
		r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: sessions, MemoryService: mem, AutoCreateSession: true})
		noError(t, err)
		for _, err := range r.Run(ctx, "user", "new", genai.NewContentFromText("What is my cat called?", "user"), agent.RunConfig{}) {
			noError(t, err)
		}
		loaded, err := json.Marshal(prompts[1].Contents)
		noError(t, err)
		preloaded, err := json.Marshal(prompts[0].Config.SystemInstruction)
		noError(t, err)
		for what, text := range map[string]string{"loaded": string(loaded), "preloaded": string(preloaded)} {
			if !strings.Contains(text, "My cat is called Mousebane") || strings.Contains(text, "which was cut") || strings.Contains(text, "of a stranger") {
				t.Errorf("%s: %s", what, text)
			}
		}
		// A search by an agent leaves out the agent's own session. Other searches include all sessions of the
		// user.
		if strings.Contains(string(preloaded), "What is my cat called") {
			t.Errorf("preloaded: %s", preloaded)
		}
		found, err := mem.SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: "cat"})
		noError(t, err)
		if len(found.Memories) < 2 || found.Memories[0].CustomMetadata["session"] == "" || found.Memories[0].ID == "" {
			t.Errorf("%+v", found.Memories)
		}
		for _, query := range []string{"", "xylophone"} {
			found, err := mem.SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: query})
			if err != nil || found.Memories == nil || len(found.Memories) > 0 {
				t.Errorf("%q: %v, %v", query, found, err)
			}
		}
		wantError(t, errOf(mem.SearchMemory(ctx, &memory.SearchRequest{Query: "cat"})), patch.ErrInvalid)
		wantError(t, errOf(mem.SearchMemory(ctx, nil)), patch.ErrInvalid)
		noError(t, sessions.Delete(ctx, &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "old"}))
		wantError(t, mem.AddSessionToMemory(ctx, old), store.ErrNotFound)
		wantError(t, mem.AddSessionToMemory(ctx, nil), patch.ErrInvalid)
		found, err = mem.SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: "herring"})
		noError(t, err)
		for _, m := range found.Memories {
			if m.CustomMetadata["session"] == "old" {
				t.Errorf("of a deleted session: %v", m)
			}
		}
	})
}

// A long tool result is shortened in every prompt, also with a wrapped service. The recall tools can read the
// whole result, byte for byte.
func TestLongResults(t *testing.T) {
	report := longReport() + "\"quoted\" é 東京 😀 \x01 end"
	results := map[string]map[string]any{
		"text":   {"output": report},
		"record": {"id": 7, "body": report, "price": json.Number("1.50"), "big": json.Number("9007199254740993")},
		"list":   {"rows": strings.Split(report, "\n")},
	}
	onStoreAndBases(t, bases, adk.Options{MaxResultTokens: 500}, func(t *testing.T, sessions *adk.Service) {
		recalls, err := sessions.RecallTools(adk.RecallOptions{CallTokens: 1000, TurnTokens: 1 << 20})
		noError(t, err)
		for kind, result := range results {
			fetch := functionTool(t, functiontool.Config{Name: "fetch_" + kind}, func(agent.Context, struct{}) (map[string]any, error) { return result, nil })
			got := callTools(t, sessions, "user", kind, append([]tool.Tool{fetch}, recalls...), call("", "fetch_"+kind, nil))
			raw, err := json.Marshal(got[0])
			noError(t, err)
			if n := patch.EstimateTextTokens(string(raw)); n > 500 {
				t.Errorf("%s: the result has %d tokens in the prompt", kind, n)
			}
			note, _ := got[0]["shortened"].(string)
			handle := regexp.MustCompile(`handle "([^"]+)"`).FindStringSubmatch(note)
			if handle == nil {
				t.Fatalf("%s: no handle in %s", kind, raw)
			}
			if kind == "record" && fmt.Sprint(got[0]["id"]) != "7" {
				t.Errorf("%s: %s", kind, raw)
			}
			sess := get(t, sessions, kind)
			want := ""
			for r, err := range sessions.RawEvents(t.Context(), sess, 1) {
				noError(t, err)
				if r.Event == nil {
					continue
				}
				for p := range r.Event.FunctionParts() {
					if p.Response && p.Name == "fetch_"+kind {
						want = fullResponse(t, r.Event, p.Index)
					}
				}
			}
			var read strings.Builder
			for offset := 0.; ; {
				page := callTools(t, sessions, "user", kind, recalls, call("", "recall_read", map[string]any{"handle": handle[1], "offset": offset}))[0]
				if page["text"] == nil {
					t.Fatalf("%s: %v", kind, page)
				}
				read.WriteString(page["text"].(string))
				next, more := page["nextOffset"].(float64)
				if !more {
					break
				}
				offset = next
			}
			if read.String() != want || kind == "text" && want != report {
				t.Errorf("%s: %d bytes were read, of %d", kind, read.Len(), len(want))
			}
			// The history contains the whole result. Revert makes the whole result visible again.
			if s := get(t, sessions, kind).(*adk.Session); s.View().PatchSeq() > 0 {
				var shortened string
				for r, err := range sessions.RawEvents(t.Context(), sess, 1) {
					noError(t, err)
					if r.Patch != nil && shortened == "" {
						shortened = r.ID()
					}
				}
				noError(t, errOf(sessions.Revert(t.Context(), s, shortened)))
				raw, err := json.Marshal(s.Events().At(2).Content)
				noError(t, err)
				if len(raw) < len(report) {
					t.Errorf("%s: after the revert, the result has %d bytes", kind, len(raw))
				}
			} else {
				t.Errorf("%s: no patch was logged", kind)
			}
		}
	})
}

func fullResponse(t *testing.T, e *patch.Event, index int) string {
	t.Helper()
	for i, p := range e.Content().Parts() {
		if i != index {
			continue
		}
		if members := p.Response.Members(); len(members) == 1 {
			for _, v := range members {
				if text, ok := v.Any().(string); ok {
					return text
				}
			}
		}
		return p.Response.String()
	}
	return ""
}

func TestLongResultsByDefault(t *testing.T) {
	e := textEvent("e1", "app", "")
	e.Content = genai.NewContentFromFunctionResponse("f", map[string]any{"out": strings.Repeat("long ", 10_000)}, "user")
	result := func(sessions *adk.Service) int {
		sess := create(t, sessions, "s", nil)
		noError(t, sessions.AppendEvent(t.Context(), sess, e))
		raw, err := json.Marshal(sess.Events().At(0).Content)
		noError(t, err)
		return len(raw)
	}
	// If a revert has restored a whole result, a retry of the append does not shorten the result again.
	for _, sessions := range []*adk.Service{newQuietService(t, adk.Options{MaxResultTokens: 500}), wrap(t, session.InMemoryService(), adk.Options{MaxResultTokens: 500})} {
		sess := create(t, sessions, "s", nil).(*adk.Session)
		noError(t, sessions.AppendEvent(t.Context(), sess, e))
		for r, err := range sessions.RawEvents(t.Context(), sess, 2) {
			noError(t, err)
			noError(t, errOf(sessions.Revert(t.Context(), sess, r.ID())))
		}
		noError(t, sessions.AppendEvent(t.Context(), sess, e))
		equal(t, "event", sess.Events().At(0).ID, "e1")
	}
	if n := result(inMemory(t)); n < 50_000 {
		t.Errorf("without compaction, the result has %d bytes", n)
	}
	if n := result(newQuietService(t, adk.Options{Compaction: compaction.DefaultConfig()})); n > 4*adk.DefaultMaxResultTokens || n < 10_000 {
		t.Errorf("with compaction, the result has %d bytes", n)
	}
	if n := result(newQuietService(t, adk.Options{Compaction: compaction.DefaultConfig(), MaxResultTokens: -1})); n < 50_000 {
		t.Errorf("without a limit, the result has %d bytes", n)
	}
}

// While a workflow node runs, the session shows a new long result in shortened form.
func TestLongResultsInNodes(t *testing.T) {
	sessions := newQuietService(t, adk.Options{MaxResultTokens: 500})
	sess := create(t, sessions, "s", nil)
	for i := range 3 {
		id := fmt.Sprint("c", i)
		inBranch := func(e *session.Event) { e.Branch = "node" }
		result := newEvent("result"+id, "i", "app", inBranch, withResponse(id, "f", map[string]any{"out": strings.Repeat("long ", 1000)}))
		appendAll(t, sessions, sess, newEvent("call"+id, "i", "app", inBranch, withCall(id, "f")), result, result) // the second append of the result is a retry
		equal(t, "events", sess.Events().Len(), 2*i+2)
		for at := range sess.Events().Len() {
			raw, err := json.Marshal(sess.Events().At(at).Content)
			noError(t, err)
			if len(raw) > 2200 {
				t.Errorf("event %d has %d bytes", at, len(raw))
			}
		}
	}
}

// Redact keeps secrets out of the prompts of summarizers, and out of the results of the recall tools and of the
// memory service. The log keeps the original text.
func TestRedact(t *testing.T) {
	redactor, err := redact.New(redact.Options{})
	noError(t, err)
	const mail = "ada@example.com"
	asked := ""
	summarizer := compaction.SummarizerFunc(func(_ context.Context, req compaction.Request) (compaction.Response, error) {
		asked += fmt.Sprint(req.Prompt, req.Events)
		return compaction.Response{Text: "They wrote."}, nil
	})
	cfg := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: summarizer}
	sessions := newQuietService(t, adk.Options{Redact: redactor, Compaction: cfg})
	sess := create(t, sessions, "s", nil)
	ctx := t.Context()
	for i := range 3 {
		e := textEvent(fmt.Sprint("e", i), "user", "needle: write to "+mail+strings.Repeat(" and so on", 40))
		e.InvocationID = fmt.Sprint("i", i)
		noError(t, sessions.AppendEvent(ctx, sess, e))
	}
	noError(t, errOf(sessions.Compact(ctx, sess, adk.CompactOptions{})))
	if strings.Contains(asked, mail) || !strings.Contains(asked, redactor.Text(mail)) {
		t.Errorf("the summarizer was asked %.300s", asked)
	}
	recalls, err := sessions.RecallTools(adk.RecallOptions{})
	noError(t, err)
	got := callTools(t, sessions, "user", "s", recalls, call("", "recall_search", map[string]any{"query": "needle"}), call("", "recall_read", map[string]any{"handle": "1"}))
	found, err := sessions.Memory().SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: "needle"})
	noError(t, err)
	results, err := json.Marshal([]any{got, found})
	noError(t, err)
	if len(got) != 2 || len(found.Memories) == 0 || strings.Contains(string(results), mail) || strings.Count(string(results), redactor.Text(mail)) < 3 {
		t.Errorf("the recall tools returned %s", results)
	}
	history := ""
	for r, err := range sessions.RawEvents(ctx, sess, 1) {
		noError(t, err)
		history += fmt.Sprint(r.Event, r.Patch)
	}
	if strings.Count(history, mail) < 3 {
		t.Errorf("the log has %s", history)
	}
}

// If the user answers a long-running call that compaction has hidden, the prompt shows the call again. If
// RestoreCalls ran before the run, the agent that made the call continues the call's invocation.
func TestAnswerToACompactedCall(t *testing.T) {
	for _, recalls := range []bool{false, true} {
		t.Run(fmt.Sprint("recalls ", recalls), func(t *testing.T) {
			cfg := compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})}
			sessions := newQuietService(t, adk.Options{Compaction: cfg})
			var prompt []*genai.Content
			turn := 0
			m := replyModel(func(p []*genai.Content) *genai.Part {
				prompt = p
				checkPrompt(t, p)
				if endsWithResponse(p) || turn%2 == 0 {
					return &genai.Part{Text: "said" + padding}
				}
				return call(fmt.Sprint("ask", turn), "approve", nil)
			})
			a := llmAgent(t, m, tools(t)...)
			asked := "" // id of the invocation that made the first call
			most := 0
			for turn = 1; turn <= 60; turn++ {
				for _, e := range ask(t, a, sessions, genai.NewContentFromText(question(turn)+padding, "user")) {
					if turn == 1 {
						asked = e.InvocationID
					}
				}
				most = max(most, get(t, sessions, "s").Events().Len())
			}
			if most > 64 {
				t.Errorf("%d events were visible", most)
			}
			msg := response("ask1", "approve", map[string]any{"status": "approved"})
			if recalls {
				noError(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), msg))
			}
			events := ask(t, a, sessions, msg)
			equal(t, "what the answer led to", lastWords(events), "said"+padding)
			found := 0
			for _, c := range prompt {
				for _, p := range c.Parts {
					if f := p.FunctionResponse; f != nil && f.ID == "ask1" {
						equal(t, "the answer in the prompt", f.Response["status"], any("approved"))
						found++
					}
				}
			}
			equal(t, "answers in the prompt", found, 1)
			if in := events[0].InvocationID == asked; in != recalls {
				t.Errorf("in the call's invocation: %v", in)
			}
			// RestoreCalls does not restore a call twice. It ignores calls that never existed.
			noError(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), msg))
			before := get(t, sessions, "s").(*adk.Session).View().Seq()
			noError(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), msg))
			msg.Parts[0].FunctionResponse.ID = "never"
			noError(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), msg))
			noError(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), nil))
			noError(t, sessions.RestoreCalls(t.Context(), get(t, sessions, "s"), genai.NewContentFromText("x", "user")))
			equal(t, "records", get(t, sessions, "s").(*adk.Session).View().Seq(), before)
		})
	}
}

// While a workflow node runs, the session shows a restored call exactly once, whether or not the node has seen
// the call before.
func TestRestoredCallInNode(t *testing.T) {
	for _, seen := range []bool{false, true} {
		t.Run(fmt.Sprint("seen ", seen), func(t *testing.T) {
			svc := inMemory(t).OverSameStorage(t, adk.Options{KeepInterruptedCalls: true})
			sess := create(t, svc, "s", nil)
			appendAll(t, svc, sess, newEvent("q", "1", "user"), newEvent("ask", "1", "n", withCall("c", "lookup")), newEvent("u", "2", "user"))
			if !seen {
				summariseFirst(t, svc, get(t, svc, "s"), 2)
			}
			run := get(t, svc, "s")
			noError(t, svc.AppendEvent(t.Context(), run, newEvent("n0", "2", "n", withNode)))
			if seen {
				summariseFirst(t, svc, get(t, svc, "s"), 2)
			} else {
				noError(t, errOf(svc.ApplyPatch(t.Context(), get(t, svc, "s"), []*patch.PatchEvent{patch.NewSplice(1, 1)}, store.PatchOptions{}))) // the list of a running node still contains the event
			}
			appendAll(t, svc, run, newEvent("n1", "2", "n", withNode), newEvent("late", "1", "n", withNode, withResponse("c", "lookup", map[string]any{"a": 1})))
			calls := map[string]int{}
			for name, s := range map[string]session.Session{"the run": run, "got": get(t, svc, "s")} {
				for e := range s.Events().All() {
					if f := e.Content.Parts[0].FunctionCall; f != nil {
						calls[name]++
					}
				}
			}
			equal(t, "visible calls", calls, map[string]int{"the run": 1, "got": 1})
		})
	}
}

// There is no place for a hidden call directly after a summary with the role model. Then RestoreCalls returns an
// error, and AppendEvent logs the response without the call.
func TestAnswerWithoutPlaceForCall(t *testing.T) {
	db := inMemoryStore(t)
	s := newService(t, db)
	sess := create(t, s, "s", nil)
	asks := &session.Event{ID: "asks", Author: "app", InvocationID: "i", LongRunningToolIDs: []string{"c"}}
	asks.Content = genai.NewContentFromFunctionCall("approve", nil, "model")
	asks.Content.Parts[0].FunctionCall.ID = "c"
	appendAll(t, s, sess, textEvent("e0", "user", "hello"), asks, textEvent("e1", "user", "what else?"), textEvent("e2", "app", "nothing"))
	e, err := adk.NewEvent(textEvent("summary", "app", "They asked for an approval."))
	noError(t, err)
	_, err = db.ApplyPatch(t.Context(), testKey,
		[]*patch.PatchEvent{patch.NewSummarise(0, 2, e)}, store.PatchOptions{AsOfNow: true, AllowOrphans: true})
	noError(t, err)
	answer := &session.Event{ID: "answer", Author: "user", InvocationID: "j"}
	answer.Content = response("c", "approve", map[string]any{"ok": true})
	sess = get(t, s, "s")
	wantError(t, s.RestoreCalls(t.Context(), sess, answer.Content), fold.ErrOrphanedCall)
	noError(t, s.AppendEvent(t.Context(), sess, answer))
	noError(t, s.AppendEvent(t.Context(), sess, answer)) // the second append is a retry
	equal(t, "visible", ids(get(t, s, "s")), []string{"summary", "e1", "e2", "answer"})
}

// A restored call keeps its metadata. The metadata tell which remote task or workflow node receives the response.
func TestRestoredCallKeepsMetadata(t *testing.T) {
	onEachBackend(t, func(t *testing.T, s reopeningService) {
		sess := create(t, s, "s", nil)
		asked := newEvent("ask", "1", "remote", withCall("c", "lookup"), withNode, func(e *session.Event) {
			e.CustomMetadata = map[string]any{"a2a:task_id": "task", "a2a:context_id": "context", "n": 1.5}
			e.RequestedInput = &session.RequestInput{InterruptID: "c", Message: "which?"}
		})
		appendAll(t, s, sess, newEvent("q", "1", "user"), asked, newEvent("u", "2", "user"))
		sess = get(t, s, "s")
		summariseFirst(t, s.reopened(), sess, 2)
		noError(t, s.AppendEvent(t.Context(), sess, newEvent("late", "1", "user", withResponse("c", "lookup", map[string]any{"a": 1}))))
		events := get(t, s, "s").Events()
		equal(t, "events", events.Len(), 4)
		back := events.At(1)
		delete(back.CustomMetadata, "patchlog")
		equal(t, "metadata", back.CustomMetadata, asked.CustomMetadata)
		equal(t, "node", back.NodeInfo, asked.NodeInfo)
		equal(t, "request", back.RequestedInput, asked.RequestedInput)
		// Together, the pages of a history contain the call once, at its original place, whatever the page
		// size.
		for limit := 1; limit <= 5; limit++ {
			var all []string
			for before := ""; ; before = all[0] {
				r, err := s.Get(adk.WithHistoryPage(t.Context(), before, limit), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
				noError(t, err)
				page := ids(r.Session)
				if len(page) == 0 {
					break
				}
				if all = append(page, all...); len(page) != limit && len(all) != 4 {
					t.Errorf("limit %d: the page before %q is %v", limit, before, page)
				}
			}
			equal(t, fmt.Sprint("history by pages of ", limit), all, []string{"q", "ask", "u", "late"})
		}
	})
}

// newEvent returns an event of an invocation. Its content is text, unless change replaces the content.
func newEvent(id, invocation, author string, change ...func(*session.Event)) *session.Event {
	e := textEvent(id, author, "words of "+id)
	e.InvocationID = invocation
	for _, c := range change {
		c(e)
	}
	return e
}

func withCall(id, name string, long ...string) func(*session.Event) {
	return func(e *session.Event) {
		e.Content = &genai.Content{Role: "model", Parts: []*genai.Part{call(id, name, map[string]any{"a": 1})}}
		e.LongRunningToolIDs = long
	}
}

func withResponse(id, name string, of map[string]any) func(*session.Event) {
	return func(e *session.Event) { e.Content = response(id, name, of) }
}

// withConfirmation makes an event a request for confirmation of a call.
func withConfirmation(id, callID string) func(*session.Event) {
	return func(e *session.Event) {
		e.Content = &genai.Content{Role: "model", Parts: []*genai.Part{call(id, toolconfirmation.FunctionCallName, map[string]any{
			"originalFunctionCall": &genai.FunctionCall{ID: callID, Name: "pay"},
		})}}
		e.LongRunningToolIDs = []string{id}
	}
}

func withScope(scope string) func(*session.Event) {
	return func(e *session.Event) { e.IsolationScope = scope }
}

// withNode makes an event an event of a workflow node.
func withNode(e *session.Event) { e.NodeInfo = &session.NodeInfo{Path: "wf@1/n@1"} }

func withOutput(e *session.Event) { e.Output = "v" }

func withMessageAsOutput(e *session.Event) {
	e.NodeInfo = &session.NodeInfo{Path: "wf@1/n@1", MessageAsOutput: true}
}

func TestPins(t *testing.T) {
	finished := map[string]any{"result": "Task completed."}
	for _, c := range []struct {
		name   string
		events []*session.Event
		want   []string
	}{
		{"nothing", nil, nil},
		{"the user alone", []*session.Event{newEvent("u", "1", "user")}, nil},
		{"the newest of each agent", []*session.Event{
			newEvent("u1", "1", "user"), newEvent("a1", "1", "a"), newEvent("b1", "1", "b"),
			newEvent("u2", "2", "user"), newEvent("b2", "2", "b"), newEvent("none", "2", ""), newEvent("u3", "3", "user"),
		}, []string{"a1", "b2"}},
		{"a request that is open", []*session.Event{
			newEvent("u1", "1", "user"), newEvent("out", "1", "n", withOutput), newEvent("out2", "1", "n", withMessageAsOutput), newEvent("t", "1", "n"),
			newEvent("ask", "1", "n", withCall("c", "adk_request_input", "c")), newEvent("later", "1", "n"),
			newEvent("u2", "2", "user"), newEvent("a2", "2", "a"), newEvent("u3", "3", "user"), newEvent("a3", "3", "a"),
		}, []string{"u1", "out", "out2", "ask", "later", "a3"}},
		{"a placeholder is no answer", []*session.Event{
			newEvent("u1", "1", "user"), newEvent("ask", "1", "n", withCall("c", "approve", "c")), newEvent("p", "1", "n", withResponse("c", "approve", nil)),
			newEvent("t", "1", "n"), newEvent("u2", "2", "user"), newEvent("a2", "2", "n"),
		}, []string{"u1", "ask", "a2"}},
		{"a request that is answered, and goes on", []*session.Event{
			newEvent("u0", "0", "user"), newEvent("u1", "1", "user"), newEvent("out", "1", "n", withOutput), newEvent("ask", "1", "n", withCall("c", "adk_request_input", "c")),
			newEvent("yes", "1", "user", withResponse("c", "adk_request_input", nil)),
		}, []string{"u1", "out", "ask", "yes"}},
		{"a request that is answered after others came, and goes on", []*session.Event{
			newEvent("u1", "1", "user"), newEvent("ask", "1", "n", withCall("c", "adk_request_input", "c")),
			newEvent("u2", "2", "user"), newEvent("n2", "2", "n"),
			newEvent("yes", "1", "user", withResponse("c", "adk_request_input", nil)), newEvent("n1", "1", "n"),
		}, []string{"u1", "ask", "yes", "n1"}},
		{"a request that is answered, and over", []*session.Event{
			newEvent("u1", "1", "user"), newEvent("out", "1", "n", withOutput), newEvent("ask", "1", "n", withCall("c", "adk_request_input", "c")),
			newEvent("yes", "1", "user", withResponse("c", "adk_request_input", nil)), newEvent("u2", "2", "user"), newEvent("n2", "2", "n"),
		}, []string{"n2"}},
		{"what nodes of the newest invocation return", []*session.Event{
			newEvent("u1", "1", "user"), newEvent("out1", "1", "n", withOutput), newEvent("n1", "1", "n"),
			newEvent("u2", "2", "user"), newEvent("out2", "2", "n", withOutput), newEvent("n2", "2", "n"),
		}, []string{"out2", "n2"}},
		{"the call that a confirmation is about", []*session.Event{
			newEvent("u1", "1", "user"), newEvent("pay", "1", "a", withCall("p", "pay")), newEvent("other", "1", "a", withCall("o", "lookup")),
			newEvent("ask", "1", "a", withConfirmation("c", "p")), newEvent("u2", "2", "user"), newEvent("a2", "2", "a"),
		}, []string{"u1", "pay", "ask", "a2"}},
		{"a task that is over", []*session.Event{
			newEvent("go", "1", "a", withCall("t", "task")), newEvent("t1", "1", "b", withScope("t")),
			newEvent("fin", "1", "b", withScope("t"), withCall("f", "finish_task")), newEvent("end", "1", "b", withScope("t"), withResponse("f", "finish_task", finished)),
			newEvent("back", "1", "user", withResponse("t", "task", nil)), newEvent("a1", "1", "a"), newEvent("u2", "2", "user"), newEvent("b2", "2", "b"), newEvent("a2", "2", "a"),
		}, []string{"end", "b2", "a2"}},
		{"a task that is open", []*session.Event{
			newEvent("go", "1", "a", withCall("t", "task")), newEvent("t1", "1", "b", withScope("t")),
			newEvent("fin", "1", "b", withScope("t"), withCall("f", "finish_task")),
			newEvent("bad", "1", "b", withScope("t"), withResponse("f", "finish_task", map[string]any{"error": "no"})),
			newEvent("a1", "1", "a"), newEvent("u2", "2", "user"), newEvent("b2", "2", "b"),
		}, []string{"go", "a1", "b2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := inMemory(t)
			sess := create(t, svc, "s", nil)
			appendAll(t, svc, sess, c.events...)
			equal(t, "pinned", adk.Pins(sess.(*adk.Session).View(), compaction.Config{}), c.want)
		})
	}
}

// pins never returns a summary, but a scope of which only a summary is visible counts as a scope.
func TestPinsOfSummaries(t *testing.T) {
	svc := inMemory(t)
	sess := create(t, svc, "s", nil)
	appendAll(t, svc, sess, newEvent("go", "1", "a", withCall("t", "task")), newEvent("t1", "1", "b", withScope("t")))
	s, err := patch.NewEvent(patch.Fields{ID: "S", Author: "user", IsolationScope: "t", Content: genai.NewContentFromText("s", "user")})
	noError(t, err)
	noError(t, errOf(svc.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSummarise(1, 1, s)}, store.PatchOptions{})))
	noError(t, svc.AppendEvent(t.Context(), sess, newEvent("a2", "2", "a")))
	got := adk.Pins(sess.(*adk.Session).View(), compaction.Config{})
	if !slices.Equal(got, []string{"go", "a2"}) {
		t.Errorf("pinned: %v", got)
	}
}
