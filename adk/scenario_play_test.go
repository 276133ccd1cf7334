package adk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// played is what came of a scenario's turn.
type played struct {
	said    map[string][]string // what the runner gave, errors too, by author
	prompts map[string][][]*genai.Content
	state   map[string]any
	history map[string][]string // what people see, by author
}

// stage is what a scenario is played on.
type stage interface {
	session.Service
	plugins() []*plugin.Plugin
	answers(msg *genai.Content)
	between() // turns
	after()   // an event
	history() session.Session
}

// reference is ADK's own service in memory.
type reference struct {
	session.Service
	t *testing.T
}

func (reference) plugins() []*plugin.Plugin { return nil }
func (reference) answers(*genai.Content)    {}
func (reference) between()                  {}
func (reference) after()                    {}

func (r reference) history() session.Session { return get(r.t, r, "s") }

// storage opens the store that sessions are in, with what is in it already.
type storage func() (*store.Store, error)

// inFile is a storage in a file of its own.
func inFile(t *testing.T) storage {
	dir, err := os.MkdirTemp("", "patchlog")
	no(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return func() (*store.Store, error) {
		return store.Open(filepath.Join(dir, "sessions.db"), store.Options{Durability: store.Relaxed})
	}
}

// ours is a service over a store, which is closed and opened again, or over another service,
// which is wrapped again.
type ours struct {
	*adk.Service
	t       *testing.T
	storage storage // nil: in memory
	db      *store.Store
	base    session.Service // nil: over a store
	mode    *compactionMode
	restart restart
	appends int
	see     func(compaction.Attempt[store.Key])
}

// newOurs makes a service over a store in a storage, or in memory, or over a base.
func newOurs(t *testing.T, base session.Service, in storage, r restart, mode *compactionMode, see func(compaction.Attempt[store.Key])) *ours {
	o := &ours{t: t, base: base, storage: in, restart: r, mode: mode, see: see}
	o.open()
	return o
}

func (o *ours) open() {
	var err error
	switch {
	case o.base != nil:
	case o.storage != nil:
		o.db, err = o.storage()
	case o.db == nil:
		o.db, err = store.OpenMemory(store.Options{})
	}
	no(o.t, err)
	opts := adk.Options{Hooks: adk.Hooks{OnCompaction: o.see}}
	if o.mode != nil {
		opts.Compaction = o.mode.config()
		opts.Compaction.Summarizer = adk.Summarizer(shortener{})
		opts.MaxResultTokens = recall.MinResultTokens
	}
	if o.base != nil {
		o.Service, err = adk.Wrap(o.base, opts)
	} else {
		o.Service, err = adk.NewService(o.db, opts)
	}
	no(o.t, err)
}

func (o *ours) close() {
	no(o.t, o.Service.Close(context.Background()))
	if o.storage != nil {
		no(o.t, o.db.Close())
	}
}

func (o *ours) AppendEvent(ctx context.Context, s session.Session, e *session.Event) error {
	if o.appends++; o.restart == within && o.appends%3 == 0 {
		o.close()
		o.open()
	}
	return o.Service.AppendEvent(ctx, s, e)
}

func (o *ours) plugins() []*plugin.Plugin {
	if o.mode != nil && o.mode.Plugin {
		return []*plugin.Plugin{o.Plugin()}
	}
	return nil
}

func (o *ours) answers(msg *genai.Content) {
	if msg.Parts[0].FunctionResponse != nil {
		no(o.t, o.RestoreCalls(o.t.Context(), get(o.t, o, "s"), msg))
	}
}

func (o *ours) between() {
	o.settle()
	if o.restart == turns {
		o.close()
		o.open()
	}
}

func (o *ours) after() {
	if o.mode != nil && o.mode.AtOnce {
		o.settle()
	}
}

func (o *ours) history() session.Session { return peopleSee(o.t, o, session.GetRequest{}) }

func (o *ours) settle() {
	if o.mode != nil {
		o.Settle(o.t)
	}
}

// request is one to the user that is open.
type request struct {
	id, name string
	by       string
}

// play plays a scenario.
func (s scenario) play(t *testing.T, on stage) (all []played) {
	c := newCast(t, s.Root)
	ctx := deterministic(t.Context())
	var open []request
	for n, u := range s.Turns {
		r, err := runner.New(runner.Config{
			AppName: "app", Agent: c.root, SessionService: on, AutoCreateSession: true,
			PluginConfig: runner.PluginConfig{Plugins: on.plugins()},
		})
		no(t, err)
		var msg *genai.Content
		msg, open = u.message(n+1, open)
		on.answers(msg)
		p := played{said: map[string][]string{}, prompts: map[string][][]*genai.Content{}}
		open = append(open, p.turn(r.Run(ctx, "user", "s", msg, agent.RunConfig{}), u.Stop, on)...)
		on.between()
		for name, m := range c.players {
			if prompts := m.newTurn(); len(prompts) > 0 {
				p.prompts[name] = prompts
			}
		}
		p.state = stateOf(get(t, on, "s"))
		p.history = map[string][]string{}
		for e := range on.history().Events().All() {
			p.history[e.Author] = append(p.history[e.Author], transcript(e))
		}
		all = append(all, p)
	}
	return all
}

// turn takes down a run's events, as far as they are wanted, and returns the requests to the
// user in them. ADK itself panics in places, such as when the error that a prompt cannot be
// made ends a loop agent's run.
func (p *played) turn(events iter.Seq2[*session.Event, error], stop int, on stage) (open []request) {
	fails := func(what string) { p.said["error"] = append(p.said["error"], anonymous(what)) }
	defer func() {
		if r := recover(); r != nil {
			fails(fmt.Sprint("panic: ", r))
		}
	}()
	n := 0
	for e, err := range events {
		if err != nil {
			fails(err.Error())
			continue
		}
		p.said[e.Author] = append(p.said[e.Author], transcript(e))
		if e.Content != nil {
			for _, part := range e.Content.Parts {
				if f := part.FunctionCall; f != nil && slices.Contains(e.LongRunningToolIDs, f.ID) {
					open = append(open, request{f.ID, f.Name, e.Author})
				}
			}
		}
		on.after()
		if n++; n == stop {
			break
		}
	}
	return open
}

// message is what the user says in a turn, and the requests that are open afterwards.
func (u userTurn) message(n int, open []request) (*genai.Content, []request) {
	if !u.Answer || len(open) == 0 {
		words := question(n)
		if u.Long {
			words += padding
		}
		return genai.NewContentFromText(words, "user"), open
	}
	// Whose came first is chance where agents run at a time.
	slices.SortStableFunc(open, func(a, b request) int { return strings.Compare(a.by, b.by) })
	i := u.Pick % len(open)
	r := open[i]
	response := map[string]any{"status": fmt.Sprint("answer of turn ", n)}
	if strings.HasPrefix(r.name, "adk_request") {
		response = map[string]any{"confirmed": u.Confirm}
	}
	msg := genai.NewContentFromFunctionResponse(r.name, response, "user")
	msg.Parts[0].FunctionResponse.ID = r.id
	return msg, append(append([]request{}, open[:i]...), open[i+1:]...)
}

// deterministic gives a context with ids and a clock of its own.
func deterministic(ctx context.Context) context.Context {
	var mu sync.Mutex
	n, now := 0, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ctx = platform.WithUUIDProvider(ctx, func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("uuid-%d-", n)
	})
	return platform.WithTimeProvider(ctx, func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	})
}

var generated = regexp.MustCompile(`uuid-\d+-`)

// anonymous leaves out what the platform made up: with agents that run at a time, who gets
// which id is chance.
func anonymous(s string) string { return generated.ReplaceAllString(s, "uuid") }

// transcript is an event in words.
func transcript(e *session.Event) string {
	content, err := json.Marshal(e.Content)
	var plain any // in memory, an argument may be a struct still
	if err == nil {
		err = json.Unmarshal(content, &plain)
	}
	if err == nil {
		content, err = json.Marshal(plain)
	}
	if err != nil {
		return err.Error()
	}
	long := slices.Sorted(slices.Values(e.LongRunningToolIDs))
	return anonymous(fmt.Sprintf("branch %q scope %q: %s %v to %q, long %v, output %v, error %q %q", e.Branch, e.IsolationScope, content,
		e.Actions.StateDelta, e.Actions.TransferToAgent, long, e.Output, e.ErrorCode, e.ErrorMessage))
}
