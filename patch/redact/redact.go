// Package redact replaces secrets in texts by placeholders: keys and passwords, cards and accounts, e-mail addresses
// and telephone numbers. It is for data that leaves a log, such as the input of a summarizer, search results, or an
// export. The log does not change.
//
// It recognises secrets by their form and checksum. It does not find names, postal addresses, passwords in prose, or
// secrets that are spelled differently, in images, or in archives.
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
	// Name is the name in placeholders: letters from a to z, digits and dashes.
	Name string

	// Find, if not nil, returns the byte ranges of secrets in a text, in any order, as regexp's
	// FindAllStringIndex does. It should take time linear in the text.
	Find func(text string) [][]int

	// Is, if not nil, reports whether a whole text is a secret, given the key of its JSON member, such as "password".
	Is func(key, text string) bool
}

// Options of a redactor. The zero value means the defaults.
type Options struct {
	// Patterns are the patterns to use. None means [Default].
	Patterns []Pattern

	// Key is a secret key: redactors with the same key make the same placeholders. Whoever has the key can test whether
	// a placeholder stands for a given card. Empty means a random key: placeholders are then stable only within this
	// redactor.
	Key []byte
}

// Redactor replaces secrets by placeholders such as [card 3f9a1c07]: the pattern's name, and a number that is the same
// for equal secrets, whatever their punctuation. The number does not reveal the secret. Redacting twice equals
// redacting once.
//
// It takes time linear in its input if its patterns do, and is safe for concurrent use. A nil Redactor changes nothing.
type Redactor struct {
	patterns []Pattern
	key      []byte
}

// Default returns all patterns of this package except [IPs].
func Default() []Pattern { return []Pattern{Keys(), Cards(), IBANs(), Emails(), Phones()} }

// All returns all patterns of this package.
func All() []Pattern { return append(Default(), IPs()) }

var patternName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// New returns a redactor. The error matches [patch.ErrInvalid] if a pattern has no valid name, or neither Find nor Is.
func New(opts Options) (*Redactor, error) {
	r := &Redactor{patterns: slices.Clone(opts.Patterns), key: slices.Clone(opts.Key)}
	if len(r.patterns) == 0 {
		r.patterns = Default()
	}
	for i, p := range r.patterns {
		field := fmt.Sprintf("Options.Patterns[%d]", i)
		switch {
		case !patternName.MatchString(p.Name):
			return nil, &patch.FieldError{Field: field + ".Name", Problem: fmt.Sprintf("%q is not of letters from a to z, digits and dashes", p.Name)}
		case p.Find == nil && p.Is == nil:
			return nil, &patch.FieldError{Field: field, Problem: fmt.Sprintf("%s has neither Find nor Is", p.Name)}
		}
	}
	if len(r.key) == 0 {
		r.key = []byte(rand.Text())
	}
	return r, nil
}

// Names returns the names of the redactor's patterns, in their order.
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

// Text returns a text with placeholders in place of secrets. If the text is base64 of UTF-8 text, it redacts the
// decoded text.
func (r *Redactor) Text(text string) string { return r.member("", text) }

// Record returns a record with its texts redacted. Ids, seqs, names of functions, times and structure stay.
func (r *Redactor) Record(record patch.Record) (patch.Record, error) {
	if r == nil {
		return record, nil
	}
	return rewriteRecord(record, r.member)
}

// Event returns an event with its texts redacted, as [Redactor.Record] does.
func (r *Redactor) Event(e *patch.Event) (*patch.Event, error) {
	if r == nil {
		return e, nil
	}
	return rewriteEvent(e, r.member)
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
		object, err = rewriteValue(object, r.member)
	}
	if err != nil {
		return nil, err
	}
	return object.Members(), nil
}

// member redacts the text of a JSON object's member with the given key.
func (r *Redactor) member(key, text string) string {
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
	if len(text) >= shortestEncoded && len(text)%4 == 0 && !strings.Contains(text, " ") {
		if now := rewriteBase64(key, text, r.member); now != text {
			return now
		}
	}
	return r.found(text)
}

// found redacts the matches of the patterns in a text. Overlapping matches are replaced together, under the name of the
// first.
func (r *Redactor) found(text string) string {
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

// notInPlain are the characters that do not affect a placeholder.
var notInPlain = regexp.MustCompile(`[^\pL\pN]+`)

// placeholder returns the placeholder of a secret.
func (r *Redactor) placeholder(name, secret string) string {
	plain := strings.ToLower(notInPlain.ReplaceAllString(secret, ""))
	sum := hmac.New(sha256.New, r.key)
	sum.Write([]byte(cmp.Or(plain, secret)))
	return fmt.Sprintf("[%s %x]", name, sum.Sum(nil)[:4])
}

// shortestEncoded is the minimum length of a text that is tried as base64.
const shortestEncoded = 24
