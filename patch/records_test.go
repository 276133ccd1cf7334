package patch_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
)

func parse(t testing.TB, text string) patch.Record {
	t.Helper()
	rec, err := patch.ParseRecord([]byte(text))
	if err != nil {
		t.Fatalf("ParseRecord(%.200s): %v", text, err)
	}
	return rec
}

func parsePatch(t testing.TB, text string) *patch.PatchEvent {
	t.Helper()
	rec := parse(t, text)
	if rec.Patch == nil {
		t.Fatalf("%.200s is no patch", text)
	}
	return rec.Patch
}

func parseEvent(t testing.TB, text string) *patch.Event {
	t.Helper()
	e, err := patch.ParseEvent([]byte(text))
	if err != nil {
		t.Fatalf("ParseEvent(%.200s): %v", text, err)
	}
	return e
}

func newEvent(t testing.TB, f patch.Fields) *patch.Event {
	t.Helper()
	e, err := patch.NewEvent(f)
	if err != nil {
		t.Fatalf("NewEvent: %v", err)
	}
	return e
}

func marshal(t testing.TB, v json.Marshaler) string {
	t.Helper()
	text, err := v.MarshalJSON()
	if err != nil {
		t.Fatalf("MarshalJSON: %v", err)
	}
	return string(text)
}

func encode(t testing.TB, rec patch.Record) []byte {
	t.Helper()
	form, err := patch.AppendRecord(nil, rec)
	if err != nil {
		t.Fatalf("AppendRecord(%v): %v", rec.ID(), err)
	}
	return form
}

// stored returns the record after encoding and decoding. It checks that the compressed and the uncompressed
// form give the same record.
func stored(t testing.TB, rec patch.Record) patch.Record {
	t.Helper()
	form := encode(t, rec)
	var back patch.Record
	for _, kept := range [][]byte{form, recordform.Compress(form)} {
		var err error
		if back, err = patch.DecodeRecord(kept); err != nil {
			t.Fatalf("DecodeRecord of version %d: %v", kept[0], err)
		}
		if again := encode(t, back); string(again) != string(form) {
			t.Fatalf("after version %d the record is\n%x, was\n%x", kept[0], again, form)
		}
	}
	return back
}

func storedEvent(t testing.TB, e *patch.Event) *patch.Event {
	t.Helper()
	return stored(t, patch.Record{Event: e}).Event
}

// seal puts version 1 and the checksum before a payload.
func seal(payload []byte) []byte {
	form := append([]byte{1, 0, 0, 0, 0}, payload...)
	binary.LittleEndian.PutUint32(form[1:], crc32c([]byte{1}, payload))
	return form
}

func crc32c(parts ...[]byte) uint32 {
	return crc32.Checksum(bytes.Join(parts, nil), crc32.MakeTable(crc32.Castagnoli))
}

// wantField checks that err names the given field.
func wantField(t testing.TB, err error, field string) {
	t.Helper()
	var at *patch.FieldError
	switch {
	case err == nil:
		t.Errorf("no error, want one about field %q", field)
	case !errors.As(err, &at):
		t.Errorf("error %v is no FieldError", err)
	case at.Field != field:
		t.Errorf("error %v is about field %q, want %q", err, at.Field, field)
	case !errors.Is(err, patch.ErrInvalid):
		t.Errorf("error %v does not match ErrInvalid", err)
	case !strings.Contains(err.Error(), field[:min(len(field), 200)]): // the error shortens a long field
		t.Errorf("the text %q does not name %q", err, field)
	}
}
