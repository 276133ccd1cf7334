package migrate

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

func rfcTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return time.Time{}
	}
	return t
}

// unixTime returns the time of a number since 1970, of which so many are a second.
func unixTime(n json.Number, second float64) time.Time {
	f, err := n.Float64()
	if err != nil || f == 0 {
		return time.Time{}
	}
	t, _ := epoch(f / second)
	return t
}

// block is an element of a message, in the spelling of any of the programs.
type block struct {
	Type                    string
	Text, Thinking, Refusal json.RawMessage

	// An image, a sound or a document: in it, or as a URL, which may be of data.
	Data, MimeType json.RawMessage
	Source         struct {
		Type, URL string
		MediaType json.RawMessage `json:"media_type"`
		Data      json.RawMessage
	}
	ImageURL   json.RawMessage `json:"image_url"`
	InputAudio struct {
		Data   json.RawMessage
		Format string
	} `json:"input_audio"`
	FileData json.RawMessage `json:"file_data"`
	File     struct {
		FileData json.RawMessage `json:"file_data"`
	}

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

// text returns the text of a block, or nil. There are several types of text blocks.
func (b *block) text() json.RawMessage {
	switch {
	case strings.HasSuffix(b.Type, "text") && isString(b.Text):
		return b.Text
	case b.Type == "refusal" && isString(b.Refusal):
		return b.Refusal
	}
	return nil
}

// media returns the image, the sound or the document of a block.
func (b *block) media() (part, bool) {
	var image struct{ URL string }
	decode(b.ImageURL, &image)
	url := firstOf(textOf(b.ImageURL), image.URL, textOf(b.FileData), textOf(b.File.FileData), b.Source.URL)
	kind, data, inline := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	switch {
	case inline:
		return part{InlineData: &blob{quote(kind), quote(data)}}, true
	case url != "":
		return part{FileData: &fileData{url}}, true
	case isString(b.InputAudio.Data):
		return part{InlineData: &blob{quote("audio/" + b.InputAudio.Format), b.InputAudio.Data}}, true
	case b.Source.Type == "base64" && isString(b.Source.Data):
		return part{InlineData: &blob{b.Source.MediaType, b.Source.Data}}, true
	case strings.HasSuffix(b.Type, "image") && isString(b.Data):
		return part{InlineData: &blob{b.MimeType, b.Data}}, true
	}
	return part{}, false
}

// partsOf returns the parts of a content: its texts, thoughts and images. other, if not nil,
// converts its other blocks.
func partsOf(content json.RawMessage, other func(*block) []part) (parts []part) {
	for _, b := range blocksOf(content) {
		text := b.text()
		media, isMedia := b.media()
		switch {
		case text != nil:
			parts = append(parts, part{Text: text})
		case isMedia:
			parts = append(parts, media)
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
	FileData   *fileData       `json:"fileData,omitempty"`
	Call       *call           `json:"functionCall,omitempty"`
	Response   *response       `json:"functionResponse,omitempty"`
}

type blob struct {
	MimeType json.RawMessage `json:"mimeType,omitempty"`
	Data     json.RawMessage `json:"data"`
}

type fileData struct {
	URI string `json:"fileUri"`
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

func quote(s string) json.RawMessage {
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

// callOf returns the part of a call. Arguments other than an object, or its JSON as a text, are wrapped in one, as
// the member with the name in under.
func callOf(id, name string, args json.RawMessage, under string) []part {
	if said := json.RawMessage(textOf(args)); isObject(said) && json.Valid(said) {
		args = said
	}
	if len(args) > 0 && !isObject(args) {
		args = slices.Concat([]byte("{"), quote(under), []byte(":"), args, []byte("}"))
	}
	return []part{{Call: &call{id, name, args}}}
}

// responseOf returns the part of a tool's response: its texts under "result" or, if it failed,
// "error", and its images as parts. The JSON of any other block is added to the texts.
func responseOf(id, name string, content json.RawMessage, failed bool) []part {
	r := &response{ID: id, Name: name, Response: map[string]any{}}
	var texts []json.RawMessage
	for _, b := range blocksOf(content) {
		text := b.text()
		media, isMedia := b.media()
		switch {
		case text != nil:
			texts = append(texts, text)
		case isMedia:
			r.Parts = append(r.Parts, media)
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
