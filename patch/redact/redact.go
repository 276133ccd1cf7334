// Package redact replaces secrets in texts with placeholders. Secrets are keys and passwords, card and account
// numbers, e-mail addresses, and telephone numbers. Use the package for data that leaves a log, such as the
// input of a summarizer, search results, or an export. The log does not change.
//
// The package recognises a secret by its form. If the kind of secret has a checksum, the package also verifies
// the checksum. It does not find names, postal addresses, or passwords in prose. It does not find secrets that
// are spelled in another way, or that are in images or archives.
package redact

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Pattern finds secrets of one kind. Its functions must be safe for concurrent use.
type Pattern struct {
	// Name is the name in placeholders. It consists of letters from a to z, digits and dashes, and begins with
	// a letter.
	Name string

	// Find, if not nil, returns the byte ranges of secrets in a text, like regexp's FindAllStringIndex, but in
	// any order. It should take time linear in the length of the text.
	Find func(text string) [][]int

	// Is, if not nil, reports whether a whole text is a secret. The argument key is the name of the JSON member
	// with this text, such as "password".
	Is func(key, text string) bool
}

// Options configures a redactor. The zero value means the defaults.
type Options struct {
	// Patterns are the patterns to use. If there are none, the redactor uses [Default].
	Patterns []Pattern

	// Key is a secret key. Redactors with the same key make the same placeholders. A person with the key can
	// test whether a placeholder stands for a given card number. If Key is empty, the redactor uses a random
	// key. Placeholders are then stable only within this redactor.
	Key []byte
}

// Redactor replaces secrets with placeholders such as [card 3f9a1c07]. A placeholder consists of the pattern's
// name and a number. Equal secrets have the same number, even if their case or punctuation differs. The number
// does not reveal the secret. Redacting a text twice gives the same result as redacting it once.
//
// A redactor takes time linear in its input if its patterns do. It is safe for concurrent use. A nil Redactor
// changes nothing.
type Redactor struct {
	patterns []Pattern
	key      []byte
}

// Default returns all patterns of this package except [IPs].
func Default() []Pattern { return []Pattern{Keys(), Cards(), IBANs(), Emails(), Phones()} }

// All returns all patterns of this package.
func All() []Pattern { return append(Default(), IPs()) }

var patternName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// New returns a redactor. If a pattern has an invalid name, or has neither Find nor Is, the error matches
// [patch.ErrInvalid].
func New(opts Options) (*Redactor, error) {
	r := &Redactor{patterns: slices.Clone(opts.Patterns), key: slices.Clone(opts.Key)}
	if len(r.patterns) == 0 {
		r.patterns = Default()
	}
	for i, p := range r.patterns {
		field := fmt.Sprintf("Options.Patterns[%d]", i)
		switch {
		case !patternName.MatchString(p.Name):
			return nil, &patch.FieldError{Field: field + ".Name", Problem: fmt.Sprintf("invalid name %q; want letters from a to z, digits and dashes, with a letter first", p.Name)}
		case p.Find == nil && p.Is == nil:
			return nil, &patch.FieldError{Field: field, Problem: fmt.Sprintf("pattern %q has neither Find nor Is", p.Name)}
		}
	}
	if len(r.key) == 0 {
		r.key = []byte(rand.Text())
	}
	return r, nil
}

// Names returns the names of the redactor's patterns, in order.
func (r *Redactor) Names() []string {
	if r == nil {
		return nil
	}
	var names []string
	for _, p := range r.patterns {
		names = append(names, p.Name)
	}
	return names
}

// Text returns a text with placeholders in place of secrets. If the text is the base64 encoding of UTF-8 text
// and has at least 24 characters, Text also redacts the decoded text.
func (r *Redactor) Text(text string) string { return r.redactMember("", text) }

// Record returns a record with its texts redacted. Ids, seqs, names of functions, times and structure do not
// change.
func (r *Redactor) Record(record patch.Record) (patch.Record, error) {
	if r == nil {
		return record, nil
	}
	return rewriteRecord(record, r.redactMember)
}

// Event returns an event with its texts redacted, as [Redactor.Record] does.
func (r *Redactor) Event(e *patch.Event) (*patch.Event, error) {
	if r == nil {
		return e, nil
	}
	return rewriteEvent(e, r.redactMember)
}

// Events returns events with their texts redacted, as [Redactor.Event] does. The caller owns the slice.
func (r *Redactor) Events(events []*patch.Event) ([]*patch.Event, error) {
	out := slices.Clone(events)
	for i, e := range events {
		var err error
		if out[i], err = r.Event(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// State returns a session's state with its texts redacted. The caller owns the map.
func (r *Redactor) State(state map[string]patch.Value) (map[string]patch.Value, error) {
	object, err := patch.NewValue(state)
	if err == nil && r != nil {
		object, err = rewriteValue(object, r.redactMember)
	}
	if err != nil {
		return nil, err
	}
	return object.Members(), nil
}

// redactMember redacts the text of the JSON member with the given key. The key is "" for other texts.
func (r *Redactor) redactMember(key, text string) string {
	if r == nil || text == "" {
		return text
	}
	if key != "" && !placeholder.MatchString(text) {
		for _, p := range r.patterns {
			if p.Is != nil && p.Is(key, text) {
				return r.placeholder(p.Name, text)
			}
		}
	}
	if len(text) >= minEncodedLen && len(text)%4 == 0 && !strings.Contains(text, " ") {
		if rewritten := rewriteBase64(key, text, r.redactMember); rewritten != text {
			return rewritten
		}
	}
	return r.redactMatches(text)
}

// redactMatches redacts the matches of the patterns in a text. Overlapping matches become one placeholder, with the
// name of the pattern of the first match.
func (r *Redactor) redactMatches(text string) string {
	var all [][]int // start, index of the pattern, end
	for i, p := range r.patterns {
		if p.Find == nil {
			continue
		}
		for _, at := range p.Find(text) {
			if len(at) >= 2 && max(at[0], 0) < min(at[1], len(text)) {
				all = append(all, []int{max(at[0], 0), i, min(at[1], len(text))})
			}
		}
	}
	slices.SortFunc(all, slices.Compare)
	var out strings.Builder
	end := 0
	for i := 0; i < len(all); {
		s := all[i]
		for i++; i < len(all) && all[i][0] < s[2]; i++ {
			s[2] = max(s[2], all[i][2])
		}
		out.WriteString(text[end:s[0]] + r.placeholder(r.patterns[s[1]].Name, text[s[0]:s[2]]))
		end = s[2]
	}
	return out.String() + text[end:]
}

var placeholder = regexp.MustCompile(`^\[[a-z][a-z0-9-]* [0-9a-f]{8}\]$`)

// punctuationOrSpace matches the characters that do not affect a placeholder.
var punctuationOrSpace = regexp.MustCompile(`[^\pL\pN]+`)

func (r *Redactor) placeholder(name, secret string) string {
	plain := strings.ToLower(punctuationOrSpace.ReplaceAllString(secret, ""))
	sum := hmac.New(sha256.New, r.key)
	sum.Write([]byte(cmp.Or(plain, secret)))
	return fmt.Sprintf("[%s %x]", name, sum.Sum(nil)[:4])
}

// minEncodedLen is the minimum length of a text that is decoded as base64.
const minEncodedLen = 24
