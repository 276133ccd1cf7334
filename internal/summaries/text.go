package summaries

import (
	"strings"
	"unicode"

	"github.com/patchlog-dev/patchlog/patch"
)

// Content returns the content of a summary event. Its role is always user. A summary may come first in the prompt, or
// directly before a function call, and a model's API refuses role model at these positions. The API accepts two user
// messages in a row.
func Content(text string) patch.Value { return patch.Text("user", text) }

// Text returns the texts of a content without thoughts, cleaned by [Clean].
func Text(content patch.Value) string {
	var texts []string
	for _, p := range content.Parts() {
		if p.Kind != patch.PartText {
			continue
		}
		if text := Clean(p.Text); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

// Clean removes characters that a terminal or a reader of the log could take for commands: control characters other
// than line breaks and tabs, and bidirectional controls. It replaces invalid UTF-8 with U+FFFD, and trims white space.
func Clean(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD")))
}

// isVisible reports whether r is a visible letter or digit. Hangul fillers are letters in Unicode but invisible.
func isVisible(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsNumber(r)) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// ProblemOf returns the reason why a cleaned text cannot be a summary, or "".
func ProblemOf(text string) string {
	switch {
	case text == "":
		return "it is empty"
	case !strings.ContainsFunc(text, isVisible):
		return "it has no letter and no digit"
	}
	return ""
}
