package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// agentClaude is the author of Claude Code's own events.
const agentClaude = "claude-code"

var claudeCode = Format{
	Name: agentClaude, Title: "a transcript of Claude Code",
	Versions: "1.0 to 2.1 (~/.claude/projects/*/*.jsonl, SESSION/subagents/*.jsonl)",
	Kept:     "attached files, rewinds, compactions, subagents (as branches)",
	Omitted:  "contents of snapshots, progress, settings",
	count: func(b *beginning) int {
		if !b.lines {
			return 0
		}
		return b.count(func(o obj) bool {
			switch o.text("type") {
			case "":
				return false
			case "summary":
				return o.has("leafUuid")
			case "file-history-snapshot":
				return o.has("snapshot")
			case "user", "assistant":
				return o.has("uuid") && o.object("message") != nil && !o.object("message").has("parts")
			}
			return (o.has("sessionId") || o.has("uuid") && o.has("parentUuid")) && !o.has("systemPayload")
		})
	},
	reader: func() reader {
		r := &claudeReader{last: map[string]int{}}
		return reader{r.prepare, r.read}
	},
}

type claudeReader struct {
	line       int            // number of lines read so far
	last       map[string]int // by message id, the last line with usage
	agent      string         // in a file of a subagent: the id of the subagent
	started    bool
	unthreaded bool     // rows have null as parent although they follow other rows
	bounded    bool     // a compaction boundary was read whose summary has not been read
	keeps      []string // ids of the messages that the boundary keeps
}

// prepare sorts the lines so that each follows its parent, because the file may have them in another order. It drops
// lines at the end whose parent is missing, because the parent may not be written yet. Lines of a user, a model or a
// subagent are not dropped.
func (r *claudeReader) prepare(units []unit) []unit {
	type head struct {
		kind, uuid, parent, message string
		sidechain, usage            bool
	}
	heads, place := make([]head, len(units)), map[string]int{}
	for i, u := range units {
		o := parse(u.json)
		m := o.object("message")
		heads[i] = head{o.text("type"), o.text("uuid"), o.text("parentUuid"), m.text("id"), o.is("isSidechain"), m.get("usage") != nil}
		if _, ok := place[heads[i].uuid]; !ok && heads[i].uuid != "" {
			place[heads[i].uuid] = i
		}
	}
	for n := len(units) - 1; n > 0; n-- {
		h := &heads[n]
		said := h.kind == "assistant" || h.kind == "user" && !bytes.Contains(units[n].json, []byte("tool_result"))
		if _, ok := place[h.parent]; ok || h.parent == "" || said || h.sidechain {
			break
		}
		units = units[:n]
	}
	follow := map[int][]int{} // by parent, the lines that the file has before the parent
	for i, h := range heads[:len(units)] {
		if j, ok := place[h.parent]; ok && j > i && j < len(units) {
			follow[j] = append(follow[j], i)
		}
	}
	waits, done := make([]bool, len(units)), make([]bool, len(units))
	for _, lines := range follow {
		for _, i := range lines {
			waits[i] = true
		}
	}
	ordered := make([]unit, 0, len(units))
	take := func(next ...int) {
		for len(next) > 0 {
			i := next[len(next)-1]
			if next = next[:len(next)-1]; done[i] {
				continue
			}
			done[i] = true
			ordered = append(ordered, units[i])
			if h := &heads[i]; h.usage && place[h.uuid] == i { // not a copy
				r.last[h.message] = len(ordered)
			}
			for _, j := range slices.Backward(follow[i]) {
				next = append(next, j)
			}
		}
	}
	for i := range units {
		if !waits[i] {
			take(i)
		}
	}
	for i := range units { // the remaining lines form cycles
		take(i)
	}
	return ordered
}

func (r *claudeReader) read(o obj, t *tree) []entry {
	r.line++
	agent, aside := o.text("agentId"), o.is("isSidechain")
	e := entry{id: o.text("uuid"), time: o.time("timestamp"), original: json.RawMessage(cmp.Or(string(o.get("message")), "-"))}
	if e.id != "" && !r.started {
		r.started = true
		if aside {
			r.agent = agent
		}
	}
	if session := o.text("sessionId"); session != "" {
		t.session = session // the last id is used: a file may begin with lines of the session that it continues
		if r.agent != "" && session != "agent-"+r.agent {
			t.session += "-agent-" + r.agent
		}
	}
	if e.id == "" {
		return []entry{e}
	}
	boundary := false
	m := o.object("message")
	switch kind := o.text("type"); {
	case m == nil && (kind == "user" || kind == "assistant"):
	case kind == "user":
		m["role"] = json.RawMessage(`"user"`)
		if e.message(t, m); o.is("isMeta") || isProgram(o) || isClaudesText(m.get("content")) {
			e.Author, e.prompt = agentClaude, false
		}
	case kind == "assistant":
		r.assistant(&e, t, o, m)
	case kind == "attachment":
		e.attachment(t, o.object("attachment"))
	case kind == "system":
		boundary = o.text("subtype") == "compact_boundary"
	}
	if aside && (r.agent == "" || agent != r.agent) { // a line of a subagent, which the main conversation does not see
		e.Branch, e.prompt = agentClaude+"."+cmp.Or(agent, "sidechain"), false
		if e.Author == "user" {
			e.Author = agentClaude // the main agent wrote the prompt of the subagent
		}
		return []entry{e}
	}
	e.place, e.moves, e.parent = true, len(e.parts) > 0, t.leaf
	parent, told := o["parentUuid"]
	switch n := t.find(textOf(parent)); {
	case boundary:
		r.bounded, r.keeps = true, preserved(o)
		e.parent = compacted(t, r.keeps, o.text("logicalParentUuid"))
	case n != nil:
		e.parent = n
	case told && !isString(parent) && (e.role == "model" || e.answers()):
		r.unthreaded = t.leaf != nil // a conversation cannot start with a response, so the rows omit their parents
	case told && !isString(parent) && !r.unthreaded:
		e.parent = nil
	} // otherwise the parent is missing, and the conversation continues at the leaf
	if o.is("isCompactSummary") {
		r.compaction(&e, t)
	}
	return []entry{e}
}

// isProgram reports whether a line is marked as not typed by the user.
func isProgram(o obj) bool {
	kind := o.text("origin.kind")
	return kind != "" && kind != "human" && kind != "user"
}

// attachment adds the content of an attachment: a queued prompt or a file.
func (e *entry) attachment(t *tree, o obj) {
	e.Author, e.role = agentClaude, "user"
	if o.text("type") == "queued_command" {
		prompt, mode := o.get("prompt"), o.text("commandMode")
		if e.say(t, prompt); !o.is("isMeta") && !isProgram(o) && (mode == "" || mode == "prompt") && !isClaudesText(prompt) {
			e.Author = "user"
		}
		return
	}
	name := cmp.Or(o.text("filename"), o.text("displayPath"), o.text("path"))
	if text := o.quoted("content.file.content", "content.content", "content", "snippet"); text != nil {
		e.parts = []part{{Text: quote(strings.TrimPrefix(name+"\n", "\n") + textOf(text))}}
	} else if data := o.get("content.file.base64"); isString(data) {
		e.parts = []part{{InlineData: &blob{o.get("content.file.type"), data}}}
	}
}

// programsText matches texts that Claude Code itself writes as user messages.
var programsText = regexp.MustCompile(`^\s*(<(local-command-|bash-std|task-notification|system-reminder)|\[Request interrupted by user)`)

// isClaudesText reports whether Claude Code itself wrote all texts of a content.
func isClaudesText(content json.RawMessage) bool {
	blocks := blocksOf(content)
	return len(blocks) > 0 && !slices.ContainsFunc(blocks, func(b block) bool { return !programsText.MatchString(b.text("text")) })
}

// preserved returns the ids of the messages that a compaction boundary keeps. Some versions list all ids, others only
// the first and the last.
func preserved(o obj) []string {
	segment, ids := o.object("compactMetadata.preservedSegment"), []string{}
	for _, id := range o.list("compactMetadata.preservedMessages.uuids") {
		ids = append(ids, textOf(id))
	}
	return slices.Concat([]string{segment.text("headUuid")}, ids, []string{segment.text("tailUuid")})
}

// compacted returns the leaf of the conversation before a compaction boundary. The leaf is the last message that the
// boundary keeps. Some versions name a row on another branch instead, which compacted ignores.
func compacted(t *tree, ends []string, logical string) *node {
	var first *node
	for _, id := range ends {
		if first = t.nodes[id]; first != nil {
			break
		}
	}
	for _, id := range slices.Backward(append(slices.Clone(ends), logical)) {
		if n := t.nodes[id]; n != nil && (first == nil || n.follows(first)) {
			return n
		}
	}
	return t.leaf
}

// follows reports whether other is the node itself or an ancestor, within the nearest 10,000 nodes.
func (n *node) follows(other *node) bool {
	for i := 0; i < 10_000 && n != nil && n.depth >= other.depth; i++ {
		if n == other {
			return true
		}
		n = n.parent
	}
	return false
}

// compaction reads the summary of a compaction boundary.
func (r *claudeReader) compaction(e *entry, t *tree) {
	e.Author, e.prompt, e.compaction = agentClaude, false, true
	if !r.bounded {
		// In files without boundaries, a summary starts a new conversation.
		e.summary = e.parent == nil
		e.parent = t.leaf
		return
	}
	e.summary, e.relink = true, true
	for _, id := range r.keeps {
		if n := t.nodes[id]; n != nil {
			e.kept = append(e.kept, n)
		}
	}
	r.bounded, r.keeps = false, nil
}

func (r *claudeReader) assistant(e *entry, t *tree, o, m obj) {
	e.piece = m.text("id")
	if e.piece != "" && r.last[e.piece] != r.line { // every piece of a message repeats the usage; only the last one is complete
		delete(m, "usage")
	}
	m["role"] = json.RawMessage(`"assistant"`)
	if e.message(t, m); o.is("isApiErrorMessage") { // shown to the user but not sent to the model
		for _, b := range blocksOf(m.get("content")) {
			e.ErrorMessage = cmp.Or(e.ErrorMessage, b.text("text"))
		}
		e.parts, e.calls, e.UsageMetadata = nil, nil, nil
	}
}
