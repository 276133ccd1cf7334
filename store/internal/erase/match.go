// Package erase erases content from sessions. It finds the content to erase, logs receipts and replaces records by
// blanks, in a session and in its relatives. A relative is a session that shares its first records with another, such
// as a fork.
package erase

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Matcher finds a text in content that an erasure can remove from events, patches and state values. This is the
// content that a record has and its blank does not. If state values are kept, a blank can still match.
type Matcher struct {
	Text   string // "" matches nothing
	Folded bool   // ignore case
}

// Event reports whether an erasure can remove the text from an event.
func (m Matcher) Event(e *patch.Event) bool {
	return m.removes(e, func() erasable { return e.Blank("", patch.NullValues) })
}

// Patch reports whether an erasure can remove the text from a patch, apart from the events that the patch inserts.
func (m Matcher) Patch(p *patch.PatchEvent) bool {
	none := func(int) bool { return false }
	return m.removes(p, func() erasable { return p.Blank("", patch.NullValues, none) })
}

type erasable interface {
	json.Marshaler
	ErasedBy() (receipt string, erased bool)
}

// removes reports whether an erasure removes the text. A string that contains the text must occur more often in the
// record than in its blank.
func (m Matcher) removes(of erasable, blank func() erasable) bool {
	counts := texts{}
	return m.Text != "" && counts.count(of, 1) && m.matchesAny(counts) && counts.count(blank(), -1) && m.matchesAny(counts)
}

// matchesAny reports whether one of the strings contains the text.
func (m Matcher) matchesAny(counts texts) bool {
	for text, n := range counts {
		if n > 0 && m.matchesText(text) {
			return true
		}
	}
	return false
}

// texts counts the strings in a JSON value: keys, strings, numbers, and the decoded bytes of parts.
type texts map[string]int

// count adds n for each string of a record or a value. It returns false if the value cannot be decoded.
func (t texts) count(of json.Marshaler, n int) bool {
	text, err := of.MarshalJSON()
	if err != nil {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // keep the digits of numbers as they are written
	var value any
	if d.Decode(&value) != nil {
		return false
	}
	if marked, ok := of.(erasable); ok {
		if _, erased := marked.ErasedBy(); erased { // the mark of an erasure is not user text
			members, _ := value.(map[string]any)
			metadata, _ := members["customMetadata"].(map[string]any)
			own, _ := metadata[patch.OwnMetadata].(map[string]any)
			delete(own, "erased")
		}
	}
	t.add("", value, n)
	return true
}

// add adds n for each string of a value. The argument name is the name of the enclosing member.
func (t texts) add(name string, value any, n int) {
	switch v := value.(type) {
	case map[string]any:
		for key, inside := range v {
			if !fieldNames[key] {
				t[key] += n
			}
			t.add(key, inside, n)
		}
	case []any:
		for _, inside := range v {
			t.add(name, inside, n)
		}
	case json.Number:
		t[string(v)] += n
	case string:
		t[v] += n
		if name == "data" { // bytes of a part; Python encodes them with the URL alphabet
			if data, err := base64.RawStdEncoding.DecodeString(urlAlphabet.Replace(strings.TrimRight(v, "="))); err == nil {
				t[string(data)] += n
			}
		}
	}
}

var urlAlphabet = strings.NewReplacer("-", "+", "_", "/")

// fieldNames are names of fields. They do not count as text, even where user data has a key with such a name.
var fieldNames = func() map[string]bool {
	names := map[string]bool{}
	for name := range strings.FieldsSeq(`
		content parts role text thought thoughtSignature functionCall functionResponse id name args response
		inlineData fileData fileUri mimeType displayName data executableCode code language codeExecutionResult
		outcome output actions stateDelta artifactDelta customMetadata usageMetadata finishReason partial
		turnComplete errorCode errorMessage interrupted groundingMetadata compaction compactedContent author
		timestamp branch invocationId state replacement summaryEvent patchType patchId eventId start count base`) {
		names[name] = true
	}
	return names
}()

func (m Matcher) matchesText(text string) bool {
	if m.Folded {
		return strings.Contains(strings.ToLower(text), strings.ToLower(m.Text))
	}
	return strings.Contains(text, m.Text)
}

// Value reports whether a state value contains the text.
func (m Matcher) Value(v patch.Value) bool {
	counts := texts{}
	return m.Text != "" && counts.count(v, 1) && m.matchesAny(counts)
}
