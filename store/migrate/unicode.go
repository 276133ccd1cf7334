package migrate

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// toValidUnicode replaces bytes and escapes in JSON that are not Unicode by U+FFFD. The result changed reports
// whether anything was replaced. If not, the text is returned unchanged.
func toValidUnicode(text []byte) (repaired []byte, changed bool) {
	if !utf8.Valid(text) {
		text, changed = bytes.ToValidUTF8(text, []byte("\ufffd")), true
	}
	var out []byte // result for text[:done]
	done := 0
	for at := 0; ; {
		i := bytes.IndexByte(text[min(at, len(text)):], '\\')
		if i < 0 {
			break
		}
		at += i
		r := decodeEscape(text[at:])
		if !utf16.IsSurrogate(r) {
			at += 2
			continue
		}
		if utf16.DecodeRune(r, decodeEscape(text[min(at+6, len(text)):])) != utf8.RuneError {
			at += 12
			continue
		}
		out = append(append(out, text[done:at]...), `\ufffd`...)
		at += 6
		done = at
	}
	if done == 0 {
		return text, changed
	}
	return append(out, text[done:]...), true
}

// decodeEscape returns the code unit of the \uXXXX escape at the start of a text, or -1.
func decodeEscape(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return rune(n)
}

// trailingObject returns the JSON object at the end of a line that begins with a truncated object. If there is no
// such object, it returns nil. A crash may leave such a line.
func trailingObject(line []byte) json.RawMessage {
	const tries = 64
	for at, n := 0, 0; n < tries; n++ {
		i := bytes.Index(line[min(at+1, len(line)):], []byte(`{"`))
		if i < 0 {
			break
		}
		at += 1 + i
		if rest := trim(line[at:]); json.Valid(rest) {
			return rest
		}
	}
	return nil
}
