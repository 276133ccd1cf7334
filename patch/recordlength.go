package patch

import "github.com/patchlog-dev/patchlog/patch/internal/wire"

// RecordLength returns how many bytes the record's byte form takes that form begins with.
// If form ends before that is known, ok is false and n is a length above len(form) that is
// needed to go on. n is 0 if form begins with no record's form, as far as can be seen:
// whether it is one, [DecodeRecord] knows. It takes time linear in form and allocates
// nothing.
func RecordLength(form []byte) (n int, ok bool) {
	if len(form) > 0 && form[0] != RecordVersion {
		return 0, false
	}
	if len(form) < formHeader+1 {
		return formHeader + 1, false
	}
	size, whole, err := wire.Length(form[formHeader:])
	if err != nil || size > MaxRecordBytes-formHeader {
		return 0, false
	}
	return formHeader + int(size), whole
}
