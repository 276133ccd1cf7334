package migrate

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

var pi = Format{
	Name: "pi", Title: "a session file of pi", Versions: "1 to 3 (~/.pi/agent/sessions/*/*.jsonl)",
	Kept:    "branches, compactions, commands that the user ran",
	Omitted: "contents of labels and of changes of the model",
	count: func(b *fileHead) int {
		head := func(o obj) bool { return o.text("type") == "session" && o.has("id") && o.has("timestamp", "cwd") }
		if !b.lines || !b.has(head) {
			return 0
		}
		return b.count(func(o obj) bool { return o.text("type") != "" && o.has("id", "timestamp") })
	},
	reader: func() reader { return reader{read: readPi} },
}

// readPi reads a line of a pi file. In version 1 of the format, entries have no ids and form a sequence.
func readPi(o obj, t *tree) []entry {
	e := entry{id: o.text("id"), time: o.time("timestamp")}
	if o.text("type") == "session" {
		t.session = cmp.Or(t.session, e.id)
		return []entry{e}
	}
	e.inTree, e.becomesLeaf, e.parent = true, true, t.leaf
	parent := o.get("parentId")
	if e.id != "" && !isString(parent) {
		e.parent = nil
	} else if n := t.nodes[unquote(parent)]; e.id != "" && n != nil { // without an id or a known parent, the entry follows the leaf
		e.parent = n
	}
	switch o.text("type") {
	case "message":
		e.readPiMessage(t, o.object("message"))
	case "custom_message":
		e.addProgramText(t, o.get("content"))
	case "branch_summary":
		e.addProgramText(t, o.get("summary"))
	case "compaction": // the compaction covers the messages before the first kept entry
		e.addProgramText(t, o.get("summary"))
		e.compaction = true
		first := t.nodes[o.text("firstKeptEntryId")]
		if i, err := strconv.Atoi(string(o.get("firstKeptEntryIndex"))); first == nil && err == nil && i >= 0 && i < len(t.entries) {
			first = t.entries[i]
		}
		if first != nil {
			e.summary, e.requireKept, e.kept = true, true, []*node{first}
		}
	}
	return []entry{e}
}

// addProgramText adds a text that pi itself wrote for the model.
func (e *entry) addProgramText(t *tree, content json.RawMessage) {
	e.Author, e.role = t.agent, "user"
	e.addContent(t, content)
}

func (e *entry) readPiMessage(t *tree, o obj) {
	switch o.text("role") {
	case "user", "assistant", "toolResult":
		e.readMessage(t, o)
		e.ErrorMessage, e.Interrupted = o.text("errorMessage"), o.text("stopReason") == "aborted"
	case "bashExecution":
		e.Author = "user"
		if !o.isTrue("excludeFromContext") {
			e.role, e.prompt, e.parts = "user", true, []part{{Text: quote(describePiCommand(o))}}
		}
	case "custom", "hookMessage":
		e.addProgramText(t, o.get("content"))
	case "branchSummary", "compactionSummary":
		e.addProgramText(t, o.get("summary"))
	}
}

// describePiCommand describes a command that the user ran, in the words in which pi describes it to the model.
func describePiCommand(o obj) string {
	var b strings.Builder
	b.WriteString("Ran `" + o.text("command") + "`\n")
	if out := o.text("output"); out != "" {
		b.WriteString("```\n" + out + "\n```")
	} else {
		b.WriteString("(no output)")
	}
	if code := string(o.get("exitCode")); o.isTrue("cancelled") {
		b.WriteString("\n\n(command cancelled)")
	} else if code != "" && code != "0" {
		b.WriteString("\n\nCommand exited with code " + code)
	}
	if path := o.text("fullOutputPath"); o.isTrue("truncated") && path != "" {
		b.WriteString("\n\n[Output truncated. Full output: " + path + "]")
	}
	return b.String()
}
