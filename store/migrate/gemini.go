package migrate

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

var geminiCLI = Format{
	Name: "gemini-cli", Title: "a chat of Gemini CLI", Versions: "0.8 to 0.30 (~/.gemini/tmp/*/chats/session-*.json and .jsonl, checkpoint-*.json)",
	Kept:    "rewinds, replaced histories",
	Omitted: "contents shown on the screen only, signatures of thoughts",
	count: func(b *fileHead) int {
		isMessage := func(o obj) bool {
			return o.has("content") && slices.Contains([]string{"user", "gemini", "info", "error", "warning"}, o.text("type")) && o.has("id", "timestamp")
		}
		isContent := func(o obj) bool {
			return o.get("parts") != nil && (o.text("role") == "user" || o.text("role") == "model") && !o.has("content", "author")
		}
		if n := countMatching(b.items, isMessage) + countMatching(b.items, isContent); n > 0 && 2*n >= len(b.items) {
			return len(b.objects)
		}
		if b.lines && b.has(func(o obj) bool { return o.has("sessionId") && o.has("projectHash") }) {
			return b.count(func(o obj) bool { return isMessage(o) || o.has("projectHash", "$set", "$rewindTo") })
		}
		return b.count(isContent)
	},
	reader: func() reader { return reader{read: readGemini} },
	lists:  true,
}

func readGemini(o obj, t *tree) []entry {
	t.session = cmp.Or(t.session, o.text("sessionId"))
	history := append(o.list("messages"), o.list("$set.messages")...)
	switch rewind := o.get("$rewindTo"); {
	case isString(rewind):
		e := entry{inTree: true, becomesLeaf: true}
		if n := t.nodes[unquote(rewind)]; n != nil {
			e.parent = n.parent
		}
		return []entry{e}
	case history != nil:
		return replaceHistory(history, t)
	case o.text("type") == "" && o.text("role") == "":
		return nil
	}
	e := geminiMessage(o, t)
	if n := t.nodes[e.id]; n != nil { // the program writes a message again when its calls have results
		e.alias, e.id, e.parent, e.followsLeaf, e.becomesLeaf, e.rewrites = e.id, "", n.parent, false, true, true
	}
	return []entry{e}
}

// replaceHistory makes entries for a history that replaces the current history. Messages in the common prefix of
// both histories get no new entries.
func replaceHistory(history []json.RawMessage, t *tree) []entry {
	var path []*node // messages from the root to the leaf
	for n := t.leaf; n != nil; n = n.parent {
		t.steps++
		if n.id != "" {
			path = append(path, n)
		}
	}
	slices.Reverse(path)
	common := 0
	entries := []entry{{inTree: true, becomesLeaf: true}}
	for i, text := range history {
		o := parse(text)
		if common == i && common < len(path) && path[common].id == o.text("id") {
			common++
			continue
		}
		e := geminiMessage(o, t)
		e.id, e.alias = "", e.id
		entries = append(entries, e)
	}
	if entries[0].parent = t.leaf; common < len(path) {
		entries[0].parent = path[common].parent
	}
	return entries
}

// geminiMessage makes an entry from a message with its calls and their results.
func geminiMessage(o obj, t *tree) entry {
	e := entry{id: o.text("id"), time: o.time("timestamp"), inTree: true, followsLeaf: true}
	content := o.firstValue("content", "parts")
	switch e.Author = t.agent; cmp.Or(o.text("type"), o.text("role")) {
	case "user":
		e.role, e.parts = "user", genaiParts(content)
		if !e.hasResults() {
			e.Author, e.prompt = "user", true
		}
	case "gemini", "model":
		e.role, e.ModelVersion, e.UsageMetadata = "model", o.text("model"), parseUsage(o.object("tokens"))
		for _, text := range o.list("thoughts") {
			thought := parse(text)
			e.parts = append(e.parts, part{Text: quote(strings.Trim(thought.text("subject")+"\n\n"+thought.text("description"), "\n")), Thought: true})
		}
		e.parts = append(e.parts, genaiParts(content)...)
		calls := o.list("toolCalls")
		for _, text := range calls {
			c := parse(text)
			e.addCall(t, c.text("id"), c.text("name"), c.get("args"), "args")
		}
		for _, text := range calls {
			e.addGeminiResult(t, parse(text))
		}
	case "error":
		e.ErrorMessage = unquote(content)
	}
	return e
}

// addGeminiResult adds the result of a call, if there is one.
func (e *entry) addGeminiResult(t *tree, c obj) {
	id, status, result := c.text("id"), c.text("status"), c.get("result")
	answer := genaiParts(result)
	if i := slices.IndexFunc(answer, func(p part) bool { return p.Response != nil }); i >= 0 {
		answer[i].Response.ID, answer[i].Response.Name = id, c.text("name")
		e.resultIDs, e.parts = append(e.resultIDs, id), append(e.parts, answer...)
		return
	}
	if len(answer) == 0 {
		if status != "error" && status != "cancelled" {
			return
		}
		if result = c.firstString("resultDisplay"); result == nil {
			result = quote(status)
		}
	}
	e.addResult(t, id, c.text("name"), result, status != "success")
}

// genaiParts returns the parts of a content of Gemini's API. The content is a string, a part, or a list of strings
// and parts.
func genaiParts(content json.RawMessage) (parts []part) {
	list := []json.RawMessage{content}
	if isArray(content) {
		list = arrayElements(content)
	}
	for _, text := range list {
		var p part
		switch {
		case unquote(text) != "":
			parts = append(parts, part{Text: text})
		case isObject(text):
			json.Unmarshal(text, &p) // ignores members with other types
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
