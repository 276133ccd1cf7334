package migrate

import (
	"encoding/json"
	"slices"
	"strings"
)

var geminiCLI = Format{
	Name: "gemini-cli", Title: "a chat of Gemini CLI", Versions: "0.8 to 0.3x (~/.gemini/tmp/*/chats/session-*.json and .jsonl, checkpoint-*.json)",
	Kept:    "messages, thoughts, calls, results, images, usage, model, rewinds, replaced histories",
	Omitted: "content of what only the screen shows, signatures of thoughts",
	count: func(b *beginning) int {
		said := func(o object) bool {
			return o.has("content") && slices.Contains([]string{"user", "gemini", "info", "error", "warning"}, o.text("type")) && o.has("id", "timestamp")
		}
		isContent := func(o object) bool {
			return o["parts"] != nil && (o.text("role") == "user" || o.text("role") == "model") && !o.has("content", "author")
		}
		if n := countOf(b.items, said) + countOf(b.items, isContent); n > 0 && 2*n >= len(b.items) {
			return len(b.objects)
		}
		if b.lines && b.has(func(o object) bool { return o.has("sessionId") && o.has("projectHash") }) {
			return b.count(func(o object) bool { return said(o) || o.has("projectHash", "$set", "$rewindTo") })
		}
		return b.count(isContent)
	},
	reader: func() reader { return reader{read: readGemini} },
	lists:  true,
}

type geminiMessage struct {
	ID, Type, Timestamp, Role, Model, SessionID string
	Content, Parts                              json.RawMessage
	Thoughts                                    []struct{ Subject, Description string }
	ToolCalls                                   []struct {
		ID, Name, Status string
		Args, Result     json.RawMessage
		ResultDisplay    json.RawMessage
	}
	Tokens *struct{ Input, Output, Cached, Thoughts, Tool, Total json.Number }

	// Of other lines.
	Set      struct{ Messages []json.RawMessage } `json:"$set"`
	Messages []json.RawMessage
	RewindTo *string `json:"$rewindTo"`
}

func readGemini(text []byte, t *tree) []entry {
	var m geminiMessage
	if !decode(text, &m) {
		return nil
	}
	t.session = firstOf(t.session, m.SessionID)
	switch history := slices.Concat(m.Messages, m.Set.Messages); {
	case m.RewindTo != nil:
		e := entry{place: true, moves: true}
		if n := t.nodes[*m.RewindTo]; n != nil {
			e.parent = n.parent
		}
		return []entry{e}
	case history != nil:
		return replaceHistory(history, t)
	case m.Type == "" && m.Role == "":
		return nil
	}
	return m.entries(text, t)
}

// replaceHistory makes entries of a history that takes the place of what there is, behind what both begin with.
func replaceHistory(history []json.RawMessage, t *tree) []entry {
	var way []*node // the messages on the way to the leaf
	for n := t.leaf; n != nil; n = n.parent {
		t.steps++
		if n.id != "" {
			way = append(way, n)
		}
	}
	slices.Reverse(way)
	same := 0
	entries := []entry{{place: true, moves: true}}
	for i, text := range history {
		var m geminiMessage
		if !decode(text, &m) {
			continue
		}
		if same == i && same < len(way) && way[same].id == m.ID {
			same++
			continue
		}
		for _, e := range m.entries(nil, t) {
			e.id, e.as, e.goesOn = "", e.id, true
			entries = append(entries, e)
		}
	}
	if entries[0].parent = t.leaf; same < len(way) {
		entries[0].parent = way[same].parent
	}
	return entries
}

// entries makes entries of a message: what is said, and what the calls in it resulted in. A message that is there
// is replaced, for it is written again when the calls in it have results.
func (m *geminiMessage) entries(text []byte, t *tree) []entry {
	e := entry{id: m.ID, message: text, time: rfcTime(m.Timestamp), place: true, goesOn: true}
	results := e
	results.id, results.message = "", nil
	if n := t.nodes[m.ID]; n != nil && text != nil {
		e.id, e.as, e.parent, e.goesOn, e.moves, e.again = "", m.ID, n.parent, false, true, true
	}
	switch firstOf(m.Type, m.Role) {
	case "user":
		e.Author, e.role, e.prompt = "user", "user", true
		e.parts = genaiParts(firstOf(string(m.Content), string(m.Parts)))
		if slices.ContainsFunc(e.parts, func(p part) bool { return p.Response != nil }) {
			e.Author, e.prompt = t.agent, false
		}
	case "gemini", "model":
		e.Author, e.role, e.ModelVersion = t.agent, "model", m.Model
		for _, thought := range m.Thoughts {
			e.parts = append(e.parts, part{Text: quote(strings.Trim(thought.Subject+"\n\n"+thought.Description, "\n")), Thought: true})
		}
		e.parts = append(e.parts, genaiParts(firstOf(string(m.Content), string(m.Parts)))...)
		for _, c := range m.ToolCalls {
			e.calls, results.known = append(e.calls, c.ID), append(results.known, c.ID)
			e.parts = append(e.parts, callOf(c.ID, c.Name, c.Args, "args")...)
			answer := genaiParts(string(c.Result))
			switch i := slices.IndexFunc(answer, func(p part) bool { return p.Response != nil }); {
			case i >= 0:
				answer[i].Response.ID, answer[i].Response.Name = c.ID, c.Name
			case len(answer) == 0 && c.Status != "error" && c.Status != "cancelled":
				continue
			default:
				result := c.Result
				if len(answer) == 0 {
					result = json.RawMessage(firstOf(string(quoted(c.ResultDisplay)), string(quote(c.Status))))
				}
				answer = responseOf(c.ID, c.Name, result, c.Status != "success")
			}
			results.parts = append(results.parts, answer...)
		}
		if u := m.Tokens; u != nil {
			e.UsageMetadata = usageOf(map[string][]json.Number{
				"promptTokenCount": {u.Input}, "candidatesTokenCount": {u.Output}, "cachedContentTokenCount": {u.Cached},
				"thoughtsTokenCount": {u.Thoughts}, "toolUsePromptTokenCount": {u.Tool}, "totalTokenCount": {u.Total},
			})
		}
	case "error":
		e.Author, e.ErrorMessage = t.agent, textOf(m.Content)
	default:
		e.Author = t.agent
	}
	if len(results.parts) == 0 {
		return []entry{e}
	}
	results.Author, results.role = t.agent, "user"
	return []entry{e, results}
}

// quoted returns a JSON text that is not empty, or nil.
func quoted(text json.RawMessage) json.RawMessage {
	if textOf(text) == "" {
		return nil
	}
	return text
}

// genaiParts returns the parts of a content as Gemini's API has it: a text, a part, or a list of these.
func genaiParts(content string) (parts []part) {
	list := []json.RawMessage{json.RawMessage(content)}
	if isArray(list[0]) {
		list = nil
		decode([]byte(content), &list)
	}
	for _, text := range list {
		var p part
		switch {
		case textOf(text) != "":
			parts = append(parts, part{Text: text})
		case isObject(text) && decode(text, &p):
			if p.Text != nil && (!isString(p.Text) || string(p.Text) == `""`) {
				p.Text = nil
			}
			if p.Text != nil || p.InlineData != nil || p.FileData != nil || p.Call != nil || p.Response != nil {
				parts = append(parts, p)
			}
		}
	}
	return parts
}
