package migrate

import (
	"cmp"
	"slices"
)

var opencode = Format{
	Name: "opencode", Title: "a session that opencode exports", Versions: "0.6 to 1.x (opencode export SESSION)",
	Kept:    "files, compactions",
	Omitted: "title and cost of the session, steps, snapshots, diffs, reverted messages",
	count: func(b *fileHead) int {
		is := func(o obj) bool { return o.text("info.role") != "" && o.get("parts") != nil }
		if n := countMatching(b.items, is); n > 0 && 2*n >= len(b.items) {
			return len(b.objects)
		}
		return b.count(is)
	},
	reader: func() reader { return reader{read: readOpencode} },
	lists:  true,
}

// readOpencode reads a message with its calls and their results.
func readOpencode(o obj, t *tree) []entry {
	info, parts := o.object("info"), []block{}
	for _, text := range o.list("parts") {
		parts = append(parts, block{parse(text), text})
	}
	t.session = cmp.Or(t.session, info.text("sessionID"))
	e := entry{id: info.text("id"), inTree: true, followsLeaf: true, time: unixTime(info.get("time.created"), 1000), role: "user"}
	e.Author = t.agent
	switch info.text("role") {
	case "user": // opencode also adds texts of its own to user messages
		if slices.ContainsFunc(parts, func(p block) bool { return p.text("type") == "text" && !p.isTrue("synthetic") && !p.isTrue("ignored") }) {
			e.Author, e.prompt = "user", true
		}
	case "assistant":
		e.role, e.ModelVersion, e.UsageMetadata = "model", info.text("modelID"), parseUsage(info.object("tokens"))
		e.ErrorMessage = cmp.Or(info.text("error.data.message"), info.text("error.name"))
	}
	for _, p := range parts {
		if e.parts = append(e.parts, p.opencodeParts()...); p.text("type") == "tool" {
			e.addCall(t, p.text("callID"), p.text("tool"), p.get("state.input"), "input")
		}
	}
	for _, p := range parts {
		status := p.text("state.status")
		if p.text("type") != "tool" || status != "error" && status != "completed" {
			continue
		}
		e.addResult(t, p.text("callID"), p.text("tool"), p.get(map[bool]string{true: "state.error", false: "state.output"}[status == "error"]), status == "error")
		for _, file := range p.list("state.attachments") {
			r := e.parts[len(e.parts)-1].Response
			r.Parts = append(r.Parts, block{parse(file), file}.opencodeParts()...)
		}
	}
	if info.isTrue("summary") { // the message is a summary of all earlier messages
		e.role, e.compaction, e.summary = "user", true, true
	}
	return []entry{e}
}

// opencodeParts returns the content of a part, without calls.
func (b block) opencodeParts() []part {
	kind := b.text("type")
	media, isMedia := b.media()
	switch {
	case (kind == "text" || kind == "reasoning") && b.firstString("text") != nil && !b.isTrue("ignored"):
		return []part{{Text: b.get("text"), Thought: kind == "reasoning"}}
	case kind == "file" && isMedia:
		return []part{media}
	}
	return nil
}
