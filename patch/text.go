package patch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// TextVersion is the version of the text form that [WriteHeader] writes.
const TextVersion = 1

// DefaultMaxLineBytes is the default of [Decoder.MaxLineBytes]. The largest record that stores accept by
// default fits, including its seq and white space.
const DefaultMaxLineBytes = 17 << 20

// LineError reports the file and the line of an error in the text form. It wraps the cause. The cause is an
// error of the reader, or it matches [ErrInvalid] or [ErrTooLarge].
type LineError struct {
	File string
	Line int // starts at 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Err }

// Decoder reads a log in the text form: one JSON object per line, after an optional header line. It is not safe
// for concurrent use.
type Decoder struct {
	// MaxLineBytes is the maximum length of a line. If it is 0, the maximum is [DefaultMaxLineBytes].
	MaxLineBytes int

	Line int // number of the last line read, from 1

	r       *bufio.Reader
	file    string
	ids     map[[2]uint64]int // line of each id; the keys are 128-bit hashes, because a file can contain many long ids
	seeds   [2]maphash.Seed
	initial map[string]Value
	header  bool
	line    []byte // the buffer of readLine
	pending []byte // first line of the input, if it is not a header
	started bool
	err     error
}

// NewDecoder returns a decoder that reads from r. The argument file is the name of the input in errors.
func NewDecoder(r io.Reader, file string) *Decoder {
	d := &Decoder{r: bufio.NewReaderSize(r, 64<<10), file: file, ids: map[[2]uint64]int{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	if r == nil {
		d.fail(fieldErr("", "the reader is nil"))
	}
	return d
}

// InitialState reads the header and returns the initial state. If there is no header, ok is false. The caller
// owns the map.
func (d *Decoder) InitialState() (state map[string]Value, ok bool, err error) {
	if err := d.start(); err != nil {
		return nil, false, err
	}
	return maps.Clone(d.initial), d.header, nil
}

// Next returns the next record. If the line has no seq, Seq is 0.
//
// A missing id is derived from the number and content of the line, also for an event that a patch adds. Reading
// the same file again therefore gives the same ids.
//
// At the end, the error is [io.EOF]. Any other error is a *[LineError], and later calls return it again. A
// repeated id is an error. An object without any known field of an event is also an error.
func (d *Decoder) Next() (Record, error) {
	if err := d.start(); err != nil {
		return Record{}, err
	}
	text := d.pending
	d.pending = nil
	if text == nil {
		var err error
		if text, err = d.readLine(); err != nil {
			return Record{}, d.fail(err)
		}
	}
	rec, err := ParseRecord(text)
	if err != nil {
		return Record{}, d.fail(err)
	}
	if rec.Event != nil && rec.Event.field("patchlog") != nil {
		return Record{}, d.fail(fieldErr("patchlog", "a header is allowed on the first line only"))
	}
	if rec.Event != nil && !rec.Event.hasKnownField() {
		return Record{}, d.fail(fieldErr("", "the object has none of an event's fields, such as id, author or content: %s", clip(text)))
	}
	rec = d.fillIDs(rec, text)
	for id := range rec.IDs() {
		sum := [2]uint64{maphash.String(d.seeds[0], id), maphash.String(d.seeds[1], id)}
		if first, ok := d.ids[sum]; ok {
			return Record{}, d.fail(fieldErr("id", "the id %q is already used on line %d; an id must be unique in a log", id, first))
		}
		d.ids[sum] = d.Line
	}
	return rec, nil
}

// hasKnownField reports whether the event has a field that ADK's events have.
func (e *Event) hasKnownField() bool {
	if e.timed || e.id+e.invocationID+e.author+e.branch+e.scope != "" {
		return true
	}
	for name := range e.Fields() {
		if knownFields[name] {
			return true
		}
	}
	return false
}

// knownFields contains the names of all fields of ADK's events. Names of the identity are included because an
// empty field of the identity stays in the JSON.
var knownFields = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range slices.Concat(identityNames, fieldNames, []string{
		"groundingMetadata", "citationMetadata", "logprobsResult", "avgLogprobs", "inputTranscription", "outputTranscription",
		"liveSessionResumptionUpdate", "sessionResumptionHandle", "cacheMetadata", "modelVersion", "interactionId",
		"turnComplete", "finishReason", "errorCode", "errorMessage", "requestedInput", "nodeInfo",
	}) {
		names[name] = true
	}
	return names
}()

func (d *Decoder) fail(err error) error {
	if err != io.EOF {
		err = &LineError{File: d.file, Line: d.Line, Err: err}
	}
	d.err = err
	return err
}

// start reads the first line and detects a header.
func (d *Decoder) start() error {
	if d.started || d.err != nil {
		return d.err
	}
	d.started = true
	text, err := d.readLine()
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return d.fail(err)
	}
	isHeader, err := d.readHeader(text)
	if err != nil {
		return d.fail(err)
	}
	if !isHeader {
		d.pending = text
	}
	return nil
}

func (d *Decoder) readHeader(text []byte) (bool, error) {
	text, err := jsonvalue.Parse(text)
	if err != nil { // Next will report this error
		return false, nil
	}
	version := jsonvalue.Member(text, "patchlog")
	if version == nil {
		return false, nil
	}
	if string(version) != strconv.Itoa(TextVersion) {
		return false, fieldErr("patchlog", "version %s of the text form is not supported; this program supports version %d", clip(version), TextVersion)
	}
	d.header = true
	state := jsonvalue.Member(text, "initialState")
	if state != nil && jsonvalue.KindOf(state) != jsonvalue.Object {
		return false, fieldErr("initialState", "want an object, not %s", clip(state))
	}
	d.initial = map[string]Value{}
	for k, v := range jsonvalue.Members(state) {
		if len(d.initial) == MaxStateKeys {
			return false, tooMany("initialState", "keys", MaxStateKeys)
		}
		d.initial[k] = Value{text: v}
	}
	return true, nil
}

// readLine returns the next non-blank line without its newline. The result is valid until the next call.
func (d *Decoder) readLine() ([]byte, error) {
	limit := d.MaxLineBytes
	if limit == 0 {
		limit = DefaultMaxLineBytes
	}
	for {
		line := d.line[:0]
		for {
			part, err := d.r.ReadSlice('\n')
			if err == io.EOF && len(line)+len(part) == 0 {
				return nil, err
			}
			if len(line) == 0 {
				d.Line++
			}
			line = append(line, part...)
			if len(bytes.TrimRight(line, "\r\n")) > limit {
				return nil, fmt.Errorf("%w: the line is longer than %d bytes", ErrTooLarge, limit)
			}
			if err == nil || err == io.EOF {
				break
			}
			if err != bufio.ErrBufferFull {
				return nil, err
			}
		}
		d.line = line
		if line = bytes.Trim(line, " \t\r\n"); len(line) > 0 {
			return line, nil
		}
	}
}

// lineIDNamespace is the namespace of the ids that are derived from lines.
var lineIDNamespace = uuid.MustParse("a3c6a1c4-6d0c-5c9e-8a55-2f1b8e0c7d11")

// fillIDs derives missing ids from the number and content of the line.
func (d *Decoder) fillIDs(rec Record, text []byte) Record {
	complete := true
	for id := range rec.IDs() {
		complete = complete && id != ""
	}
	if complete {
		return rec
	}
	if compact, err := jsonvalue.Parse(text); err == nil {
		text = compact
	}
	first := uuid.NewSHA1(lineIDNamespace, fmt.Appendf(nil, "%d/1:%s", d.Line, text))
	n := 0
	next := func() string {
		if n++; n == 1 {
			return first.String()
		}
		return uuid.NewSHA1(first, strconv.AppendInt(nil, int64(n), 10)).String()
	}
	return rec.mapIdentities(func(e identity) identity { return e.complete(next, time.Time{}) })
}

// WriteHeader writes the header line of the text form. The argument redacted lists the names of the redaction
// patterns that were applied to the records, such as "card". Decoders ignore this list.
func WriteHeader(w io.Writer, initialState map[string]Value, redacted ...string) error {
	b := strconv.AppendInt([]byte(`{"patchlog":`), TextVersion, 10)
	if len(redacted) > 0 {
		names, err := json.Marshal(redacted)
		if err != nil {
			return err
		}
		b = append(append(b, `,"redacted":`...), names...)
	}
	b = append(b, `,"initialState":{`...)
	for _, k := range slices.Sorted(maps.Keys(initialState)) {
		if !utf8.ValidString(k) {
			return fieldErr("initialState", "the key %q is not valid UTF-8", k)
		}
		b = append(jsonvalue.AppendKey(b, k), initialState[k].json()...)
	}
	return writeLine(w, append(b, "}}"...))
}

// WriteRecord writes a record as one line of the text form. A seq of 0 is omitted. WriteRecord calls w.Write
// once.
func WriteRecord(w io.Writer, r Record) error {
	text, err := r.MarshalJSON()
	if err != nil {
		return err
	}
	return writeLine(w, text)
}

func writeLine(w io.Writer, text []byte) error {
	if w == nil {
		return fieldErr("", "the writer is nil")
	}
	_, err := w.Write(append(text, '\n'))
	return err
}
