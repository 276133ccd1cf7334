package redact

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/patch"
)

// rewriteFunc returns the replacement of a text, or the text itself. The argument name is the key of the JSON
// member that contains the text, directly or in arrays. For keys, and for texts outside objects, name is "".
type rewriteFunc func(name, text string) string

// rewriteRecord returns the record with its texts rewritten. It rewrites contents, arguments, responses, the
// state, metadata, unknown fields, the author's name, and text files. A number is passed to rewrite as its
// literal. If the number is rewritten, it becomes a string. In data, such as arguments and the state, keys are
// also rewritten. If a new key already exists in the object, an apostrophe is appended.
//
// rewriteRecord does not change the structure:
//
//   - seqs, times, roles and indices
//   - ids of events, calls, patches, groups and invocations
//   - function names and branches
//   - numbers and references to records in patchlog's own metadata
//   - receipts, except their reason and their state keys
//
// If each record of a log is rewritten, the log folds as before, with other texts. Receipts still cover the
// same records.
//
// If nothing changes, rewriteRecord returns r. Otherwise the values in the record lose their Go types, as if
// the record were parsed from JSON. rewriteRecord returns the same errors as [patch.ParseRecord].
func rewriteRecord(r patch.Record, rewrite rewriteFunc) (patch.Record, error) {
	text, err := r.MarshalJSON()
	if err != nil {
		return r, err
	}
	if _, err := jsonvalue.Parse(text); err != nil { // the JSON of a forged record may be nested without limit
		return r, fmt.Errorf("%w: %w", patch.ErrInvalid, err)
	}
	w := textWriter{rewrite: rewrite, out: make([]byte, 0, len(text))}
	rules := eventTexts
	if r.Patch != nil {
		rules = patchTexts
		if _, ok := r.Patch.Erasure(); ok {
			rules = receiptTexts
		}
	}
	w.value(jsonvalue.NewCursor(text), rules, "")
	if !w.changed {
		return r, nil
	}
	return patch.ParseRecord(w.out)
}

func rewriteEvent(e *patch.Event, rewrite rewriteFunc) (*patch.Event, error) {
	r, err := rewriteRecord(patch.Record{Event: e}, rewrite)
	return r.Event, err
}

// rewriteValue returns the value with all its texts and keys rewritten.
func rewriteValue(v patch.Value, rewrite rewriteFunc) (patch.Value, error) {
	text, err := jsonvalue.Parse([]byte(v.String()))
	if err != nil {
		return v, fmt.Errorf("%w: %w", patch.ErrInvalid, err)
	}
	w := textWriter{rewrite: rewrite, out: make([]byte, 0, len(text))}
	if w.value(jsonvalue.NewCursor(text), data, ""); !w.changed {
		return v, nil
	}
	return patch.ParseValue(w.out)
}

// textRules determines which texts in a value may be rewritten. Everything else is structure. The zero value describes
// data, in which all texts and keys may be rewritten. For an array, texts describes each element.
type textRules struct {
	fixed     bool        // whether the whole value is structure
	isBase64  bool        // whether the text is base64
	isKeyList bool        // whether the texts are keys of data, and are rewritten like keys
	fixedKeys bool        // whether the value is an object whose keys are field names or ids
	members   rulesByName // members of an object; a member without an entry is data
}

type rulesByName map[string]*textRules

var (
	data, structure = &textRules{}, &textRules{fixed: true}

	eventTexts = fieldsOf("seq id invocationId branch isolationScope timestamp longRunningToolIds nodeInfo usageMetadata avgLogprobs", rulesByName{
		"content": contentTexts,
		"actions": fieldsOf("transferToAgent rewindBeforeInvocationId", rulesByName{
			"requestedAuthConfigs": fieldsOf(""), "requestedToolConfirmations": fieldsOf(""), "compaction": compactionTexts,
		}),
		"customMetadata": {members: rulesByName{
			"_adk_compaction": compactionTexts, patch.OwnMetadata: ownTexts,
		}},
	})

	patchTexts = fieldsOf("patchType start count base state eventId patchId group", eventTexts.members, rulesByName{
		"replacement": eventTexts, "summaryEvent": eventTexts,
	})

	// ownTexts describes patchlog's own metadata: the members of docs/FORMAT.md, the description of a compaction's
	// pass, and the marks of imports. The text of a salvaged record is data.
	ownTexts = fieldsOf("cleared recalled as erased level windows passes events tokens from to shown "+
		"trigger merged eventsBefore eventsAfter tokensBefore tokensAfter ratio usage durationMs identifiers lost invented "+
		"adopted migration", rulesByName{"salvaged": fieldsOf("seq")})

	receiptTexts = fieldsOf("seqs within summaries values closed call callSession session seen maxGrowth", patchTexts.members,
		rulesByName{"initial": {isKeyList: true}})

	compactionTexts = fieldsOf("startTimestamp endTimestamp excludedEvents", rulesByName{"compactedContent": contentTexts})

	contentTexts = fieldsOf("role", rulesByName{"parts": fieldsOf("thoughtSignature videoMetadata mediaResolution", filesTexts, rulesByName{
		"audioTranscription": fieldsOf("startOffset endOffset"),
		"functionCall":       fieldsOf("id name", rulesByName{"partialArgs": fieldsOf("numberValue")}),
		"functionResponse":   fieldsOf("id name scheduling", rulesByName{"parts": fieldsOf("", filesTexts)}),
		"toolCall":           partTexts, "toolResponse": partTexts, "executableCode": partTexts, "codeExecutionResult": partTexts,
	})})

	partTexts  = fieldsOf("id toolType language outcome")
	fileTexts  = fieldsOf("mimeType", rulesByName{"data": {isBase64: true}})
	filesTexts = rulesByName{"inlineData": fileTexts, "fileData": fileTexts}
)

// fieldsOf describes an object with known fields. The fields named in fixed are structure.
func fieldsOf(fixed string, known ...rulesByName) *textRules {
	all := rulesByName{}
	for _, k := range known {
		maps.Copy(all, k)
	}
	for name := range strings.FieldsSeq(fixed) {
		all[name] = structure
	}
	return &textRules{fixedKeys: true, members: all}
}

// textWriter writes JSON with its texts rewritten.
type textWriter struct {
	rewrite rewriteFunc
	out     []byte
	changed bool
}

// value reads the cursor's next value and writes it. The argument name is the key of the member with this
// value.
func (w *textWriter) value(c *jsonvalue.Cursor, rules *textRules, name string) {
	kind := c.Kind()
	switch {
	case rules.fixed, kind == jsonvalue.Null, kind == jsonvalue.Bool:
		w.out = append(w.out, c.Value()...)
	case kind == jsonvalue.Object:
		w.object(c, rules)
	case kind == jsonvalue.Array:
		w.out = append(w.out, '[')
		for c.Enter(); c.More(); {
			if w.out[len(w.out)-1] != '[' {
				w.out = append(w.out, ',')
			}
			w.value(c, rules, name)
		}
		w.out = append(w.out, ']')
	default:
		literal := c.Value()
		text, rewritten := string(literal), ""
		if kind == jsonvalue.String {
			text = jsonvalue.Unquote(literal)
		}
		switch {
		case rules.isBase64:
			rewritten = rewriteBase64(name, text, w.text)
		case rules.isKeyList:
			rewritten = w.text("", text)
		default:
			rewritten = w.text(name, text)
		}
		if rewritten != text {
			w.changed = true
			literal = jsonvalue.AppendQuote(nil, rewritten)
		}
		w.out = append(w.out, literal...)
	}
}

func (w *textWriter) object(c *jsonvalue.Cursor, rules *textRules) {
	object := *c
	var keys map[string][]byte // nil until a key changes; then the object's keys and the keys written so far
	w.out = append(w.out, '{')
	for c.Enter(); c.More(); {
		key := string(c.Key())
		memberRules, newKey := rules.members[key], key
		if memberRules == nil && !rules.fixedKeys {
			newKey = w.text("", key)
		}
		if newKey != key {
			if keys == nil {
				keys = maps.Collect(jsonvalue.Members(object.Value()))
			}
			for keys[newKey] != nil {
				newKey += "'"
			}
			keys[newKey] = keys[key]
			w.changed = true
		}
		w.out = jsonvalue.AppendKey(w.out, newKey)
		w.value(c, cmp.Or(memberRules, data), key)
	}
	w.out = append(w.out, '}')
}

func (w *textWriter) text(name, text string) string {
	return strings.ToValidUTF8(w.rewrite(name, text), "\uFFFD")
}

// rewriteBase64 decodes a text, rewrites the result, and encodes it again. If the argument is not the base64
// encoding of UTF-8 text, rewriteBase64 returns it unchanged.
func rewriteBase64(name, encoded string, rewrite rewriteFunc) string {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !utf8.Valid(text) {
		return encoded
	}
	if rewritten := rewrite(name, string(text)); rewritten != string(text) {
		return base64.StdEncoding.EncodeToString([]byte(rewritten))
	}
	return encoded
}
