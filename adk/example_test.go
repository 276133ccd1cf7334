package adk_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// counter is a model whose answer is the number of messages in its prompt.
type counter struct{}

func (counter) Name() string { return "counter" }

func (counter) GenerateContent(_ context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	answer := genai.NewContentFromText(fmt.Sprintf("I see %d messages.", len(req.Contents)), "model")
	return func(yield func(*model.LLMResponse, error) bool) {
		yield(&model.LLMResponse{Content: answer}, nil)
	}
}

// The sessions of an ADK agent are stored in a file and compacted every five turns. The model's prompts stay
// short, and the file contains every event.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "patchlog")
	check(err)
	defer os.RemoveAll(dir)

	db, err := store.Open(filepath.Join(dir, "sessions.db"), store.Options{})
	check(err)
	defer db.Close()
	sessions, err := adk.NewService(db, adk.Options{Compaction: compaction.DefaultConfig()})
	check(err)
	assistant, err := llmagent.New(llmagent.Config{Name: "assistant", Model: counter{}})
	check(err)
	r, err := runner.New(runner.Config{
		AppName: "app", Agent: assistant, SessionService: sessions, AutoCreateSession: true,
	})
	check(err)

	for i := range 6 {
		msg := genai.NewContentFromText(fmt.Sprintf("Question %d: how far is it from Aix to Zug, by train number %d?", i, 100+i), genai.RoleUser)
		for _, err := range r.Run(ctx, "user", "chat", msg, agent.RunConfig{}) {
			check(err)
		}
	}
	check(sessions.Close(ctx)) // waits for background compaction

	got, err := sessions.Get(ctx, &session.GetRequest{AppName: "app", UserID: "user", SessionID: "chat"})
	check(err)
	logged := 0
	for r, err := range sessions.RawEvents(ctx, got.Session, 1) {
		check(err)
		if r.Event != nil {
			logged++
		}
	}
	visible := got.Session.Events().Len()
	fmt.Println(logged, "events were logged; less than half as many are visible:", visible < logged/2)
	// Output: 12 events were logged; less than half as many are visible: true
}

// chat returns a session in memory with three events.
func chat() (*adk.Service, session.Session) {
	ctx := context.Background()
	db, err := store.OpenMemory(store.Options{})
	check(err)
	sessions, err := adk.NewService(db, adk.Options{})
	check(err)
	r, err := sessions.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "chat"})
	check(err)
	talk(sessions, r.Session, "My password is 1234.", "Noted!", "What's the weather?")
	return sessions, r.Session
}

// talk appends messages of the user and the assistant alternately. The events are e1, e2 and so on, in the
// invocations inv0, inv1 and so on.
func talk(sessions *adk.Service, sess session.Session, texts ...string) {
	ctx := context.Background()
	for i, words := range texts {
		e := session.NewEvent(ctx, fmt.Sprint("inv", i/2))
		e.ID, e.Author = fmt.Sprint("e", i+1), []string{"user", "assistant"}[i%2]
		e.Content = genai.NewContentFromText(words, []genai.Role{"user", "model"}[i%2])
		check(sessions.AppendEvent(ctx, sess, e))
	}
}

// A patch hides events that the model must no longer see.
func ExampleService_ApplyPatch() {
	sessions, sess := chat()
	done, err := sessions.ApplyPatch(context.Background(), sess, []*patch.PatchEvent{patch.NewTruncateBefore("e3")}, store.PatchOptions{})
	check(err)
	fmt.Println("logged as record", done.Records[0].Seq)
	for e := range sess.Events().All() {
		fmt.Println(e.ID, e.Content.Parts[0].Text)
	}
	// Output:
	// logged as record 4
	// e3 What's the weather?
}

// The audit log contains every event, even if a patch hides it.
func ExampleService_RawEvents() {
	ctx := context.Background()
	sessions, sess := chat()
	_, err := sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSplice(0, 2)}, store.PatchOptions{})
	check(err)
	for r, err := range sessions.RawEvents(ctx, sess, 1) {
		check(err)
		if r.Patch != nil {
			fmt.Println(r.Seq, r.Patch.Type())
			continue
		}
		e, err := adk.SessionEvent(r.Event)
		check(err)
		fmt.Println(r.Seq, e.Content.Parts[0].Text)
	}
	// Output:
	// 1 My password is 1234.
	// 2 Noted!
	// 3 What's the weather?
	// 4 splice
}

// A model sees a summary, and people see the events that the summary covers.
func ExampleWithHistory() {
	ctx := context.Background()
	sessions, sess := chat()
	summary, err := adk.NewEvent(&session.Event{Author: "user", LLMResponse: model.LLMResponse{Content: genai.NewContentFromText("They gave a password.", genai.RoleUser)}})
	check(err)
	_, err = sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSummarise(0, 2, summary)}, store.PatchOptions{})
	check(err)
	req := &session.GetRequest{AppName: sess.AppName(), UserID: sess.UserID(), SessionID: sess.ID()}
	for _, ctx := range []context.Context{ctx, adk.WithHistory(ctx)} {
		got, err := sessions.Get(ctx, req)
		check(err)
		for e := range got.Session.Events().All() {
			fmt.Println(e.Content.Parts[0].Text)
		}
		fmt.Println()
	}
	// Output:
	// They gave a password.
	// What's the weather?
	//
	// My password is 1234.
	// Noted!
	// What's the weather?
}

// Sessions stay in the wrapped service, here ADK's in-memory service. It stores every event, and one more event for
// the patch.
func ExampleWrap() {
	ctx := context.Background()
	base := session.InMemoryService()
	sessions, err := adk.Wrap(base, adk.Options{})
	check(err)
	created, err := sessions.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "ann", SessionID: "chat"})
	check(err)
	talk(sessions, created.Session, "My password is 1234.", "Noted!", "What's the weather?")
	_, err = sessions.ApplyPatch(ctx, created.Session, []*patch.PatchEvent{patch.NewSplice(0, 2)}, store.PatchOptions{})
	check(err)

	get := &session.GetRequest{AppName: "app", UserID: "ann", SessionID: "chat"}
	wrapped, err := sessions.Get(ctx, get)
	check(err)
	alone, err := base.Get(ctx, get)
	check(err)
	fmt.Println(wrapped.Session.Events().Len(), "event,", alone.Session.Events().Len(), "in the base")
	// Output: 1 event, 4 in the base
}

// An ADK event is converted to an event that a patch inserts.
func ExampleNewEvent() {
	ctx := context.Background()
	sessions, sess := chat()
	note := session.NewEvent(ctx, "redaction")
	note.Author = "user"
	note.Content = genai.NewContentFromText("(a secret was removed)", genai.RoleUser)
	e, err := adk.NewEvent(note)
	check(err)
	_, err = sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSplice(0, 1, e)}, store.PatchOptions{})
	check(err)
	fmt.Println(sess.Events().At(0).Content.Parts[0].Text)
	// Output: (a secret was removed)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// An agent searches the events that a summary covers. A scripted model makes the tool calls.
func ExampleService_RecallTools() {
	ctx := context.Background()
	sessions, sess := chat()
	summary, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", "They talked.")})
	check(err)
	_, err = sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSummarise(0, 2, summary)}, store.PatchOptions{})
	check(err)
	recalls, err := sessions.RecallTools(adk.RecallOptions{CallTokens: 500})
	check(err)
	for _, t := range recalls {
		fmt.Println(t.Name())
	}
	asking := &once{part: genai.NewPartFromFunctionCall("recall_search", map[string]any{"query": "password"})}
	assistant, err := llmagent.New(llmagent.Config{Name: "assistant", Model: asking, Tools: recalls})
	check(err)
	r, err := runner.New(runner.Config{AppName: "app", Agent: assistant, SessionService: sessions})
	check(err)
	for e, err := range r.Run(ctx, "user", "chat", genai.NewContentFromText("What was it?", genai.RoleUser), agent.RunConfig{}) {
		check(err)
		for _, p := range e.Content.Parts {
			if p.FunctionResponse != nil {
				found := p.FunctionResponse.Response["results"].([]any)[0].(map[string]any)
				fmt.Printf("record %v by %v: %v\n", found["record"], found["author"], found["text"])
			}
		}
	}
	// Output:
	// recall_search
	// recall_read
	// record 1 by user: My password is 1234.
}

// once is a model that answers with part first, and then with "Done.".
type once struct{ part *genai.Part }

func (*once) Name() string { return "once" }

func (m *once) GenerateContent(context.Context, *model.LLMRequest, bool) iter.Seq2[*model.LLMResponse, error] {
	part := m.part
	m.part = genai.NewPartFromText("Done.")
	return func(yield func(*model.LLMResponse, error) bool) {
		yield(&model.LLMResponse{Content: genai.NewContentFromParts([]*genai.Part{part}, genai.RoleModel)}, nil)
	}
}

// compactedChat returns a session in memory with four turns, in a service with the given options.
func compactedChat(opts adk.Options) (*adk.Service, session.Session) {
	ctx := context.Background()
	db, err := store.OpenMemory(store.Options{})
	check(err)
	sessions, err := adk.NewService(db, opts)
	check(err)
	r, err := sessions.Create(ctx, &session.CreateRequest{AppName: "shop", UserID: "ann", SessionID: "chat"})
	check(err)
	var texts []string
	for i := range 8 {
		texts = append(texts, fmt.Sprintf("Order %d is late, and what follows is of no importance, but long.", i))
	}
	talk(sessions, r.Session, texts...)
	return sessions, r.Session
}

func ExampleService_Compact() {
	ctx := context.Background()
	sessions, sess := compactedChat(adk.Options{
		Compaction:        compaction.Config{Enabled: true, CompactionInterval: 50, TokenThreshold: 60, EventRetentionSize: 2},
		CompactionTimeout: -1,
	})
	check(sessions.Close(ctx)) // wait for background compaction
	got, err := sessions.Get(ctx, &session.GetRequest{AppName: "shop", UserID: "ann", SessionID: sess.ID()})
	check(err)
	_, err = sessions.Compact(ctx, got.Session, adk.CompactOptions{})
	fmt.Println(err, got.Session.Events().Len() < 8)
	// Output: <nil> true
}

// The memory service receives the original events, not their summaries.
func ExampleService_HistoryMemory() {
	ctx := context.Background()
	sessions, sess := chat()
	memories := sessions.HistoryMemory(memory.InMemoryService())
	check(memories.AddSessionToMemory(ctx, sess))
	found, err := memories.SearchMemory(ctx, &memory.SearchRequest{AppName: sess.AppName(), UserID: sess.UserID(), Query: "password"})
	check(err)
	fmt.Println(len(found.Memories))
	// Output: 1
}

func ExampleService_Memory() {
	ctx := context.Background()
	sessions, _ := chat()
	found, err := sessions.Memory().SearchMemory(ctx, &memory.SearchRequest{AppName: "app", UserID: "user", Query: "weather"})
	check(err)
	fmt.Println(found.Memories[0].Content.Parts[0].Text)
	// Output: What's the weather?
}

// The model of the root agent writes the summaries, and Approve rejects a summary that contains a password.
func ExampleOptions() {
	opts := adk.Options{
		Compaction: compaction.DefaultConfig(),
		Model:      counter{}, // use the model of llmagent.Config
		Approve: func(_ context.Context, d compaction.ApproveRequest[store.Key]) error {
			for _, s := range d.Summaries {
				if strings.Contains(s.Event.String(), "password") {
					return errors.New("it names a password")
				}
			}
			return nil
		},
	}
	fmt.Println(opts.Validate())
	// Output: <nil>
}

func ExampleService_LastCompaction() {
	ctx := context.Background()
	sessions, sess := compactedChat(adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2},
		Approve:    func(context.Context, compaction.ApproveRequest[store.Key]) error { return errors.New("not today") },
	})
	check(sessions.Close(ctx))
	last, ok := sessions.LastCompaction(sess)
	fmt.Println(ok, last.Outcome, last.Err)
	// Output: true vetoed vetoed: not today
}

func TestReadmeAgentCompiles(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	noError(t, err)
	blocks := regexp.MustCompile("(?s)```go adk\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d agents", len(blocks))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	noError(t, os.WriteFile(file, blocks[0][1], 0o600))
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "agent"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// The plugin reports the end of each run, even if the run fails. So the service does not refuse the second run.
func ExampleService_Plugin() {
	ctx := context.Background()
	db, err := store.OpenMemory(store.Options{})
	check(err)
	sessions, err := adk.NewService(db, adk.Options{Runs: adk.RefuseSecondRun})
	check(err)
	clerk, err := llmagent.New(llmagent.Config{Name: "clerk", Model: counter{}})
	check(err)
	r, err := runner.New(runner.Config{
		AppName: "shop", Agent: clerk, SessionService: sessions, AutoCreateSession: true,
		PluginConfig: runner.PluginConfig{Plugins: []*plugin.Plugin{sessions.Plugin()}},
	})
	check(err)
	for range 2 {
		for e, err := range r.Run(ctx, "ann", "1", genai.NewContentFromText("hello?", genai.RoleUser), agent.RunConfig{}) {
			check(err)
			fmt.Println(e.Author, e.Content.Parts[0].Text)
		}
	}
	// Output:
	// clerk I see 1 messages.
	// clerk I see 3 messages.
}

// A user answers a request that a summary hides. The runner needs the call to find the agent that continues, so the
// call is restored before the run.
func ExampleService_RestoreCalls() {
	ctx := context.Background()
	sessions, sess := chat()
	asks := genai.NewContentFromFunctionCall("approve", map[string]any{"order": 4711}, genai.RoleModel)
	asks.Parts[0].FunctionCall.ID = "c1"
	check(sessions.AppendEvent(ctx, sess, &session.Event{ID: "call", Author: "clerk", InvocationID: "inv1", LLMResponse: model.LLMResponse{Content: asks}, LongRunningToolIDs: []string{"c1"}}))
	check(sessions.AppendEvent(ctx, sess, &session.Event{ID: "later", Author: "user", InvocationID: "inv2", LLMResponse: model.LLMResponse{Content: genai.NewContentFromText("Something else.", genai.RoleUser)}}))
	summary, err := adk.NewEvent(&session.Event{Author: "user", LLMResponse: model.LLMResponse{Content: genai.NewContentFromText("An approval is pending.", genai.RoleUser)}})
	check(err)
	_, err = sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSummarise(0, 4, summary)}, store.PatchOptions{AllowWaiting: true})
	check(err)

	answer := genai.NewContentFromFunctionResponse("approve", map[string]any{"approved": true}, genai.RoleUser)
	answer.Parts[0].FunctionResponse.ID = "c1"
	check(sessions.RestoreCalls(ctx, sess, answer))
	for e := range sess.Events().All() { // now call runner.Run with the answer
		if call := e.Content.Parts[0].FunctionCall; call != nil {
			fmt.Println(e.Author, "waits for", call.Name)
		} else {
			fmt.Println(e.Author, e.Content.Parts[0].Text)
		}
	}
	// Output:
	// user An approval is pending.
	// clerk waits for approve
	// user Something else.
}

// A run ends between a call and its result. When the next invocation begins, the service adds an answer to the
// call.
func ExampleOptions_interrupted() {
	ctx := context.Background()
	db, err := store.OpenMemory(store.Options{})
	check(err)
	defer db.Close()
	sessions, err := adk.NewService(db, adk.Options{}) // with KeepInterruptedCalls, the call would stay open
	check(err)
	created, err := sessions.Create(ctx, &session.CreateRequest{AppName: "shop", UserID: "ann", SessionID: "1"})
	check(err)
	call := genai.NewContentFromFunctionCall("order", map[string]any{"what": "lamp"}, genai.RoleModel)
	call.Parts[0].FunctionCall.ID = "c1"
	for _, e := range []*session.Event{
		{Author: "clerk", InvocationID: "i1", LLMResponse: model.LLMResponse{Content: call}},
		{Author: "user", InvocationID: "i2", LLMResponse: model.LLMResponse{Content: genai.NewContentFromText("hello?", genai.RoleUser)}},
	} {
		check(sessions.AppendEvent(ctx, created.Session, e))
	}
	for e := range created.Session.Events().All() {
		part := e.Content.Parts[0]
		switch {
		case part.FunctionCall != nil:
			fmt.Println("call", part.FunctionCall.Name)
		case part.FunctionResponse != nil:
			fmt.Println("response", part.FunctionResponse.Response, e.CustomMetadata[compaction.InterruptedKey])
		default:
			fmt.Println(part.Text)
		}
	}
	// Output:
	// call order
	// response map[error:interrupted: no result was recorded] true
	// hello?
}
