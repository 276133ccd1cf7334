package sessionfile

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

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

// readCodex reads a line of a rollout of Codex. Lines follow each other; a rollback goes back by
// a number of turns.
func readCodex(line []byte, t *tree) entry {
	var l codexLine
	e := entry{place: true, parent: t.leaf}
	if !decode(line, &l) {
		e.place = false
		return e
	}
	e.time = timeOf(l.Timestamp)
	payload := l.Payload
	switch l.Type {
	case "":
		t.session = cmp.Or(t.session, l.ID) // the header of a file without envelopes
		return e
	case "session_meta", "event_msg", "turn_context", "compacted", "response_item":
	default:
		payload = line // without envelope
	}
	var item codexItem
	if !decode(payload, &item) {
		return e
	}
	switch l.Type {
	case "session_meta":
		t.session = cmp.Or(t.session, textOf(item.ID)) // a fork repeats that of its origin
	case "turn_context":
	case "event_msg":
		item.event(&e, t)
	case "compacted":
		item.compaction(&e, t)
	default:
		item.response(&e, t)
	}
	return e
}

func (item *codexItem) event(e *entry, t *tree) {
	switch item.Type {
	case "token_count":
		if item.Info != nil && item.Info.Last != nil {
			u := item.Info.Last
			e.Author = string(Codex)
			e.UsageMetadata = usageOf(map[string][]json.Number{
				"promptTokenCount": {u.Input}, "cachedContentTokenCount": {u.Cached}, "candidatesTokenCount": {u.Output},
				"thoughtsTokenCount": {u.Reasoning}, "totalTokenCount": {u.Total},
			})
		}
	case "turn_aborted":
		e.Author, e.Interrupted = string(Codex), true
	case "thread_rolled_back":
		e.parent, e.moves = rolledBack(t.leaf, item.NumTurns), true
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
	e.Author, e.role, e.compaction = string(Codex), "user", true
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
					e.parts = append(e.parts, part{Text: raw(p.Text)})
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
				e.parts = nil
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
		item.message(e)
	case item.Type == "reasoning":
		e.Author = string(Codex)
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
		case isString(args):
			if said := json.RawMessage(textOf(args)); json.Valid(said) && isObject(said) {
				args = said
			}
		}
		t.names[call] = name
		e.Author, e.role, e.parts = string(Codex), "model", callOf(call, name, args, under)
	case strings.HasSuffix(item.Type, "_output") && item.CallID != "":
		e.Author, e.role, e.parts = string(Codex), "user", responseOf(call, t.names[call], item.Output, false)
	}
}

func (item *codexItem) message(e *entry) {
	switch item.Role {
	case "assistant":
		e.Author, e.role, e.parts = string(Codex), "model", partsOf(item.Content, nil)
	case "user":
		e.Author, e.role, e.parts = "user", "user", partsOf(item.Content, nil)
		e.prompt = true
		if isContext(item.Content) {
			e.Author, e.prompt = string(Codex), false
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
