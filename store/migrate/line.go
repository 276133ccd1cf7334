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

// storedLine is a line stored in an event: as JSON, as a string, or as base64.
type storedLine struct {
	Format string          `json:"format"`
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   string          `json:"text,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
	Line   int             `json:"line,omitempty"` // number of the line
	Note   string          `json:"note,omitempty"`
}

// lineEncodings returns the possible ways to store a unit, the preferred way first.
func lineEncodings(u *unit) (encodings []storedLine) {
	var compact bytes.Buffer
	if json.Compact(&compact, u.text) == nil && bytes.Equal(compact.Bytes(), u.text) {
		encodings = append(encodings, storedLine{JSON: u.text, Line: u.number})
	}
	if utf8.Valid(u.text) {
		encodings = append(encodings, storedLine{Text: string(u.text), Line: u.number})
	}
	return append(encodings, storedLine{Base64: u.text, Line: u.number})
}

func (k storedLine) bytes() []byte {
	switch {
	case k.JSON != nil:
		return k.JSON
	case k.Text != "":
		return []byte(k.Text)
	}
	return k.Base64
}

func marshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // keep the text of the line unchanged
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// storesLine reports whether an event stores a line byte for byte.
func storesLine(e *patch.Event, k storedLine) bool {
	if metadata, _ := e.Field("customMetadata"); k.JSON != nil {
		return bytes.Contains(metadata, k.JSON)
	}
	line, _ := eventLine(e)
	return bytes.Equal(line.bytes(), k.bytes())
}

// eventLine returns the line stored in an event.
func eventLine(e *patch.Event) (storedLine, bool) {
	metadata, _ := e.Field("customMetadata")
	var found struct {
		Kept storedLine `json:"sessionfile"`
	}
	if json.Unmarshal(metadata, &found) != nil {
		return storedLine{}, false // the metadata belongs to another program
	}
	return found.Kept, found.Kept.bytes() != nil
}

// recordLine returns the line of a session file that a record stores. The record is an event made by a decoder, or a
// patch with the summary of a compaction.
func recordLine(r patch.Record) (storedLine, bool) {
	if e := lineEvent(r); e != nil {
		return eventLine(e)
	}
	return storedLine{}, false
}

// lineEvent returns the record's event that may store a line, or nil.
func lineEvent(r patch.Record) *patch.Event {
	e := r.Event
	// If an event of another patch is copied into this patch, the event keeps its metadata, but this patch has none.
	if r.Patch != nil && r.Patch.Type() == patch.Summarise && r.Patch.CustomMetadata()[lineKey] != nil {
		e = r.Patch.NewEvents()[0]
	}
	return e
}

// WriteLines writes the lines of the session file from which the records were imported, in the order of the file,
// each with a newline. docs/FORMAT.md lists what may differ from the file. Records without a line, such as records
// appended later, are skipped. WriteLines reads all lines into memory before it writes, and stops at the first error.
func WriteLines(w io.Writer, records iter.Seq2[patch.Record, error]) error {
	var lines []storedLine
	for r, err := range records {
		if err != nil {
			return err
		}
		if k, ok := recordLine(r); ok {
			lines = append(lines, k)
		}
	}
	slices.SortStableFunc(lines, func(a, b storedLine) int { return a.Line - b.Line })
	for _, line := range lines {
		if _, err := w.Write(slices.Concat(line.bytes(), []byte{'\n'})); err != nil {
			return err
		}
	}
	return nil
}
