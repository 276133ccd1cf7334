package migrate

import (
	"encoding/json"
	"slices"
	"strings"
)

var openAIChat = Format{
	Name: "openai-chat", Title: "messages of OpenAI's Chat Completions", Versions: "arrays, lines, requests and responses; functions of 2023 too",
	Kept:    "sounds, documents",
	Omitted: "tools, parameters of requests, choices other than the first",
	count:   func(b *fileHead) int { n, _ := countMessages(b); return n },
	reader:  func() reader { return reader{read: readChat} },
	lists:   true,
}

// responseMessage returns the message in a response object. It returns other objects unchanged.
func responseMessage(o obj) obj {
	if choices := parseObjects(o.list("choices")); len(choices) > 0 {
		return choices[0].object("message")
	}
	return o
}

func readChat(o obj, t *tree) []entry {
	e := entry{inTree: true, followsLeaf: true}
	if choices := o.list("choices"); len(choices) > 0 {
		message := parse(choices[0]).object("message")
		e.readMessage(t, message)
		e.ModelVersion, e.time, e.UsageMetadata = o.text("model"), unixTime(o.get("created"), 1), parseUsage(o.object("usage"))
		o = message
	} else {
		e.readMessage(t, o)
	}
	if e.role != "model" {
		return []entry{e}
	}
	if thought := o.firstString("reasoning_content", "reasoning"); thought != nil {
		e.parts = slices.Insert(e.parts, 0, part{Text: thought, Thought: true})
	}
	if refusal := o.firstString("refusal"); refusal != nil {
		e.parts = append(e.parts, part{Text: refusal})
	}
	if f := o.object("function_call"); f != nil {
		e.addCall(t, "", f.text("name"), f.get("arguments"), "arguments")
	}
	for _, text := range o.list("tool_calls") {
		c := parse(text)
		if f := c.object("function"); f != nil {
			e.addCall(t, c.text("id"), f.text("name"), f.get("arguments"), "arguments")
		} else if f := c.object("custom"); f != nil {
			e.addCall(t, c.text("id"), f.text("name"), f.get("input"), "input")
		}
	}
	return []entry{e}
}

var openAIResponses = Format{
	Name: "openai-responses", Title: "items of OpenAI's Responses API", Versions: "arrays, lines, requests (input) and responses (output)",
	Kept:    "documents",
	Omitted: "instructions, tools, parameters of requests, encrypted reasoning",
	count: func(b *fileHead) int {
		return b.count(func(o obj) bool {
			items := append(parseObjects(o.list("input")), parseObjects(o.list("output"))...)
			isMessage := func(o obj) bool { return isResponsesItem(o) || o.text("role") != "" && o.has("content") }
			return isResponsesItem(o) || o.text("object") == "response" || len(items) > 0 && 2*countMatching(items, isMessage) >= len(items) ||
				isString(o.get("input")) && o.text("model") != "" && !strings.Contains(o.text("model"), "embed")
		})
	},
	reader: func() reader { return reader{read: readResponses} },
}

// isResponsesItem reports whether an object is an item of the Responses API.
func isResponsesItem(o obj) bool {
	kind := o.text("type")
	switch {
	case o.has("payload"):
		return false
	case kind == "reasoning":
		return o.has("summary")
	case strings.HasSuffix(kind, "_call"), strings.HasSuffix(kind, "_call_output"):
		return o.has("call_id", "id")
	// Without a role, or with one of these members, the object is a response of Anthropic's API.
	case kind == "message" && o.text("role") != "" && !o.has("message", "stop_reason", "usage"):
		return true
	}
	return o.text("role") != "" && slices.ContainsFunc(parseObjects(o.list("content")), func(o obj) bool {
		return o.text("type") == "input_text" || o.text("type") == "output_text" || o.text("type") == "input_image"
	})
}

func readResponses(o obj, t *tree) (entries []entry) {
	items := []obj{o}
	if o.text("type") == "" && o.text("role") == "" {
		items = nil
		if input := o.get("input"); isString(input) {
			items = []obj{{"role": json.RawMessage(`"user"`), "content": input}}
		}
		for _, item := range slices.Concat(o.list("input"), o.list("output")) {
			items = append(items, parse(item))
		}
	}
	for _, item := range items {
		e := entry{inTree: true, followsLeaf: true}
		e.addItem(t, item)
		if role := item.text("role"); role == "system" || role == "developer" {
			e.readMessage(t, item)
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil
	}
	last := &entries[len(entries)-1]
	last.time = unixTime(o.get("created_at"), 1)
	if usage := o.object("usage"); usage != nil {
		last.ModelVersion, last.UsageMetadata = o.text("model"), parseUsage(usage)
	}
	return entries
}
