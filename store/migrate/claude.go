package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// agentClaude is the author of events that Claude Code itself has written.
const agentClaude = "claude-code"

var claudeCode = Format{
	Name: agentClaude, Title: "a transcript of Claude Code",
	Versions: "1.0 to 2.1 (~/.claude/projects/*/*.jsonl, SESSION/subagents/*.jsonl)",
	Kept:     "attached files, rewinds, compactions, subagents (as branches)",
	Omitted:  "contents of snapshots, progress, settings",
	count: func(b *fileHead) int {
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
	line           int            // number of lines read so far
	last           map[string]int // key: message id; value: number of the last line with usage
	agent          string         // id of the subagent, if the file is a subagent's
	started        bool
	parentsOmitted bool     // whether rows have null as parent although they follow other rows
	boundaryRead   bool     // whether a compaction boundary was read, but not yet its summary
	keptIDs        []string // ids of the messages that the boundary keeps
}

// prepare sorts the lines so that each line follows its parent, because the file may have them in another order. It
// omits lines at the end whose parent is missing, because the program may write the parent later. It does not omit
// lines of a user, a model or a subagent.
func (r *claudeReader) prepare(units []unit) []unit {
	type head struct {
		kind, uuid, parent, message string
		sidechain, usage            bool
	}
	heads, positions := make([]head, len(units)), map[string]int{}
	for i, u := range units {
		o := parse(u.json)
		m := o.object("message")
		heads[i] = head{o.text("type"), o.text("uuid"), o.text("parentUuid"), m.text("id"), o.isTrue("isSidechain"), m.get("usage") != nil}
		if _, ok := positions[heads[i].uuid]; !ok && heads[i].uuid != "" {
			positions[heads[i].uuid] = i
		}
	}
	for n := len(units) - 1; n > 0; n-- {
		h := &heads[n]
		isMessage := h.kind == "assistant" || h.kind == "user" && !bytes.Contains(units[n].json, []byte("tool_result"))
		if _, ok := positions[h.parent]; ok || h.parent == "" || isMessage || h.sidechain {
			break
		}
		units = units[:n]
	}
	childrenBefore := map[int][]int{} // key: parent; value: the lines that precede the parent in the file
	for i, h := range heads[:len(units)] {
		if j, ok := positions[h.parent]; ok && j > i && j < len(units) {
			childrenBefore[j] = append(childrenBefore[j], i)
		}
	}
	hasLaterParent, done := make([]bool, len(units)), make([]bool, len(units))
	for _, lines := range childrenBefore {
		for _, i := range lines {
			hasLaterParent[i] = true
		}
	}
	ordered := make([]unit, 0, len(units))
	emit := func(next ...int) {
		for len(next) > 0 {
			i := next[len(next)-1]
			if next = next[:len(next)-1]; done[i] {
				continue
			}
			done[i] = true
			ordered = append(ordered, units[i])
			if h := &heads[i]; h.usage && positions[h.uuid] == i { // the line is not a copy of an earlier line
				r.last[h.message] = len(ordered)
			}
			for _, j := range slices.Backward(childrenBefore[i]) {
				next = append(next, j)
			}
		}
	}
	for i := range units {
		if !hasLaterParent[i] {
			emit(i)
		}
	}
	for i := range units { // append the remaining lines, which form cycles
		emit(i)
	}
	return ordered
}

func (r *claudeReader) read(o obj, t *tree) []entry {
	r.line++
	agent, sidechain := o.text("agentId"), o.isTrue("isSidechain")
	e := entry{id: o.text("uuid"), time: o.time("timestamp"), dedupContent: json.RawMessage(cmp.Or(string(o.get("message")), "-"))}
	if e.id != "" && !r.started {
		r.started = true
		if sidechain {
			r.agent = agent
		}
	}
	if session := o.text("sessionId"); session != "" {
		// The last id is used, because a file may begin with lines of the session that it continues.
		t.session = session
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
		if e.readMessage(t, m); o.isTrue("isMeta") || isFromProgram(o) || isClaudeText(m.get("content")) {
			e.Author, e.prompt = agentClaude, false
		}
	case kind == "assistant":
		r.readAssistant(&e, t, o, m)
	case kind == "attachment":
		e.addAttachment(t, o.object("attachment"))
	case kind == "system":
		boundary = o.text("subtype") == "compact_boundary"
	}
	// The main conversation does not contain the lines of a subagent.
	if sidechain && (r.agent == "" || agent != r.agent) {
		e.Branch, e.prompt = agentClaude+"."+cmp.Or(agent, "sidechain"), false
		if e.Author == "user" {
			e.Author = agentClaude // the main agent wrote the prompt of the subagent
		}
		return []entry{e}
	}
	e.inTree, e.becomesLeaf, e.parent = true, len(e.parts) > 0, t.leaf
	parent, hasParent := o["parentUuid"]
	switch n := t.resolve(unquote(parent)); {
	case boundary:
		r.boundaryRead, r.keptIDs = true, keptMessageIDs(o)
		e.parent = leafBeforeBoundary(t, r.keptIDs, o.text("logicalParentUuid"))
	case n != nil:
		e.parent = n
	case hasParent && !isString(parent) && (e.role == "model" || e.hasResults()):
		// A conversation cannot start with a response, so these rows omit their parents.
		r.parentsOmitted = t.leaf != nil
	case hasParent && !isString(parent) && !r.parentsOmitted:
		e.parent = nil
	} // if no case matches, the parent is missing, and the conversation continues at the leaf
	if o.isTrue("isCompactSummary") {
		r.readCompaction(&e, t)
	}
	return []entry{e}
}

// isFromProgram reports whether a line is marked as not typed by the user.
func isFromProgram(o obj) bool {
	kind := o.text("origin.kind")
	return kind != "" && kind != "human" && kind != "user"
}

// addAttachment adds the content of an attachment, which is a queued prompt or a file.
func (e *entry) addAttachment(t *tree, o obj) {
	e.Author, e.role = agentClaude, "user"
	if o.text("type") == "queued_command" {
		prompt, mode := o.get("prompt"), o.text("commandMode")
		if e.addContent(t, prompt); !o.isTrue("isMeta") && !isFromProgram(o) && (mode == "" || mode == "prompt") && !isClaudeText(prompt) {
			e.Author = "user"
		}
		return
	}
	name := cmp.Or(o.text("filename"), o.text("displayPath"), o.text("path"))
	if text := o.firstString("content.file.content", "content.content", "content", "snippet"); text != nil {
		e.parts = []part{{Text: quote(strings.TrimPrefix(name+"\n", "\n") + unquote(text))}}
	} else if data := o.get("content.file.base64"); isString(data) {
		e.parts = []part{{InlineData: &blob{o.get("content.file.type"), data}}}
	}
}

// claudeTextPattern matches texts in user messages that Claude Code itself has written.
var claudeTextPattern = regexp.MustCompile(`^\s*(<(local-command-|bash-std|task-notification|system-reminder)|\[Request interrupted by user)`)

// isClaudeText reports whether Claude Code itself has written all texts of a content.
func isClaudeText(content json.RawMessage) bool {
	blocks := blocksOf(content)
	return len(blocks) > 0 && !slices.ContainsFunc(blocks, func(b block) bool { return !claudeTextPattern.MatchString(b.text("text")) })
}

// keptMessageIDs returns the ids of the messages that a compaction boundary keeps. Some versions of Claude Code list
// all ids, others only the first and the last.
func keptMessageIDs(o obj) []string {
	segment, ids := o.object("compactMetadata.preservedSegment"), []string{}
	for _, id := range o.list("compactMetadata.preservedMessages.uuids") {
		ids = append(ids, unquote(id))
	}
	return slices.Concat([]string{segment.text("headUuid")}, ids, []string{segment.text("tailUuid")})
}

// leafBeforeBoundary returns the leaf of the conversation before a compaction boundary. The leaf is the last message
// that the boundary keeps. Some versions of Claude Code name a row on another branch instead. leafBeforeBoundary
// ignores such a row.
func leafBeforeBoundary(t *tree, ends []string, logical string) *node {
	var first *node
	for _, id := range ends {
		if first = t.nodes[id]; first != nil {
			break
		}
	}
	for _, id := range slices.Backward(append(slices.Clone(ends), logical)) {
		if n := t.nodes[id]; n != nil && (first == nil || n.isDescendantOf(first)) {
			return n
		}
	}
	return t.leaf
}

// isDescendantOf reports whether other is the node itself or an ancestor, within the nearest 10,000 nodes.
func (n *node) isDescendantOf(other *node) bool {
	for i := 0; i < 10_000 && n != nil && n.depth >= other.depth; i++ {
		if n == other {
			return true
		}
		n = n.parent
	}
	return false
}

// readCompaction reads the summary of a compaction boundary.
func (r *claudeReader) readCompaction(e *entry, t *tree) {
	e.Author, e.prompt, e.compaction = agentClaude, false, true
	if !r.boundaryRead {
		// In a file without boundaries, a summary without a parent starts a new conversation.
		e.summary = e.parent == nil
		e.parent = t.leaf
		return
	}
	e.summary, e.reparentKept = true, true
	for _, id := range r.keptIDs {
		if n := t.nodes[id]; n != nil {
			e.kept = append(e.kept, n)
		}
	}
	r.boundaryRead, r.keptIDs = false, nil
}

func (r *claudeReader) readAssistant(e *entry, t *tree, o, m obj) {
	e.messageID = m.text("id")
	// Every piece of a message repeats the usage, and only the last piece has the final counts.
	if e.messageID != "" && r.last[e.messageID] != r.line {
		delete(m, "usage")
	}
	m["role"] = json.RawMessage(`"assistant"`)
	if e.readMessage(t, m); o.isTrue("isApiErrorMessage") { // the error was shown to the user but not sent to the model
		for _, b := range blocksOf(m.get("content")) {
			e.ErrorMessage = cmp.Or(e.ErrorMessage, b.text("text"))
		}
		e.parts, e.callIDs, e.UsageMetadata = nil, nil, nil
	}
}
