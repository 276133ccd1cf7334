package sessionfile

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/patch"
)

// Decoder reads a session file. It is for one goroutine, and keeps in memory what it has
// read.
type Decoder struct {
	// MaxLineBytes is how long a line may be; 0 means [patch.DefaultMaxLineBytes].
	MaxLineBytes int

	r       io.Reader
	lines   *bufio.Scanner
	file    string
	format  Format
	entry   func(line []byte, t *tree) entry
	tree    *tree
	text    []byte // of the line that is being read
	line    int
	pending []patch.Record               // of the line
	ids     map[string]bool              // that are taken
	says    map[string][sha256.Size]byte // of the lines that have ids: what they say
	report  Report

	started    bool
	clock      time.Time // of the newest line that has a time
	invocation string
	err        error
}

// Report says what a [Decoder] has met so far.
type Report struct {
	Lines       int // that became events, blank ones left out
	Rewinds     int // after which the conversation went on from an earlier place
	Compactions int // whose summaries stand for what they cover
	Left        int // compactions that are events like others, since what they cover cannot be told
	Copies      int // lines that are there once more, of which the copies have no content
	Unreadable  int // lines that are no JSON: events without content
	Unfinished  int // bytes of a last line that was not written to its end, and was left out
}

// NewDecoder returns a decoder that reads a file of a format from r. file is the name that
// errors call it by.
func NewDecoder(r io.Reader, format Format, file string) *Decoder {
	d := &Decoder{file: file, format: format, tree: newTree(), ids: map[string]bool{}, says: map[string][sha256.Size]byte{}}
	if r == nil {
		d.fail(&patch.FieldError{Problem: "the reader is nil"})
		return d
	}
	d.r = r
	if err := format.Validate(); err != nil {
		d.fail(err)
		return d
	}
	d.entry = format.reader()
	d.tree.newID = d.newID
	return d
}

// SessionID returns the id of the session by the lines that were read so far, or "" if they
// do not tell.
func (d *Decoder) SessionID() string { return d.tree.session }

// Report returns what was met so far.
func (d *Decoder) Report() Report { return d.report }

// Next returns the next record: an event, or a patch that the agent's own moves amount to.
// None has a seq. Ids are the lines' own where they have some, else made of the line's
// number and content, so that reading the same file again gives the same records, and
// reading it when it has grown gives them first.
//
// A last line without an end that is no JSON is left out, for the agent may be writing it.
// Any other that is no JSON becomes an event without content. At the end the error is
// [io.EOF]; any other is a *[patch.LineError], and comes again from every later call. It
// matches [patch.ErrInvalid] if the file is not of the format, has no line, or uses an id
// for two messages, and [patch.ErrTooLarge] if a line is longer than MaxLineBytes.
func (d *Decoder) Next() (patch.Record, error) {
	for len(d.pending) == 0 {
		if d.err != nil {
			return patch.Record{}, d.err
		}
		if err := d.read(); err != nil {
			d.fail(err)
		}
	}
	r := d.pending[0]
	d.pending = d.pending[1:]
	return r, nil
}

// WriteText writes all records that are left as the text form, which stores import. It writes
// no header. The error is as from [Decoder.Next], or the writer's.
func (d *Decoder) WriteText(w io.Writer) error {
	for {
		r, err := d.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = patch.WriteRecord(w, r)
		}
		if err != nil {
			return err
		}
	}
}

func (d *Decoder) fail(err error) {
	if err != io.EOF {
		err = &patch.LineError{File: d.file, Line: d.line, Err: err}
	}
	d.err = err
}

// read reads the next line that is not blank.
func (d *Decoder) read() error {
	line, ended, err := d.readLine()
	switch {
	case err == io.EOF && !d.started:
		return &patch.FieldError{Problem: fmt.Sprintf("the file has no line of a session of %s", d.format)}
	case err != nil:
		return err
	}
	text := bytes.TrimSpace(line)
	valid := json.Valid(text)
	if !valid && !ended {
		d.report.Unfinished = len(line)
		if !d.started {
			return &patch.FieldError{Problem: "the first line is not written to its end"}
		}
		return io.EOF
	}
	if !d.started {
		switch is := formatOf(text); is {
		case d.format:
		case "":
			return &patch.FieldError{Problem: fmt.Sprintf("the first line is not one of a session file of %s", d.format)}
		default:
			return &patch.FieldError{Problem: fmt.Sprintf("the file is a session file of %s, not of %s", is, d.format)}
		}
		d.started = true
	}
	d.text = line
	e := entry{eventJSON: eventJSON{Author: string(d.format)}, note: "unreadable"}
	if valid {
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			return err
		}
		d.text = compact.Bytes()
		e = d.entry(d.text, d.tree)
	} else {
		d.report.Unreadable++
	}
	return d.add(e, valid)
}

// readLine returns the next line that is not blank, without its end, and whether it had one. It
// is valid until the next call.
func (d *Decoder) readLine() (line []byte, ended bool, err error) {
	most := d.MaxLineBytes
	if most <= 0 {
		most = patch.DefaultMaxLineBytes
	}
	if d.lines == nil {
		d.lines = bufio.NewScanner(d.r)
		d.lines.Buffer(nil, min(most, math.MaxInt-3)+3) // "\r\n", and the byte that shows that it is full
		d.lines.Split(splitLine)
	}
	for {
		d.line++
		more := d.lines.Scan()
		line, ended = bytes.CutSuffix(d.lines.Bytes(), []byte("\n"))
		switch err := d.lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong), len(bytes.TrimRight(line, "\r")) > most:
			return nil, false, fmt.Errorf("%w: the line is longer than %d bytes", patch.ErrTooLarge, most)
		case err != nil && !ended:
			return nil, false, err
		case !more:
			return nil, false, io.EOF
		case len(bytes.TrimSpace(line)) > 0:
			return line, ended, nil
		}
	}
}

// splitLine is a [bufio.SplitFunc] for lines with their ends.
func splitLine(data []byte, atEOF bool) (int, []byte, error) {
	n := bytes.IndexByte(data, '\n') + 1
	if n == 0 && atEOF {
		n = len(data)
	}
	if n == 0 {
		return 0, nil, nil
	}
	return n, data[:n], nil
}

// Ids of what has none are made in this name space.
var idSpace = uuid.MustParse("b5a0b3a6-6f0e-5a51-9a0e-4a2f8f2d7c30")

// newID returns an id that depends on the line alone: its number, its content, and what it
// is for. The number keeps equal lines apart without a search.
func (d *Decoder) newID(what string) string {
	for n := 0; ; n++ {
		name := append(fmt.Appendf(nil, "%d %s %d:", d.line, what, n), d.text...)
		if id := uuid.NewSHA1(idSpace, name).String(); !d.ids[id] {
			d.ids[id] = true
			return id
		}
	}
}

// add adds what a line means to the log.
func (d *Decoder) add(e entry, valid bool) error {
	if len(e.id) > patch.MaxIDBytes {
		e.id = ""
	}
	switch {
	case e.id == "":
	case !d.ids[e.id]:
		d.says[e.id] = sha256.Sum256(e.message)
	case e.message != nil && d.says[e.id] != sha256.Sum256(e.message):
		return &patch.FieldError{Field: "id", Problem: fmt.Sprintf("%q is that of an earlier line, which says something else", e.id)}
	default:
		e = entry{eventJSON: eventJSON{Author: e.Author, Branch: e.Branch}, time: e.time, note: "copy"}
		d.report.Copies++
	}
	id := e.id
	if id == "" {
		id = d.newID("event")
	}
	d.ids[id] = true
	if e.time.IsZero() {
		e.time = d.clock
	}
	d.clock = e.time
	if e.prompt || d.invocation == "" {
		d.invocation = id
	}
	n, err := d.tree.add(e, d.line, string(d.format), func(e entry) (*patch.Event, error) { return d.event(id, e, valid) })
	if err != nil {
		return err
	}
	d.tree.entries = append(d.tree.entries, n)
	d.report.Lines++
	switch {
	case n != nil && n.summary:
		d.report.Compactions++
	case e.compaction:
		d.report.Left++
	}
	if slices.ContainsFunc(d.tree.out, func(r patch.Record) bool { return r.Patch != nil && r.Patch.Type() != patch.Summarise }) {
		d.report.Rewinds++
	}
	d.pending, d.tree.out = d.tree.out, nil
	return nil
}

// event makes the event of a line, and keeps the line in it: as JSON; else, if the log takes no such JSON, as bytes; and
// if it takes no such content either, the line alone.
func (d *Decoder) event(id string, e entry, valid bool) (*patch.Event, error) {
	out := e.eventJSON
	out.ID, out.InvocationID, out.Author = id, d.invocation, cmp.Or(e.Author, "system")
	if !e.time.IsZero() {
		out.Timestamp = e.time.UTC().Format(time.RFC3339Nano)
	}
	if len(e.parts) > 0 {
		content, err := encode(contentJSON{e.role, e.parts})
		if err != nil {
			return nil, err
		}
		out.Content = content
	}
	if valid {
		if event := d.keeping(out, &kept{Format: d.format, Note: e.note, JSON: d.text}); event != nil {
			return event, nil
		}
	}
	out.Content = cleaned(out.Content)
	bare := eventJSON{ID: id, InvocationID: d.invocation, Author: out.Author, Timestamp: out.Timestamp, Interrupted: e.Interrupted}
	for _, try := range []eventJSON{out, bare} {
		if event := d.keeping(try, &kept{Format: d.format, Note: e.note, Base64: d.text}); event != nil {
			return event, nil
		}
	}
	return nil, &patch.FieldError{Field: "id", Problem: fmt.Sprintf("%.40q cannot be that of an event", id)}
}

type contentJSON struct {
	Role  string `json:"role,omitempty"`
	Parts []part `json:"parts"`
}

type eventJSON struct {
	ID             string           `json:"id"`
	InvocationID   string           `json:"invocationId"`
	Author         string           `json:"author"`
	Branch         string           `json:"branch,omitempty"`
	Timestamp      string           `json:"timestamp,omitempty"`
	Content        json.RawMessage  `json:"content,omitempty"`
	UsageMetadata  map[string]int64 `json:"usageMetadata,omitempty"`
	ModelVersion   string           `json:"modelVersion,omitempty"`
	ErrorMessage   string           `json:"errorMessage,omitempty"`
	Interrupted    bool             `json:"interrupted,omitempty"`
	CustomMetadata map[string]*kept `json:"customMetadata"`
}

// keeping returns the event if it gives the line back, else nil.
func (d *Decoder) keeping(out eventJSON, k *kept) *patch.Event {
	out.CustomMetadata = map[string]*kept{metadataKey: k}
	text, err := encode(out)
	if err != nil {
		return nil
	}
	event, err := patch.ParseEvent(text)
	if err != nil {
		return nil
	}
	if line, ok := Line(patch.Record{Event: event}); !ok || !bytes.Equal(line, d.text) {
		return nil
	}
	return event
}

// cleaned returns a content without what no log takes: what is not Unicode is replaced, and
// of equal keys the last one stays.
func cleaned(content json.RawMessage) json.RawMessage {
	if content == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	text, err := encode(v)
	if err != nil {
		return nil
	}
	return text
}
