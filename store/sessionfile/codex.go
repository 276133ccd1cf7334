package sessionfile

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// codexReader reads rollouts of Codex. Its lines follow each other; a rollback goes back by
// a number of turns.
type codexReader struct {
	id    string
	names map[string]string // of calls, by id
}

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

type codexBlock struct {
	Type     string
	Text     json.RawMessage
	ImageURL json.RawMessage `json:"image_url"`
}

func (r *codexReader) session() string { return r.id }

func (r *codexReader) added(*node) {}

func (r *codexReader) read(line []byte, t *tree) entry {
	var l codexLine
	e := entry{author: "system", place: true, parent: t.leaf}
	if !decode(line, &l) {
		e.place = false
		return e
	}
	e.time = timeOf(l.Timestamp)
	payload := l.Payload
	switch l.Type {
	case "":
		if r.id == "" {
			r.id = l.ID // the header of a file without envelopes
		}
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
		if r.id == "" { // a fork repeats that of its origin
			r.id = textOf(item.ID)
		}
	case "turn_context":
	case "event_msg":
		r.event(&e, &item, t)
	case "compacted":
		r.compaction(&e, &item, t)
	default:
		r.item(&e, &item)
	}
	return e
}

func (r *codexReader) event(e *entry, item *codexItem, t *tree) {
	switch item.Type {
	case "token_count":
		if item.Info != nil && item.Info.Last != nil {
			u := item.Info.Last
			e.author = string(Codex)
			e.usage = usage("promptTokenCount", u.Input, "cachedContentTokenCount", u.Cached, "candidatesTokenCount", u.Output,
				"thoughtsTokenCount", u.Reasoning, "totalTokenCount", u.Total)
		}
	case "turn_aborted":
		e.author, e.interrupted = string(Codex), true
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
func (r *codexReader) compaction(e *entry, item *codexItem, t *tree) {
	e.author, e.role, e.compaction = string(Codex), "user", true
	if item.History == nil { // before lists: what the user said, and the summary
		var prompts []int
		for n := t.leaf; n != nil; n = n.parent {
			t.steps++
			if i, ok := t.view.Find(n.eventID); n.prompt && ok {
				prompts = append(prompts, i)
			}
		}
		for _, i := range slices.Backward(prompts) {
			e.parts = append(e.parts, textsOf(t, i)...)
		}
		if textOf(item.Message) != "" {
			e.parts = append(e.parts, textPart(item.Message))
		}
	} else {
		for _, each := range *item.History {
			var kept codexItem
			if !decode(each, &kept) || kept.Type != "message" {
				e.parts = nil
				return
			}
			if kept.Role != "developer" && kept.Role != "system" {
				e.parts = append(e.parts, partsOf(kept.Content, (*codexBlock).part)...)
			}
		}
	}
	e.summary = true
}

// textsOf returns the text parts of a visible event.
func textsOf(t *tree, i int) []json.RawMessage {
	var parts []json.RawMessage
	for _, p := range t.view.At(i).Content().Parts() {
		if text := p.Text; text != "" {
			parts = append(parts, textPart(raw(text)))
		}
	}
	return parts
}

func (r *codexReader) item(e *entry, item *codexItem) {
	call := item.CallID
	if call == "" {
		call = textOf(item.ID)
	}
	switch kind, isCall := strings.CutSuffix(item.Type, "_call"); {
	case item.Type == "message":
		r.message(e, item)
	case item.Type == "reasoning":
		e.author = string(Codex)
		for _, list := range []json.RawMessage{item.Summary, item.Content} {
			for _, block := range elements(list) {
				var b codexBlock
				if decode(block, &b) && isString(b.Text) {
					e.role, e.parts = "model", append(e.parts, thoughtPart(b.Text))
				}
			}
		}
	case isCall && (item.CallID != "" || item.Type == "local_shell_call" && call != ""):
		name, args, under := item.Name, item.Arguments, "arguments"
		if name == "" {
			name = kind
		}
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
		r.names[call] = name
		e.author, e.role, e.parts = string(Codex), "model", []json.RawMessage{callPart(call, name, args, under)}
	case strings.HasSuffix(item.Type, "_output") && item.CallID != "":
		e.author, e.role = string(Codex), "user"
		texts, images := resultOf(item.Output, (*codexBlock).given)
		if item.Output != nil && !isArray(item.Output) {
			texts = []json.RawMessage{item.Output} // an object too
		}
		e.parts = []json.RawMessage{responsePart(call, r.names[call], texts, false, images)}
	}
}

func (r *codexReader) message(e *entry, item *codexItem) {
	switch item.Role {
	case "assistant":
		e.author, e.role, e.parts = string(Codex), "model", partsOf(item.Content, (*codexBlock).part)
	case "user":
		e.author, e.role, e.parts = "user", "user", partsOf(item.Content, (*codexBlock).part)
		e.prompt = true
		if isContext(item.Content) {
			e.author, e.prompt = string(Codex), false
		}
	}
}

var element = regexp.MustCompile(`^\s*<([a-zA-Z_]+)>`)

// isContext reports whether a message of role user is the program's: all in one element,
// such as environment_context, or instructions that it found in a file.
func isContext(content json.RawMessage) bool {
	for _, block := range elements(content) {
		var b codexBlock
		if !decode(block, &b) {
			return false
		}
		text := textOf(b.Text)
		tag := element.FindStringSubmatch(text)
		if !strings.HasPrefix(text, "# AGENTS.md instructions") &&
			(tag == nil || !strings.HasSuffix(strings.TrimSpace(text), "</"+tag[1]+">")) {
			return false
		}
	}
	return len(elements(content)) > 0
}

// part returns what a block is, or nil.
func (b *codexBlock) part() json.RawMessage {
	text, image := b.given()
	if text != nil {
		return textPart(text)
	}
	return image
}

// given returns the text, or the image that a data: URL is.
func (b *codexBlock) given() (text, image json.RawMessage) {
	if isString(b.Text) {
		return b.Text, nil
	}
	kind, data, ok := strings.Cut(strings.TrimPrefix(textOf(b.ImageURL), "data:"), ";base64,")
	if !ok {
		return nil, nil
	}
	return nil, dataPart(raw(kind), raw(data))
}
