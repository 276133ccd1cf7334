package quality

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/patch"
)

// leastRunes is how long an identifier is at least: shorter ones stand anywhere.
const leastRunes = 5

// Identifiers returns what a text has that is of use only word for word: URLs, e-mail
// addresses, paths, and words with a digit in them, of five characters and more, each once,
// sorted. What stands around them, such as quotes, brackets and the period of a sentence, is no part.
func Identifiers(text string) []string {
	found := map[string]bool{}
	for _, word := range strings.FieldsFunc(text, separates) {
		word = strings.TrimFunc(word, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '/' && r != '~' })
		word = strings.TrimRight(word, "/~")
		if utf8.RuneCountInString(word) >= leastRunes && isIdentifier(word) {
			found[word] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// separates reports whether a rune is no part of an identifier.
func separates(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune(`"'`+"`"+`()[]{}<>|,;=\*“”‘’«»`, r)
}

func isIdentifier(word string) bool {
	switch {
	case strings.ContainsFunc(word, unicode.IsDigit):
		return true
	case strings.Contains(word, "://"):
		return true
	case strings.Contains(word, "@"):
		name, host, _ := strings.Cut(word, "@")
		return name != "" && strings.Contains(host, ".")
	}
	// A path has a slash between names; "and/or" is none.
	return strings.Count(word, "/") > 1 || strings.HasPrefix(word, "/") && len(word) > 1 ||
		strings.Contains(word, "/") && strings.Contains(word[strings.LastIndex(word, "/"):], ".")
}

// textOf is all that an event says to a model, a piece a line: texts, and the names and the
// values of calls and responses. Thoughts are left out.
func textOf(e *patch.Event) string {
	var b strings.Builder
	for _, p := range e.Content().Parts() {
		if p.Thought() {
			continue
		}
		line(&b, p.Text())
		line(&b, p.Name())
		line(&b, p.URI())
		values(&b, p.Args())
		values(&b, p.Response())
	}
	return b.String()
}

func line(b *strings.Builder, text string) {
	if text != "" {
		b.WriteString(text)
		b.WriteByte('\n')
	}
}

// values writes the strings and numbers in a JSON text.
func values(b *strings.Builder, text json.RawMessage) {
	if len(text) == 0 {
		return
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return
		}
		switch t := token.(type) {
		case string:
			line(b, t)
		case json.Number:
			line(b, t.String())
		}
	}
}

// has reports whether a text has an identifier that is not a part of a longer word.
func has(text, id string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], id)
		if i < 0 {
			return false
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(id):])
		if !partOfWord(before) && !partOfWord(after) {
			return true
		}
		from = i + 1
	}
}

func partOfWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}
