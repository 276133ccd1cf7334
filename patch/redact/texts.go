package redact

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/patch"
)

// rewriting returns the replacement of a text, or the text itself if that may
// stay. name is the key of the object's member that the text is, or that the arrays are in
// which it stands; it is "" for a text that is a key itself, and where there is none.
type rewriting func(name, text string) string

// rewriteRecord returns the record with its texts rewritten: what users, models, tools and
// programs said, in contents, arguments, responses, the state, metadata and unknown fields, the
// author's name, and files that are text. A number is offered as its literal, and becomes a text if
// it is rewritten. In data, such as arguments and the state, keys are offered too; one that becomes a
// key that its object has already gets an apostrophe.
//
// What the log is made of stays: seqs, ids of events, calls, patches and invocations, names of
// functions, branches, times, roles, indices, pins and groups, what patchlog says of its own in
// customMetadata.patchlog, but for names that it cites from summaries, and what a receipt says but
// for its reason and keys of the state. So the records of a log that are rewritten each by itself
// fold as before, with other texts, and receipts still cover what they say.
//
// A record in which nothing changes is returned unchanged. Others are as if they had come as
// JSON: Go types that their values were made from are gone. The error is that of [patch.ParseRecord],
// if the result is no record.
func rewriteRecord(r patch.Record, rewrite rewriting) (patch.Record, error) {
	text, err := r.MarshalJSON()
	if err != nil {
		return r, err
	}
	if _, err := jsonvalue.Parse(text); err != nil { // the record is forged, and may nest without end
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

// rewriteEvent is rewriteRecord of an event.
func rewriteEvent(e *patch.Event, rewrite rewriting) (*patch.Event, error) {
	r, err := rewriteRecord(patch.Record{Event: e}, rewrite)
	return r.Event, err
}

// rewriteValue returns the value with its texts rewritten, as data.
func rewriteValue(v patch.Value, rewrite rewriting) (patch.Value, error) {
	text, err := jsonvalue.Parse([]byte(v.String()))
	if err != nil {
		return v, fmt.Errorf("%w: %w", patch.ErrInvalid, err)
	}
	w := textWriter{rewrite: rewrite, out: make([]byte, 0, len(text))}
	if w.value(jsonvalue.NewCursor(text), nil, ""); !w.changed {
		return v, nil
	}
	return patch.ParseValue(w.out)
}

// texts tells a value's free texts from its structure. nil is data: all its texts and keys
// are free. It holds for each element of an array.
type texts struct {
	stays   bool        // all of it is structure
	encoded bool        // it is bytes in base64
	keys    bool        // it is keys of data, and offered as these are
	fields  bool        // it is an object whose keys are names of fields, or ids
	members textsByName // of the object that it is; further members hold data
}

type textsByName map[string]*texts

var (
	asIs = &texts{stays: true}

	eventTexts = fieldsOf(textsByName{
		"seq": asIs, "id": asIs, "invocationId": asIs, "branch": asIs, "isolationScope": asIs, "timestamp": asIs,
		"content": contentTexts, "longRunningToolIds": asIs, "nodeInfo": asIs, "usageMetadata": asIs, "avgLogprobs": asIs,
		"actions": fieldsOf(textsByName{
			"stateDelta": nil, "transferToAgent": asIs, "rewindBeforeInvocationId": asIs,
			"requestedAuthConfigs": fieldsOf(nil), "requestedToolConfirmations": fieldsOf(nil),
			"compaction": compactionTexts,
		}),
		"customMetadata": {members: textsByName{
			"_adk_compaction": compactionTexts,
			patch.OwnMetadata: fieldsOf(textsByName{"cleared": asIs, "recalled": asIs, "as": asIs, "recent": asIs, "erased": asIs}),
		}},
	})

	patchTexts = fieldsOf(eventTexts.members, textsByName{
		"patchType": asIs, "start": asIs, "count": asIs, "base": asIs, "state": asIs, "eventId": asIs, "patchId": asIs, "group": asIs,
		"replacement": eventTexts, "summaryEvent": eventTexts,
	})

	receiptTexts = fieldsOf(patchTexts.members, textsByName{
		"seqs": asIs, "within": asIs, "summaries": asIs, "values": asIs, "initial": {keys: true},
	})

	compactionTexts = fieldsOf(textsByName{
		"startTimestamp": asIs, "endTimestamp": asIs, "compactedContent": contentTexts, "excludedEvents": asIs,
	})

	contentTexts = fieldsOf(textsByName{"role": asIs, "parts": fieldsOf(textsByName{
		"thoughtSignature": asIs, "videoMetadata": asIs, "mediaResolution": asIs,
		"audioTranscription": fieldsOf(textsByName{"startOffset": asIs, "endOffset": asIs}),
		"functionCall":       fieldsOf(textsByName{"id": asIs, "name": asIs, "partialArgs": fieldsOf(textsByName{"numberValue": asIs})}),
		"functionResponse": fieldsOf(textsByName{"id": asIs, "name": asIs, "scheduling": asIs, "parts": fieldsOf(textsByName{
			"inlineData": fileTexts, "fileData": fileTexts,
		})}),
		"toolCall": partTexts, "toolResponse": partTexts, "executableCode": partTexts, "codeExecutionResult": partTexts,
		"inlineData": fileTexts, "fileData": fileTexts,
	})})

	partTexts = fieldsOf(textsByName{"id": asIs, "toolType": asIs, "language": asIs, "outcome": asIs})
	fileTexts = fieldsOf(textsByName{"data": {encoded: true}, "mimeType": asIs})
)

func fieldsOf(known ...textsByName) *texts {
	all := textsByName{}
	for _, k := range known {
		maps.Copy(all, k)
	}
	return &texts{fields: true, members: all}
}

// textWriter writes JSON text with its texts rewritten.
type textWriter struct {
	rewrite rewriting
	out     []byte
	changed bool
}

// value passes the next value of a cursor, the one of a member of that name, and writes it.
func (w *textWriter) value(c *jsonvalue.Cursor, of *texts, name string) {
	switch kind := c.Kind(); {
	case of != nil && of.stays:
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
	case kind == jsonvalue.String:
		quoted := c.Value()
		text := jsonvalue.Unquote(quoted)
		switch {
		case of != nil && of.encoded:
			w.put(quoted, text, rewriteBase64(name, text, w.text))
		case of != nil && of.keys:
			w.put(quoted, text, w.text("", text))
		default:
			w.put(quoted, text, w.text(name, text))
		}
	case kind == jsonvalue.Number:
		literal := c.Value()
		w.put(literal, string(literal), w.text(name, string(literal)))
	default:
		w.out = append(w.out, c.Value()...)
	}
}

// put writes a text or number, as it was unless it is another one now.
func (w *textWriter) put(was []byte, text, now string) {
	if now == text {
		w.out = append(w.out, was...)
		return
	}
	w.changed = true
	w.out = jsonvalue.AppendQuote(w.out, now)
}

func (w *textWriter) object(c *jsonvalue.Cursor, of *texts) {
	whole := *c
	var keys map[string]bool
	w.out = append(w.out, '{')
	for c.Enter(); c.More(); {
		key := string(c.Key())
		as, inside, known := key, (*texts)(nil), false
		if of != nil {
			inside, known = of.members[key]
			known = known || of.fields
		}
		if !known {
			as = w.text("", key)
		}
		if as != key {
			if keys == nil {
				keys = keysOf(whole)
			}
			for keys[as] {
				as += "'"
			}
			keys[as] = true
			w.changed = true
		}
		w.out = jsonvalue.AppendKey(w.out, as)
		w.value(c, inside, key)
	}
	w.out = append(w.out, '}')
}

// keysOf returns the keys of the object that a cursor stands before.
func keysOf(c jsonvalue.Cursor) map[string]bool {
	keys := map[string]bool{}
	for c.Enter(); c.More(); c.Value() {
		keys[string(c.Key())] = true
	}
	return keys
}

func (w *textWriter) text(name, text string) string {
	return strings.ToValidUTF8(w.rewrite(name, text), "\uFFFD")
}

// rewriteBase64 returns the base64 of a text rewritten, or its argument if that is not the base64 of one.
func rewriteBase64(name, encoded string, rewrite rewriting) string {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !utf8.Valid(data) {
		return encoded
	}
	if now := rewrite(name, string(data)); now != string(data) {
		return base64.StdEncoding.EncodeToString([]byte(now))
	}
	return encoded
}
