package redact

import "strings"

// charset is a set of ASCII characters.
type charset [256]bool

func setOf(ranges string, more string) *charset {
	var s charset
	for i := 0; i+1 < len(ranges); i += 2 {
		for c := ranges[i]; c <= ranges[i+1]; c++ {
			s[c] = true
		}
	}
	for i := range len(more) {
		s[more[i]] = true
	}
	return &s
}

var (
	digits       = setOf("09", "")
	hexDigits    = setOf("09afAF", "")
	capitals     = setOf("09AZ", "")
	letters      = setOf("azAZ", "")
	alphanumeric = setOf("09azAZ", "")
	word         = setOf("09azAZ", "_")
	urlSafe      = setOf("09azAZ", "_-")
	base64Digits = setOf("09azAZ", "+/=")
)

// runEnd returns where the characters of a set end that begin at a place.
func runEnd(text string, from int, of *charset) int {
	for from < len(text) && of[text[from]] {
		from++
	}
	return from
}

// runStart returns the start of the run of a set's characters that ends at end, of at most most bytes.
func runStart(text string, end, most int, of *charset) int {
	at := end
	for at > 0 && end-at < most && of[text[at-1]] {
		at--
	}
	return at
}

// wordBefore reports whether a word goes on at a place. Escapes of JSON, and of URLs, that end there
// are no words.
func wordBefore(text string, at int) bool {
	switch {
	case at == 0 || !word[text[at-1]]:
		return false
	case at >= 2 && text[at-2] == '\\' && strings.IndexByte("nrtbf", text[at-1]) >= 0:
		return false
	case at >= 6 && text[at-6] == '\\' && text[at-5] == 'u' && runStart(text, at, 4, hexDigits) == at-4:
		return false
	case at >= 3 && text[at-3] == '%' && runStart(text, at, 2, hexDigits) == at-2:
		return false
	}
	return true
}

// escapesEnd returns where escapes of JSON or of URLs end that begin at a place and have digits of
// their own, or the place.
func escapesEnd(text string, at int) int {
	for at < len(text) {
		body, n := at+1, 2
		switch {
		case text[at] == '\\' && body < len(text) && text[body] == 'u':
			body, n = at+2, 4
		case text[at] != '%':
			return at
		}
		if runEnd(text[:min(body+n, len(text))], body, hexDigits) != body+n {
			return at
		}
		at = body + n
	}
	return at
}

// wordAfter reports whether a word goes on behind a place.
func wordAfter(text string, end int) bool { return end < len(text) && word[text[end]] }

func contains(text string, of *charset) bool {
	for i := range len(text) {
		if of[text[i]] {
			return true
		}
	}
	return false
}
