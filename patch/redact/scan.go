package redact

import (
	"regexp"
	"strings"
)

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

var (
	escape       = regexp.MustCompile(`\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2}`)
	escapeBefore = regexp.MustCompile(`(?:\\[nrtbf]|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2})$`)
)

// search calls find with the places in a text that index returns, as [strings.Index] does, and returns the byte ranges
// of secrets. find returns the start and end of a secret, which are equal if there is none, and where the search goes
// on. To keep the search linear, find must not read far behind that place.
func search(text string, index func(text string) int, find func(at int) (start, end, next int)) (found [][]int) {
	for at := 0; at < len(text); {
		i := index(text[at:])
		if i < 0 {
			break
		}
		start, end, next := find(at + i)
		if start < end {
			found = append(found, []int{start, end})
		}
		at = max(at+i+1, next)
	}
	return found
}

// indexAny returns a function that returns the index of the first of some characters in a text, or -1.
func indexAny(chars string) func(text string) int {
	return func(text string) int { return strings.IndexAny(text, chars) }
}

// index returns a function that returns the index of a part in a text, or -1.
func index(part string) func(text string) int {
	return func(text string) int { return strings.Index(text, part) }
}

// prefixOf returns the start of a text that consists of some characters.
func prefixOf(text, chars string) string { return text[:len(text)-len(strings.TrimLeft(text, chars))] }

// prefixWithout returns the start of a text that has none of some characters.
func prefixWithout(text, chars string) string {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i]
	}
	return text
}

// blankEscapes returns a text of the same length without the escapes of JSON and of URLs that have digits of their own.
func blankEscapes(text string) string {
	if !strings.ContainsRune(text, '%') && !strings.Contains(text, `\u`) {
		return text
	}
	return escape.ReplaceAllStringFunc(text, func(e string) string { return strings.Repeat("\x00", len(e)) })
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// wordBefore reports whether a word goes on at a place. Escapes of JSON and of URLs that end there are not part of a
// word.
func wordBefore(text string, at int) bool {
	return at > 0 && isWord(text[at-1]) && !escapeBefore.MatchString(text[max(at-6, 0):at])
}

// wordAfter reports whether a word goes on behind a place.
func wordAfter(text string, end int) bool { return end < len(text) && isWord(text[end]) }
