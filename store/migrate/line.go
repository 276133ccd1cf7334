package migrate

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"slices"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/patch"
)

// lineKey is the key of the importer's data in the custom metadata of events and patches.
const lineKey = "sessionfile"

// kept is a line stored in an event: as JSON, as a string, or as base64.
type kept struct {
	Format string          `json:"format"`
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   string          `json:"text,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
	Line   int             `json:"line,omitempty"` // number of the line
	Note   string          `json:"note,omitempty"`
}

// keptOf returns the possible ways to store a unit, the preferred way first.
func keptOf(u *unit) (ways []kept) {
	var compact bytes.Buffer
	if json.Compact(&compact, u.text) == nil && bytes.Equal(compact.Bytes(), u.text) {
		ways = append(ways, kept{JSON: u.text, Line: u.number})
	}
	if utf8.Valid(u.text) {
		ways = append(ways, kept{Text: string(u.text), Line: u.number})
	}
	return append(ways, kept{Base64: u.text, Line: u.number})
}

func (k kept) bytes() []byte {
	switch {
	case k.JSON != nil:
		return k.JSON
	case k.Text != "":
		return []byte(k.Text)
	}
	return k.Base64
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // keep the text unchanged
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// keeps reports whether an event stores a line byte for byte.
func keeps(e *patch.Event, k kept) bool {
	if metadata, _ := e.Field("customMetadata"); k.JSON != nil {
		return bytes.Contains(metadata, k.JSON)
	}
	line, _ := lineIn(e)
	return bytes.Equal(line.bytes(), k.bytes())
}

// lineIn returns the line stored in an event.
func lineIn(e *patch.Event) (kept, bool) {
	metadata, _ := e.Field("customMetadata")
	var found struct {
		Kept kept `json:"sessionfile"`
	}
	if json.Unmarshal(metadata, &found) != nil {
		return kept{}, false // the metadata belongs to another program
	}
	return found.Kept, found.Kept.bytes() != nil
}

// lineOf returns the line of a session file that a record stores. The record is an event made by a decoder, or a
// patch with the summary of a compaction.
func lineOf(r patch.Record) (kept, bool) {
	if e := lineEvent(r); e != nil {
		return lineIn(e)
	}
	return kept{}, false
}

// lineEvent returns the record's event that may store a line, or nil.
func lineEvent(r patch.Record) *patch.Event {
	e := r.Event
	if r.Patch != nil && r.Patch.Type() == patch.Summarise && r.Patch.CustomMetadata()[lineKey] != nil { // if an event is copied into another patch, the event keeps the metadata, but that patch has none
		e = r.Patch.NewEvents()[0]
	}
	return e
}

// WriteLines writes the lines of the session file from which the records were imported, in the order of the file,
// each with a newline. docs/FORMAT.md lists what may differ from the file. Records without a line, such as records
// appended later, are skipped. WriteLines reads all lines into memory before it writes, and stops at the first error.
func WriteLines(w io.Writer, records iter.Seq2[patch.Record, error]) error {
	var lines []kept
	for r, err := range records {
		if err != nil {
			return err
		}
		if k, ok := lineOf(r); ok {
			lines = append(lines, k)
		}
	}
	slices.SortStableFunc(lines, func(a, b kept) int { return a.Line - b.Line })
	for _, line := range lines {
		if _, err := w.Write(slices.Concat(line.bytes(), []byte{'\n'})); err != nil {
			return err
		}
	}
	return nil
}
