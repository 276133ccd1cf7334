package sessionfile

import (
	"encoding/json"
	"strconv"
	"time"
)

// decode is json.Unmarshal for lines of programs whose versions differ: a field of another
// type than expected is left out.
func decode(text []byte, into any) bool {
	err := json.Unmarshal(text, into)
	_, otherType := err.(*json.UnmarshalTypeError)
	return err == nil || otherType
}

// textOf returns the text of a JSON string, or "".
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
func isArray(raw json.RawMessage) bool  { return len(raw) > 0 && raw[0] == '[' }

func timeOf(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return time.Time{}
	}
	return t
}

// elements returns the elements of an array, or none.
func elements(array json.RawMessage) []json.RawMessage {
	var all []json.RawMessage
	if !isArray(array) || json.Unmarshal(array, &all) != nil {
		return nil
	}
	return all
}

// partsOf returns the parts of a content: one of a text, or those that blocks are. part
// returns nil for a block that is none.
func partsOf[B any](content json.RawMessage, part func(*B) json.RawMessage) []json.RawMessage {
	if isString(content) {
		return []json.RawMessage{textPart(content)}
	}
	var parts []json.RawMessage
	for _, block := range elements(content) {
		var b B
		if !decode(block, &b) {
			continue
		}
		if p := part(&b); p != nil {
			parts = append(parts, p)
		}
	}
	return parts
}

// resultOf returns the texts and the images of what a tool gave: of a text itself, or of
// blocks. tell returns nil twice for a block that is neither, which is a text as it came.
func resultOf[B any](content json.RawMessage, tell func(*B) (text, image json.RawMessage)) (texts, images []json.RawMessage) {
	if isString(content) {
		return []json.RawMessage{content}, nil
	}
	for _, block := range elements(content) {
		var b B
		if !decode(block, &b) {
			continue
		}
		switch text, image := tell(&b); {
		case text != nil:
			texts = append(texts, text)
		case image != nil:
			images = append(images, image)
		default:
			texts = append(texts, block)
		}
	}
	return texts, images
}

// Parts, of JSON as it came.

func raw(v any) json.RawMessage {
	text, err := encode(v)
	if err != nil { // of maps, strings and what was parsed
		panic(err)
	}
	return text
}

func textPart(text json.RawMessage) json.RawMessage {
	return raw(struct {
		Text json.RawMessage `json:"text"`
	}{text})
}

func thoughtPart(text json.RawMessage) json.RawMessage {
	return raw(struct {
		Text    json.RawMessage `json:"text"`
		Thought bool            `json:"thought"`
	}{text, true})
}

func dataPart(mimeType, data json.RawMessage) json.RawMessage {
	type blob struct {
		MimeType json.RawMessage `json:"mimeType,omitempty"`
		Data     json.RawMessage `json:"data"`
	}
	return raw(struct {
		InlineData blob `json:"inlineData"`
	}{blob{mimeType, data}})
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
}

// callPart is a call. Arguments that are no object are put under a name.
func callPart(id, name string, args json.RawMessage, under string) json.RawMessage {
	if len(args) > 0 && !isObject(args) {
		args = raw(map[string]json.RawMessage{under: args})
	}
	return raw(struct {
		FunctionCall functionCall `json:"functionCall"`
	}{functionCall{id, name, args}})
}

type functionResponse struct {
	ID       string                     `json:"id,omitempty"`
	Name     string                     `json:"name,omitempty"`
	Response map[string]json.RawMessage `json:"response"`
	Parts    []json.RawMessage          `json:"parts,omitempty"`
}

// responsePart is a response: what a tool gave, under "result" or, of one that failed,
// "error", and its images as parts.
func responsePart(id, name string, texts []json.RawMessage, failed bool, images []json.RawMessage) json.RawMessage {
	under := "result"
	if failed {
		under = "error"
	}
	response := map[string]json.RawMessage{}
	switch len(texts) {
	case 0:
	case 1:
		response[under] = texts[0]
	default:
		response[under] = raw(texts)
	}
	return raw(struct {
		FunctionResponse functionResponse `json:"functionResponse"`
	}{functionResponse{id, name, response, images}})
}

// usage returns usage metadata of names and their counts, those left out that are no counts.
func usage(pairs ...any) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if n, err := strconv.ParseInt(string(pairs[i+1].(json.Number)), 10, 32); err == nil && n >= 0 {
			out[pairs[i].(string)] = raw(n)
		}
	}
	return out // left out if it is empty
}

// sum adds counts; what is no count is left out, and of none it is none.
func sum(counts ...json.Number) json.Number {
	var total json.Number
	for _, c := range counts {
		if n, err := strconv.ParseInt(string(c), 10, 32); err == nil && n >= 0 {
			before, _ := total.Int64()
			total = json.Number(strconv.FormatInt(before+n, 10))
		}
	}
	return total
}
