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

// rewriting returns the replacement of a text, or the text itself. name is the key of the member that holds the text,
// directly or in arrays; it is "" for keys and for texts outside objects.
type rewriting func(name, text string) string

// rewriteRecord returns the record with its texts rewritten: contents, arguments, responses, the state, metadata,
// unknown fields, the author's name, and text files. A number is passed as its literal, and becomes a string if it is
// rewritten. In data, such as arguments and the state, keys are rewritten too; a key that collides with another of its
// object gets an apostrophe.
//
// Structure stays: seqs, ids of events, calls, patches and invocations, names of functions, branches, times, roles,
// indices, pins, groups, patchlog's own metadata except for names cited from summaries, and a receipt except for its
// reason and its state keys. So a log whose records are rewritten one by one folds as before, with other texts, and
// receipts still cover the same records.
//
// A record in which nothing changes is returned unchanged. Other records lose the Go types of their values, as if
// parsed from JSON. Errors are those of [patch.ParseRecord].
func rewriteRecord(r patch.Record, rewrite rewriting) (patch.Record, error) {
	text, err := r.MarshalJSON()
	if err != nil {
		return r, err
	}
	if _, err := jsonvalue.Parse(text); err != nil { // a forged record may nest without limit
		return r, fmt.Errorf("%w: %w", patch.ErrInvalid, err)
	}
	w := textWriter{rewrite: rewrite, out: make([]byte, 0, len(text))}
	of := eventTexts
	if r.Patch != nil {
		of = patchTexts
		if _, ok := r.Patch.Erasure(); ok {
			of = receiptTexts
		}
	}
	w.value(jsonvalue.NewCursor(text), of, "")
	if !w.changed {
		return r, nil
	}
	return patch.ParseRecord(w.out)
}

// rewriteEvent is rewriteRecord for an event.
func rewriteEvent(e *patch.Event, rewrite rewriting) (*patch.Event, error) {
	r, err := rewriteRecord(patch.Record{Event: e}, rewrite)
	return r.Event, err
}

// rewriteValue returns the value with all its texts and keys rewritten.
func rewriteValue(v patch.Value, rewrite rewriting) (patch.Value, error) {
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

// texts tells the free texts of a value from its structure. The zero value is data: all texts and keys are free. For an
// array it describes each element.
type texts struct {
	stays   bool        // all of it is structure
	encoded bool        // base64
	keys    bool        // its texts are keys of data, and rewritten as such
	fields  bool        // an object whose keys are field names or ids
	members textsByName // members of an object; others are data
}

type textsByName map[string]*texts

var (
	data, asIs = &texts{}, &texts{stays: true}

	eventTexts = fieldsOf("seq id invocationId branch isolationScope timestamp longRunningToolIds nodeInfo usageMetadata avgLogprobs", textsByName{
		"content": contentTexts,
		"actions": fieldsOf("transferToAgent rewindBeforeInvocationId", textsByName{
			"requestedAuthConfigs": fieldsOf(""), "requestedToolConfirmations": fieldsOf(""), "compaction": compactionTexts,
		}),
		"customMetadata": {members: textsByName{
			"_adk_compaction": compactionTexts, patch.OwnMetadata: fieldsOf("cleared recalled as recent erased"),
		}},
	})

	patchTexts = fieldsOf("patchType start count base state eventId patchId group", eventTexts.members, textsByName{
		"replacement": eventTexts, "summaryEvent": eventTexts,
	})

	receiptTexts = fieldsOf("seqs within summaries values", patchTexts.members, textsByName{"initial": {keys: true}})

	compactionTexts = fieldsOf("startTimestamp endTimestamp excludedEvents", textsByName{"compactedContent": contentTexts})

	contentTexts = fieldsOf("role", textsByName{"parts": fieldsOf("thoughtSignature videoMetadata mediaResolution", filesTexts, textsByName{
		"audioTranscription": fieldsOf("startOffset endOffset"),
		"functionCall":       fieldsOf("id name", textsByName{"partialArgs": fieldsOf("numberValue")}),
		"functionResponse":   fieldsOf("id name scheduling", textsByName{"parts": fieldsOf("", filesTexts)}),
		"toolCall":           partTexts, "toolResponse": partTexts, "executableCode": partTexts, "codeExecutionResult": partTexts,
	})})

	partTexts  = fieldsOf("id toolType language outcome")
	fileTexts  = fieldsOf("mimeType", textsByName{"data": {encoded: true}})
	filesTexts = textsByName{"inlineData": fileTexts, "fileData": fileTexts}
)

// fieldsOf describes an object with known fields, of which those named in asTheyAre are structure.
func fieldsOf(asTheyAre string, known ...textsByName) *texts {
	all := textsByName{}
	for _, k := range known {
		maps.Copy(all, k)
	}
	for name := range strings.FieldsSeq(asTheyAre) {
		all[name] = asIs
	}
	return &texts{fields: true, members: all}
}

// textWriter writes JSON with its texts rewritten.
type textWriter struct {
	rewrite rewriting
	out     []byte
	changed bool
}

// value reads the cursor's next value, which is the member with the given name, and writes it.
func (w *textWriter) value(c *jsonvalue.Cursor, of *texts, name string) {
	kind := c.Kind()
	switch {
	case of.stays, kind == jsonvalue.Null, kind == jsonvalue.Bool:
		w.out = append(w.out, c.Value()...)
	case kind == jsonvalue.Object:
		w.object(c, of)
	case kind == jsonvalue.Array:
		w.out = append(w.out, '[')
		for c.Enter(); c.More(); {
			if w.out[len(w.out)-1] != '[' {
				w.out = append(w.out, ',')
			}
			w.value(c, of, name)
		}
		w.out = append(w.out, ']')
	default:
		literal := c.Value()
		text, now := string(literal), ""
		if kind == jsonvalue.String {
			text = jsonvalue.Unquote(literal)
		}
		switch {
		case of.encoded:
			now = rewriteBase64(name, text, w.text)
		case of.keys:
			now = w.text("", text)
		default:
			now = w.text(name, text)
		}
		if now != text {
			w.changed = true
			literal = jsonvalue.AppendQuote(nil, now)
		}
		w.out = append(w.out, literal...)
	}
}

func (w *textWriter) object(c *jsonvalue.Cursor, of *texts) {
	object := *c
	var keys map[string][]byte // the object's keys, and those written so far; nil until a key changes
	w.out = append(w.out, '{')
	for c.Enter(); c.More(); {
		key := string(c.Key())
		inside, as := of.members[key], key
		if inside == nil && !of.fields {
			as = w.text("", key)
		}
		if as != key {
			if keys == nil {
				keys = maps.Collect(jsonvalue.Members(object.Value()))
			}
			for keys[as] != nil {
				as += "'"
			}
			keys[as] = keys[key]
			w.changed = true
		}
		w.out = jsonvalue.AppendKey(w.out, as)
		w.value(c, cmp.Or(inside, data), key)
	}
	w.out = append(w.out, '}')
}

func (w *textWriter) text(name, text string) string {
	return strings.ToValidUTF8(w.rewrite(name, text), "\uFFFD")
}

// rewriteBase64 decodes a text, rewrites it and encodes it again. It returns its argument if that is not base64 of
// UTF-8.
func rewriteBase64(name, encoded string, rewrite rewriting) string {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !utf8.Valid(text) {
		return encoded
	}
	if now := rewrite(name, string(text)); now != string(text) {
		return base64.StdEncoding.EncodeToString([]byte(now))
	}
	return encoded
}
