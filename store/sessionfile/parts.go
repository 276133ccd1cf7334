package sessionfile

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
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

// block is an element of a message, in the spelling of any of the agents.
type block struct {
	Type           string
	Text, Thinking json.RawMessage

	// An image: pi's, Claude Code's and, as a data: URL, Codex's.
	Data, MimeType json.RawMessage
	Source         struct {
		Type      string
		MediaType json.RawMessage `json:"media_type"`
		Data      json.RawMessage
	}
	ImageURL json.RawMessage `json:"image_url"`

	// A call, or the result of a tool.
	ID, Name         string
	Arguments, Input json.RawMessage
	ToolUseID        string `json:"tool_use_id"`
	Content          json.RawMessage
	IsError          bool `json:"is_error"`

	whole json.RawMessage
}

// blocksOf returns the blocks of a content. A text is a block, too.
func blocksOf(content json.RawMessage) []block {
	if isString(content) {
		return []block{{Type: "text", Text: content}}
	}
	var all []json.RawMessage
	if !isArray(content) || json.Unmarshal(content, &all) != nil {
		return nil
	}
	var blocks []block
	for _, text := range all {
		if b := (block{whole: text}); decode(text, &b) {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// text returns the text of a block, or nil. Codex has several types of text blocks.
func (b *block) text() json.RawMessage {
	if strings.HasSuffix(b.Type, "text") && isString(b.Text) {
		return b.Text
	}
	return nil
}

// data returns the image or the document that is in a block, or nil.
func (b *block) data() *blob {
	mimeType, data := b.MimeType, b.Data
	if b.Source.Type == "base64" {
		mimeType, data = b.Source.MediaType, b.Source.Data
	}
	if kind, text, ok := strings.Cut(strings.TrimPrefix(textOf(b.ImageURL), "data:"), ";base64,"); ok {
		mimeType, data = raw(kind), raw(text)
	}
	if !strings.HasSuffix(b.Type, "image") && b.Type != "document" || !isString(data) {
		return nil
	}
	return &blob{mimeType, data}
}

// partsOf returns the parts of a content: its texts, thoughts and images. other, if not nil,
// converts its other blocks.
func partsOf(content json.RawMessage, other func(*block) []part) (parts []part) {
	for _, b := range blocksOf(content) {
		text, data := b.text(), b.data()
		switch {
		case text != nil:
			parts = append(parts, part{Text: text})
		case data != nil:
			parts = append(parts, part{InlineData: data})
		case b.Type == "thinking" && isString(b.Thinking):
			parts = append(parts, part{Text: b.Thinking, Thought: true})
		case other != nil:
			parts = append(parts, other(&b)...)
		}
	}
	return parts
}

// part is a part of a content. Its JSON is copied from the file.
type part struct {
	Text       json.RawMessage `json:"text,omitempty"`
	Thought    bool            `json:"thought,omitempty"`
	InlineData *blob           `json:"inlineData,omitempty"`
	Call       *call           `json:"functionCall,omitempty"`
	Response   *response       `json:"functionResponse,omitempty"`
}

type blob struct {
	MimeType json.RawMessage `json:"mimeType,omitempty"`
	Data     json.RawMessage `json:"data"`
}

type call struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
}

type response struct {
	ID       string         `json:"id,omitempty"`
	Name     string         `json:"name,omitempty"`
	Response map[string]any `json:"response"`
	Parts    []part         `json:"parts,omitempty"`
}

func raw(s string) json.RawMessage {
	text, err := encode(s)
	if err != nil {
		panic(err) // strings have JSON
	}
	return text
}

// summaryOf returns the part of a summary's text, or none if it is not a string.
func summaryOf(text json.RawMessage) []part {
	if !isString(text) {
		return nil
	}
	return []part{{Text: text}}
}

// callOf returns the part of a call. Arguments other than an object are wrapped in one, as the
// member with the name in under.
func callOf(id, name string, args json.RawMessage, under string) []part {
	if len(args) > 0 && !isObject(args) {
		args = slices.Concat([]byte("{"), raw(under), []byte(":"), args, []byte("}"))
	}
	return []part{{Call: &call{id, name, args}}}
}

// responseOf returns the part of a tool's response: its texts under "result" or, if it failed,
// "error", and its images as parts. The JSON of any other block is added to the texts.
func responseOf(id, name string, content json.RawMessage, failed bool) []part {
	r := &response{ID: id, Name: name, Response: map[string]any{}}
	var texts []json.RawMessage
	for _, b := range blocksOf(content) {
		text, data := b.text(), b.data()
		switch {
		case text != nil:
			texts = append(texts, text)
		case data != nil:
			r.Parts = append(r.Parts, part{InlineData: data})
		default:
			texts = append(texts, b.whole)
		}
	}
	under := "result"
	if failed {
		under = "error"
	}
	switch {
	case isObject(content):
		r.Response[under] = content
	case len(texts) == 1:
		r.Response[under] = texts[0]
	case len(texts) > 1:
		r.Response[under] = texts
	}
	return []part{{Response: r}}
}

// usageOf returns usage metadata: the sum of the counts of each name. It ignores numbers other than
// integers from 0 to the largest int32.
func usageOf(counts map[string][]json.Number) map[string]int64 {
	out := map[string]int64{}
	for name, all := range counts {
		for _, c := range all {
			if n, err := strconv.ParseInt(string(c), 10, 32); err == nil && n >= 0 {
				out[name] += n
			}
		}
	}
	maps.DeleteFunc(out, func(_ string, n int64) bool { return n > math.MaxInt32 })
	return out
}
