package patch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/patchlog-dev/patchlog/internal/recordform"
)

// A record's byte form is a MessagePack array in the frame of package recordform:
//
//	record   [seq, 0, event…] or [seq, 1, patch…]
//	event…   id, invocationId, author, branch, isolationScope, time, json, types, index
//	patch…   id, invocationId, author, branch, isolationScope, time, json, types, patchType, start, count,
//	         replacement, eventId, summaryEvent, base, state, patchId, group, defect
//	time     nil, or [seconds, nanoseconds] since 1970
//	json     bytes: the other top-level fields as one compact JSON object
//	types    [pointer, name, …]: the Go types of values in json
//	index    [flags, role, tokens, functions, longRunning, changes]: see type index
//	functions [place, isResponse, id, name, …]; longRunning nil or [id, …]; changes [key, from, to, …]
//	replacement nil or [[event…], …]; summaryEvent nil or [event…]; defect nil or [field, problem, flaw]
//
// Absent fields of a patch are nil. Decoding relies on the checksum of the frame and does not parse the JSON.
// Data derived from the JSON is therefore stored with it. [Record.Verify] computes this data again and compares
// it.

// MaxRecordBytes is the maximum size of a record's byte form before compression. A store may have a lower
// limit.
const MaxRecordBytes = recordform.MaxBytes

const (
	kindEvent = 0
	kindPatch = 1

	identityFields = 6
	eventFields    = identityFields + 3     // json, types, index
	patchSize      = identityFields + 4 + 9 // json, types, type, the fields that only patches have, defect
	indexFields    = 6
)

// AppendRecord appends the record's byte form to dst and returns the extended slice. The form includes Go types
// and a checksum. Equal records have equal bytes. If the form exceeds [MaxRecordBytes], the error matches
// [ErrTooLarge]. If the record has neither event nor patch, or its id or another text is invalid, the error
// matches [ErrInvalid].
func AppendRecord(dst []byte, r Record) ([]byte, error) {
	from := len(dst)
	w := newWriter(recordform.Begin(dst))
	defer w.release()
	switch {
	case r.Event != nil:
		w.array(2 + eventFields)
		w.uint(r.Seq)
		w.uint(kindEvent)
		w.event(r.Event)
	case r.Patch != nil:
		w.array(2 + patchSize)
		w.uint(r.Seq)
		w.uint(kindPatch)
		w.patch(r.Patch)
	default:
		return dst, fieldErr("", "the record has neither an event nor a patch")
	}
	form := w.bytes()
	switch n := len(form) - from; {
	case w.err != nil:
		return dst, w.err
	case n > MaxRecordBytes:
		return dst, fmt.Errorf("%w: record %q is %d bytes; at most %d can be stored", ErrTooLarge, r.ID(), n, MaxRecordBytes)
	}
	recordform.Seal(form[from:])
	return form, nil
}

// DecodeRecord reads a record from its byte form, compressed or not. It does not retain the slice. If
// [AppendRecord] did not write the bytes, the error matches [ErrCorrupt]. DecodeRecord does not check the JSON;
// [Record.Verify] does. Time and memory are linear in the length of the byte form, plus at most 1 MiB of
// decompressed data. DecodeRecord is safe for concurrent use.
func DecodeRecord(form []byte) (Record, error) {
	var rec Record
	err := readForm(form, func(r *reader) {
		n := r.array()
		rec.Seq = r.uint()
		switch kind := r.uint(); {
		case kind == kindEvent && n == 2+eventFields:
			rec.Event = r.event()
		case kind == kindPatch && n == 2+patchSize:
			rec.Patch = r.patch()
		default:
			r.fail(fmt.Errorf("unexpected record: %d fields of kind %d", n, kind))
		}
	})
	if err != nil {
		return Record{}, fmt.Errorf("%w: record: %w", ErrCorrupt, err)
	}
	return rec, nil
}

// Verify checks a record that [DecodeRecord] read from the given byte form. It parses the record's JSON as
// [ParseRecord] does, computes the derived data again, and compares the result with the byte form. If the
// argument is nil, Verify uses the record's own byte form. The error matches [ErrCorrupt]. Verify fails only if
// a faulty program wrote the record, or if the record was forged with a correct checksum.
func (r Record) Verify(form []byte) error {
	corrupt := func(err error) error { return fmt.Errorf("%w: record %d: %w", ErrCorrupt, r.Seq, err) }
	text, err := r.MarshalJSON()
	if err != nil {
		return corrupt(err)
	}
	reparsed, err := ParseRecord(text)
	if err != nil {
		return corrupt(err)
	}
	if (reparsed.Event == nil) != (r.Event == nil) {
		return corrupt(errors.New("the record's kind differs from the kind of its JSON"))
	}
	envelopes := r.envelopes()
	for i, e := range reparsed.envelopes() {
		if i < len(envelopes) {
			e.types = envelopes[i].types
		}
		if err := e.checkTypes(); err != nil {
			return corrupt(err)
		}
	}
	if form == nil {
		if form, err = AppendRecord(nil, r); err != nil {
			return corrupt(err)
		}
	}
	buf := recordform.Buffer()
	defer recordform.Release(buf)
	stored, err := recordform.Open(form, buf)
	if err != nil {
		return corrupt(err)
	}
	derived, err := AppendRecord(nil, reparsed)
	switch {
	case err != nil || !bytes.Equal(stored, derived[recordform.Header:]):
		return corrupt(errors.New("the data stored with the JSON does not match the JSON"))
	case recordform.Checksum(derived) != recordform.Checksum(form):
		return corrupt(fmt.Errorf("the content has checksum %08x, want %08x", recordform.Checksum(derived), recordform.Checksum(form)))
	}
	return nil
}

func (r Record) envelopes() (all []*Envelope) {
	if r.Patch != nil {
		all = append(all, &r.Patch.Envelope)
		if r.Patch.summary != nil {
			all = append(all, &r.Patch.summary.Envelope)
		}
		for _, e := range deref(r.Patch.replacement) {
			all = append(all, &e.Envelope)
		}
	}
	if r.Event != nil {
		all = append(all, &r.Event.Envelope)
	}
	return all
}

// checkTypes returns an error unless each noted Go type matches the value at its pointer.
func (e *Envelope) checkTypes() error {
	if len(e.types) == 0 {
		return nil
	}
	var out any
	used, err := readTyped(e.json, e.types, numberAsFloat, &out)
	if err != nil {
		return err
	}
	if used != len(e.types) {
		return fmt.Errorf("%d of the %d recorded Go types match no value", len(e.types)-used, len(e.types))
	}
	return nil
}

// MarshalBinary returns the value's byte form: the array [json, types] with a checksum.
func (v Value) MarshalBinary() ([]byte, error) {
	if v.fault != nil {
		return nil, v.fault
	}
	w := newWriter(recordform.Begin(nil))
	defer w.release()
	w.array(2)
	w.data(v.json())
	w.typeNotes(v.types)
	form := w.bytes()
	if w.err != nil {
		return nil, w.err
	}
	recordform.Seal(form)
	return form, nil
}

// UnmarshalBinary sets the value from the result of [Value.MarshalBinary]. It does not retain the slice. The
// error matches [ErrCorrupt].
func (v *Value) UnmarshalBinary(form []byte) error {
	var out Value
	err := readForm(form, func(r *reader) {
		r.fixedArray("a value", 2)
		out.text, out.types = r.data(), r.typeNotes()
	})
	if err != nil {
		return fmt.Errorf("%w: value: %w", ErrCorrupt, err)
	}
	*v = out
	return nil
}

// writer writes MessagePack. After an error, its output is invalid.
type writer struct {
	out bytes.Buffer
	enc *msgpack.Encoder
	err error
}

var writers = sync.Pool{New: func() any {
	w := &writer{}
	w.enc = msgpack.NewEncoder(&w.out)
	w.enc.UseCompactInts(true)
	return w
}}

func newWriter(b []byte) *writer {
	w := writers.Get().(*writer)
	w.out, w.err = *bytes.NewBuffer(b), nil
	return w
}

func (w *writer) bytes() []byte { return w.out.Bytes() }

func (w *writer) release() {
	w.out = bytes.Buffer{}
	writers.Put(w)
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writer) array(n int)   { w.fail(w.enc.EncodeArrayLen(n)) }
func (w *writer) null()         { w.fail(w.enc.EncodeNil()) }
func (w *writer) uint(n uint64) { w.fail(w.enc.EncodeUint(n)) }
func (w *writer) int(n int64)   { w.fail(w.enc.EncodeInt(n)) }
func (w *writer) str(s string)  { w.fail(w.enc.EncodeString(s)) }
func (w *writer) data(b []byte) { w.fail(w.enc.EncodeBytes(b)) }

func (w *writer) envelope(e *Envelope) {
	if err := e.identity.check(); err != nil {
		w.fail(err)
	}
	for _, f := range e.texts() {
		w.str(f.value)
	}
	if e.timed {
		w.array(2)
		w.int(e.time.Unix())
		w.int(int64(e.time.Nanosecond()))
	} else {
		w.null()
	}
	w.data(e.json)
	w.typeNotes(e.types)
}

func (w *writer) typeNotes(types goTypes) {
	w.array(2 * len(types))
	for _, t := range types {
		w.str(t.pointer)
		w.str(t.name)
	}
}

func (w *writer) event(e *Event) {
	w.envelope(&e.Envelope)
	x := &e.index
	w.array(indexFields)
	w.uint(uint64(x.flags))
	w.str(x.role)
	w.int(int64(x.tokens))
	w.array(4 * len(x.functions))
	for _, f := range x.functions {
		w.int(int64(f.Index))
		w.fail(w.enc.EncodeBool(f.Response))
		w.str(f.ID)
		w.str(f.Name)
	}
	if x.longRunning == nil {
		w.null()
	} else {
		w.array(len(x.longRunning))
	}
	for _, id := range x.longRunning {
		w.str(id)
	}
	w.array(3 * len(x.changes))
	for _, c := range x.changes {
		w.str(c.key)
		w.int(int64(c.from))
		w.int(int64(c.to))
	}
}

func (w *writer) patch(p *PatchEvent) {
	nested := func(e *Event) {
		w.array(eventFields)
		w.event(e)
	}
	text := func(s string) {
		if !utf8.ValidString(s) {
			w.fail(notUTF8("", s))
		}
		w.str(s)
	}
	w.envelope(&p.Envelope)
	text(string(p.typ))
	for _, f := range patchFields {
		if !f.isSet(p) {
			w.null()
			continue
		}
		switch v := f.of(p).(type) {
		case **int:
			w.int(int64(**v))
		case **uint64:
			w.uint(**v)
		case **string:
			text(**v)
		case **Event:
			nested(*v)
		case **[]*Event:
			w.array(len(**v))
			for _, e := range **v {
				nested(e)
			}
		}
	}
	if d := p.defect; d != nil {
		w.array(3)
		w.str(d.Field)
		w.str(d.Problem)
		w.str(string(d.Flaw))
	} else {
		w.null()
	}
}

// reader reads the output of a writer. Before it allocates memory, it checks the length against the remaining
// bytes. After an error, it returns zero values.
type reader struct {
	body []byte
	in   bytes.Reader // reads from body
	dec  *msgpack.Decoder
	err  error
}

var readers = sync.Pool{New: func() any {
	r := &reader{}
	r.dec = msgpack.NewDecoder(&r.in)
	return r
}}

// readForm calls read with a reader of the form's content. If read leaves bytes unread, readForm returns an
// error.
func readForm(form []byte, read func(*reader)) error {
	buf := recordform.Buffer()
	defer recordform.Release(buf)
	body, err := recordform.Open(form, buf)
	if err != nil {
		return err
	}
	r := readers.Get().(*reader)
	defer readers.Put(r)
	r.body, r.err = bytes.Clone(body), nil
	r.in.Reset(r.body)
	read(r)
	if n := r.in.Len(); r.err == nil && n > 0 {
		return fmt.Errorf("%d unexpected bytes after the end", n)
	}
	err, r.body = r.err, nil
	r.in.Reset(nil)
	return err
}

func (r *reader) fail(err error) {
	if r.err == nil && err != nil {
		r.err = err
		r.in.Reset(nil) // makes the next read fail, so that loops end
	}
}

// length returns n if at least n bytes remain. Otherwise it fails. A length of -1 means nil.
func (r *reader) length(n int, err error) int {
	if r.fail(err); r.err == nil && n > r.in.Len() {
		r.fail(errors.New("a length exceeds the remaining bytes"))
	}
	if r.err != nil {
		return 0
	}
	return n
}

// array reads an array header and returns the length. Each element takes at least one byte.
func (r *reader) array() int { return max(0, r.optionalArray()) }

// optionalArray is like array, but returns -1 for nil.
func (r *reader) optionalArray() int { return r.length(r.dec.DecodeArrayLen()) }

// fixedArray reads an array header. It fails unless the length is n.
func (r *reader) fixedArray(what string, n int) {
	if got := r.array(); r.err == nil && got != n {
		r.fail(fmt.Errorf("%d fields in %s, want %d", got, what, n))
	}
}

// tuples reads the header of an array that consists of tuples of n elements. It returns the number of tuples.
// It fails if a tuple is incomplete, or if the number of tuples exceeds the limit.
func (r *reader) tuples(what string, n, limit int) int {
	got := r.array()
	if got%n != 0 || got/n > limit {
		r.fail(fmt.Errorf("%d values in %s; want a multiple of %d, and at most %d tuples", got, what, n, limit))
		return 0
	}
	return got / n
}

func (r *reader) uint() uint64 {
	n, err := r.dec.DecodeUint64()
	r.fail(err)
	return n
}

func (r *reader) int() int64 {
	n, err := r.dec.DecodeInt64()
	r.fail(err)
	return n
}

// intBetween reads an integer. It fails unless the integer is in [low, high].
func (r *reader) intBetween(low, high int) int {
	n := r.int()
	if r.err == nil && (n < int64(low) || n > int64(high)) {
		r.fail(fmt.Errorf("the number %d is outside the range from %d to %d", n, low, high))
		return low
	}
	return int(n)
}

// data reads bytes. The result aliases body.
func (r *reader) data() []byte {
	n := max(0, r.length(r.dec.DecodeBytesLen()))
	from := len(r.body) - r.in.Len()
	if r.err != nil || n == 0 {
		return nil
	}
	_, err := r.in.Seek(int64(n), 1)
	r.fail(err)
	return r.body[from : from+n : from+n]
}

func (r *reader) str() string { return intern(r.data()) }

// null skips the next value and returns true if the value is nil. After an error, it also returns true.
func (r *reader) null() bool {
	code, err := r.dec.PeekCode()
	if r.fail(err); err != nil || code != 0xc0 {
		return r.err != nil
	}
	r.fail(r.dec.DecodeNil())
	return true
}

func (r *reader) envelope() (e Envelope) {
	e.identity = identity{id: r.str(), invocationID: r.str(), author: r.str(), branch: r.str(), scope: r.str()}
	if !r.null() {
		r.fixedArray("a time", 2)
		e.time, e.timed = time.Unix(r.int(), int64(r.intBetween(0, 999_999_999))).UTC(), true
	}
	if err := e.identity.check(); err != nil {
		r.fail(err)
	}
	e.json, e.types = r.data(), r.typeNotes()
	return e
}

func (r *reader) typeNotes() goTypes {
	const minNote = len("/ int") // shortest note of a Go type; in memory, a forged note takes at most six times its bytes
	n := r.tuples("Go types", 2, r.in.Len()/minNote)
	if n == 0 {
		return nil
	}
	types := make(goTypes, n)
	for i := range types {
		types[i] = goType{r.str(), r.str()}
	}
	return types
}

func (r *reader) event() *Event {
	e := &Event{Envelope: r.envelope()}
	r.fixedArray("an index", indexFields)
	x := &e.index
	x.flags, x.role = flags(r.intBetween(0, math.MaxUint8)), r.str()
	x.tokens = r.intBetween(0, math.MaxInt32)
	// Each entry of the index corresponds to text in the JSON. A limit on the number of entries, computed from
	// the length of the JSON, also limits the memory for forged entries.
	maxInJSON := func(shortest string) int { return len(e.json) / len(shortest) }
	if n := r.tuples("functions", 4, min(MaxFunctionParts, maxInJSON(`"functionCall":{}`))); n > 0 {
		x.functions = make([]FunctionPart, n)
		for i := range x.functions {
			f := &x.functions[i]
			f.Index = r.intBetween(0, math.MaxInt32)
			var err error
			f.Response, err = r.dec.DecodeBool()
			r.fail(err)
			f.ID, f.Name = r.str(), r.str()
		}
	}
	if n, limit := r.optionalArray(), min(MaxLongRunning, maxInJSON(`"",`)); n > limit {
		r.fail(fmt.Errorf("%d long-running ids; the JSON has room for at most %d", n, limit))
	} else if n >= 0 && r.err == nil {
		x.longRunning = make([]string, n)
		for i := range x.longRunning {
			x.longRunning[i] = r.str()
		}
	}
	if n := r.tuples("changes of state", 3, min(MaxStateKeys, maxInJSON(`"":0,`))); n > 0 {
		x.changes = make([]indexEntry, n)
		for i := range x.changes {
			c := &x.changes[i]
			c.key, c.from = r.str(), r.intBetween(0, len(e.json))
			c.to = r.intBetween(c.from, len(e.json))
		}
	}
	return e
}

func (r *reader) patch() *PatchEvent {
	nested := func() *Event {
		r.fixedArray("an event", eventFields)
		return r.event()
	}
	p := &PatchEvent{Envelope: r.envelope(), typ: Type(r.str())}
	for _, f := range patchFields {
		if r.null() {
			continue
		}
		switch v := f.of(p).(type) {
		case **int:
			n := r.intBetween(math.MinInt, math.MaxInt)
			*v = &n
		case **uint64:
			n := r.uint()
			*v = &n
		case **string:
			s := r.str()
			*v = &s
		case **Event:
			*v = nested()
		case **[]*Event:
			n := r.array()
			if n > MaxReplacements {
				r.fail(fmt.Errorf("%d events in a replacement; the maximum is %d", n, MaxReplacements))
				n = 0
			}
			events := make([]*Event, n)
			for i := range events {
				events[i] = nested()
			}
			*v = &events
		}
	}
	if !r.null() {
		r.fixedArray("a defect", 3)
		p.defect = &FieldError{Field: r.str(), Problem: r.str(), Flaw: Flaw(r.str())}
	}
	return p
}

// intern converts text to a string. It does not allocate memory for the most frequent texts.
func intern(text []byte) string {
	switch string(text) {
	case "":
		return ""
	case "user":
		return "user"
	case "model":
		return "model"
	case "agent":
		return "agent"
	case "assistant":
		return "assistant"
	}
	return string(text)
}
