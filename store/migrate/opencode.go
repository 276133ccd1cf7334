package migrate

import (
	"encoding/json"
	"strings"
)

var opencode = Format{
	Name: "opencode", Title: "a session that opencode exports", Versions: "0.6 to 1.x (opencode export SESSION)",
	Kept:    "messages, reasoning, calls, results, files, usage, model, compactions",
	Omitted: "session's title and cost, steps, snapshots, diffs, what was reverted and not yet removed",
	count: func(b *beginning) int {
		is := func(o object) bool { return o.object("info").text("role") != "" && o["parts"] != nil }
		if n := countOf(b.items, is); n > 0 && 2*n >= len(b.items) {
			return len(b.objects)
		}
		return b.count(is)
	},
	reader: func() reader { return reader{read: readOpencode} },
	lists:  true,
}

type opencodeMessage struct {
	Info struct {
		ID, SessionID, Role, ModelID string
		Summary                      json.RawMessage
		Time                         struct{ Created json.Number }
		Tokens                       *struct {
			Input, Output, Reasoning json.Number
			Cache                    struct{ Read, Write json.Number }
		}
		Error struct {
			Name string
			Data struct{ Message string }
		}
	}
	Parts []opencodePart
}

type opencodePart struct {
	Type, CallID, Tool, Mime, URL string
	Text                          json.RawMessage
	Synthetic, Ignored            bool
	State                         struct {
		Status               string
		Input, Output, Error json.RawMessage
		Attachments          []opencodePart
	}
}

// readOpencode reads a message, which has the calls in it and their results.
func readOpencode(text []byte, t *tree) []entry {
	var m opencodeMessage
	if !decode(text, &m) {
		return nil
	}
	t.session = firstOf(t.session, m.Info.SessionID)
	e := entry{id: m.Info.ID, message: text, place: true, goesOn: true, time: unixTime(m.Info.Time.Created, 1000)}
	results := entry{place: true, goesOn: true, time: e.time, role: "user"}
	results.Author = t.agent
	e.Author, e.role = t.agent, "user"
	switch m.Info.Role {
	case "user":
		for _, p := range m.Parts {
			if p.Type == "text" && !p.Synthetic && !p.Ignored { // the program adds texts of its own
				e.Author, e.prompt = "user", true
			}
		}
	case "assistant":
		e.role, e.ModelVersion, e.ErrorMessage = "model", m.Info.ModelID, firstOf(m.Info.Error.Data.Message, m.Info.Error.Name)
		if u := m.Info.Tokens; u != nil {
			e.UsageMetadata = usageOf(map[string][]json.Number{
				"promptTokenCount": {u.Input, u.Cache.Read, u.Cache.Write}, "candidatesTokenCount": {u.Output},
				"cachedContentTokenCount": {u.Cache.Read}, "thoughtsTokenCount": {u.Reasoning},
			})
		}
	}
	for _, p := range m.Parts {
		e.parts = append(e.parts, p.content()...)
		if p.Type != "tool" {
			continue
		}
		e.calls, results.known = append(e.calls, p.CallID), append(results.known, p.CallID)
		e.parts = append(e.parts, callOf(p.CallID, p.Tool, p.State.Input, "input")...)
		result, failed := p.State.Output, p.State.Status == "error"
		if failed {
			result = p.State.Error
		} else if p.State.Status != "completed" {
			continue
		}
		answer := responseOf(p.CallID, p.Tool, result, failed)
		for _, file := range p.State.Attachments {
			answer[0].Response.Parts = append(answer[0].Response.Parts, file.content()...)
		}
		results.parts = append(results.parts, answer...)
	}
	if string(m.Info.Summary) == "true" { // of all before
		e.role, e.compaction, e.summary = "user", true, true
	}
	if len(results.parts) == 0 {
		return []entry{e}
	}
	return []entry{e, results}
}

// content returns what a part says, besides calls.
func (p *opencodePart) content() []part {
	kind, data, inline := strings.Cut(strings.TrimPrefix(p.URL, "data:"), ";base64,")
	switch {
	case (p.Type == "text" || p.Type == "reasoning") && textOf(p.Text) != "" && !p.Ignored:
		return []part{{Text: p.Text, Thought: p.Type == "reasoning"}}
	case p.Type == "file" && inline:
		return []part{{InlineData: &blob{quote(firstOf(p.Mime, kind)), quote(data)}}}
	case p.Type == "file" && p.URL != "":
		return []part{{FileData: &fileData{p.URL}}}
	}
	return nil
}
