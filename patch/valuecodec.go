package patch

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/patchlog-dev/patchlog/patch/internal/packed"
	"github.com/patchlog-dev/patchlog/patch/internal/wire"
)

// MarshalBinary returns the value's byte form, for a store: with a checksum,
// and with the Go types that JSON alone would not bring back.
func (v Value) MarshalBinary() ([]byte, error) {
	buf := bytes.NewBuffer([]byte{plainForm, 0, 0, 0, 0})
	w := recordWriter{enc: msgpack.NewEncoder(buf)}
	w.array(2)
	w.members([]member{{"value", v.json()}}, v.types.under("value"))
	if w.err != nil {
		return nil, w.err
	}
	form := buf.Bytes()
	binary.LittleEndian.PutUint32(form[1:], plainSum(form[plainHeader:]))
	return form, nil
}

// UnmarshalBinary sets the value to the one that MarshalBinary wrote. It keeps no
// reference to form. The error matches [ErrCorrupt].
func (v *Value) UnmarshalBinary(form []byte) error {
	if len(form) > 0 && form[0] != plainForm {
		return fmt.Errorf("%w: value: form %d, want %d", ErrCorrupt, form[0], plainForm)
	}
	body, err := openForm(form, nil)
	if err != nil {
		return err
	}
	r := recordReader{dec: msgpack.NewDecoder(bytes.NewReader(body))}
	if n := r.array(); n != 2 {
		r.fail("%d fields in a value, want 2", n)
	}
	members, types := r.members(&identity{})
	switch {
	case r.err != nil:
		return fmt.Errorf("%w: value: %w", ErrCorrupt, r.err)
	case len(members) != 1 || members[0].name != "value":
		return fmt.Errorf("%w: value: not a value's form", ErrCorrupt)
	}
	value := Value{members[0].text, notesAt(types, "value")}
	if again, err := value.MarshalBinary(); err != nil || !bytes.Equal(again, form) {
		return fmt.Errorf("%w: value: its bytes are not as they are written", ErrCorrupt)
	}
	*v = value
	return nil
}

// openForm checks a form's length, kind, checksums and structure, and returns its body, which is
// part of the form or of what buf becomes.
func openForm(form []byte, buf *[]byte) (body []byte, err error) {
	switch {
	case len(form) > MaxRecordBytes:
		return nil, fmt.Errorf("%w: a form of %d bytes; at most %d are ever written", ErrCorrupt, len(form), MaxRecordBytes)
	case len(form) < plainHeader:
		return nil, fmt.Errorf("%w: a form of %d bytes is cut off", ErrCorrupt, len(form))
	case form[0] != plainForm && form[0] != compressedForm:
		return nil, fmt.Errorf("%w: form %d; this program knows the forms %d and %d, a newer one may know it", ErrCorrupt, form[0], plainForm, compressedForm)
	}
	body = form[plainHeader:]
	if form[0] == compressedForm {
		if body, err = unpack(form, buf); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	if sum, want := plainSum(body), Checksum(form); sum != want {
		return nil, fmt.Errorf("%w: checksum %08x, want %08x", ErrCorrupt, sum, want)
	}
	if err := wire.Scan(body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return body, nil
}

// unpack returns the body of a compressed form, in what buf becomes. Damage is found before
// anything is decompressed.
func unpack(form []byte, buf *[]byte) ([]byte, error) {
	if len(form) < packedHeader {
		return nil, fmt.Errorf("a form of %d bytes is cut off", len(form))
	}
	if sum, want := packedSum(form), binary.LittleEndian.Uint32(form[plainHeader:]); sum != want {
		return nil, fmt.Errorf("checksum %08x of the compressed form, want %08x", sum, want)
	}
	body, err := packed.Open(*buf, form[packedHeader:])
	if err == nil {
		*buf = body
	}
	return body, err
}
