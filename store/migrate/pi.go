package migrate

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

var pi = Format{
	Name: "pi", Title: "a session file of pi", Versions: "1 to 3 (~/.pi/agent/sessions/*/*.jsonl)",
	Kept:    "messages, thoughts, calls, results, images, usage, model, branches, compactions, what the user ran",
	Omitted: "content of labels and changes of the model",
	count: func(b *beginning) int {
		head := func(o object) bool { return o.text("type") == "session" && o.has("id") && o.has("timestamp", "cwd") }
		if !b.lines || !b.has(head) {
			return 0
		}
		return b.count(func(o object) bool { return o.text("type") != "" && o.has("id", "timestamp") })
	},
	reader: func() reader { return reader{read: readPi} },
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

// readPi reads a line of a file of pi. Before version 2 entries have no ids, and follow each other.
func readPi(line []byte, t *tree) []entry {
	var l piLine
	if !decode(line, &l) {
		return nil
	}
	e := entry{id: l.ID, time: rfcTime(l.Timestamp), message: line}
	if l.Type == "session" {
		t.session = cmp.Or(t.session, l.ID)
		return []entry{e}
	}
	e.place, e.moves, e.parent = true, true, t.leaf
	if l.ID != "" && l.ParentID == nil {
		e.parent = nil
	} else if l.ID != "" && t.nodes[*l.ParentID] != nil { // else it is of version 1, or torn off
		e.parent = t.nodes[*l.ParentID]
	}
	switch l.Type {
	case "message":
		if l.Message != nil {
			l.Message.add(&e)
		}
	case "custom_message":
		e.Author, e.role, e.parts = "pi", "user", partsOf(l.Content, nil)
	case "branch_summary":
		e.Author, e.role, e.parts = "pi", "user", summaryOf(l.Summary)
	case "compaction":
		l.compaction(&e, t)
	}
	return []entry{e}
}

// compaction reads a summary of what stands before the first entry that is kept.
func (l *piLine) compaction(e *entry, t *tree) {
	e.Author, e.role, e.compaction, e.parts = "pi", "user", true, summaryOf(l.Summary)
	var first *node
	switch i := l.FirstKeptEntryIndex; {
	case l.FirstKeptEntryID != nil:
		first = t.nodes[*l.FirstKeptEntryID]
	case i != nil && *i >= 0 && *i < len(t.entries):
		first = t.entries[*i]
	}
	if first != nil {
		e.summary, e.strict, e.kept = true, true, []*node{first}
	}
}

// add sets the fields of an entry from a message.
func (m *piMessage) add(e *entry) {
	switch m.Role {
	case "user":
		e.Author, e.role, e.prompt, e.parts = "user", "user", true, partsOf(m.Content, nil)
	case "assistant":
		e.Author, e.role, e.parts = "pi", "model", partsOf(m.Content, func(b *block) []part {
			if b.Type != "toolCall" {
				return nil
			}
			return callOf(b.ID, b.Name, b.Arguments, "arguments")
		})
		e.ModelVersion, e.ErrorMessage, e.Interrupted = m.Model, m.ErrorMessage, m.StopReason == "aborted"
		if u := m.Usage; u != nil {
			e.UsageMetadata = usageOf(map[string][]json.Number{
				"promptTokenCount": {u.Input, u.CacheRead, u.CacheWrite}, "candidatesTokenCount": {u.Output},
				"cachedContentTokenCount": {u.CacheRead}, "totalTokenCount": {u.TotalTokens},
			})
		}
	case "toolResult":
		e.Author, e.role, e.parts = "pi", "user", responseOf(m.ToolCallID, m.ToolName, m.Content, m.IsError)
	case "bashExecution":
		e.Author = "user"
		if !m.ExcludeFromContext {
			e.role, e.prompt, e.parts = "user", true, []part{{Text: quote(m.ran())}}
		}
	case "custom", "hookMessage":
		e.Author, e.role, e.parts = "pi", "user", partsOf(m.Content, nil)
	case "branchSummary", "compactionSummary":
		e.Author, e.role, e.parts = "pi", "user", summaryOf(m.Summary)
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
