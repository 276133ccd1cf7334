package patch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
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

// Checksum returns the checksum that a record's byte form carries, or 0 if the form is too
// short to be one. Whether it is the right one, [DecodeRecord] knows.
func Checksum(form []byte) uint32 {
	if len(form) < formHeader {
		return 0
	}
	return binary.LittleEndian.Uint32(form[1:])
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
	if text := p.patchIDText(); p.typ == Revert && !utf8.Valid(text) {
		w.do(fieldErr(patchIDName, "the text %.40q is not valid UTF-8", text))
	}
	if text := p.groupText(); !utf8.Valid(text) {
		w.do(fieldErr(groupName, "the text %.40q is not valid UTF-8", text))
	}
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
