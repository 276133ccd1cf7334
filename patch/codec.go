package patch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/patchlog-dev/patchlog/patch/internal/packed"
)

// What the first byte of a record's byte form says of its body.
const (
	plainForm      = 1 // the body as it is
	compressedForm = 2 // the body compressed
)

// MaxRecordBytes is the largest byte form that is written or read, whatever a store's
// own limit is. It is what a record takes before [CompressRecord].
const MaxRecordBytes = 64 << 20

// What stands before the body.
const (
	plainHeader  = 5 // form, checksum
	packedHeader = 9 // form, the plain form's checksum, that of the bytes as they are
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendRecord appends the record's byte form, for a store, to dst and returns the
// extended slice. [CompressRecord] makes it shorter. Equal records have the same bytes.
// The form carries its checksum, and all that the
// record is, Go types too. The error matches [ErrTooLarge] if the form is larger than
// [MaxRecordBytes], and [ErrInvalid] if the record holds neither event nor patch, or
// a patch with an id or a text that no record can have.
func AppendRecord(dst []byte, r Record) ([]byte, error) {
	from := len(dst)
	buf := bytes.NewBuffer(append(dst, plainForm, 0, 0, 0, 0))
	if err := writeBody(buf, r); err != nil {
		return dst, err
	}
	dst = buf.Bytes()
	if n := len(dst) - from; n > MaxRecordBytes {
		return dst[:from], fmt.Errorf("%w: record %q is %d bytes; at most %d can be stored", ErrTooLarge, r.ID(), n, MaxRecordBytes)
	}
	binary.LittleEndian.PutUint32(dst[from+1:], plainSum(dst[from+plainHeader:]))
	return dst, nil
}

// writeBody writes what stands behind the header of a record's plain form.
func writeBody(to output, r Record) error {
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(to)
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
		return fieldErr("", "a record without event and patch")
	}
	return w.err
}

// output is a stream of bytes in memory.
type output interface {
	Write(p []byte) (int, error)
	WriteByte(c byte) error
}

// CompressRecord returns the same record's byte form with its body compressed, if that is
// shorter, and else form itself: very short records, those of more than 1 MiB, and forms that are
// not plain ones or are damaged stay as they are. form is what [AppendRecord] wrote, and is not
// changed. What is returned has the same [Checksum], has been read back once, and is read as the
// same record for ever. Another release of this package may make other bytes of it. It is safe for
// use by several goroutines.
func CompressRecord(form []byte) []byte {
	if len(form) < plainHeader || form[0] != plainForm || len(form)-plainHeader > packed.MaxBytes || plainSum(form[plainHeader:]) != Checksum(form) {
		return form
	}
	body := form[plainHeader:]
	buf, back := bodies.Get().(*[]byte), bodies.Get().(*[]byte)
	defer release(buf)
	defer release(back)
	*buf = append((*buf)[:0], compressedForm)
	*buf = append(*buf, form[1:plainHeader]...)
	*buf = packed.Append(append(*buf, 0, 0, 0, 0), body)
	if len(*buf) >= len(form) {
		return form
	}
	// What cannot be read is never written, whatever is wrong with the compression.
	opened, err := packed.Open(*back, (*buf)[packedHeader:])
	if err != nil || !bytes.Equal(opened, body) {
		return form
	}
	*back = opened
	binary.LittleEndian.PutUint32((*buf)[plainHeader:], packedSum(*buf))
	return bytes.Clone(*buf)
}

// PlainSize returns how many bytes a record's byte form takes, or took before [CompressRecord]. Of
// a form that [DecodeRecord] refuses it is at most 1 MiB and a few bytes, or the form's own length.
func PlainSize(form []byte) int {
	if len(form) > packedHeader && form[0] == compressedForm {
		if n, err := packed.Len(form[packedHeader:]); err == nil {
			return plainHeader + n
		}
	}
	return len(form)
}

// Checksum returns the record's checksum that a byte form carries, or 0 if the form is too
// short to be one. It is the same for all forms of a record. Whether it is the right one,
// [DecodeRecord] knows.
func Checksum(form []byte) uint32 {
	if len(form) < plainHeader {
		return 0
	}
	return binary.LittleEndian.Uint32(form[1:])
}

// plainSum is a record's checksum: that over its plain form, but for the checksum itself.
func plainSum(body []byte) uint32 { return crc32.Update(plainStart, castagnoli, body) }

var plainStart = crc32.Checksum([]byte{plainForm}, castagnoli)

// packedSum is the checksum over all of a compressed form but itself.
func packedSum(form []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, form[:plainHeader]), castagnoli, form[packedHeader:])
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

// DecodeRecord reads a record's byte form. It keeps no
// reference to form. The error matches [ErrCorrupt] if the bytes are not what [AppendRecord] or
// [CompressRecord] wrote, or were written by a newer version; hostile bytes cost time and
// memory linear in their number, beside what 1 MiB costs that was compressed. It is safe for
// use by several goroutines.
func DecodeRecord(form []byte) (Record, error) {
	buf := bodies.Get().(*[]byte)
	defer release(buf)
	body, err := openForm(form, buf)
	if err != nil {
		return Record{}, fmt.Errorf("record: %w", err)
	}
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(bytes.NewReader(body))
	rd := recordReader{dec: dec}
	rec := rd.record()
	if rd.err != nil {
		return Record{}, fmt.Errorf("%w: record: %w", ErrCorrupt, rd.err)
	}
	// MessagePack can say the same in many ways; a record has one.
	as := matcher{body}
	if err := writeBody(&as, rec); err != nil || len(as.rest) > 0 {
		return Record{}, fmt.Errorf("%w: record: its bytes are not as they are written", ErrCorrupt)
	}
	return rec, nil
}

// bodies are buffers for what is compressed and decompressed. Nobody keeps anything of them.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

func release(buf *[]byte) {
	const most = 64 << 10 // larger ones are rare, and would stay
	if cap(*buf) <= most {
		bodies.Put(buf)
	}
}

// matcher is an output that takes what it has, and nothing else.
type matcher struct{ rest []byte }

var errDiffers = errors.New("other bytes")

func (m *matcher) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(m.rest, p) {
		return 0, errDiffers
	}
	m.rest = m.rest[len(p):]
	return len(p), nil
}

func (m *matcher) WriteByte(c byte) error {
	if len(m.rest) == 0 || m.rest[0] != c {
		return errDiffers
	}
	m.rest = m.rest[1:]
	return nil
}
