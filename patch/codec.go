package patch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/patchlog-dev/patchlog/patch/internal/jsontext"
)

// RecordVersion is the version of the byte form that [AppendRecord] writes. Docs:
// docs/FORMAT.md.
const RecordVersion = 1

// MaxRecordBytes is the largest byte form that is written or read, whatever a store's
// own limit is.
const MaxRecordBytes = 64 << 20

const formHeader = 5 // version, CRC32C

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendRecord appends the record's byte form, for a store, to dst and returns the
// extended slice. The form carries its own version and checksum, and all that the
// record is, Go types too. The error matches [ErrTooLarge] if the form is larger than
// [MaxRecordBytes], and [ErrInvalid] if the record holds neither event nor patch, or
// a patch with an id or a text that no record can have.
func AppendRecord(dst []byte, r Record) ([]byte, error) {
	from := len(dst)
	dst = append(dst, RecordVersion, 0, 0, 0, 0)
	buf := bytes.NewBuffer(dst)
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(buf)
	w := recordWriter{enc: enc}
	switch {
	case r.Event != nil:
		w.array(3)
		w.uint(r.Seq)
		w.uint(kindEvent)
		w.event(r.Event)
	case r.Patch != nil:
		w.array(3)
		w.uint(r.Seq)
		w.uint(kindPatch)
		w.patch(r.Patch)
	default:
		return dst[:from], fieldErr("", "a record without event and patch")
	}
	if w.err != nil {
		return dst[:from], w.err
	}
	dst = buf.Bytes()
	if n := len(dst) - from; n > MaxRecordBytes {
		return dst[:from], fmt.Errorf("%w: record %q is %d bytes; at most %d can be stored", ErrTooLarge, r.ID(), n, MaxRecordBytes)
	}
	binary.LittleEndian.PutUint32(dst[from+1:], recordSum(dst[from:]))
	return dst, nil
}

// recordSum is the checksum over all of the form but itself.
func recordSum(form []byte) uint32 {
	sum := crc32.Update(0, castagnoli, form[:1])
	return crc32.Update(sum, castagnoli, form[formHeader:])
}

const (
	kindEvent = 0
	kindPatch = 1
)

type recordWriter struct {
	enc *msgpack.Encoder
	err error
}

func (w *recordWriter) do(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *recordWriter) array(n int)   { w.do(w.enc.EncodeArrayLen(n)) }
func (w *recordWriter) uint(u uint64) { w.do(w.enc.EncodeUint(u)) }
func (w *recordWriter) null()         { w.do(w.enc.EncodeNil()) }

func (w *recordWriter) str(s string) {
	if !utf8.ValidString(s) {
		w.do(fieldErr("", "the text %.40q is not valid UTF-8", s))
	}
	w.do(w.enc.EncodeString(s))
}

func (w *recordWriter) identity(e *identity) {
	w.do(e.check())
	w.str(e.id)
	w.str(e.invocationID)
	w.str(e.author)
	w.str(e.branch)
	w.str(e.scope)
	if !e.timed {
		w.null()
		return
	}
	w.array(2)
	w.do(w.enc.EncodeInt(e.time.Unix()))
	w.do(w.enc.EncodeInt(int64(e.time.Nanosecond())))
}

func (w *recordWriter) members(members []member, types []goType) {
	w.array(2 * len(members))
	for _, m := range members {
		w.str(m.name)
		w.do(w.enc.EncodeBytes(m.text))
	}
	w.array(2 * len(types))
	for _, t := range types {
		w.str(t.pointer)
		w.str(t.name)
	}
}

const identityFields = 6

const eventFields = identityFields + 2

func (w *recordWriter) event(e *Event) {
	w.array(eventFields)
	w.identity(&e.identity)
	w.members(e.members, e.types)
}

const patchFields = identityFields + 10

func (w *recordWriter) patch(p *PatchEvent) {
	w.array(patchFields)
	w.identity(&p.identity)
	w.str(string(p.typ))
	writeOptional(w, p.start, func(n int) { w.do(w.enc.EncodeInt(int64(n))) })
	writeOptional(w, p.count, func(n int) { w.do(w.enc.EncodeInt(int64(n))) })
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
	w.members(p.members, p.types)
}

func writeOptional[T any](w *recordWriter, v *T, write func(T)) {
	if v == nil {
		w.null()
		return
	}
	write(*v)
}

// DecodeRecord reads a record's byte form. It keeps no reference to form. The error
// matches [ErrCorrupt] if the bytes are not what [AppendRecord] wrote, or were written
// by a newer version; hostile bytes cost time and memory linear in their number.
func DecodeRecord(form []byte) (Record, error) {
	payload, err := openForm(form)
	if err != nil {
		return Record{}, fmt.Errorf("record: %w", err)
	}
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(bytes.NewReader(payload))
	rd := recordReader{dec: dec}
	rec := rd.record()
	if rd.err != nil {
		return Record{}, fmt.Errorf("%w: record: %w", ErrCorrupt, rd.err)
	}
	// MessagePack can say the same in many ways; a record has one.
	if again, err := AppendRecord(make([]byte, 0, len(form)), rec); err != nil || !bytes.Equal(again, form) {
		return Record{}, fmt.Errorf("%w: record: its bytes are not as they are written", ErrCorrupt)
	}
	return rec, nil
}

// recordReader reads what Scan has passed. After its first error it reads zeros.
type recordReader struct {
	dec *msgpack.Decoder
	err error
}

func (r *recordReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func read[T any](r *recordReader, decode func() (T, error)) T {
	var zero T
	if r.err != nil {
		return zero
	}
	v, err := decode()
	if err != nil {
		r.fail("%w", err)
		return zero
	}
	return v
}

func (r *recordReader) array() int   { return read(r, r.dec.DecodeArrayLen) }
func (r *recordReader) uint() uint64 { return read(r, r.dec.DecodeUint64) }
func (r *recordReader) int() int64   { return read(r, r.dec.DecodeInt64) }

func (r *recordReader) str() string {
	s := read(r, r.dec.DecodeString)
	if !utf8.ValidString(s) {
		r.fail("text %.40q is not UTF-8", s)
	}
	return s
}

// null reports whether a nil comes next, and passes it.
func (r *recordReader) null() bool {
	code := read(r, r.dec.PeekCode)
	if r.err != nil || code != 0xc0 {
		return false
	}
	if err := r.dec.DecodeNil(); err != nil {
		r.fail("%w", err)
	}
	return true
}

func readOptional[T any](r *recordReader, read func() T) *T {
	if r.null() || r.err != nil {
		return nil
	}
	v := read()
	return &v
}

func (r *recordReader) record() Record {
	if n := r.array(); n != 3 {
		r.fail("%d fields, want 3", n)
	}
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

func (r *recordReader) identity() identity {
	e := identity{id: r.str(), invocationID: r.str(), author: r.str(), branch: r.str(), scope: r.str()}
	if !r.null() {
		if n := r.array(); n != 2 {
			r.fail("%d fields in a time, want 2", n)
		}
		sec, ns := r.int(), r.int()
		if ns < 0 || ns > 999999999 {
			r.fail("%d nanoseconds", ns)
		}
		e.time, e.timed = time.Unix(sec, ns).UTC(), true
	}
	if err := e.check(); err != nil {
		r.fail("%w", err)
	}
	return e
}

// members reads the fields of an event, a patch or a value beside its identity.
func (r *recordReader) members(of *identity) (members []member, types []goType) {
	n := r.array()
	if n%2 != 0 {
		r.fail("a field without a value")
	}
	seen := map[string]bool{}
	for range n / 2 {
		m := member{r.str(), read(r, r.dec.DecodeBytes)}
		if r.err != nil {
			return nil, nil
		}
		if err := jsontext.CheckCompact(m.text); err != nil {
			r.fail("field %q: %s", clip(m.name), clip(err.Error()))
			return nil, nil
		}
		if seen[m.name] || of.has(m) {
			r.fail("field %q is there twice", clip(m.name))
		}
		seen[m.name] = true
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
	if err := checkTypes(members, types); err != nil {
		r.fail("%w", err)
	}
	return members, types
}

// has reports whether a record of this identity cannot have such a member: it would be
// read back as, or stand beside, a field that the record has already.
func (e *identity) has(m member) bool {
	switch m.name {
	case "id", "timestamp", "seq", "patchType":
		return true
	}
	for _, f := range e.texts() {
		if f.name == m.name {
			return f.value != "" || string(m.text) != "null" && string(m.text) != `""`
		}
	}
	return slices.Contains(proposalSpellings, m.name)
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

func (r *recordReader) event() *Event {
	if n := r.array(); n != eventFields {
		r.fail("%d fields in an event, want %d", n, eventFields)
	}
	e := &Event{identity: r.identity()}
	e.members, e.types = r.members(&e.identity)
	if r.err != nil {
		return nil
	}
	if err := e.derive(); err != nil {
		r.fail("%w", err)
	}
	return e
}

func (r *recordReader) patch() *PatchEvent {
	if n := r.array(); n != patchFields {
		r.fail("%d fields in a patch, want %d", n, patchFields)
	}
	p := &PatchEvent{identity: r.identity(), typ: Type(r.str())}
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
	p.members, p.types = r.members(&p.identity)
	for _, m := range p.members {
		twice := slices.Contains(patchNames, m.name) && p.has(m.name) && m.name != "patchId"
		if d, taken := p.takeField(m); twice || taken && d == nil {
			r.fail("field %q is there twice", clip(m.name))
			return nil
		}
	}
	p.findDefect()
	return p
}
