package sessionfile

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"

	"github.com/patchlog-dev/patchlog/patch"
)

// metadataKey is where an event and a patch of a session file have what the package says of
// them, in their custom metadata.
const metadataKey = "sessionfile"

// kept is a line as an event keeps it: as JSON, or as bytes.
type kept struct {
	Format Format          `json:"format"`
	JSON   json.RawMessage `json:"json,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
	Note   string          `json:"note,omitempty"`
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // what came stays as it came
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Line returns the line of a session file that a record holds, and whether it holds one: the events of a [Decoder] do,
// and its patches that insert the summary of a compaction. It equals the file's line byte for byte,
// apart from white space between the elements of its JSON.
func Line(r patch.Record) (line []byte, ok bool) {
	e := r.Event
	if r.Patch != nil && r.Patch.Type() == patch.Summarise && r.Patch.CustomMetadata()[metadataKey] != nil { // a copy of an event has its metadata
		e = r.Patch.NewEvents()[0]
	}
	if e == nil {
		return nil, false
	}
	metadata, _ := e.Field("customMetadata")
	var found struct {
		Kept kept `json:"sessionfile"`
	}
	if json.Unmarshal(metadata, &found) != nil {
		return nil, false // another program's metadata
	}
	line = found.Kept.JSON
	if line == nil {
		line = found.Kept.Base64
	}
	return line, line != nil
}

// WriteLines writes the lines of the session file that the records of a log were read from, in their order, each with its
// end; see [Line]. Records that hold none, such as records appended later, are left out, and so are blank lines. The first
// error ends it.
func WriteLines(w io.Writer, records iter.Seq2[patch.Record, error]) error {
	for r, err := range records {
		if err != nil {
			return err
		}
		line, ok := Line(r)
		if !ok {
			continue
		}
		if _, err := w.Write(append(line[:len(line):len(line)], '\n')); err != nil {
			return err
		}
	}
	return nil
}
