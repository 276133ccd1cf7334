package compaction

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/patch"
)

// Transcript writes events as text, one line a part: who said what, which function was
// called and what it returned. Whatever a part holds, it stays on its line: newlines and
// all other line separators and control characters are escaped, so that what a tool
// returned cannot pass for somebody's turn. Arguments and results of functions longer
// than maxRunes, if that is above 0, are cut, with a note of how much is missing. A call
// with an id that none of the events answers is marked; of a long-running one, what the tool
// itself returned is no answer. Thoughts are left out, and so are events with nothing to
// say, and nil.
func Transcript(events []*patch.Event, maxRunes int) string {
	if slices.Contains(events, nil) {
		events = slices.DeleteFunc(slices.Clone(events), func(e *patch.Event) bool { return e == nil })
	}
	return transcript(events, maxRunes, 0)
}

// transcript cuts texts that are longer than maxText too, if that is above 0.
func transcript(events []*patch.Event, maxRunes, maxText int) string {
	answered, waits := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		for _, id := range e.LongRunningToolIDs() {
			waits[id] = true
		}
		for p := range e.FunctionParts() {
			placeholder := waits[p.ID] && e.Author() != "user"
			answered[p.ID] = answered[p.ID] || p.Response && !placeholder || p.ID == ""
		}
	}
	var b strings.Builder
	for _, e := range events {
		writeEvent(&b, e, maxRunes, maxText, answered)
	}
	return b.String()
}

// transcriptPart is a part of an event's content as far as a transcript needs it.
type transcriptPart struct {
	Text    *string `json:"text"`
	Thought bool    `json:"thought"`
	Call    *struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall"`
	Response *struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
	} `json:"functionResponse"`
	Code *struct {
		Code string `json:"code"`
	} `json:"executableCode"`
	CodeResult *struct {
		Output string `json:"output"`
	} `json:"codeExecutionResult"`
	Data *struct {
		Type string `json:"mimeType"`
		Name string `json:"displayName"`
	} `json:"inlineData"`
	File *struct {
		Type string `json:"mimeType"`
		URI  string `json:"fileUri"`
	} `json:"fileData"`

	other string // JSON of a part of another kind
}

// Fields of a part that say something about it, and nothing by themselves.
var partNotes = []string{"text", "thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}

func (p *transcriptPart) UnmarshalJSON(text []byte) error {
	type plain transcriptPart // without this method
	if err := json.Unmarshal(text, (*plain)(p)); err != nil {
		return err
	}
	if p.Text != nil || p.Call != nil || p.Response != nil || p.Code != nil || p.CodeResult != nil || p.Data != nil || p.File != nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	for _, note := range partNotes {
		delete(fields, note)
	}
	if len(fields) > 0 {
		p.other = string(text)
	}
	return nil
}

// partsOf returns the parts of an event's content. Content of a shape of its own has
// none.
func partsOf(e *patch.Event) []transcriptPart {
	text, ok := e.Field("content")
	if !ok {
		return nil
	}
	var content struct {
		Parts []transcriptPart `json:"parts"`
	}
	if json.Unmarshal(text, &content) != nil {
		return nil
	}
	return content.Parts
}

func writeEvent(b *strings.Builder, e *patch.Event, maxRunes, maxText int, answered map[string]bool) {
	who := oneLine(e.Author())
	if who == "" {
		who = "unknown"
	}
	if IsCompactionEvent(e) {
		who = "summary of earlier events"
	}
	for _, p := range partsOf(e) {
		switch {
		case p.Text != nil && !p.Thought && strings.TrimSpace(*p.Text) != "":
			fmt.Fprintf(b, "%s: %s\n", who, cutRunes(oneLine(strings.TrimSpace(*p.Text)), maxText))
		case p.Call != nil:
			fmt.Fprintf(b, "%s calls %s%s", who, oneLine(p.Call.Name), idNote(p.Call.ID))
			if len(p.Call.Args) > 0 {
				b.WriteString(" " + cutRunes(oneLine(string(p.Call.Args)), maxRunes))
			}
			if !answered[p.Call.ID] {
				b.WriteString(" (never answered)")
			}
			b.WriteByte('\n')
		case p.Response != nil:
			fmt.Fprintf(b, "%s returns%s to %s: %s\n", oneLine(p.Response.Name), idNote(p.Response.ID), who, cutRunes(oneLine(string(p.Response.Response)), maxRunes))
		case p.Code != nil:
			fmt.Fprintf(b, "%s runs code: %s\n", who, cutRunes(oneLine(p.Code.Code), maxRunes))
		case p.CodeResult != nil:
			fmt.Fprintf(b, "code returns to %s: %s\n", who, cutRunes(oneLine(p.CodeResult.Output), maxRunes))
		case p.Data != nil:
			fmt.Fprintf(b, "%s sends data:%s\n", who, spaced(p.Data.Type, p.Data.Name))
		case p.File != nil:
			fmt.Fprintf(b, "%s sends a file:%s\n", who, spaced(p.File.Type, p.File.URI))
		case p.other != "":
			fmt.Fprintf(b, "%s sends: %s\n", who, cutRunes(oneLine(p.other), maxRunes))
		}
	}
}

func idNote(callID string) string {
	if callID == "" {
		return ""
	}
	return " (" + oneLine(callID) + ")"
}

// spaced writes what is there of some words, each after a space.
func spaced(all ...string) string {
	var b strings.Builder
	for _, w := range all {
		if w != "" {
			b.WriteString(" " + oneLine(w))
		}
	}
	return b.String()
}

// hasTranscript reports whether a transcript says anything of the event.
func hasTranscript(e *patch.Event) bool {
	if !e.HasContent() {
		return false
	}
	var b strings.Builder
	writeEvent(&b, e, 1, 1, nil)
	return b.Len() > 0
}

// oneLine escapes what would end a line or steer a terminal. U+2028 and U+2029 separate
// lines; NEL, VT and FF do for some readers, and are control characters.
func oneLine(s string) string {
	clean := true
	for _, r := range s {
		if breaksLine(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteByte(' ')
		case breaksLine(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func breaksLine(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}

// cutRunes cuts a text to so many runes and says how many are missing; 0 is no limit.
func cutRunes(s string, limit int) string {
	if limit <= 0 || len(s) <= limit {
		return s
	}
	n := utf8.RuneCountInString(s)
	if n <= limit {
		return s
	}
	end := 0
	for range limit {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return fmt.Sprintf("%s [… %d more characters]", s[:end], n-limit)
}
