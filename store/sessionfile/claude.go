package sessionfile

import (
	"cmp"
	"encoding/json"
	"slices"
)

// claudeReader reads transcripts of Claude Code.
type claudeReader struct {
	agent    string // of a subagent's file: its id
	started  bool
	messages map[string]bool // whose usage has been told
	bounded  bool            // a boundary was read, and its summary was not
	keeps    []string        // the ids that the boundary keeps
}

type claudeLine struct {
	Type, Subtype, UUID, Timestamp, SessionID, AgentID string
	ParentUUID                                         *string
	LogicalParentUUID                                  *string
	IsSidechain, IsMeta, IsCompactSummary              bool
	IsAPIErrorMessage                                  bool
	Message                                            json.RawMessage
	CompactMetadata                                    struct {
		PreservedSegment  struct{ HeadUUID, TailUUID string }
		PreservedMessages struct{ UUIDs []string }
	}
	Attachment struct {
		Type   string
		Prompt json.RawMessage
	}
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

func (r *claudeReader) read(line []byte, t *tree) entry {
	var l claudeLine
	if !decode(line, &l) {
		return entry{}
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
	e := entry{id: l.UUID, time: timeOf(l.Timestamp), message: l.Message}
	if l.UUID == "" {
		return e
	}
	aside := l.IsSidechain && (r.agent == "" || l.AgentID != r.agent)
	switch l.Type {
	case "user":
		r.user(&e, &l, t)
	case "assistant":
		r.assistant(&e, &l, t)
	case "attachment":
		if l.Attachment.Type == "queued_command" { // said while the agent works
			e.Author, e.role, e.parts = "user", "user", partsOf(l.Attachment.Prompt, nil)
		}
	}
	if aside {
		r.aside(&e, &l)
		return e
	}
	e.place, e.parent = true, r.parent(&l, t)
	e.moves = len(e.parts) > 0
	if l.isBoundary() {
		r.bounded, r.keeps = true, l.preserved()
	}
	if l.IsCompactSummary {
		r.compaction(&e, t)
	}
	return e
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
	e.Author, e.prompt, e.compaction = string(ClaudeCode), false, true
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
	e.Branch, e.prompt = string(ClaudeCode)+"."+name, false
	if e.Author == "user" {
		e.Author = string(ClaudeCode) // who asked
	} else if e.Author == string(ClaudeCode) {
		e.Author = name
	}
}

func (r *claudeReader) user(e *entry, l *claudeLine, t *tree) {
	var m claudeMessage
	if !decode(l.Message, &m) {
		return
	}
	e.Author, e.role, e.prompt = "user", "user", true
	e.parts = partsOf(m.Content, func(b *block) []part {
		if b.Type != "tool_result" {
			return nil
		}
		e.known = append(e.known, b.ToolUseID)
		e.Author, e.prompt = string(ClaudeCode), false
		return responseOf(b.ToolUseID, t.names[b.ToolUseID], b.Content, b.IsError)
	})
	if l.IsMeta {
		e.Author, e.prompt = string(ClaudeCode), false // the program says it
	}
}

func (r *claudeReader) assistant(e *entry, l *claudeLine, t *tree) {
	var m claudeMessage
	if !decode(l.Message, &m) {
		return
	}
	e.Author, e.ModelVersion, e.piece = string(ClaudeCode), m.Model, m.ID
	if l.IsAPIErrorMessage { // shown to the user, and not to the model
		for _, b := range blocksOf(m.Content) {
			e.ErrorMessage = cmp.Or(e.ErrorMessage, textOf(b.Text))
		}
		return
	}
	e.role = "model"
	e.parts = partsOf(m.Content, func(b *block) []part {
		if b.Type != "tool_use" {
			return nil
		}
		t.names[b.ID] = b.Name
		e.calls = append(e.calls, b.ID)
		return callOf(b.ID, b.Name, b.Input, "input")
	})
	if u := m.Usage; u != nil && (m.ID == "" || !r.messages[m.ID]) { // each piece of a message repeats it
		r.messages[m.ID] = true
		e.UsageMetadata = usageOf(map[string][]json.Number{
			"promptTokenCount":     {u.InputTokens, u.CacheRead, u.CacheWritten},
			"candidatesTokenCount": {u.OutputTokens}, "cachedContentTokenCount": {u.CacheRead},
		})
	}
}
