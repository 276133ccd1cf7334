package patch

import (
	"bytes"
	"encoding/base64"
	"iter"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// The kinds of parts, each with the field that determines it.
const (
	PartEmpty      = "empty"             // none of the fields below
	PartText       = "text"              // text
	PartThought    = "thought"           // text, where thought is true
	PartCall       = "function call"     // functionCall
	PartResponse   = "function response" // functionResponse
	PartData       = "data"              // inlineData
	PartFile       = "file"              // fileData
	PartCode       = "code"              // executableCode
	PartCodeResult = "code result"       // codeExecutionResult
	PartOther      = "other"             // any other, such as toolCall
)

// Part is a part of a content, or one of several things in it. Fields that the kind does not have are zero.
type Part struct {
	Kind     string // one of the kinds above
	ID       string // connects a call with its response, or code with its result
	Name     string // of a function; the display name of data or a file; the field of another kind
	Text     string // a text, a thought, code, or the output of code
	Thought  bool   // the part is marked as a model's thought; it may have any kind
	MIMEType string // of data or a file
	URI      string // of a file
	DataLen  int    // size of the data in bytes

	Args     Value // of a function call
	Response Value // of a function response
	Value    Value // of the field that determines the kind, such as the whole function call
	JSON     Value // the whole part, with its other fields
}

// part is one thing that a part of a content says, as it stands in the text.
type part struct {
	kind  string          // PartText for a thought too
	name  []byte          // of the field that makes it of its kind
	value []byte          // of that field
	at    jsontext.Cursor // before the part, with what stands beside the field
}

// partsAt yields the parts of the array that comes next at a cursor. Another value it passes.
func partsAt(c *jsontext.Cursor) iter.Seq2[int, part] {
	return func(yield func(int, part) bool) {
		if c.Kind() != jsontext.Array {
			c.Value()
			return
		}
		c.Enter()
		for i := 0; c.More(); i++ {
			at, empty := *c, true
			if c.Kind() != jsontext.Object {
				c.Value()
			} else {
				for c.Enter(); c.More(); {
					name, v := c.KeyText(), c.Value()
					kind := partKind(name, jsontext.KindOf(v))
					if kind == PartEmpty {
						continue
					}
					empty = false
					if !yield(i, part{kind, name, v, at}) {
						return
					}
				}
			}
			if empty && !yield(i, part{kind: PartEmpty, at: at}) {
				return
			}
		}
	}
}

// partsIn yields the parts of a checked content.
func partsIn(content []byte) iter.Seq2[int, part] {
	array := jsontext.Member(content, "parts")
	if array == nil {
		array = []byte("null")
	}
	return partsAt(jsontext.NewCursor(array))
}

// partKind returns the kind that a field makes a part. One that is null is as good as
// absent.
func partKind(field []byte, is jsontext.Kind) string {
	if is == jsontext.Null {
		return PartEmpty
	}
	kind, want := PartOther, jsontext.Object
	switch string(field) {
	case "text":
		kind, want = PartText, jsontext.String
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
		return PartEmpty // notes on what else is there
	}
	if is != want {
		return PartOther
	}
	return kind
}

// exported returns what the part says.
func (p part) exported() Part {
	whole := p.at.Value()
	out := Part{
		Kind: p.kind, Value: Value{text: p.value}, JSON: Value{text: whole},
		ID: stringMember(p.value, "id"), Thought: string(jsontext.Member(whole, "thought")) == "true",
	}
	switch p.kind {
	case PartText:
		if out.Text = jsontext.Unquote(p.value); out.Thought {
			out.Kind = PartThought
		}
	case PartCall:
		out.Name = stringMember(p.value, "name")
		out.Args = Value{text: jsontext.Member(p.value, "args")}
	case PartResponse:
		out.Name = stringMember(p.value, "name")
		out.Response = Value{text: jsontext.Member(p.value, "response")}
	case PartData:
		out.Name, out.MIMEType = stringMember(p.value, "displayName"), stringMember(p.value, "mimeType")
		if text := jsontext.Member(p.value, "data"); jsontext.KindOf(text) == jsontext.String {
			padding := len(text) - len(bytes.TrimRight(text, `="`)) - len(`"`)
			out.DataLen = base64.RawStdEncoding.DecodedLen(jsontext.RuneLen(text) - padding)
		}
	case PartFile:
		out.Name, out.MIMEType = stringMember(p.value, "displayName"), stringMember(p.value, "mimeType")
		out.URI = stringMember(p.value, "fileUri")
	case PartCode:
		out.Text = stringMember(p.value, "code")
	case PartCodeResult:
		out.Text = stringMember(p.value, "output")
	case PartOther:
		out.Name = string(p.name)
	}
	return out
}

// function returns the call or response as a [FunctionPart]. It adds its tokens to size.
func (p part) function(index int, size *promptSize) FunctionPart {
	f := FunctionPart{Index: index, Response: p.kind == PartResponse}
	c := jsontext.NewCursor(p.value)
	for c.Enter(); c.More(); {
		name, v := c.KeyText(), c.Value()
		is := jsontext.KindOf(v)
		switch {
		case string(name) == "id":
			if is == jsontext.String {
				f.ID = jsontext.Unquote(v)
			}
			continue
		case string(name) == "name" && is == jsontext.String:
			f.Name = jsontext.Unquote(v)
		}
		size.text += sizeOf(v)
	}
	return f
}

// stringMember returns the text of an object's member, or "" if it is no string.
func stringMember(object []byte, name string) string {
	if text := jsontext.Member(object, name); jsontext.KindOf(text) == jsontext.String {
		return jsontext.Unquote(text)
	}
	return ""
}

// Text returns a content with one text part. The role is "user" or "model"; an empty one is omitted. If text or role
// is not UTF-8, functions that write the content, such as [NewEvent], return an error that names the field.
func Text(role, text string) Value {
	b := make([]byte, 0, len(`{"parts":[{"text":""}],"role":""}`)+len(text)+len(role))
	b = append(b, `{"parts":[{"text":`...)
	b = append(jsontext.AppendQuote(b, text), `}]`...)
	if role != "" {
		b = jsontext.AppendQuote(append(b, `,"role":`...), role)
	}
	return Value{text: append(b, '}')}
}

// fault says what a value cannot be written for, or nil: only a text that is not UTF-8, see [Text].
func (v Value) fault() *FieldError {
	switch role := jsontext.Member(v.text, "role"); {
	case utf8.Valid(v.text):
		return nil
	case !utf8.Valid(role):
		return notUTF8("role", string(role))
	default:
		return notUTF8("parts/0/text", string(v.text))
	}
}

// Parts yields the parts of a content in order, each with its index. A part with several things, such as a text beside
// a function call, is yielded once for each of them, in their order, with the same index. A value that is not a
// content has no parts.
func (v Value) Parts() iter.Seq2[int, Part] {
	return func(yield func(int, Part) bool) {
		for i, p := range partsIn(v.text) {
			if !yield(i, p.exported()) {
				return
			}
		}
	}
}

// contentAt is the content that is noted text of an event, or none.
func contentAt(text []byte, types notes) Value {
	if jsontext.KindOf(text) == jsontext.Null {
		return Value{}
	}
	return Value{text, types.detached()}
}
