package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// agentClaude is the author of what Claude Code does.
const agentClaude = "claude-code"

var claudeCode = Format{
	Name: agentClaude, Title: "a transcript of Claude Code",
	Versions: "1.0 to 2.1 (~/.claude/projects/*/*.jsonl, SESSION/subagents/*.jsonl)",
	Kept:     "messages, thoughts, calls, results, images, attached files, usage, model, rewinds, compactions, subagents (as branches)",
	Omitted:  "content of snapshots, progress and settings",
	count: func(b *beginning) int {
		if !b.lines {
			return 0
		}
		return b.count(func(o object) bool {
			switch o.text("type") {
			case "":
				return false
			case "summary":
				return o.has("leafUuid")
			case "file-history-snapshot":
				return o.has("snapshot")
			case "user", "assistant":
				return o.has("uuid") && o.object("message") != nil
			}
			return o.has("sessionId") || o.has("uuid") && o.has("parentUuid")
		})
	},
	reader: func() reader {
		r := &claudeReader{last: map[string]int{}}
		return reader{r.prepare, r.read}
	},
}

// claudeReader reads transcripts of Claude Code.
type claudeReader struct {
	line    int            // of those that are read
	last    map[string]int // of each message, the last line with usage
	agent   string         // of a subagent's file: its id
	started bool
	bounded bool     // a boundary was read, and its summary was not
	keeps   []string // the ids that the boundary keeps
}

type claudeLine struct {
	Type, Subtype, UUID, Timestamp, SessionID, AgentID string
	ParentUUID                                         *string
	LogicalParentUUID                                  *string
	IsSidechain, IsMeta, IsCompactSummary              bool
	IsAPIErrorMessage                                  bool
	Origin                                             origin
	Message                                            json.RawMessage
	CompactMetadata                                    struct {
		PreservedSegment  struct{ HeadUUID, TailUUID string }
		PreservedMessages struct{ UUIDs []string }
	}
	Attachment claudeAttachment
}

// origin says who said something.
type origin struct{ Kind string }

func (o origin) isProgram() bool { return o.Kind != "" && o.Kind != "human" && o.Kind != "user" }

type claudeAttachment struct {
	Type, CommandMode, Filename, DisplayPath, Path string
	IsMeta                                         bool
	Origin                                         origin
	Prompt, Content, Snippet                       json.RawMessage
}

type claudeMessage struct {
	ID, Role, Model string
	Content         json.RawMessage
	Usage           *struct {
		InputTokens  json.Number `json:"input_tokens"`
		CacheWritten json.Number `json:"cache_creation_input_tokens"`
		CacheRead    json.Number `json:"cache_read_input_tokens"`
		OutputTokens json.Number `json:"output_tokens"`
	}
}

// prepare puts each line behind the one that it follows: lines may be written before that. Of lines at the end whose
// parent is not there, only what users and models say is read: the parent of others is being written.
func (r *claudeReader) prepare(units []unit) []unit {
	type head struct {
		Type, UUID  string
		ParentUUID  *string
		IsSidechain bool
		Message     struct {
			ID    string
			Usage *struct{}
		}
	}
	heads, place := make([]head, len(units)), map[string]int{}
	for i, u := range units {
		h := &heads[i]
		decode(u.json, h)
		if _, ok := place[h.UUID]; !ok && h.UUID != "" {
			place[h.UUID] = i
		}
	}
	for n := len(units) - 1; n > 0; n-- {
		h := &heads[n]
		said := h.Type == "assistant" || h.Type == "user" && !bytes.Contains(units[n].json, []byte("tool_result"))
		if h.ParentUUID == nil || said || h.IsSidechain {
			break
		}
		if _, ok := place[*h.ParentUUID]; ok {
			break
		}
		units = units[:n]
	}
	follow := map[int][]int{} // lines that are before their parent, by the parent
	for i, h := range heads[:len(units)] {
		if h.ParentUUID != nil {
			if j, ok := place[*h.ParentUUID]; ok && j > i && j < len(units) {
				follow[j] = append(follow[j], i)
			}
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
			if h := &heads[i]; h.Message.Usage != nil && place[h.UUID] == i { // no copy
				r.last[h.Message.ID] = len(ordered)
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
	for i := range units { // what is left follows each other in a circle
		take(i)
	}
	return ordered
}

func (r *claudeReader) read(text []byte, t *tree) []entry {
	r.line++
	var l claudeLine
	if !decode(text, &l) {
		return nil
	}
	if l.UUID != "" && !r.started {
		r.started = true
		if l.IsSidechain {
			r.agent = l.AgentID
		}
	}
	if l.SessionID != "" {
		t.session = l.SessionID // a file may begin with lines of the session that it continues
		if r.agent != "" {
			t.session += "-agent-" + r.agent
		}
	}
	e := entry{id: l.UUID, time: rfcTime(l.Timestamp), message: l.Message}
	if l.UUID == "" {
		return []entry{e}
	}
	switch l.Type {
	case "user":
		r.user(&e, &l, t)
	case "assistant":
		r.assistant(&e, &l, t)
	case "attachment":
		l.Attachment.add(&e)
	}
	if l.IsSidechain && (r.agent == "" || l.AgentID != r.agent) {
		r.aside(&e, &l)
		return []entry{e}
	}
	e.place, e.parent = true, r.parent(&l, t)
	e.moves = len(e.parts) > 0
	if l.isBoundary() {
		r.bounded, r.keeps = true, l.preserved()
	}
	if l.IsCompactSummary {
		r.compaction(&e, t)
	}
	return []entry{e}
}

// add makes what is attached to a prompt an entry: what was said while the agent works, or the content of a file.
func (a *claudeAttachment) add(e *entry) {
	e.Author, e.role = agentClaude, "user"
	if a.Type == "queued_command" {
		e.parts = partsOf(a.Prompt, nil)
		if !a.IsMeta && !a.Origin.isProgram() && (a.CommandMode == "" || a.CommandMode == "prompt") && !isClaudesText(a.Prompt) {
			e.Author = "user"
		}
		return
	}
	var inner struct {
		Type    string
		Content json.RawMessage
		File    struct {
			Content, Base64, Type json.RawMessage
		}
	}
	decode(a.Content, &inner)
	name := firstOf(a.Filename, a.DisplayPath, a.Path)
	for _, text := range []json.RawMessage{inner.File.Content, inner.Content, a.Content, a.Snippet} {
		if said := textOf(text); said != "" {
			e.parts = []part{{Text: quote(strings.TrimPrefix(name+"\n", "\n") + said)}}
			return
		}
	}
	if isString(inner.File.Base64) {
		e.parts = []part{{InlineData: &blob{inner.File.Type, inner.File.Base64}}}
	}
}

// programsText are the beginnings of texts that Claude Code says in the user's role.
var programsText = regexp.MustCompile(`^\s*(<(local-command-|bash-std|task-notification|system-reminder)|\[Request interrupted by user)`)

// isClaudesText reports whether all texts of a content are the program's.
func isClaudesText(content json.RawMessage) bool {
	blocks := blocksOf(content)
	return len(blocks) > 0 && !slices.ContainsFunc(blocks, func(b block) bool { return !programsText.MatchString(textOf(b.Text)) })
}

// parent returns what a line follows.
func (r *claudeReader) parent(l *claudeLine, t *tree) *node {
	if l.isBoundary() {
		return l.compacted(t)
	}
	if l.ParentUUID == nil {
		return nil
	}
	if n := t.find(*l.ParentUUID); n != nil {
		return n
	}
	return t.leaf // torn off: it goes on
}

func (l *claudeLine) isBoundary() bool { return l.Type == "system" && l.Subtype == "compact_boundary" }

// preserved returns the ids of what a boundary says is kept, as far as they are told: some
// versions list all, others name the first and the last.
func (l *claudeLine) preserved() []string {
	m := &l.CompactMetadata
	return slices.Concat([]string{m.PreservedSegment.HeadUUID}, m.PreservedMessages.UUIDs, []string{m.PreservedSegment.TailUUID})
}

// compacted returns where the conversation stood that a boundary ends: at the last message
// that is kept, which some versions confuse with a row that follows another message.
func (l *claudeLine) compacted(t *tree) *node {
	var first *node
	ends := l.preserved()
	for _, id := range ends {
		if first = t.nodes[id]; first != nil {
			break
		}
	}
	if l.LogicalParentUUID != nil {
		ends = append(ends, *l.LogicalParentUUID)
	}
	for _, id := range slices.Backward(ends) {
		if n := t.nodes[id]; n != nil && (first == nil || n.follows(first)) {
			return n
		}
	}
	return t.leaf
}

// follows reports whether a node follows another, not too far off.
func (n *node) follows(other *node) bool {
	for i := 0; i < 10_000 && n != nil && n.depth >= other.depth; i++ {
		if n == other {
			return true
		}
		n = n.parent
	}
	return false
}

// compaction reads the summary of what stands before its boundary.
func (r *claudeReader) compaction(e *entry, t *tree) {
	e.Author, e.prompt, e.compaction = agentClaude, false, true
	if !r.bounded {
		// Before there were boundaries, a summary began the conversation anew.
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

// aside makes a line that of a subagent, which the main conversation does not see.
func (r *claudeReader) aside(e *entry, l *claudeLine) {
	name := cmp.Or(l.AgentID, "sidechain")
	e.Branch, e.prompt = agentClaude+"."+name, false
	if e.Author == "user" {
		e.Author = agentClaude // who asked
	} else if e.Author == agentClaude {
		e.Author = name
	}
}

func (r *claudeReader) user(e *entry, l *claudeLine, t *tree) {
	var m claudeMessage
	if !decode(l.Message, &m) {
		return
	}
	m.user(e, t)
	if l.IsMeta || l.Origin.isProgram() || isClaudesText(m.Content) {
		e.Author, e.prompt = agentClaude, false
	}
}

// user makes a message of the user's role an entry.
func (m *claudeMessage) user(e *entry, t *tree) {
	e.Author, e.role, e.prompt = "user", "user", true
	e.parts = partsOf(m.Content, func(b *block) []part {
		if b.Type != "tool_result" {
			return nil
		}
		e.known = append(e.known, b.ToolUseID)
		e.Author, e.prompt = t.agent, false
		return responseOf(b.ToolUseID, t.names[b.ToolUseID], b.Content, b.IsError)
	})
}

func (r *claudeReader) assistant(e *entry, l *claudeLine, t *tree) {
	var m claudeMessage
	if !decode(l.Message, &m) {
		return
	}
	if m.ID != "" && r.last[m.ID] != r.line { // each piece of a message repeats its usage, which the last one has whole
		m.Usage = nil
	}
	e.piece = m.ID
	m.assistant(e, t)
	if l.IsAPIErrorMessage { // shown to the user, and not to the model
		for _, b := range blocksOf(m.Content) {
			e.ErrorMessage = firstOf(e.ErrorMessage, textOf(b.Text))
		}
		e.parts, e.calls, e.UsageMetadata = nil, nil, nil
	}
}

// assistant makes a message of the model's role an entry.
func (m *claudeMessage) assistant(e *entry, t *tree) {
	e.Author, e.ModelVersion, e.role = t.agent, m.Model, "model"
	e.parts = partsOf(m.Content, func(b *block) []part {
		if !strings.HasSuffix(b.Type, "tool_use") {
			return nil
		}
		t.names[b.ID] = b.Name
		e.calls = append(e.calls, b.ID)
		return callOf(b.ID, b.Name, b.Input, "input")
	})
	if u := m.Usage; u != nil {
		e.UsageMetadata = usageOf(map[string][]json.Number{
			"promptTokenCount":     {u.InputTokens, u.CacheRead, u.CacheWritten},
			"candidatesTokenCount": {u.OutputTokens}, "cachedContentTokenCount": {u.CacheRead},
		})
	}
}
