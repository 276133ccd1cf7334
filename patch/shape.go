package patch

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/patch/internal/jsontext"
)

// shape reports what is wrong with a value, or nil. Anything may be null, which is as good
// as absent.
type shape func(v []byte) *FieldError

var (
	// contentShape is that of a content whose known fields, at any depth, have the types
	// that Gemini's API and ADK give them, so that whoever reads it with types for these
	// fields can. Unknown fields may be anything. Names are matched as encoding/json
	// matches them: of the same case first.
	contentShape = objectOf(fields{"role": aString, "parts": listOf(partShape)})

	partShape = objectOf(fields{
		"text": aString, "thought": aBool, "thoughtSignature": isBase64, "partMetadata": anObject, "mediaProcessing": aString,
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

	dataShape = objectOf(fields{"data": isBase64, "displayName": aString, "mimeType": aString})
	fileShape = objectOf(fields{"fileUri": aString, "displayName": aString, "mimeType": aString})

	aString  = ofKind(jsontext.String, "a string")
	aBool    = ofKind(jsontext.Bool, "true or false")
	anObject = ofKind(jsontext.Object, "an object")

	isFloat64 = numberThat("a number that a float64 can hold", func(literal string) bool {
		f, err := strconv.ParseFloat(literal, 64)
		return err == nil && !math.IsInf(f, 0)
	})
	isInt32 = numberThat("an integer of 32 bits", func(literal string) bool {
		_, err := strconv.ParseInt(literal, 10, 32)
		return err == nil
	})
	isBase64 = stringThat("base64", func(text string) bool {
		_, err := base64.StdEncoding.DecodeString(text)
		return err == nil
	})
	isDuration = stringThat(`a duration such as "1.5s"`, func(text string) bool {
		_, err := time.ParseDuration(text)
		return text == "" || err == nil
	})
)

type fields map[string]shape

// named returns the shape of the field that a name means, or nil.
func (f fields) named(name string) shape {
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
	return func(v []byte) *FieldError {
		if err := anObject(v); err != nil {
			return err
		}
		for name, v := range jsontext.Members(v) {
			if check := known.named(name); check != nil {
				if err := check(v); err != nil {
					return err.within("/" + jsontext.EscapeStep(name))
				}
			}
		}
		return nil
	}
}

func listOf(element shape) shape {
	aList := ofKind(jsontext.Array, "a list")
	return func(v []byte) *FieldError {
		if err := aList(v); err != nil {
			return err
		}
		for i, v := range jsontext.Elements(v) {
			if err := element(v); err != nil {
				return err.within("/" + strconv.Itoa(i))
			}
		}
		return nil
	}
}

func ofKind(kind jsontext.Kind, want string) shape {
	return func(v []byte) *FieldError {
		if is := jsontext.KindOf(v); is != kind && is != jsontext.Null {
			return fieldErr("", "want %s, not %s", want, clip(v))
		}
		return nil
	}
}

func stringThat(want string, holds func(text string) bool) shape {
	return func(v []byte) *FieldError {
		switch jsontext.KindOf(v) {
		case jsontext.Null:
			return nil
		case jsontext.String:
			if holds(jsontext.Unquote(v)) {
				return nil
			}
		}
		return fieldErr("", "want %s, not %s", want, clip(v))
	}
}

func numberThat(want string, holds func(literal string) bool) shape {
	return func(v []byte) *FieldError {
		switch jsontext.KindOf(v) {
		case jsontext.Null:
			return nil
		case jsontext.Number:
			if holds(string(v)) {
				return nil
			}
		}
		return fieldErr("", "want %s, not %s", want, clip(v))
	}
}
