package sessionfile

import (
	"encoding/json"
	"slices"
)

// claudeReader reads transcripts of Claude Code.
type claudeReader struct {
	id       string
	agent    string // of a subagent's file: its id
	started  bool
	names    map[string]string // of calls, by id
	messages map[string]bool   // whose usage has been told
	boundary *node             // the newest mark of a compaction, until its summary comes
	keeps    []string          // what that says is kept
	last     *claudeLine
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

type claudeBlock struct {
	Type           string
	Text, Thinking json.RawMessage
	ID, Name       string
	Input          json.RawMessage
	ToolUseID      string `json:"tool_use_id"`
	Content        json.RawMessage
	IsError        bool `json:"is_error"`
	Source         struct {
		Type      string
		MediaType json.RawMessage `json:"media_type"`
		Data      json.RawMessage
	}
}

func (r *claudeReader) session() string {
	if r.id != "" && r.agent != "" {
		return r.id + "-agent-" + r.agent
	}
	return r.id
}

func (r *claudeReader) read(line []byte, t *tree) entry {
	var l claudeLine
	r.last = nil
	if !decode(line, &l) {
		return entry{author: "system"}
	}
	if l.SessionID != "" {
		r.id = l.SessionID // a file may begin with lines of the session that it continues
	}
	e := entry{id: l.UUID, time: timeOf(l.Timestamp), author: "system", message: l.Message}
	if l.UUID == "" {
		return e
	}
	if !r.started {
		r.started = true
		if l.IsSidechain {
			r.agent = l.AgentID
		}
	}
	r.last = &l
	aside := l.IsSidechain && (r.agent == "" || l.AgentID != r.agent)
	switch l.Type {
	case "user":
		r.user(&e, &l)
	case "assistant":
		r.assistant(&e, &l)
	case "attachment":
		if l.Attachment.Type == "queued_command" { // said while the agent works
			e.author, e.role, e.parts = "user", "user", partsOf(l.Attachment.Prompt, (*claudeBlock).part)
		}
	}
	if aside {
		r.aside(&e, &l)
		return e
	}
	e.place, e.parent = true, r.parent(&l, t)
	e.moves = len(e.parts) > 0
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
	return append(slices.Clone(m.PreservedMessages.UUIDs), m.PreservedSegment.HeadUUID, m.PreservedSegment.TailUUID)
}

// compacted returns where the conversation stood that a boundary ends: at the last message
// that is kept, which some versions confuse with a row that follows another message.
func (l *claudeLine) compacted(t *tree) *node {
	var first *node
	for _, id := range l.preserved() {
		if first = t.nodes[id]; first != nil {
			break
		}
	}
	m := &l.CompactMetadata
	ends := append(slices.Clone(m.PreservedMessages.UUIDs), m.PreservedSegment.TailUUID)
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

func (r *claudeReader) added(n *node) {
	if n != nil && r.last != nil && r.last.isBoundary() {
		r.boundary, r.keeps = n, r.last.preserved()
	}
}

// compaction reads the summary of what stands before its boundary.
func (r *claudeReader) compaction(e *entry, t *tree) {
	e.author, e.prompt, e.compaction = string(ClaudeCode), false, true
	if r.boundary == nil {
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
	r.boundary, r.keeps = nil, nil
}

// aside makes a line that of a subagent, which the main conversation does not see.
func (r *claudeReader) aside(e *entry, l *claudeLine) {
	name := l.AgentID
	if name == "" {
		name = "sidechain"
	}
	e.branch, e.prompt = string(ClaudeCode)+"."+name, false
	if e.author == "user" {
		e.author = string(ClaudeCode) // who asked
	} else if e.author == string(ClaudeCode) {
		e.author = name
	}
}

func (r *claudeReader) user(e *entry, l *claudeLine) {
	var m claudeMessage
	if !decode(l.Message, &m) {
		return
	}
	e.author, e.role = "user", "user"
	e.prompt = true
	e.parts = partsOf(m.Content, func(b *claudeBlock) json.RawMessage {
		if b.Type != "tool_result" {
			return b.part()
		}
		e.known = append(e.known, b.ToolUseID)
		e.author, e.prompt = string(ClaudeCode), false
		texts, images := resultOf(b.Content, (*claudeBlock).given)
		return responsePart(b.ToolUseID, r.names[b.ToolUseID], texts, b.IsError, images)
	})
	if l.IsMeta {
		e.author, e.prompt = string(ClaudeCode), false // the program says it
	}
}

func (r *claudeReader) assistant(e *entry, l *claudeLine) {
	var m claudeMessage
	if !decode(l.Message, &m) {
		return
	}
	e.author, e.model, e.piece = string(ClaudeCode), m.Model, m.ID
	if l.IsAPIErrorMessage { // shown to the user, and not to the model
		for _, block := range elements(m.Content) {
			var b claudeBlock
			if decode(block, &b) && e.errorText == "" {
				e.errorText = textOf(b.Text)
			}
		}
		return
	}
	e.role = "model"
	e.parts = partsOf(m.Content, func(b *claudeBlock) json.RawMessage {
		if b.Type != "tool_use" {
			return b.part()
		}
		r.names[b.ID] = b.Name
		e.calls = append(e.calls, b.ID)
		return callPart(b.ID, b.Name, b.Input, "input")
	})
	if u := m.Usage; u != nil && (m.ID == "" || !r.messages[m.ID]) { // each piece of a message repeats it
		r.messages[m.ID] = true
		e.usage = usage("promptTokenCount", sum(u.InputTokens, u.CacheRead, u.CacheWritten),
			"candidatesTokenCount", u.OutputTokens, "cachedContentTokenCount", u.CacheRead)
	}
}

// part returns what a block of text, thought or image is, or nil.
func (b *claudeBlock) part() json.RawMessage {
	switch {
	case b.Type == "text" && isString(b.Text):
		return textPart(b.Text)
	case b.Type == "thinking" && isString(b.Thinking):
		return thoughtPart(b.Thinking)
	case b.Type == "image" || b.Type == "document":
		return b.data()
	}
	return nil
}

// given returns the text or the image of what a tool gave.
func (b *claudeBlock) given() (text, image json.RawMessage) {
	switch {
	case b.Type == "text" && isString(b.Text):
		return b.Text, nil
	case b.Type == "image":
		return nil, b.data()
	}
	return nil, nil
}

// data returns what an image or a document has in it, or nil.
func (b *claudeBlock) data() json.RawMessage {
	if b.Source.Type != "base64" || !isString(b.Source.Data) {
		return nil
	}
	return dataPart(b.Source.MediaType, b.Source.Data)
}
