package patch

import (
	"bytes"
	"encoding/base64"
	"iter"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// The kinds of parts, and the fields of a part that make it of the kind.
const (
	PartEmpty      = "empty"             // none: the part says nothing by itself
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

// Part is one thing that a part of a content says. A field that a part of the kind has not is zero.
type Part struct {
	Kind     string // one of the kinds above
	ID       string // by which a call and its response, or a code and its result, belong together
	Name     string // of a function; of data or a file, the name to display; of another kind, its field
	Text     string // a text or a thought, a code, or what a code has put out
	Thought  bool   // it is marked as a model's thought, of whatever kind it is
	MIMEType string // of data or a file
	URI      string // where a file is
	DataLen  int    // how many bytes of data it holds

	Args     Value // a function call's arguments
	Response Value // what a function response says
	Value    Value // of the field that makes the part of its kind, such as the whole of a function call
	JSON     Value // the whole part, with what stands beside that field
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

// function is a call or a response as an event has it at hand. It adds what that takes to size.
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

// Text returns the content of one part, a text. A role is "user" or "model"; an empty one
// is left out. If the text or the role is not UTF-8, what writes the content, such as
// [NewEvent], refuses it and names the field.
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

// Parts yields the parts of a content in their order, each with its index. A part that says several
// things, such as a text beside a function call, is yielded once for each of them, in the order in
// which they stand in it, under the same index. A value that is no content has none.
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
