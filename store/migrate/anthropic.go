package migrate

import (
	"regexp"
	"slices"
	"strings"
)

// clineHistory is the file in which Cline and Roo Code store the messages of a task.
const clineHistory = "api_conversation_history.json"

var anthropicMessages = Format{
	Name: "anthropic", Title: "messages of Anthropic's API", Versions: "2023-06-01; Cline and Roo Code (tasks/TASK/api_conversation_history.json)",
	Kept:    "documents, Roo's condensed contexts",
	Omitted: "system prompt, tools, parameters of requests",
	count:   func(b *fileHead) int { _, n := countMessages(b); return n },
	reader:  func() reader { return reader{read: readAnthropic} },
	lists:   true,
}

// countMessages counts the objects that are messages of OpenAI's Chat Completions API and the objects that are
// messages of Anthropic's API. Some messages are valid in both APIs. If the file has other messages of an API, the
// ambiguous messages count for that API. If it has other messages of neither API, they count as Anthropic's if any
// content is a list or the file is clineHistory. Otherwise, they count as OpenAI's.
func countMessages(b *fileHead) (openAI, anthropic int) {
	objects := b.objects
	if len(b.items) > 0 {
		objects = b.items
	}
	ambiguous, blocks := 0, b.name == clineHistory
	for _, o := range objects {
		o = responseMessage(o)
		role, content := o.text("role"), o.list("content")
		anyOf := func(of func(o obj) bool) bool { return slices.ContainsFunc(parseObjects(content), of) }
		switch {
		case o.has("parts", "author", "info") || o.get("content") != nil && !isString(o.get("content")) && content == nil,
			anyOf(func(o obj) bool {
				return strings.HasPrefix(o.text("type"), "input_") && o.text("type") != "input_audio" || o.text("type") == "output_text"
			}):
		case o.has("tool_calls", "tool_call_id", "function_call", "refusal") && role != "", slices.Contains([]string{"system", "developer", "tool", "function"}, role),
			anyOf(func(o obj) bool { return o.has("image_url", "input_audio", "file", "refusal") }):
			openAI++
		case role != "user" && role != "assistant":
		case anyOf(func(o obj) bool { return o.text("type") != "text" }), o.has("stop_reason"):
			anthropic++
		default:
			ambiguous++
			blocks = blocks || content != nil
		}
	}
	items := len(b.items) > 0 && len(b.objects) > 0
	of := func(n int) int {
		if items && 2*n >= len(b.items) { // each object has a list of messages, so count the objects
			return len(b.objects)
		}
		return n
	}
	switch {
	case openAI > 0 && anthropic > 0:
		return of(openAI + ambiguous), of(anthropic + ambiguous)
	case openAI > 0 || anthropic == 0 && !blocks:
		return of(openAI + ambiguous), 0
	}
	return 0, of(anthropic + ambiguous)
}

func readAnthropic(o obj, t *tree) []entry {
	e := entry{inTree: true, followsLeaf: true, time: unixTime(o.get("ts"), 1000)}
	if role := o.text("role"); role == "user" || role == "assistant" {
		e.readMessage(t, o)
	}
	if e.prompt && isClineText(o) {
		e.Author, e.prompt = t.agent, false
	}
	if o.isTrue("isSummary") {
		e.Author, e.role, e.prompt, e.compaction, e.summary = t.agent, "user", false, true, true
	}
	return []entry{e}
}

var toolResult = regexp.MustCompile(`^\[[a-z_]+( for .*)?\] Result:|^\[ERROR\] `)

// isClineText reports whether a user message contains results of tools as text. Only Cline writes such messages.
func isClineText(o obj) bool {
	blocks := blocksOf(o.get("content"))
	return len(blocks) > 0 && toolResult.MatchString(unquote(blocks[0].textValue()))
}
