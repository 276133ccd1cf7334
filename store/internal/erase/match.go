// Package erase says what an erasure takes of a log: what a text is found in, what a scan of the records
// finds, and what receipts say of them. It reads and writes nothing.
package erase

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// Matcher finds a text in the parts of events, patches and state values that an erase can remove. What
// these parts are has one definition: the difference between a record and its blank with null in place
// of state values. So a blank whose state values were kept matches by these.
type Matcher struct {
	Text   string // "" is found nowhere
	Folded bool   // upper and lower case are alike
}

// Event reports whether an erase can remove the text from an event.
func (m Matcher) Event(e *patch.Event) bool {
	return m.removes(e, func() json.Marshaler { return e.Blank("", patch.NullValues) })
}

// Patch reports whether an erase can remove the text from what a patch says besides the events that it puts in.
func (m Matcher) Patch(p *patch.PatchEvent) bool {
	none := func(int) bool { return false }
	return m.removes(p, func() json.Marshaler { return p.Blank("", patch.NullValues, none) })
}

// erasable is an event or a patch.
type erasable interface {
	json.Marshaler
	ErasedBy() (receipt string, erased bool)
}

// removes reports whether the text is in one form of a record and not, at the same place, in its blank. The mark of an
// erasing is no text.
func (m Matcher) removes(of erasable, blank func() json.Marshaler) bool {
	if m.Text == "" {
		return false
	}
	fields, ok := fieldsOf(of)
	if !ok || !m.in("", fields, nil) {
		return false
	}
	left, ok := fieldsOf(blank())
	if mark, _ := of.ErasedBy(); mark != "" {
		delete(ownMetadata(fields), "erased")
	}
	return ok && m.in("", fields, left)
}

func fieldsOf(of json.Marshaler) (fields map[string]any, ok bool) {
	text, err := of.MarshalJSON()
	return fields, err == nil && unmarshal(text, &fields) == nil
}

func ownMetadata(fields map[string]any) map[string]any {
	metadata, _ := fields["customMetadata"].(map[string]any)
	own, _ := metadata[patch.OwnMetadata].(map[string]any)
	return own
}

// in reports whether a JSON value, that of a member with the given name, has the text where left, what
// the blank has in its place, does not have the same.
func (m Matcher) in(name string, value, left any) bool {
	switch v := value.(type) {
	case map[string]any:
		left, _ := left.(map[string]any)
		for key, inside := range v {
			stays, there := left[key]
			if !there && !fieldNames[key] && m.has(key) || m.in(key, inside, stays) {
				return true
			}
		}
	case []any:
		left, _ := left.([]any)
		return slices.ContainsFunc(v, func(inside any) bool {
			// A blank leaves out elements, such as parts that are no call and no response.
			var stays any
			if len(left) > 0 && isBlankOf(left[0], inside) {
				stays, left = left[0], left[1:]
			}
			return m.in(name, inside, stays)
		})
	case json.Number:
		return v != left && m.has(string(v))
	case string:
		if v == left {
			return false
		}
		if m.has(v) {
			return true
		}
		if name == "data" { // bytes of a part; Python writes them in the alphabet for URLs
			data, err := base64.RawStdEncoding.DecodeString(urlAlphabet.Replace(strings.TrimRight(v, "=")))
			return err == nil && m.has(string(data))
		}
	}
	return false
}

var urlAlphabet = strings.NewReplacer("-", "+", "_", "/")

// isBlankOf reports whether an element of a blank's array can be what is left of another element.
func isBlankOf(left, of any) bool {
	a, isObject := left.(map[string]any)
	b, ok := of.(map[string]any)
	if !isObject || !ok {
		return !isObject && !ok
	}
	for key := range a {
		if _, there := b[key]; !there {
			return false
		}
	}
	return true
}

// fieldNames are names of fields that say nothing. A key of data that is one of them is not text either.
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

func (m Matcher) has(text string) bool {
	if m.Folded {
		return strings.Contains(strings.ToLower(text), strings.ToLower(m.Text))
	}
	return strings.Contains(text, m.Text)
}

// Value reports whether a state value has the text.
func (m Matcher) Value(v patch.Value) bool {
	var any any
	text, err := v.MarshalJSON()
	return m.Text != "" && err == nil && unmarshal(text, &any) == nil && m.in("", any, nil)
}

// unmarshal reads JSON, and numbers as they are written.
func unmarshal(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}
