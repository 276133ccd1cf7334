package patch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"iter"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// PartKind is what a part of a content is.
type PartKind string

// The kinds of parts, and the fields of a part that make it of the kind.
const (
	PartEmpty      PartKind = "empty"             // none: the part says nothing by itself
	PartText       PartKind = "text"              // text
	PartThought    PartKind = "thought"           // text, where thought is true
	PartCall       PartKind = "function call"     // functionCall
	PartResponse   PartKind = "function response" // functionResponse
	PartData       PartKind = "data"              // inlineData
	PartFile       PartKind = "file"              // fileData
	PartCode       PartKind = "code"              // executableCode
	PartCodeResult PartKind = "code result"       // codeExecutionResult
	PartOther      PartKind = "other"             // any other, such as toolCall
)

// Part is one thing that a part of a [Content] says. It costs nothing to make: its
// methods read the content's JSON when they are called, and what they return is the
// caller's own. A method that a part of the kind has no field for returns zero.
type Part struct {
	kind  PartKind // PartText for a thought too
	name  string   // of the field that makes it of its kind
	value []byte   // of that field
	whole []byte   // the part, with what stands beside the field
}

// partsIn yields the parts of a checked array. Of any other value it yields nothing.
func partsIn(array []byte) iter.Seq2[int, Part] {
	return func(yield func(int, Part) bool) {
		for i, whole := range jsontext.Elements(array) {
			empty := true
			for name, v := range jsontext.Members(whole) {
				kind := partKind(name, jsontext.KindOf(v))
				if kind == PartEmpty {
					continue
				}
				empty = false
				if !yield(i, Part{kind, name, v, whole}) {
					return
				}
			}
			if empty && !yield(i, Part{kind: PartEmpty, whole: whole}) {
				return
			}
		}
	}
}

// partKind returns the kind that a field makes a part. One that is null is as good as
// absent.
func partKind(field string, is jsontext.Kind) PartKind {
	if is == jsontext.Null {
		return PartEmpty
	}
	kind, want := PartOther, jsontext.Object
	switch field {
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

// Kind says what the part is.
func (p Part) Kind() PartKind {
	if p.kind == PartText && p.Thought() {
		return PartThought
	}
	return p.kind
}

// Thought reports whether the part is marked as a model's thought, of whatever kind it is.
func (p Part) Thought() bool {
	return string(jsontext.Member(p.whole, "thought")) == "true"
}

// Text returns the text of a text or a thought, the code of a code, and the output of a
// code result.
func (p Part) Text() string {
	switch p.kind {
	case PartText:
		return jsontext.Unquote(p.value)
	case PartCode:
		return stringMember(p.value, "code")
	case PartCodeResult:
		return stringMember(p.value, "output")
	}
	return ""
}

// ID returns the id by which a call and its response, or a code and its result, belong
// together. It may be empty.
func (p Part) ID() string { return stringMember(p.value, "id") }

// Name returns the function's name of a call or a response, the name to display of data
// or a file, and the name of the field that a part of another kind has.
func (p Part) Name() string {
	switch p.kind {
	case PartCall, PartResponse:
		return stringMember(p.value, "name")
	case PartData, PartFile:
		return stringMember(p.value, "displayName")
	case PartOther:
		return p.name
	}
	return ""
}

// function is a call or a response as an event has it at hand.
func (p Part) function(index int) FunctionPart {
	f := FunctionPart{Index: index, Response: p.kind == PartResponse}
	for name, v := range jsontext.Members(p.value) { // once, which is cheaper than ID and Name
		switch {
		case jsontext.KindOf(v) != jsontext.String:
		case name == "id":
			f.ID = jsontext.Unquote(v)
		case name == "name":
			f.Name = jsontext.Unquote(v)
		}
	}
	return f
}

// Args returns the JSON of a function call's arguments, or nil.
func (p Part) Args() json.RawMessage { return p.member(PartCall, "args") }

// Response returns the JSON of what a function response says, or nil.
func (p Part) Response() json.RawMessage { return p.member(PartResponse, "response") }

func (p Part) member(of PartKind, name string) json.RawMessage {
	if p.kind != of {
		return nil
	}
	return bytes.Clone(jsontext.Member(p.value, name))
}

// MIMEType returns the type of data or a file.
func (p Part) MIMEType() string {
	if p.kind != PartData && p.kind != PartFile {
		return ""
	}
	return stringMember(p.value, "mimeType")
}

// URI returns where a file is.
func (p Part) URI() string {
	if p.kind != PartFile {
		return ""
	}
	return stringMember(p.value, "fileUri")
}

// DataLen returns how many bytes of data the part holds.
func (p Part) DataLen() int {
	text := jsontext.Member(p.value, "data")
	if p.kind != PartData || jsontext.KindOf(text) != jsontext.String {
		return 0
	}
	padding := len(text) - len(bytes.TrimRight(text, `="`)) - len(`"`)
	return base64.RawStdEncoding.DecodedLen(jsontext.RuneLen(text) - padding)
}

// Value returns the JSON of the field that makes the part of its kind, such as the whole
// of a function call, or nil if the part is empty.
func (p Part) Value() json.RawMessage { return bytes.Clone(p.value) }

// JSON returns the JSON of the whole part, with what stands beside the field that makes it
// of its kind.
func (p Part) JSON() json.RawMessage { return bytes.Clone(p.whole) }

// stringMember returns the text of an object's member, or "" if it is no string.
func stringMember(object []byte, name string) string {
	if text := jsontext.Member(object, name); jsontext.KindOf(text) == jsontext.String {
		return jsontext.Unquote(text)
	}
	return ""
}
