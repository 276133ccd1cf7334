package migrate

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var codex = Format{
	Name: "codex", Title: "a rollout of Codex",
	Versions: "0.1 to 0.120 (~/.codex/sessions/*/*/*/rollout-*.jsonl; rollout-*.json of the first versions)",
	Kept:     "rollbacks, compactions",
	Omitted:  "developer messages, encrypted reasoning and summaries, contents of events that repeat messages",
	count: func(b *fileHead) int {
		if first := b.count(func(o obj) bool { return o.object("session").has("id") && o.has("items") }); first > 0 || !b.lines {
			return first // early versions wrote one JSON document
		}
		bare := b.has(func(o obj) bool {
			return !o.has("type") && o.text("id") != "" && o.text("timestamp") != "" && o.has("instructions", "git", "source")
		})
		return b.count(func(o obj) bool {
			if o.object("payload") == nil {
				return bare && (isResponsesItem(o) || o.has("record_type") || !o.has("type") && o.has("timestamp"))
			}
			return slices.Contains([]string{"session_meta", "response_item", "event_msg", "turn_context", "compacted"}, o.text("type"))
		})
	},
	reader: func() reader { return reader{read: new(codexReader).read} },
	lists:  true,
}

// codexReader reads rollouts of Codex. The lines of a rollout are a sequence of messages. A line with a rollback
// removes the last turns.
type codexReader struct{ model string }

func (r *codexReader) read(o obj, t *tree) []entry {
	e := entry{inTree: true, followsLeaf: true, time: o.time("timestamp")}
	item := o.object("payload")
	switch o.text("type") {
	case "":
		t.session = cmp.Or(t.session, o.text("id")) // a file without envelopes begins with a header
	case "session_meta":
		t.session = cmp.Or(t.session, item.text("id")) // a fork repeats the header of its origin after its own header
	case "turn_context":
		r.model = cmp.Or(item.text("model"), r.model)
	case "event_msg":
		e.readCodexEvent(t, item)
	case "compacted":
		e.readCodexCompaction(t, item)
	case "response_item":
		e.addItem(t, item)
	default: // item without an envelope
		e.addItem(t, o)
	}
	if e.role == "model" {
		e.ModelVersion = r.model
	}
	return []entry{e}
}

func (e *entry) readCodexEvent(t *tree, item obj) {
	switch item.text("type") {
	case "token_count":
		if usage := item.object("info.last_token_usage"); usage != nil {
			e.Author, e.UsageMetadata = t.agent, parseUsage(usage)
		}
	case "turn_aborted":
		e.Author, e.Interrupted = t.agent, true
	case "thread_rolled_back":
		turns, _ := strconv.Atoi(string(item.get("num_turns")))
		e.parent, e.followsLeaf, e.becomesLeaf = leafAfterRollback(t.leaf, turns), false, true
	}
}

// leafAfterRollback returns the new leaf after the last turns are removed.
func leafAfterRollback(leaf *node, turns int) *node {
	at := leaf
	for n := leaf; n != nil && turns > 0; n = n.parent {
		if n.prompt {
			at = n.parent
			turns--
		}
	}
	return at
}

// readCodexCompaction reads a compaction of all visible events. Codex replaces the context by a list of items. The
// items are messages, unless a remote service made the compaction.
func (e *entry) readCodexCompaction(t *tree, item obj) {
	e.Author, e.role, e.compaction, e.summary = t.agent, "user", true, true
	// In early versions, the new context consists of the user's prompts and the summary.
	if item.get("replacement_history") == nil {
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
		if message := item.firstString("message"); message != nil {
			e.parts = append(e.parts, part{Text: message})
		}
		return
	}
	for _, text := range item.list("replacement_history") {
		kept := parse(text)
		if kind := kept.text("type"); kind != "message" {
			e.parts, e.summary, e.encrypted = nil, false, strings.HasPrefix(kind, "compaction")
			return
		}
		if role := kept.text("role"); role != "developer" && role != "system" {
			e.addContent(t, kept.get("content"))
		}
	}
}

// addItem adds an item of the Responses API.
func (e *entry) addItem(t *tree, o obj) {
	kind := cmp.Or(o.text("type"), "message")
	name, isCall := strings.CutSuffix(kind, "_call")
	id := cmp.Or(o.text("call_id"), o.text("id"))
	switch {
	case kind == "message":
		switch role := o.text("role"); {
		case role == "assistant" || role == "user":
			e.readMessage(t, o)
			if e.UsageMetadata = nil; e.prompt && isContext(o) {
				e.Author, e.prompt = t.agent, false
			}
		}
	case kind == "reasoning":
		e.Author = t.agent
		for _, b := range append(blocksOf(o.get("summary")), blocksOf(o.get("content"))...) {
			if text := b.get("text"); isString(text) {
				e.role, e.parts = "model", append(e.parts, part{Text: text, Thought: true})
			}
		}
	case isCall:
		member := "arguments"
		if o.get("input") != nil {
			member = "input"
		}
		e.Author, e.role = t.agent, "model"
		e.addCall(t, id, cmp.Or(o.text("name"), name), o.firstValue("action", "input", "arguments", "queries", "code"), member)
		// The provider ran this call, so the item includes the result.
		if o.get("call_id") == nil && kind != "local_shell_call" {
			e.addResult(t, id, "", o.firstValue("output", "outputs", "results", "error", "status"), o.get("error") != nil)
			if image := o.firstString("result"); image != nil {
				e.parts[1].Response.Parts = []part{{InlineData: &blob{quote("image/" + cmp.Or(o.text("output_format"), "png")), image}}}
			}
		}
	case strings.HasSuffix(kind, "_output") && id != "":
		e.Author, e.role = t.agent, "user"
		e.addResult(t, id, "", o.get("output"), false)
	}
}

var element = regexp.MustCompile(`^\s*<([a-zA-Z_]+)>`)

// isContext reports whether Codex itself wrote a user message. Each text in such a message is an element such as
// environment_context, or instructions that Codex found in a file.
func isContext(o obj) bool {
	blocks := blocksOf(o.get("content"))
	for _, b := range blocks {
		text := b.text("text")
		tag := element.FindStringSubmatch(text)
		if !strings.HasPrefix(text, "# AGENTS.md instructions") &&
			(tag == nil || !strings.HasSuffix(strings.TrimSpace(text), "</"+tag[1]+">")) {
			return false
		}
	}
	return len(blocks) > 0
}
