package summaries

import (
	"strings"
	"unicode"

	"github.com/patchlog-dev/patchlog/patch"
)

// Content is a summary as a model sees it. Its role is always user: a summary may come first
// in the prompt, or before a function call, where a model's API refuses a turn of role model.
// The API accepts two turns of the user in a row.
func Content(text string) patch.Value { return patch.Text("user", text) }

// Text returns the texts of a record's content, cleaned, without thoughts.
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

// Clean is a text without what a terminal or a reader of the log would take for a command:
// control characters other than line breaks and tabs, and those that turn the direction of
// writing. What is no Unicode becomes U+FFFD.
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

// isSeen reports whether r is a letter or a digit that shows. Fillers of Hangul are letters by Unicode, and do not.
func isSeen(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsNumber(r)) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// ProblemOf says why a clean text cannot be a summary; "" if it can.
func ProblemOf(text string) string {
	switch {
	case text == "":
		return "it is empty"
	case !strings.ContainsFunc(text, isSeen):
		return "it has no letter and no digit"
	}
	return ""
}
