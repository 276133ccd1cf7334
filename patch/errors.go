package patch

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalid is matched by errors about invalid input. Examples are a malformed event or patch, a value
	// that cannot be stored unchanged, and input that is not in the text form. The message names the field.
	ErrInvalid = errors.New("invalid")

	// ErrCorrupt is matched by errors about stored bytes that differ from the bytes written.
	ErrCorrupt = errors.New("corrupt")

	// ErrTooLarge is matched by errors about input that exceeds a size limit.
	ErrTooLarge = errors.New("too large")
)

// FieldError reports a malformed field of an event or a patch. It matches [ErrInvalid].
type FieldError struct {
	Field   string // a JSON pointer without the first slash, such as "actions/stateDelta/price"
	Problem string
	Flaw    Flaw // the flaw of a patch; "" for other errors
}

func (e *FieldError) Error() string {
	switch {
	case e.Flaw != "":
		return fmt.Sprintf("invalid patch: %s: field %q: %s", e.Flaw, e.Field, e.Problem)
	case e.Field == "":
		return "invalid: " + e.Problem
	}
	return fmt.Sprintf("invalid: field %q: %s", clip(e.Field), e.Problem)
}

// Is reports whether target is [ErrInvalid].
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// within returns the error with the JSON pointer put before its field.
func (e *FieldError) within(pointer string) *FieldError {
	field := strings.TrimPrefix(pointer, "/")
	if field != "" && e.Field != "" {
		field += "/"
	}
	return &FieldError{Field: field + e.Field, Problem: e.Problem, Flaw: e.Flaw}
}

func notUTF8(field, text string) *FieldError {
	return fieldErr(field, "the text %.40q is not valid UTF-8; store bytes as []byte", text)
}

func fieldErr(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// clip returns the beginning of a text, for use in an error message.
func clip[T string | []byte](text T) string {
	const limit = 200
	if len(text) <= limit {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:limit]), "") + "…"
}
