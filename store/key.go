package store

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/patch"
)

// Key identifies a session.
type Key struct {
	App     string
	User    string
	Session string
}

// MaxKeyPartBytes is the maximum length of each part of a Key.
const MaxKeyPartBytes = 1024

// Validate reports whether each part is UTF-8 text of 1 to [MaxKeyPartBytes] bytes. The error matches [ErrInvalid]
// and names the part.
func (k Key) Validate() error {
	for _, p := range []struct{ name, text string }{{"app", k.App}, {"user", k.User}, {"session", k.Session}} {
		switch {
		case p.text == "":
			return &patch.FieldError{Field: p.name, Problem: "this part of a session's key is empty"}
		case len(p.text) > MaxKeyPartBytes:
			return &patch.FieldError{Field: p.name, Problem: fmt.Sprintf("this part of a session's key has %d bytes; at most %d are allowed", len(p.text), MaxKeyPartBytes)}
		case !utf8.ValidString(p.text):
			return &patch.FieldError{Field: p.name, Problem: fmt.Sprintf("this part of a session's key, %.40q, is not UTF-8", p.text)}
		}
	}
	return nil
}

// String returns the key as app/user/session. In each part, slashes, percent signs, spaces, invisible characters
// and all ASCII characters that a URL path segment must not contain are percent-escaped.
func (k Key) String() string {
	return escapePart(k.App) + "/" + escapePart(k.User) + "/" + escapePart(k.Session)
}

// MarshalText implements [encoding.TextMarshaler]. It returns the text of [Key.String].
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It parses the text with [ParseKey].
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKey(string(text))
	return err
}

func escapePart(part string) string {
	var b strings.Builder
	for len(part) > 0 {
		r, size := utf8.DecodeRuneInString(part)
		if text := part[:size]; r >= utf8.RuneSelf && size > 1 && unicode.IsPrint(r) {
			b.WriteString(text)
		} else {
			b.WriteString(url.PathEscape(text))
		}
		part = part[size:]
	}
	return b.String()
}

// ParseKey parses the text that [Key.String] returns. The error matches [ErrInvalid].
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return Key{}, &patch.FieldError{Field: "key", Problem: fmt.Sprintf("%q is not app/user/session with each part percent-escaped", s)}
	}
	for i, p := range parts {
		text, err := url.PathUnescape(p)
		if err != nil {
			return Key{}, &patch.FieldError{Field: "key", Problem: fmt.Sprintf("%q: %v", s, err)}
		}
		parts[i] = text
	}
	k := Key{parts[0], parts[1], parts[2]}
	return k, k.Validate()
}

// name returns the session's name in the backend. It consists of the parts of the key. Each NUL in a part is
// escaped as NUL FF, and NUL 01 ends each part. Names therefore sort by part, and the names of an app's or a
// user's sessions share a prefix that no other name has.
func (k Key) name() string {
	return prefixOf(k.App, k.User, k.Session)
}

func escapeNUL(part string) string   { return strings.ReplaceAll(part, "\x00", "\x00\xff") }
func unescapeNUL(part string) string { return strings.ReplaceAll(part, "\x00\xff", "\x00") }

const partEnd = "\x00\x01"

func prefixOf(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(escapeNUL(p))
		b.WriteString(partEnd)
	}
	return b.String()
}

func keyOf(name string) (Key, error) {
	parts := strings.Split(name, partEnd) // the name ends with partEnd, so the last element is empty
	if len(parts) != 4 {
		return Key{}, fmt.Errorf("%w: session name %q", ErrCorrupt, name)
	}
	return Key{unescapeNUL(parts[0]), unescapeNUL(parts[1]), unescapeNUL(parts[2])}, nil
}
