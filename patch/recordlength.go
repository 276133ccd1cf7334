package patch

import (
	"bytes"

	"github.com/patchlog-dev/patchlog/patch/internal/packed"
	"github.com/patchlog-dev/patchlog/patch/internal/wire"
)

// RecordLength returns how many bytes the record's byte form takes that form begins with.
// If form ends before that is known, ok is false and n is a length above len(form) that is
// needed to go on. n is 0 if form begins with no record's form, as far as can be seen:
// whether it is one, [DecodeRecord] knows. It takes time linear in form, and memory that does
// not depend on it.
func RecordLength(form []byte) (n int, ok bool) {
	header, length := plainHeader, wire.Length
	switch {
	case len(form) == 0:
		return plainHeader + 1, false
	case form[0] == compressedForm:
		header, length = packedHeader, packed.Length
	case form[0] != plainForm:
		return 0, false
	}
	if len(form) <= header {
		return header + 1, false
	}
	size, whole, err := length(form[header:])
	if err != nil || size > uint64(MaxRecordBytes-header) {
		return 0, false
	}
	return header + int(size), whole
}

// arrayOfThree is what a record's plain body begins with.
const arrayOfThree = 0x93

// FindRecord returns the first place in b at which a record's byte form may begin,
// or -1. It looks at the form's first 13 bytes, and finds none that b has fewer of.
func FindRecord(b []byte) int {
	for i := 0; i+packedHeader+len(packed.Beginning) <= len(b); i++ {
		switch b[i] {
		case plainForm:
			if b[i+plainHeader] == arrayOfThree {
				return i
			}
		case compressedForm:
			if bytes.HasPrefix(b[i+packedHeader:], packed.Beginning) {
				return i
			}
		}
	}
	return -1
}
