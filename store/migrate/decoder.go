package migrate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
)

// decoder makes the records of a log from the units of a session file. A unit is a line, or a message of a document.
// If the program changes the model's context, the change becomes patches. A rewind hides the abandoned branch, and a
// compaction replaces events by a summary. So the visible log is the current conversation, and the raw log has all
// lines of the file.
//
// The ids and the order of the records do not depend on later lines. So a file that has grown gives the same records
// as before, followed by new ones.
type decoder struct {
	file     string
	format   *Format
	progress func(bytes int)
	ctx      context.Context

	tree       *tree
	unit       *unit
	size       int // total size of the units in bytes
	weight     int // estimated memory for the records during the import
	usedIDs    map[string]bool
	hashes     map[string][sha256.Size]byte // key: id of the line; value: hash of the content
	digest     [sha256.Size]byte            // hash of the current unit
	idCounts   map[string]int               // key: purpose; value: number of ids made for the current line
	invocation string
	report     report
}

// reader reads the units of a format. The function prepare, which may be nil, sorts and filters the units.
type reader struct {
	prepare func(units []unit) []unit
	read    func(o obj, t *tree) []entry
}

// entry is an event made from a unit.
type entry struct {
	eventJSON        // all fields except the content; the default author is "system"
	id        string // id of the unit, or ""
	alias     string // second id of the entry, used when other units refer to it
	rewrites  bool   // whether the entry replaces earlier content of the message
	time      time.Time
	role      string
	parts     []part
	prompt    bool   // whether the entry starts a turn
	note      string // why the entry has no content, or how it was handled

	// These fields are the position in the conversation's tree. An entry is part of the tree only if inTree is set.
	inTree       bool
	parent       *node
	followsLeaf  bool            // whether the parent is the current leaf
	dedupContent json.RawMessage // content that distinguishes a copy from another line with the same id
	becomesLeaf  bool            // whether the entry becomes the leaf even if its parent is not the leaf
	messageID    string          // id of the message that the entry is a piece of
	callIDs      []string        // ids of the calls in the entry
	resultIDs    []string        // ids of the calls whose results are in the entry

	// The fields of a compaction are explained at tree.coveredCount.
	compaction   bool // whether the entry is a compaction
	summary      bool // whether the entry has a summary
	encrypted    bool // whether the summary is encrypted, so that only the provider can read it
	kept         []*node
	requireKept  bool
	reparentKept bool // whether kept messages become children of the summary
}

type report struct {
	Lines         int // lines that became events
	Rewinds       int // number of times that the conversation continued from an earlier point
	Compactions   int // compactions whose summaries replace the covered events
	NotAdopted    int // compactions kept as events, because the events that they cover are unknown
	Encrypted     int // compactions kept as events, because their summaries are encrypted
	VisibleEvents int // visible events at the last compaction counted in Encrypted
	Rewritten     int // messages that were written again with more content
	Copies        int // repeated lines, kept without content
	ReusedIDs     int // lines with the id of an earlier line but other content
	Unreadable    int // lines that are not valid JSON as a whole
	Mended        int // lines with text that is not Unicode
	Unfinished    int // bytes of an incomplete last line, which was omitted
	WithoutParent int // lines at the end whose parent is missing, which were omitted
	Untimed       int // events of a file that has no times
}

// differences returns the report as text.
func (r report) differences() (all []Difference) {
	for _, d := range []struct {
		n    int
		what string
	}{
		{r.Rewinds, present.Counted(r.Rewinds, "rewind") + ": the abandoned branch is hidden"},
		{r.Compactions, present.Counted(r.Compactions, "compaction") + " adopted"},
		{r.NotAdopted, present.Counted(r.NotAdopted, "compaction") + " not adopted and kept as events: what they cover is unknown"},
		{r.Encrypted, fmt.Sprintf("%s not adopted: the provider keeps this summary encrypted; its %s visible: 'patchlog compact KEY' shortens them",
			present.Counted(r.Encrypted, "compaction"), map[bool]string{true: "1 record stays", false: present.Counted(r.VisibleEvents, "record") + " stay"}[r.VisibleEvents == 1])},
		{r.Rewritten, present.Counted(r.Rewritten, "message") + " written again with more content: the earlier version is hidden"},
		{r.Copies, present.Counted(r.Copies, "line") + " repeated, and kept without content"},
		{r.ReusedIDs, present.Counted(r.ReusedIDs, "line") + " with the id of an earlier line and other content: given new ids"},
		{r.Unreadable, present.Counted(r.Unreadable, "line") + " with invalid JSON, which is kept without content"},
		{r.Mended, present.Counted(r.Mended, "line") + " with text that is not Unicode: replaced by U+FFFD"},
		{r.Untimed, "the file has no times: events get the time of the import"},
		{r.WithoutParent, present.Counted(r.WithoutParent, "line") + " at the end left out: their parent is not written yet"},
		{r.Unfinished, "the last line is incomplete and was left out"},
	} {
		if d.n > 0 {
			all = append(all, Difference{What: d.what})
		}
	}
	return all
}

// decode returns the records, without seqs. The id of a record is the id of its unit. If the unit has no id, the id
// of the record is derived from the number and the content of the unit. An incomplete last line is omitted, because
// the program may still be writing it. Any other line that is not JSON becomes an event without content. A record
// without a time gets the time of the next record that has a time. If no later record has a time, it gets the time
// of the last earlier record that has a time. The error is a *[patch.LineError].
func (d *decoder) decode(units []unit) ([]patch.Record, error) {
	d.tree, d.usedIDs, d.hashes = newTree(d.format.Name), map[string]bool{}, map[string][sha256.Size]byte{}
	d.tree.newID = d.newID
	r := d.format.reader()
	for i := range units {
		u := &units[i]
		switch {
		case json.Valid(u.json):
			u.json, u.repaired = toValidUnicode(u.json)
		case i == len(units)-1 && u.unterminated:
			d.report.Unfinished, units = len(u.text), units[:i]
		default:
			u.json = trailingObject(u.text)
			d.report.Unreadable++
		}
	}
	all := len(units)
	if r.prepare != nil {
		units = r.prepare(units)
	}
	d.report.WithoutParent = all - len(units)
	for _, u := range units {
		d.size += len(u.text)
	}
	d.tree.size = d.size
	read := 0
	for i := range units {
		if d.digest = sha256.Sum256(units[i].text); i == 0 || units[i].number != d.unit.number {
			d.idCounts = map[string]int{}
		}
		d.unit = &units[i]
		if err := d.decodeUnit(r); err != nil {
			return nil, &patch.LineError{File: d.file, Line: d.unit.number, Err: err}
		}
		if read += len(d.unit.text); d.progress != nil && i%256 == 0 {
			d.progress(read)
		}
	}
	return d.fillTimes(d.tree.logged), d.ctx.Err()
}

// decodeUnit adds the entries of the current unit to the log.
func (d *decoder) decodeUnit(r reader) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	if len(d.unit.text) > maxLineBytes {
		return fmt.Errorf("%w: the line is longer than %d bytes", patch.ErrTooLarge, maxLineBytes)
	}
	if d.weight > weightFactor*d.size+weightBase {
		return fmt.Errorf("%w: the import of its many short messages would need more memory than 8 times its size", patch.ErrTooLarge)
	}
	entries := []entry{{eventJSON: eventJSON{Author: d.format.Name}, note: "unreadable"}}
	if d.unit.json != nil && valueWeight*countValues(d.unit.json) > weightFactor*len(d.unit.json)+weightBase {
		entries[0].note = "too many values to be read"
	} else if d.unit.json != nil {
		entries = nil
		if o := parse(d.unit.json); o != nil {
			for _, e := range r.read(o, d.tree) {
				entries = append(entries, e.splitResults(d.tree)...)
			}
		}
		if len(entries) == 0 {
			entries = []entry{{}}
		}
	}
	if d.unit.repaired {
		d.report.Mended++
	}
	d.report.Lines++
	for i, e := range entries {
		if err := d.addEntry(e, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// An import may use memory of up to 8 times the size of the file plus a constant. The weights estimate this memory
// in bytes, for the records, and for the values in a line while the line is read. Tests repeat the measurements to
// which the weights are fitted.
const (
	weightFactor = 4
	weightBase   = 20 << 20
	recordWeight = 3000 // per record, without its content
	valueWeight  = 400  // per object or array
	unitWeight   = 300  // per line, before the line is read
)

// countValues returns the number of objects and arrays in JSON.
func countValues(text []byte) (n int) {
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case !inString && (c == '{' || c == '['):
			n++
		}
	}
	return n
}

// fillTimes removes seqs. If any record has a time, it also sets the missing times.
func (d *decoder) fillTimes(records []patch.Record) []patch.Record {
	var at time.Time
	for i, r := range slices.Backward(records) {
		if t := recordTime(r); !t.IsZero() {
			at = t
		}
		records[i] = patch.Complete(r, nil, at)
		records[i].Seq = 0
	}
	for i, r := range records {
		if t := recordTime(r); !t.IsZero() {
			at = t
		}
		records[i] = patch.Complete(r, nil, at)
	}
	if at.IsZero() {
		d.report.Untimed = len(records)
	}
	return records
}

func recordTime(r patch.Record) time.Time {
	if r.Patch != nil {
		return r.Patch.Timestamp()
	}
	return r.Event.Timestamp()
}

// lineIDNamespace is the namespace of ids derived from lines.
var lineIDNamespace = uuid.MustParse("b5a0b3a6-6f0e-5a51-9a0e-4a2f8f2d7c30")

// newID returns an id derived from the number and the content of the unit and from the purpose of the id. Because
// the number is included, equal lines get different ids.
func (d *decoder) newID(what string) string {
	for {
		name := append(fmt.Appendf(nil, "%d %s %d:", d.unit.number, what, d.idCounts[what]), d.digest[:]...)
		d.idCounts[what]++
		if id := uuid.NewSHA1(lineIDNamespace, name).String(); !d.usedIDs[id] {
			d.usedIDs[id] = true
			return id
		}
	}
}

// addEntry adds an entry to the log. The argument first reports whether the entry is the first entry of its unit.
// The event of the first entry stores the unit.
func (d *decoder) addEntry(e entry, first bool) error {
	if len(e.id) > patch.MaxIDBytes {
		e.id = ""
	}
	if e.dedupContent == nil {
		e.dedupContent = d.unit.json
	}
	switch digest := sha256.Sum256(e.dedupContent); {
	case e.id == "":
	case !d.usedIDs[e.id]:
		d.hashes[e.id] = digest
	case d.hashes[e.id] != digest:
		e.alias, e.id = e.id, ""
		d.report.ReusedIDs++
	default:
		e = entry{eventJSON: eventJSON{Author: e.Author, Branch: e.Branch}, time: e.time, note: "copy"}
		d.report.Copies++
	}
	id := e.id
	if id == "" {
		id = d.newID("event")
	}
	d.usedIDs[id] = true
	// Headers before the first message belong to no invocation.
	if e.prompt || d.invocation == "" && e.role == "model" {
		d.invocation = id
	}
	d.weight += recordWeight
	before := len(d.tree.logged)
	n, err := d.tree.addEntry(e, len(d.tree.entries)+1, func(e entry) (*patch.Event, error) { return d.newEvent(id, e, first) })
	if err != nil {
		return err
	}
	d.tree.entries = append(d.tree.entries, n)
	switch {
	case n != nil && n.summary:
		d.report.Compactions++
	case e.encrypted:
		d.report.Encrypted, d.report.VisibleEvents = d.report.Encrypted+1, d.tree.view.Len()-1
	case e.compaction:
		d.report.NotAdopted++
	}
	if e.rewrites {
		d.report.Rewritten++
	} else if slices.ContainsFunc(d.tree.logged[before:], func(r patch.Record) bool { return r.Patch != nil && r.Patch.Type() != patch.Summarise }) {
		d.report.Rewinds++
	}
	return nil
}

// newEvent makes the event of an entry. The event of a unit's first entry stores the text of the unit: as JSON if
// possible, otherwise as a string, otherwise as base64. If the event is invalid with its content, newEvent removes
// duplicate keys from the content. If the event is still invalid, newEvent omits the content.
func (d *decoder) newEvent(id string, e entry, first bool) (*patch.Event, error) {
	out := e.eventJSON
	out.ID, out.InvocationID, out.Author = id, d.invocation, cmp.Or(e.Author, "system")
	if !e.time.IsZero() {
		out.Timestamp = e.time.UTC().Format(time.RFC3339Nano)
	}
	if len(e.parts) > 0 {
		content, err := marshalJSON(contentJSON{e.role, e.parts})
		if err != nil {
			return nil, err
		}
		out.Content = content
	}
	bare := eventJSON{ID: id, InvocationID: d.invocation, Author: out.Author, Timestamp: out.Timestamp, Interrupted: e.Interrupted}
	for _, try := range []func() eventJSON{
		func() eventJSON { return out }, func() eventJSON { out.Content = dropDuplicateKeys(out.Content); return out }, func() eventJSON { return bare },
	} {
		event := try()
		encodings := []storedLine{{}}
		if first {
			encodings = lineEncodings(d.unit)
		}
		for _, k := range encodings {
			k.Format, k.Note = d.format.Name, e.note
			event.CustomMetadata = map[string]storedLine{lineKey: k}
			text, err := marshalJSON(event)
			if err != nil {
				return nil, err
			}
			parsed, err := patch.ParseEvent(text)
			if err != nil {
				continue
			}
			if !first || storesLine(parsed, k) {
				return parsed, nil
			}
		}
	}
	return nil, &patch.FieldError{Field: "id", Problem: fmt.Sprintf("%.40q cannot be that of an event", id)}
}

type contentJSON struct {
	Role  string `json:"role,omitempty"`
	Parts []part `json:"parts"`
}

type eventJSON struct {
	ID             string                `json:"id"`
	InvocationID   string                `json:"invocationId"`
	Author         string                `json:"author"`
	Branch         string                `json:"branch,omitempty"`
	Timestamp      string                `json:"timestamp,omitempty"`
	Content        json.RawMessage       `json:"content,omitempty"`
	UsageMetadata  map[string]int64      `json:"usageMetadata,omitempty"`
	ModelVersion   string                `json:"modelVersion,omitempty"`
	ErrorMessage   string                `json:"errorMessage,omitempty"`
	Interrupted    bool                  `json:"interrupted,omitempty"`
	CustomMetadata map[string]storedLine `json:"customMetadata"`
}

// dropDuplicateKeys returns a content without duplicate keys. If a key occurs several times, it keeps the last
// value.
func dropDuplicateKeys(content json.RawMessage) json.RawMessage {
	if content == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	text, err := marshalJSON(v)
	if err != nil {
		return nil
	}
	return text
}
