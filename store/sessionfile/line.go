package sessionfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/patchlog-dev/patchlog/patch"
)

// metadataKey is where an event and a patch of a session file have what the package says of
// them, in their custom metadata.
const metadataKey = "sessionfile"

// kept is a line as an event keeps it: as JSON, in which strings that the content has too
// are empty, or as bytes.
type kept struct {
	Format Format          `json:"format"`
	JSON   json.RawMessage `json:"json,omitempty"`
	Moved  []int           `json:"moved,omitempty"` // pairs: a string of JSON, and that of the content which stands for it
	Base64 []byte          `json:"base64,omitempty"`
	Note   string          `json:"note,omitempty"`
}

// minMoved is how long a string, with its quotes, must be to be kept once.
const minMoved = 48

// move takes out of a line what the content has too. Both are compact JSON.
func (k *kept) move(line, content []byte) {
	at := map[string]int{}
	i := 0
	for s := range stringsOf(content) {
		if text := content[s.start:s.end]; len(text) >= minMoved {
			if _, ok := at[string(text)]; !ok {
				at[string(text)] = i
			}
		}
		i++
	}
	var out []byte
	last, n := 0, 0
	for s := range stringsOf(line) {
		if j, ok := at[string(line[s.start:s.end])]; ok {
			out = append(append(out, line[last:s.start]...), `""`...)
			last = s.end
			k.Moved = append(k.Moved, n, j)
		}
		n++
	}
	k.JSON = append(out, line[last:]...)
}

// line returns the line that was kept.
func (k *kept) line(content []byte) ([]byte, error) {
	if k.JSON == nil {
		return k.Base64, nil
	}
	var texts []span
	for s := range stringsOf(content) {
		texts = append(texts, s)
	}
	var out []byte
	last, n, rest := 0, 0, k.Moved
	for s := range stringsOf(k.JSON) {
		if len(rest) >= 2 && rest[0] == n {
			j := rest[1]
			if j < 0 || j >= len(texts) {
				return nil, fmt.Errorf("%w: customMetadata/%s: the content has no string %d", patch.ErrInvalid, metadataKey, j)
			}
			out = append(append(out, k.JSON[last:s.start]...), content[texts[j].start:texts[j].end]...)
			last, rest = s.end, rest[2:]
		}
		n++
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: customMetadata/%s: the line has no string %d", patch.ErrInvalid, metadataKey, rest[0])
	}
	return append(out, k.JSON[last:]...), nil
}

type span struct{ start, end int }

// stringsOf yields where the strings of compact JSON stand, keys included.
func stringsOf(text []byte) iter.Seq[span] {
	return func(yield func(span) bool) {
		for i := 0; i < len(text); i++ {
			if text[i] != '"' {
				continue
			}
			start := i
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if !yield(span{start, min(i+1, len(text))}) {
				return
			}
		}
	}
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

// Line returns the line of a session file that a record holds, and whether it holds one:
// the events of a [Decoder] do, and its patches that put in the summary of a compaction. The
// line is equal to that of the file: byte for byte, but for white space between the
// elements of its JSON. The error matches [patch.ErrInvalid] if the record has been tampered
// with.
func Line(r patch.Record) (line []byte, ok bool, err error) {
	e := r.Event
	if r.Patch != nil {
		if r.Patch.Type() != patch.Summarise || r.Patch.CustomMetadata()[metadataKey] == nil {
			return nil, false, nil // a copy of an event has its metadata
		}
		e = r.Patch.NewEvents()[0]
	}
	if e == nil {
		return nil, false, nil
	}
	metadata, _ := e.Field("customMetadata")
	var found struct {
		Kept *kept `json:"sessionfile"`
	}
	if json.Unmarshal(metadata, &found) != nil || found.Kept == nil || found.Kept.JSON == nil && found.Kept.Base64 == nil {
		return nil, false, nil // another program's metadata
	}
	content, _ := e.Field("content")
	if line, err = found.Kept.line(content); err != nil {
		return nil, false, fmt.Errorf("event %q: %w", e.ID(), err)
	}
	return line, true, nil
}

// Lines yields the lines of the session file that the records of a log were read from, in
// their order; see [Line]. Records that hold none, such as what was appended later, are left
// out, and so are blank lines. The first error ends it.
func Lines(records iter.Seq2[patch.Record, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for r, err := range records {
			var line []byte
			var ok bool
			if err == nil {
				line, ok, err = Line(r)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if ok && !yield(line, nil) {
				return
			}
		}
	}
}

// WriteLines writes the lines that [Lines] yields, each with its end.
func WriteLines(w io.Writer, records iter.Seq2[patch.Record, error]) error {
	for line, err := range Lines(records) {
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line[:len(line):len(line)], '\n')); err != nil {
			return err
		}
	}
	return nil
}
