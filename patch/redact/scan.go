package redact

import (
	"regexp"
	"strings"
)

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

	// Escapes of JSON and of URLs, in texts that hold JSON or URLs, are not part of the word behind them. Those that
	// have digits must not be taken for numbers.
	digitEscape = `\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2}`
	anyEscape   = digitEscape + `|\\[nrtbf]`
)

var (
	escape       = regexp.MustCompile(digitEscape)
	escapeBefore = regexp.MustCompile(`(?:` + anyEscape + `)$`)
)

// search calls find with the places of some characters in a text, and returns the byte ranges of secrets. find returns
// the start and end of a secret, which are equal if there is none, and where the search goes on at the earliest. The
// search is linear in the text if find reads a bounded number of bytes that are behind that place.
func search(text, chars string, find func(at int) (start, end, next int)) (found [][]int) {
	for at := 0; at < len(text); at++ {
		i := strings.IndexAny(text[at:], chars)
		if i < 0 {
			break
		}
		at += i
		start, end, next := find(at)
		if start < end {
			found = append(found, []int{start, end})
		}
		at = max(at, next-1)
	}
	return found
}

// prefixOf returns the start of a text that consists of some characters.
func prefixOf(text, chars string) string { return text[:len(text)-len(strings.TrimLeft(text, chars))] }

// blankEscapes returns a text of the same length without the escapes that have digits.
func blankEscapes(text string) string {
	if !strings.Contains(text, "%") && !strings.Contains(text, `\u`) {
		return text
	}
	return escape.ReplaceAllStringFunc(text, func(e string) string { return strings.Repeat("\x00", len(e)) })
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// wordBefore reports whether a word goes on at a place.
func wordBefore(text string, at int) bool {
	before := text[max(at-6, 0):at]
	return at > 0 && isWord(text[at-1]) && !(strings.ContainsAny(before, `\%`) && escapeBefore.MatchString(before))
}

// wordAfter reports whether a word goes on behind a place.
func wordAfter(text string, end int) bool { return end < len(text) && isWord(text[end]) }
