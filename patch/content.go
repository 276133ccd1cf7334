package patch

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// The kinds of parts. Each comment names the field that determines the kind.
const (
	PartEmpty      = "empty"             // none of the fields below
	PartText       = "text"              // text, or a transcription
	PartThought    = "thought"           // text, if the field thought is true
	PartCall       = "function call"     // functionCall
	PartResponse   = "function response" // functionResponse
	PartData       = "data"              // inlineData
	PartFile       = "file"              // fileData
	PartCode       = "code"              // executableCode
	PartCodeResult = "code result"       // codeExecutionResult
	PartOther      = "other"             // any other field, such as toolCall
)

// Part describes a part of a content. If the part has several values, a Part describes one of them. Fields that
// do not apply to the kind are zero.
type Part struct {
	Kind     string // one of the kinds above
	ID       string // connects a call with its response, or code with its result
	Name     string // name of the function, display name of data or a file, or field name of another kind
	Text     string // a text, a thought, code, or the output of code
	Thought  bool   // whether the part is marked as a model's thought; possible with any kind
	MIMEType string // MIME type of data or a file
	URI      string // URI of a file
	DataLen  int    // size of the data in bytes

	Args     Value // arguments of a function call
	Response Value // result of a function response; media data is replaced by a note such as "[image/png, 3120 bytes]"
	Value    Value // the field that determines the kind, such as the whole function call
	JSON     Value // the whole part
}

// FunctionPart is a function call or a function response in an event's content.
type FunctionPart struct {
	Index    int // index of the part in the content
	Response bool
	ID       string // the call id; may be empty
	Name     string // the function's name
}

// Parts yields all text and data of the event that a model, a person or a search reads. It first yields the
// parts of the content, as [Value.Parts] does. It then yields the transcriptions (inputTranscription,
// outputTranscription) as texts with the index -1.
func (e *Event) Parts() iter.Seq2[int, Part] { return exportParts(eventParts(e.json)) }

// Parts yields the parts of a content in order, each with its index. If a part has several values, Parts yields
// each value with the same index. An example is a text with a function call, or a function response with an
// image. If the value is not a content, Parts yields nothing.
func (v Value) Parts() iter.Seq2[int, Part] { return exportParts(contentParts(v.text)) }

func exportParts(parts iter.Seq2[int, part]) iter.Seq2[int, Part] {
	return func(yield func(int, Part) bool) {
		for i, p := range parts {
			if !yield(i, p.export()) {
				return
			}
		}
	}
}

// part is one value of a part, in JSON.
type part struct {
	kind  string // one of the kinds; PartText also for a thought
	name  string // the field that determines the kind
	value []byte // value of the field
	whole []byte // the whole part with its other fields

	thought bool // the part is marked as a thought
}

// eventParts yields the parts of an event's JSON, then the transcriptions.
func eventParts(event []byte) iter.Seq2[int, part] {
	return func(yield func(int, part) bool) {
		for name, v := range jsonvalue.Members(event) {
			switch name {
			case "content":
				for i, p := range contentParts(v) {
					if !yield(i, p) {
						return
					}
				}
			case "inputTranscription", "outputTranscription":
				text := jsonvalue.Member(v, "text")
				if len(text) > len(`""`) && jsonvalue.KindOf(text) == jsonvalue.String && !yield(-1, part{kind: PartText, name: "text", value: text, whole: v}) {
					return
				}
			}
		}
	}
}

func contentParts(content []byte) iter.Seq2[int, part] {
	return func(yield func(int, part) bool) {
		for i, whole := range jsonvalue.Elements(jsonvalue.Member(content, "parts")) {
			empty, thought := true, string(jsonvalue.Member(whole, "thought")) == "true"
			for name, v := range jsonvalue.Members(whole) {
				kind := partKind(name, jsonvalue.KindOf(v))
				if kind == PartEmpty {
					continue
				}
				if empty = false; !yield(i, part{kind, name, v, whole, thought}) {
					return
				}
				if kind != PartResponse {
					continue
				}
				for _, file := range jsonvalue.Elements(jsonvalue.Member(v, "parts")) {
					for name, v := range jsonvalue.Members(file) {
						if kind := partKind(name, jsonvalue.KindOf(v)); (kind == PartData || kind == PartFile) && !yield(i, part{kind, name, v, file, thought}) {
							return
						}
					}
				}
			}
			if empty && !yield(i, part{kind: PartEmpty, whole: whole, thought: thought}) {
				return
			}
		}
	}
}

// partKind returns the kind of a part with the given field. A null field counts as absent.
func partKind(field string, valueKind jsonvalue.Kind) string {
	if valueKind == jsonvalue.Null {
		return PartEmpty
	}
	kind, want := PartOther, jsonvalue.Object
	switch field {
	case "text":
		kind, want = PartText, jsonvalue.String
	case "functionCall":
		kind = PartCall
	case "functionResponse":
		kind = PartResponse
	case "inlineData":
		kind = PartData
	case "fileData":
		kind = PartFile
	case "executableCode":
		kind = PartCode
	case "codeExecutionResult":
		kind = PartCodeResult
	case "thought", "thoughtSignature", "videoMetadata", "mediaResolution", "mediaProcessing", "speechMetadata", "partMetadata":
		return PartEmpty // a modifier of the part, not a value
	}
	if valueKind != want {
		return PartOther
	}
	return kind
}

// text returns the text of a member of the part's field. It returns "" if the member is not a string.
func (p part) text(name string) string { return jsonvalue.Text(jsonvalue.Member(p.value, name)) }

func (p part) export() Part {
	out := Part{
		Kind: p.kind, Value: Value{text: p.value}, JSON: Value{text: p.whole},
		ID: p.text("id"), Thought: p.thought,
	}
	switch p.kind {
	case PartText:
		if out.Text = jsonvalue.Unquote(p.value); out.Thought {
			out.Kind = PartThought
		}
	case PartCall:
		out.Name = p.text("name")
		out.Args = Value{text: jsonvalue.Member(p.value, "args")}
	case PartResponse:
		out.Name = p.text("name")
		out.Response = Value{text: withoutData(jsonvalue.Member(p.value, "response"))}
	case PartData:
		out.Name, out.MIMEType = p.text("displayName"), p.text("mimeType")
		out.DataLen = dataLen(jsonvalue.Member(p.value, "data"))
	case PartFile:
		out.Name, out.MIMEType, out.URI = p.text("displayName"), p.text("mimeType"), p.text("fileUri")
	case PartCode:
		out.Text = p.text("code")
	case PartCodeResult:
		out.Text = p.text("output")
	case PartOther:
		out.Name = p.name
	}
	return out
}

func (p part) function(index int) FunctionPart {
	return FunctionPart{Index: index, Response: p.kind == PartResponse, ID: p.text("id"), Name: p.text("name")}
}

// dataLen returns the decoded size of a JSON string in base64.
func dataLen(quoted []byte) int {
	if jsonvalue.KindOf(quoted) != jsonvalue.String {
		return 0
	}
	return base64.RawStdEncoding.DecodedLen(len(bytes.TrimRight([]byte(jsonvalue.Unquote(quoted)), "=")))
}

// mediaSpan is the location of media data in a value: the string "data" in an object with a MIME type. Gemini's
// inlineData has this form, as have images in MCP and other APIs.
type mediaSpan struct {
	mimeType string
	from, to int
}

func mediaSpans(v []byte) (found []mediaSpan) {
	if bytes.Contains(v, []byte(`"data":"`)) {
		appendMedia(jsonvalue.NewCursor(v), jsonvalue.MaxDepth, &found)
	}
	return found
}

func appendMedia(c *jsonvalue.Cursor, depth int, found *[]mediaSpan) {
	switch kind := c.Kind(); {
	case depth > 0 && kind == jsonvalue.Array:
		for c.Enter(); c.More(); {
			appendMedia(c, depth-1, found)
		}
	case depth > 0 && kind == jsonvalue.Object:
		var m mediaSpan
		for c.Enter(); c.More(); {
			name := string(c.Key())
			switch is := c.Kind(); {
			case is == jsonvalue.String && name == "data":
				m.from = c.Pos()
				c.Value()
				m.to = c.Pos()
			case is == jsonvalue.String && (name == "mimeType" || name == "mime_type" || name == "media_type"):
				m.mimeType = jsonvalue.Unquote(c.Value())
			default:
				appendMedia(c, depth-1, found)
			}
		}
		if m.mimeType != "" && m.to-m.from > len(`""`) {
			*found = append(*found, m)
		}
	default:
		c.Value()
	}
}

// withoutData returns a value in which notes replace the media data.
func withoutData(v []byte) []byte {
	media := mediaSpans(v)
	if len(media) == 0 {
		return v
	}
	slices.SortFunc(media, func(a, b mediaSpan) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, m := range media {
		out = append(out, v[at:m.from]...)
		out = jsonvalue.AppendQuote(out, fmt.Sprintf("[%s, %d bytes]", m.mimeType, dataLen(v[m.from:m.to])))
		at = m.to
	}
	return append(out, v[at:]...)
}

// Text returns a content with one text part. The role is "user" or "model". An empty role is omitted. If an
// argument is not UTF-8, functions that write the content, such as [NewEvent], return an error that names the
// field.
func Text(role, text string) Value {
	b := append(jsonvalue.AppendQuote([]byte(`{"parts":[{"text":`), text), `}]`...)
	if role != "" {
		b = jsonvalue.AppendQuote(append(b, `,"role":`...), role)
	}
	v := Value{text: append(b, '}')}
	switch {
	case !utf8.ValidString(role):
		v.fault = notUTF8("role", role)
	case !utf8.ValidString(text):
		v.fault = notUTF8("parts/0/text", text)
	}
	return v
}

// RunesPerToken is the number of English letters per estimated token. In other scripts, a token has fewer
// characters; see [Event.EstimatedTokens].
const RunesPerToken = 4

// DataTokens is the token estimate for a data part or a file. Gemini counts this number for a small image.
const DataTokens = 258

// EstimatedTokens estimates how many tokens the event takes in a model's prompt. For prose, code and JSON, the
// estimate is within 25 % of a tokenizer's count. It includes:
//
//   - texts and transcriptions
//   - names and arguments of function calls
//   - names and results of function responses
//   - executable code and its output
//   - the JSON of parts of other kinds
//
// The weight of a character depends on its kind. An English letter counts as a quarter of a token, and a
// Chinese character as five sixths. Each data part or file counts as [DataTokens], also in a function response.
// If [Event.SaysSomething] is false, the estimate is 0. The estimate is computed once, when the event is made.
func (e *Event) EstimatedTokens() int { return e.index.tokens }

// EstimateTextTokens returns the result of [Event.EstimatedTokens] for an event that consists of the given
// text.
func EstimateTextTokens(text string) int { return tokens.Of(text).Tokens() }

// promptSize accumulates the size of an event's parts in a prompt.
type promptSize struct {
	text  tokens.Size
	media int
}

func (s *promptSize) add(p part) {
	switch p.kind {
	case PartEmpty:
	case PartData, PartFile:
		s.media++
	case PartCall, PartResponse, PartCode, PartCodeResult:
		for name, v := range jsonvalue.Members(p.value) {
			if name != "id" && !(p.kind == PartResponse && name == "parts") { // contentParts yields the media in a response as separate parts
				s.addValue(v)
			}
		}
	default:
		s.addValue(p.value)
	}
}

// addValue adds a string's text, or the JSON of another value without its media data.
func (s *promptSize) addValue(v []byte) {
	if jsonvalue.KindOf(v) == jsonvalue.String {
		s.text += tokens.OfQuoted(v)
		return
	}
	s.text += tokens.OfBytes(v)
	for _, m := range mediaSpans(v) {
		s.text -= tokens.OfBytes(v[m.from:m.to])
		s.media++
	}
}

func (s promptSize) tokens() int { return s.text.Tokens() + s.media*DataTokens }
