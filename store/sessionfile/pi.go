package sessionfile

import (
	"encoding/json"
	"strconv"
	"strings"
)

// piReader reads files of pi. Before version 2 entries had no ids, and followed each other.
type piReader struct {
	id      string
	entries []*node // by their number in the file; that of the header is nil
}

type piLine struct {
	Type, ID, Timestamp string
	ParentID            *string
	Message             *piMessage
	Summary             json.RawMessage
	FirstKeptEntryID    *string
	FirstKeptEntryIndex *int
	Content             json.RawMessage
}

type piMessage struct {
	Role       string
	Content    json.RawMessage
	ToolCallID string
	ToolName   string
	IsError    bool
	Usage      *struct{ Input, Output, CacheRead, CacheWrite, TotalTokens json.Number }
	Model      string
	StopReason string

	ErrorMessage string

	Command            json.RawMessage
	Output             json.RawMessage
	ExitCode           *int
	Cancelled          bool
	Truncated          bool
	FullOutputPath     string
	ExcludeFromContext bool

	Summary json.RawMessage
}

type piBlock struct {
	Type           string
	Text, Thinking json.RawMessage
	Data, MimeType json.RawMessage
	ID, Name       string
	Arguments      json.RawMessage
}

func (r *piReader) session() string { return r.id }

func (r *piReader) added(n *node) { r.entries = append(r.entries, n) }

func (r *piReader) read(line []byte, t *tree) entry {
	var l piLine
	if !decode(line, &l) {
		return entry{author: "system"}
	}
	e := entry{id: l.ID, time: timeOf(l.Timestamp), author: "system", message: line}
	if l.Type == "session" {
		if r.id == "" {
			r.id = l.ID
		}
		return e
	}
	e.place, e.moves, e.parent = true, true, t.leaf
	switch {
	case l.ID == "" || l.ParentID != nil && t.nodes[*l.ParentID] == nil: // of version 1, or torn off
	case l.ParentID == nil:
		e.parent = nil
	default:
		e.parent = t.nodes[*l.ParentID]
	}
	switch l.Type {
	case "message":
		if l.Message != nil {
			r.message(&e, l.Message)
		}
	case "custom_message":
		e.author, e.role, e.parts = string(Pi), "user", partsOf(l.Content, (*piBlock).part)
	case "branch_summary":
		e.author, e.role = string(Pi), "user"
		if isString(l.Summary) {
			e.parts = []json.RawMessage{textPart(l.Summary)}
		}
	case "compaction":
		r.compaction(&e, &l, t)
	}
	return e
}

// compaction reads a summary of what stands before the first entry that is kept.
func (r *piReader) compaction(e *entry, l *piLine, t *tree) {
	e.author, e.role, e.compaction = string(Pi), "user", true
	if !isString(l.Summary) {
		return
	}
	e.parts = []json.RawMessage{textPart(l.Summary)}
	var first *node
	switch i := l.FirstKeptEntryIndex; {
	case l.FirstKeptEntryID != nil:
		first = t.nodes[*l.FirstKeptEntryID]
	case i != nil && *i >= 0 && *i < len(r.entries):
		first = r.entries[*i]
	}
	if first != nil {
		e.summary, e.strict, e.kept = true, true, []*node{first}
	}
}

func (r *piReader) message(e *entry, m *piMessage) {
	switch m.Role {
	case "user":
		e.author, e.role, e.prompt, e.parts = "user", "user", true, partsOf(m.Content, (*piBlock).part)
	case "assistant":
		e.author, e.role, e.parts = string(Pi), "model", partsOf(m.Content, (*piBlock).part)
		e.model, e.errorText, e.interrupted = m.Model, m.ErrorMessage, m.StopReason == "aborted"
		if u := m.Usage; u != nil {
			e.usage = usage("promptTokenCount", sum(u.Input, u.CacheRead, u.CacheWrite), "candidatesTokenCount", u.Output,
				"cachedContentTokenCount", u.CacheRead, "totalTokenCount", u.TotalTokens)
		}
	case "toolResult":
		texts, images := resultOf(m.Content, (*piBlock).given)
		e.author, e.role = string(Pi), "user"
		e.parts = []json.RawMessage{responsePart(m.ToolCallID, m.ToolName, texts, m.IsError, images)}
	case "bashExecution":
		e.author = "user"
		if !m.ExcludeFromContext {
			e.role, e.prompt, e.parts = "user", true, []json.RawMessage{textPart(raw(m.ran()))}
		}
	case "custom", "hookMessage":
		e.author, e.role, e.parts = string(Pi), "user", partsOf(m.Content, (*piBlock).part)
	case "branchSummary", "compactionSummary":
		e.author, e.role = string(Pi), "user"
		if isString(m.Summary) {
			e.parts = []json.RawMessage{textPart(m.Summary)}
		}
	}
}

// ran says what a command did that the user ran, as pi says it to its model.
func (m *piMessage) ran() string {
	var b strings.Builder
	b.WriteString("Ran `" + textOf(m.Command) + "`\n")
	if out := textOf(m.Output); out != "" {
		b.WriteString("```\n" + out + "\n```")
	} else {
		b.WriteString("(no output)")
	}
	if m.Cancelled {
		b.WriteString("\n\n(command cancelled)")
	} else if m.ExitCode != nil && *m.ExitCode != 0 {
		b.WriteString("\n\nCommand exited with code " + strconv.Itoa(*m.ExitCode))
	}
	if m.Truncated && m.FullOutputPath != "" {
		b.WriteString("\n\n[Output truncated. Full output: " + m.FullOutputPath + "]")
	}
	return b.String()
}

// part returns what a block is, or nil.
func (b *piBlock) part() json.RawMessage {
	switch {
	case b.Type == "text" && isString(b.Text):
		return textPart(b.Text)
	case b.Type == "thinking" && isString(b.Thinking):
		return thoughtPart(b.Thinking)
	case b.Type == "image" && isString(b.Data):
		return dataPart(b.MimeType, b.Data)
	case b.Type == "toolCall":
		return callPart(b.ID, b.Name, b.Arguments, "arguments")
	}
	return nil
}

// given returns the text or the image of what a tool gave.
func (b *piBlock) given() (text, image json.RawMessage) {
	switch {
	case b.Type == "text" && isString(b.Text):
		return b.Text, nil
	case b.Type == "image" && isString(b.Data):
		return nil, dataPart(b.MimeType, b.Data)
	}
	return nil, nil
}
