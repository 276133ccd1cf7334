package patch

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// shape reads the next value at a cursor. It returns nil if the value is valid, and otherwise the problem. Null
// is always valid, like an absent field.
type shape func(c *jsonvalue.Cursor) *FieldError

// check applies the shape to a checked JSON value. It accepts nil.
func (s shape) check(v []byte) *FieldError {
	if v == nil {
		return nil
	}
	return s(jsonvalue.NewCursor(v))
}

var (
	// contentShape accepts a content whose known fields have the types that Gemini's API and ADK define. This
	// rule applies at any depth, so that a typed reader can decode the content. Unknown fields can have any
	// type. Names are matched as in encoding/json, first with exact case, then with any case.
	contentShape = objectOf(fields{"role": aString, "parts": listOf(partShape)})

	partShape = objectOf(fields{
		"text": aString, "thought": aBool, "thoughtSignature": isData, "partMetadata": anObject, "mediaProcessing": aString,
		"functionCall": objectOf(fields{
			"id": aString, "name": aString, "args": anObject, "willContinue": aBool,
			"partialArgs": listOf(objectOf(fields{
				"jsonPath": aString, "boolValue": aBool, "nullValue": aString, "numberValue": isFloat64, "stringValue": aString, "willContinue": aBool,
			})),
		}),
		"functionResponse": objectOf(fields{
			"id": aString, "name": aString, "response": anObject, "willContinue": aBool, "scheduling": aString,
			"parts": listOf(objectOf(fields{"inlineData": dataShape, "fileData": fileShape, "mediaProcessing": aString})),
		}),
		"inlineData": dataShape, "fileData": fileShape,
		"executableCode":      objectOf(fields{"id": aString, "code": aString, "language": aString}),
		"codeExecutionResult": objectOf(fields{"id": aString, "outcome": aString, "output": aString}),
		"toolCall":            objectOf(fields{"id": aString, "toolType": aString, "args": anObject}),
		"toolResponse":        objectOf(fields{"id": aString, "toolType": aString, "response": anObject}),
		"videoMetadata":       objectOf(fields{"startOffset": isDuration, "endOffset": isDuration, "fps": isFloat64}),
		"mediaResolution":     objectOf(fields{"level": aString, "numTokens": isInt32}),
		"speechMetadata":      objectOf(fields{"speaker": aString, "style": aString}),
		"audioTranscription": objectOf(fields{
			"text": aString, "finished": aBool, "languageCode": aString, "speakerLabel": aString, "startOffset": isDuration, "endOffset": isDuration,
			"words": listOf(objectOf(fields{"word": aString, "startOffset": aString, "endOffset": aString})),
		}),
	})

	dataShape = objectOf(fields{"data": isData, "displayName": aString, "mimeType": aString})
	fileShape = objectOf(fields{"fileUri": aString, "displayName": aString, "mimeType": aString})

	aString  = ofKind(jsonvalue.String, "a string")
	aBool    = ofKind(jsonvalue.Bool, "true or false")
	anObject = ofKind(jsonvalue.Object, "an object")

	isFloat64 = numberThat("a number that a float64 can hold", func(literal string) bool {
		f, err := strconv.ParseFloat(literal, 64)
		return err == nil && !math.IsInf(f, 0)
	})
	isInt32  = numberThat("an integer of 32 bits", func(literal string) bool { return parses(strconv.ParseInt(literal, 10, 32)) })
	isByte   = numberThat("an integer from 0 to 255", func(literal string) bool { return parses(strconv.ParseUint(literal, 10, 8)) })
	isBase64 = stringThat("base64", func(text string) bool { return parses(base64.StdEncoding.DecodeString(text)) })
	isData   = shape(func(c *jsonvalue.Cursor) *FieldError {
		if c.Kind() == jsonvalue.Array {
			return bytesShape(c) // encoding/json also decodes an array of numbers as bytes
		}
		return isBase64(c)
	})
	bytesShape = listOf(isByte)
	isDuration = stringThat(`a duration such as "1.5s"`, func(text string) bool {
		return text == "" || parses(time.ParseDuration(text))
	})
)

func parses[T any](_ T, err error) bool { return err == nil }

type fields map[string]shape

// lookup returns the shape of the field that encoding/json would match with name, or nil.
func (f fields) lookup(name string) shape {
	if s, ok := f[name]; ok {
		return s
	}
	for known, s := range f {
		if strings.EqualFold(known, name) {
			return s
		}
	}
	return nil
}

func objectOf(known fields) shape {
	return func(c *jsonvalue.Cursor) *FieldError {
		if c.Kind() != jsonvalue.Object {
			return anObject(c)
		}
		for c.Enter(); c.More(); {
			name := c.Key()
			check := known.lookup(string(name))
			if check == nil {
				c.Value()
				continue
			}
			if err := check(c); err != nil {
				return err.within("/" + jsonvalue.Step(string(name)))
			}
		}
		return nil
	}
}

func listOf(element shape) shape {
	aList := ofKind(jsonvalue.Array, "a list")
	return func(c *jsonvalue.Cursor) *FieldError {
		if c.Kind() != jsonvalue.Array {
			return aList(c)
		}
		c.Enter()
		for i := 0; c.More(); i++ {
			if err := element(c); err != nil {
				return err.within("/" + strconv.Itoa(i))
			}
		}
		return nil
	}
}

func ofKind(kind jsonvalue.Kind, want string) shape {
	return valueThat(kind, want, func([]byte) bool { return true })
}

func stringThat(want string, isValid func(text string) bool) shape {
	return valueThat(jsonvalue.String, want, func(v []byte) bool { return isValid(jsonvalue.Unquote(v)) })
}

func numberThat(want string, isValid func(literal string) bool) shape {
	return valueThat(jsonvalue.Number, want, func(v []byte) bool { return isValid(string(v)) })
}

func valueThat(kind jsonvalue.Kind, want string, isValid func(v []byte) bool) shape {
	return func(c *jsonvalue.Cursor) *FieldError {
		v := c.Value()
		if got := jsonvalue.KindOf(v); got == jsonvalue.Null || got == kind && isValid(v) {
			return nil
		}
		return fieldErr("", "want %s, not %s", want, clip(v))
	}
}
