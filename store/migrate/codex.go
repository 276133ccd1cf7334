package migrate

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

var codex = Format{
	Name: "codex", Title: "a rollout of Codex",
	Versions: "0.1 to 0.12x, those without envelopes too (~/.codex/sessions/*/*/*/rollout-*.jsonl)",
	Kept:     "messages, reasoning as far as it can be read, calls, results, images, usage, model, rollbacks, compactions",
	Omitted:  "developer messages, encrypted reasoning and summaries, content of events that repeat messages",
	count: func(b *beginning) int {
		if !b.lines {
			return 0
		}
		bare := b.has(func(o object) bool {
			return !o.has("type") && o.text("id") != "" && o.text("timestamp") != "" && o.has("instructions", "git", "source")
		})
		return b.count(func(o object) bool {
			if o.object("payload") == nil {
				return bare && (isResponsesItem(o) || o.has("record_type") || !o.has("type") && o.has("timestamp"))
			}
			return slices.Contains([]string{"session_meta", "response_item", "event_msg", "turn_context", "compacted"}, o.text("type"))
		})
	},
	reader: func() reader { return reader{read: new(codexReader).read} },
}

// codexReader reads rollouts of Codex. Lines follow each other; a rollback goes back by a number of turns.
type codexReader struct{ model string }

type codexLine struct {
	Type, ID, Timestamp string
	Payload             json.RawMessage
}

type codexItem struct {
	Type, Role, Name string
	ID               json.RawMessage
	CallID           string `json:"call_id"`
	Content          json.RawMessage
	Summary          json.RawMessage
	Arguments        json.RawMessage
	Input            json.RawMessage
	Action           json.RawMessage
	Output           json.RawMessage

	// Of other lines.
	SessionID string `json:"session_id"`
	Model     string
	Message   json.RawMessage
	History   *[]json.RawMessage `json:"replacement_history"`
	NumTurns  int                `json:"num_turns"`
	Reason    string
	Info      *struct {
		Last *struct {
			Input     json.Number `json:"input_tokens"`
			Cached    json.Number `json:"cached_input_tokens"`
			Output    json.Number `json:"output_tokens"`
			Reasoning json.Number `json:"reasoning_output_tokens"`
			Total     json.Number `json:"total_tokens"`
		} `json:"last_token_usage"`
	}
}

func (r *codexReader) read(line []byte, t *tree) []entry {
	var l codexLine
	e := entry{place: true, goesOn: true}
	if !decode(line, &l) {
		return nil
	}
	e.time = rfcTime(l.Timestamp)
	payload := l.Payload
	switch l.Type {
	case "":
		t.session = cmp.Or(t.session, l.ID) // the header of a file without envelopes
		return []entry{e}
	case "session_meta", "event_msg", "turn_context", "compacted", "response_item":
	default:
		payload = line // without envelope
	}
	var item codexItem
	if !decode(payload, &item) {
		return []entry{e}
	}
	switch l.Type {
	case "session_meta":
		t.session = cmp.Or(t.session, textOf(item.ID)) // a fork repeats that of its origin
	case "turn_context":
		r.model = cmp.Or(item.Model, r.model)
	case "event_msg":
		item.event(&e, t)
	case "compacted":
		item.compaction(&e, t)
	default:
		if item.response(&e, t); e.role == "model" {
			e.ModelVersion = r.model
		}
	}
	return []entry{e}
}

func (item *codexItem) event(e *entry, t *tree) {
	switch item.Type {
	case "token_count":
		if item.Info != nil && item.Info.Last != nil {
			u := item.Info.Last
			e.Author = t.agent
			e.UsageMetadata = usageOf(map[string][]json.Number{
				"promptTokenCount": {u.Input}, "cachedContentTokenCount": {u.Cached}, "candidatesTokenCount": {u.Output},
				"thoughtsTokenCount": {u.Reasoning}, "totalTokenCount": {u.Total},
			})
		}
	case "turn_aborted":
		e.Author, e.Interrupted = t.agent, true
	case "thread_rolled_back":
		e.parent, e.goesOn, e.moves = rolledBack(t.leaf, item.NumTurns), false, true
	}
}

// rolledBack returns the leaf of the conversation before its last turns.
func rolledBack(leaf *node, turns int) *node {
	at := leaf
	for n := leaf; n != nil && turns > 0; n = n.parent {
		if n.prompt {
			at = n.parent
			turns--
		}
	}
	return at
}

// compaction reads the summary of all that is visible. Codex goes on with a list of items
// in its place, which are messages unless it was made by a remote service.
func (item *codexItem) compaction(e *entry, t *tree) {
	e.Author, e.role, e.compaction = t.agent, "user", true
	if item.History == nil { // before lists: what the user said, and the summary
		var prompts []int
		for n := t.leaf; n != nil; n = n.parent {
			t.steps++
			if i, ok := t.view.Find(n.eventID); n.prompt && ok {
				prompts = append(prompts, i)
			}
		}
		for _, i := range slices.Backward(prompts) {
			for _, p := range t.view.At(i).Parts() {
				if p.Text != "" {
					e.parts = append(e.parts, part{Text: quote(p.Text)})
				}
			}
		}
		if textOf(item.Message) != "" {
			e.parts = append(e.parts, part{Text: item.Message})
		}
	} else {
		for _, each := range *item.History {
			var kept codexItem
			if !decode(each, &kept) || kept.Type != "message" {
				e.parts, e.encrypted = nil, strings.HasPrefix(kept.Type, "compaction")
				return
			}
			if kept.Role != "developer" && kept.Role != "system" {
				e.parts = append(e.parts, partsOf(kept.Content, nil)...)
			}
		}
	}
	e.summary = true
}

func (item *codexItem) response(e *entry, t *tree) {
	call := cmp.Or(item.CallID, textOf(item.ID))
	switch kind, isCall := strings.CutSuffix(item.Type, "_call"); {
	case item.Type == "message":
		item.message(e, t)
	case item.Type == "reasoning":
		e.Author = t.agent
		for _, list := range []json.RawMessage{item.Summary, item.Content} {
			for _, b := range blocksOf(list) {
				if isString(b.Text) {
					e.role, e.parts = "model", append(e.parts, part{Text: b.Text, Thought: true})
				}
			}
		}
	case isCall && (item.CallID != "" || item.Type == "local_shell_call" && call != ""):
		name, args, under := cmp.Or(item.Name, kind), item.Arguments, "arguments"
		switch {
		case item.Action != nil:
			args = item.Action
		case item.Input != nil:
			args, under = item.Input, "input"
		}
		t.names[call] = name
		e.Author, e.role, e.parts = t.agent, "model", callOf(call, name, args, under)
	case strings.HasSuffix(item.Type, "_output") && item.CallID != "":
		e.Author, e.role, e.parts = t.agent, "user", responseOf(call, t.names[call], item.Output, false)
	}
}

func (item *codexItem) message(e *entry, t *tree) {
	switch item.Role {
	case "assistant":
		e.Author, e.role, e.parts = t.agent, "model", partsOf(item.Content, nil)
	case "user":
		e.Author, e.role, e.parts = "user", "user", partsOf(item.Content, nil)
		e.prompt = true
		if isContext(item.Content) {
			e.Author, e.prompt = t.agent, false
		}
	}
}

var element = regexp.MustCompile(`^\s*<([a-zA-Z_]+)>`)

// isContext reports whether a message of role user is the program's: all in one element,
// such as environment_context, or instructions that it found in a file.
func isContext(content json.RawMessage) bool {
	blocks := blocksOf(content)
	for _, b := range blocks {
		text := textOf(b.Text)
		tag := element.FindStringSubmatch(text)
		if !strings.HasPrefix(text, "# AGENTS.md instructions") &&
			(tag == nil || !strings.HasSuffix(strings.TrimSpace(text), "</"+tag[1]+">")) {
			return false
		}
	}
	return len(blocks) > 0
}
