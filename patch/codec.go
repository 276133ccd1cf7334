package patch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
	"github.com/patchlog-dev/patchlog/internal/recordform"
)

// MaxRecordBytes is the maximum size of a record's byte form before compression, whatever the limit of a store.
const MaxRecordBytes = recordform.MaxBytes

// AppendRecord appends the record's byte form to dst and returns the extended slice. Equal records have equal bytes. The
// form includes Go types and a checksum. The error matches [ErrTooLarge] if the form exceeds [MaxRecordBytes], and
// [ErrInvalid] if the record has neither event nor patch, or a patch with an invalid id or text.
func AppendRecord(dst []byte, r Record) ([]byte, error) {
	from := len(dst)
	w := writer{b: recordform.Begin(dst)}
	w.array(3)
	w.uint(r.Seq)
	switch {
	case r.Event != nil:
		w.uint(kindEvent)
		w.event(r.Event)
	case r.Patch != nil:
		w.uint(kindPatch)
		w.patch(r.Patch)
	default:
		w.fail(fieldErr("", "a record without event and patch"))
	}
	n := len(w.b) - from
	switch {
	case w.err != nil:
		return dst, w.err
	case n > MaxRecordBytes:
		return dst, fmt.Errorf("%w: record %q is %d bytes; at most %d can be stored", ErrTooLarge, r.ID(), n, MaxRecordBytes)
	}
	recordform.Seal(w.b[from:])
	return w.b, nil
}

// DecodeRecord reads a record's byte form, compressed or not. It keeps no reference to form. The error matches
// [ErrCorrupt] if [AppendRecord] did not write the bytes. Time and memory are linear in the number of bytes, plus the
// cost of at most 1 MiB of decompressed data. It is safe for concurrent use.
func DecodeRecord(form []byte) (Record, error) {
	buf := recordform.Buffer()
	defer recordform.Release(buf)
	body, err := recordform.Open(form, buf)
	var rec Record
	if err == nil {
		r := reader{b: slices.Clone(body)}
		rec = r.record()
		err = r.end()
	}
	if err != nil {
		return Record{}, fmt.Errorf("%w: record: %w", ErrCorrupt, err)
	}
	return rec, nil
}

// MarshalBinary returns the value's byte form, with Go types and a checksum.
func (v Value) MarshalBinary() ([]byte, error) {
	w := writer{b: recordform.Begin(nil)}
	w.array(2)
	w.members([]member{{"value", v.json()}}, v.types.under("value"))
	if w.err != nil {
		return nil, w.err
	}
	recordform.Seal(w.b)
	return w.b, nil
}

// UnmarshalBinary sets the value to that of a byte form of MarshalBinary. It keeps no reference to form. The error
// matches [ErrCorrupt].
func (v *Value) UnmarshalBinary(form []byte) error {
	corrupt := func(err error) error { return fmt.Errorf("%w: value: %w", ErrCorrupt, err) }
	if len(form) > 0 && form[0] != recordform.Plain {
		return corrupt(fmt.Errorf("form %d, want %d", form[0], recordform.Plain))
	}
	body, err := recordform.Open(form, new([]byte))
	if err != nil {
		return corrupt(err)
	}
	r := reader{b: slices.Clone(body)}
	r.fields("a value", 2)
	members, types := r.members(&identity{})
	if err := r.end(); err != nil {
		return corrupt(err)
	}
	if len(members) != 1 || members[0].name != "value" {
		return corrupt(errors.New("not a value's form"))
	}
	*v = Value{members[0].text, notesAt(types, "value")}
	return nil
}

const (
	kindEvent = 0
	kindPatch = 1
)

// How many fields an event and a patch have in MessagePack. docs/FORMAT.md names them.
const (
	identityFields = 6
	eventFields    = identityFields + 2
	patchFields    = identityFields + 12
)

// writer writes MessagePack, each value in its shortest form.
type writer struct {
	b   []byte
	err error
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// head appends a code and a length, of one of three sizes; short is the code that holds lengths
// below limit itself.
func (w *writer) head(n, limit int, short, code8, code16, code32 byte) {
	switch {
	case n < limit:
		w.b = append(w.b, short|byte(n))
	case n <= math.MaxUint8 && code8 != 0:
		w.b = append(w.b, code8, byte(n))
	case n <= math.MaxUint16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, code16), uint16(n))
	default:
		w.b = binary.BigEndian.AppendUint32(append(w.b, code32), uint32(n))
	}
}

func (w *writer) array(n int) { w.head(n, 16, 0x90, 0, 0xdc, 0xdd) }
func (w *writer) null()       { w.b = append(w.b, 0xc0) }

func (w *writer) uint(u uint64) {
	switch {
	case u <= 0x7f:
		w.b = append(w.b, byte(u))
	case u <= math.MaxUint8:
		w.b = append(w.b, 0xcc, byte(u))
	case u <= math.MaxUint16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, 0xcd), uint16(u))
	case u <= math.MaxUint32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0xce), uint32(u))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, 0xcf), u)
	}
}

func (w *writer) int(i int64) {
	switch {
	case i >= 0:
		w.uint(uint64(i))
	case i >= -32:
		w.b = append(w.b, byte(i))
	case i >= math.MinInt8:
		w.b = append(w.b, 0xd0, byte(i))
	case i >= math.MinInt16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, 0xd1), uint16(i))
	case i >= math.MinInt32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0xd2), uint32(i))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, 0xd3), uint64(i))
	}
}

func (w *writer) str(s string) {
	if !utf8.ValidString(s) {
		w.fail(fieldErr("", "the text %.40q is not valid UTF-8", s))
	}
	w.head(len(s), 32, 0xa0, 0xd9, 0xda, 0xdb)
	w.b = append(w.b, s...)
}

func (w *writer) bytes(b []byte) {
	w.head(len(b), 0, 0, 0xc4, 0xc5, 0xc6)
	w.b = append(w.b, b...)
}

func (w *writer) identity(e *identity) {
	if err := e.check(); err != nil {
		w.fail(err)
	}
	for _, f := range e.texts() {
		w.str(f.value)
	}
	if !e.timed {
		w.null()
		return
	}
	w.array(2)
	w.int(e.time.Unix())
	w.int(int64(e.time.Nanosecond()))
}

func (w *writer) members(members []member, types []goType) {
	w.array(2 * len(members))
	for _, m := range members {
		w.str(m.name)
		w.bytes(m.text)
	}
	w.array(2 * len(types))
	for _, t := range types {
		w.str(t.pointer)
		w.str(t.name)
	}
}

func (w *writer) event(e *Event) {
	w.array(eventFields)
	w.identity(&e.identity)
	w.members(e.members, e.types)
}

func (w *writer) patch(p *PatchEvent) {
	w.array(patchFields)
	w.identity(&p.identity)
	w.str(string(p.typ))
	writeOptional(w, p.start, func(n int) { w.int(int64(n)) })
	writeOptional(w, p.count, func(n int) { w.int(int64(n)) })
	if p.replaces {
		w.array(len(p.replacement))
		for _, e := range p.replacement {
			w.event(e)
		}
	} else {
		w.null()
	}
	writeOptional(w, p.eventID, w.str)
	if p.summary != nil {
		w.event(p.summary)
	} else {
		w.null()
	}
	writeOptional(w, p.base, w.uint)
	writeOptional(w, p.state, func(s StatePolicy) { w.str(string(s)) })
	writeOptional(w, p.patchID, w.str)
	writeOptional(w, p.group, w.str)
	w.members(p.members, p.types)
}

func writeOptional[T any](w *writer, v *T, write func(T)) {
	if v == nil {
		w.null()
		return
	}
	write(*v)
}

// reader reads what writer writes, and refuses any other spelling of it: a record has one form.
// After its first error it reads zeros. Members are parts of its bytes.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.b = nil
}

// end returns the first error, or one if bytes are left over.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes are left over", len(r.b))
	}
	return r.err
}

// take passes n bytes.
func (r *reader) take(n uint64) []byte {
	if uint64(len(r.b)) < n {
		r.fail("a length goes beyond the end")
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// number reads an unsigned number of size bytes that must be above least.
func (r *reader) number(size int, least uint64) uint64 {
	var n uint64
	for _, c := range r.take(uint64(size)) {
		n = n<<8 | uint64(c)
	}
	if r.err == nil && n <= least {
		r.fail("a number or a length is longer than it needs to be")
	}
	return n
}

func (r *reader) code() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0xc1 // which means nothing
}

// head passes a code and the length that it says, as writer.head writes them.
func (r *reader) head(what string, limit int, short, code8, code16, code32 byte) uint64 {
	switch c := r.code(); {
	case r.err != nil:
	case limit > 0 && c&^byte(limit-1) == short:
		return uint64(c & byte(limit-1))
	case c == code8 && code8 != 0:
		if limit == 0 && len(r.b) > 0 && r.b[0] == 0 { // bytes have no shorter form
			r.take(1)
			return 0
		}
		return r.number(1, uint64(max(limit-1, 0)))
	case c == code16:
		if code8 == 0 {
			return r.number(2, uint64(limit-1))
		}
		return r.number(2, math.MaxUint8)
	case c == code32:
		return r.number(4, math.MaxUint16)
	default:
		r.fail("code %#x, want %s", c, what)
	}
	return 0
}

// array passes the head of an array. Each of its elements takes a byte at least.
func (r *reader) array() int {
	n := r.head("an array", 16, 0x90, 0, 0xdc, 0xdd)
	if n > uint64(len(r.b)) {
		r.fail("a length goes beyond the end")
		return 0
	}
	return int(n)
}

// fields passes the head of an array of n elements.
func (r *reader) fields(of string, n int) {
	if got := r.array(); got != n {
		r.fail("%d fields in %s, want %d", got, of, n)
	}
}

func (r *reader) uint() uint64 {
	switch c := r.code(); {
	case r.err != nil:
	case c <= 0x7f:
		return uint64(c)
	case c == 0xcc:
		return r.number(1, 0x7f)
	case c == 0xcd:
		return r.number(2, math.MaxUint8)
	case c == 0xce:
		return r.number(4, math.MaxUint16)
	case c == 0xcf:
		return r.number(8, math.MaxUint32)
	default:
		r.fail("code %#x, want a number", c)
	}
	return 0
}

func (r *reader) int() int64 {
	if len(r.b) == 0 || r.b[0] < 0xd0 {
		u := r.uint()
		if u > math.MaxInt64 {
			r.fail("the number %d is too large", u)
		}
		return int64(u)
	}
	c := r.code()
	size, most := 0, int64(-1)
	switch c {
	case 0xd0:
		size, most = 1, -33
	case 0xd1:
		size, most = 2, math.MinInt8-1
	case 0xd2:
		size, most = 4, math.MinInt16-1
	case 0xd3:
		size, most = 8, math.MinInt32-1
	default:
		if c < 0xe0 {
			r.fail("code %#x, want a number", c)
		}
		return int64(int8(c))
	}
	n := ^uint64(0)
	for _, c := range r.take(uint64(size)) {
		n = n<<8 | uint64(c)
	}
	signed := int64(n<<(64-8*size)) >> (64 - 8*size)
	if r.err == nil && signed > most {
		r.fail("a number is longer than it needs to be")
	}
	return signed
}

func (r *reader) strBytes() []byte {
	b := r.take(r.head("a text", 32, 0xa0, 0xd9, 0xda, 0xdb))
	if !utf8.Valid(b) {
		r.fail("text %.40q is not UTF-8", b)
	}
	return b
}

func (r *reader) str() string { return intern(r.strBytes()) }

// null reports whether a nil comes next, and passes it.
func (r *reader) null() bool {
	if len(r.b) == 0 || r.b[0] != 0xc0 {
		return false
	}
	r.b = r.b[1:]
	return true
}

func readOptional[T any](r *reader, read func() T) *T {
	if r.null() || r.err != nil {
		return nil
	}
	v := read()
	return &v
}

func (r *reader) record() Record {
	r.fields("a record", 3)
	rec := Record{Seq: r.uint()}
	switch kind := r.uint(); {
	case r.err != nil:
	case kind == kindEvent:
		rec.Event = r.event()
	case kind == kindPatch:
		rec.Patch = r.patch()
	default:
		r.fail("unknown kind %d", kind)
	}
	return rec
}

// identity reads an identity, which its caller checks.
func (r *reader) identity() identity {
	e := identity{id: r.str(), invocationID: r.str(), author: r.str(), branch: r.str(), scope: r.str()}
	if !r.null() {
		r.fields("a time", 2)
		seconds, nanoseconds := r.int(), r.int()
		if nanoseconds < 0 || nanoseconds > 999_999_999 {
			r.fail("%d nanoseconds", nanoseconds)
		}
		e.time, e.timed = time.Unix(seconds, nanoseconds).UTC(), true
	}
	return e
}

// members reads the fields of an event, a patch or a value beside its identity.
func (r *reader) members(of *identity) (members []member, types []goType) {
	n := r.array()
	if n%2 != 0 {
		r.fail("a field without a value")
	}
	if n/2 > MaxFields {
		r.fail("%d fields; at most %d can be stored", n/2, MaxFields)
		return nil, nil
	}
	if n > 0 && r.err == nil {
		members = make([]member, 0, min(n/2, 16))
	}
	for range n / 2 {
		m := member{r.str(), r.take(r.head("bytes", 0, 0, 0xc4, 0xc5, 0xc6))}
		if r.err != nil {
			return nil, nil
		}
		if err := jsontext.CheckCompact(m.text); err != nil {
			r.fail("field %q: %s", clip(m.name), clip(err.Error()))
			return nil, nil
		}
		if findMember(members, m.name) != nil || of.has(m) {
			r.fail("field %q is there twice", clip(m.name))
		}
		members = append(members, m)
	}
	n = r.array()
	if n%2 != 0 {
		r.fail("a Go type without a place")
	}
	for range n / 2 {
		types = append(types, goType{r.str(), r.str()})
		if r.err != nil {
			return nil, nil
		}
	}
	if len(types) > 0 {
		if err := checkTypes(members, types); err != nil {
			r.fail("%w", err)
		}
	}
	return members, types
}

// has reports whether a record of this identity cannot have such a member: it would be
// read back as, or stand beside, a field that the record has already.
func (e *identity) has(m member) bool {
	switch m.name {
	case "id", "timestamp", "seq", "patchType":
		return true
	case "invocationId", "author", "branch", "isolationScope":
		for _, f := range e.texts() {
			if f.name == m.name {
				return f.value != "" || string(m.text) != "null" && string(m.text) != `""`
			}
		}
	}
	return slices.Contains(foreignNames, m.name)
}

// checkTypes reports whether each Go type fits what is at its place.
func checkTypes(members []member, types []goType) error {
	n := notes{types: types}
	for _, m := range members {
		if inside := n.take(m.name); len(inside.types) > 0 {
			if _, err := decodeAny(jsontext.NewCursor(m.text), inside, numberAsFloat); err != nil {
				return err
			}
		}
	}
	return n.end()
}

func (r *reader) event() *Event {
	r.fields("an event", eventFields)
	e := &Event{Envelope: Envelope{identity: r.identity()}}
	e.members, e.types = r.members(&e.identity)
	if r.err != nil {
		return nil
	}
	if err := e.derive(); err != nil {
		r.fail("%w", err)
	}
	return e
}

func (r *reader) patch() *PatchEvent {
	r.fields("a patch", patchFields)
	p := &PatchEvent{Envelope: Envelope{identity: r.identity()}, typ: Type(r.str())}
	if err := p.identity.check(); err != nil {
		r.fail("%w", err)
	}
	integer := func() int { return int(r.int()) }
	p.start = readOptional(r, integer)
	p.count = readOptional(r, integer)
	if !r.null() && r.err == nil {
		p.replacement, p.replaces = []*Event{}, true
		for range r.array() {
			e := r.event()
			if r.err != nil {
				return nil
			}
			p.replacement = append(p.replacement, e)
		}
	}
	p.eventID = readOptional(r, r.str)
	if !r.null() && r.err == nil {
		p.summary = r.event()
	}
	p.base = readOptional(r, r.uint)
	p.state = readOptional(r, func() StatePolicy { return StatePolicy(r.str()) })
	p.patchID = readOptional(r, r.str)
	p.group = readOptional(r, r.str)
	p.members, p.types = r.members(&p.identity)
	for _, m := range p.members {
		twice := p.has(m.name)
		if d, taken := p.takeField(m); twice || taken && d == nil {
			r.fail("field %q is there twice", clip(m.name))
			return nil
		}
	}
	p.findDefect()
	return p
}

// intern returns the text, of which the most frequent ones take no memory of their own.
func intern(text []byte) string {
	switch string(text) {
	case "content":
		return "content"
	case "actions":
		return "actions"
	case "usageMetadata":
		return "usageMetadata"
	case "customMetadata":
		return "customMetadata"
	case "longRunningToolIds":
		return "longRunningToolIds"
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
