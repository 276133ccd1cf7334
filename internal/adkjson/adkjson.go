// Package adkjson translates events and patches from the JSON of other programs to the JSON of package patch. It
// translates the following:
//
//   - Rows of the events table of ADK for Python.
//   - Names of ADK's and genai's fields in snake_case.
//   - URL-safe base64.
//   - Times in Unix seconds.
//   - The patch fields patch_type, event_id, summary_event and patch_id.
//
// Importers use this package, because package patch accepts only its own form.
package adkjson

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/patch"
)

// ParseEvent is like [patch.ParseEvent], but also accepts the forms of other programs.
func ParseEvent(text []byte) (*patch.Event, error) {
	translated, err := new(translator).translateLine(text)
	if err != nil {
		return nil, err
	}
	return patch.ParseEvent(translated)
}

// TranslateLines translates the lines of a file to the form of package patch. If the file has a header,
// TranslateLines translates only the lines that package patch rejects. Lines that are not JSON stay unchanged. If
// rows belong to different sessions, TranslateLines fails. The error is a *[patch.LineError] with the file's name.
func TranslateLines(text []byte, name string) ([]byte, error) {
	out := make([]byte, 0, len(text))
	var t translator
	number, first, header := 0, true, false
	for line := range bytes.Lines(text) {
		number++
		checked, err := compact(bytes.TrimSpace(line))
		if err != nil {
			first = first && len(bytes.TrimSpace(line)) == 0
			out = append(out, line...)
			continue
		}
		header = header || first && jsonvalue.KindOf(checked) == jsonvalue.Object && jsonvalue.Member(checked, "patchlog") != nil
		if first = false; header {
			if _, err := patch.ParseRecord(checked); err == nil || jsonvalue.Member(checked, "patchlog") != nil {
				out = append(out, line...)
				continue
			}
		}
		own, err := t.translateLine(checked)
		if err != nil {
			return nil, &patch.LineError{File: name, Line: number, Err: err}
		}
		out = append(append(out, own...), '\n')
	}
	return out, nil
}

// translator translates the lines of one file.
type translator struct {
	owner rowOwner // owner of the preceding rows, or the zero rowOwner
}

// translateLine translates a line with an event or a patch. It replaces a row by the event in the row. It translates
// names only where ADK's schema has the field, because the keys of arguments, responses, state and metadata are
// data. The error is a *[patch.FieldError].
func (t *translator) translateLine(text []byte) ([]byte, error) {
	text, err := compact(text)
	if err != nil {
		return nil, err
	}
	text, owner, err := unwrapRow(text)
	switch {
	case err != nil:
		return nil, err
	case owner == rowOwner{}:
	case t.owner == rowOwner{}:
		t.owner = owner
	case t.owner != owner:
		return nil, fieldErr("session_id", "the row belongs to %s, but earlier rows belong to %s; a file must have only one session", owner, t.owner)
	}
	return translate(text)
}

// patchNames maps the names of patch fields in snake_case to their names in package patch.
var patchNames = map[string]string{"patch_type": "patchType", "event_id": "eventId", "summary_event": "summaryEvent"}

// translate translates text that the function compact has returned.
func translate(text []byte) ([]byte, error) {
	if jsonvalue.KindOf(text) != jsonvalue.Object {
		return text, nil
	}
	text, err := respell(text, eventSchema())
	if err != nil {
		return nil, err
	}
	isPatch, revert := false, false
	for name, v := range jsonvalue.Members(text) {
		if name == "patchType" || name == "patch_type" {
			isPatch, revert = true, string(v) == `"revert"`
		}
	}
	seen := map[string]bool{}
	out := append(make([]byte, 0, len(text)), '{')
	for name, v := range jsonvalue.Members(text) {
		canonical, translated := patchNames[name]
		switch {
		case name == "timestamp" && jsonvalue.KindOf(v) == jsonvalue.Number:
			t, err := epochTime(v)
			if err != nil {
				return nil, err
			}
			v = jsonvalue.AppendQuote(nil, t.Format(time.RFC3339Nano))
		case isPatch && translated:
			name = canonical
		case revert && name == "patch_id":
			name = "patchId"
		}
		if seen[name] {
			return nil, fieldErr(name, "the field occurs in two spellings")
		}
		seen[name] = true
		if isPatch && name == "summaryEvent" {
			v = translateNested(v)
		} else if isPatch && name == "replacement" && jsonvalue.KindOf(v) == jsonvalue.Array {
			list := []byte{'['}
			for i, e := range jsonvalue.Elements(v) {
				if i > 0 {
					list = append(list, ',')
				}
				list = append(list, translateNested(e)...)
			}
			v = append(list, ']')
		}
		out = append(jsonvalue.AppendKey(out, name), v...)
	}
	return append(out, '}'), nil
}

// translateNested translates an event inside a patch. If the event cannot be translated, it is returned unchanged,
// because a log may contain a malformed patch.
func translateNested(text []byte) []byte {
	if translated, err := translate(text); err == nil {
		return translated
	}
	return text
}

// epochTime parses a time in Unix seconds.
func epochTime(v []byte) (time.Time, error) {
	// A float64 has too few digits for nanoseconds, so the time is computed from the decimal literal.
	f, err := strconv.ParseFloat(string(v), 64)
	switch {
	case err != nil || f < float64(minTime.Unix()) || f > float64(maxTime.Unix()+1):
		return time.Time{}, fieldErr("timestamp", "%.64s seconds since 1970 is outside the years 1 to 9999", v)
	case math.Abs(f) < 1e-9:
		return time.Unix(0, 0).UTC(), nil
	case len(v) > 64:
		return time.Time{}, fieldErr("timestamp", "%.64s is not a time in Unix seconds", v)
	}
	r, ok := new(big.Rat).SetString(string(v))
	if !ok {
		return time.Time{}, fieldErr("timestamp", "%.64s is not a time in Unix seconds", v)
	}
	ns := new(big.Int).Quo(new(big.Int).Mul(r.Num(), big.NewInt(1e9)), r.Denom())
	sec, rest := new(big.Int).DivMod(ns, big.NewInt(1e9), new(big.Int))
	t := time.Unix(sec.Int64(), rest.Int64()).UTC()
	if t.Before(minTime) || t.After(maxTime) {
		return t, fieldErr("timestamp", "%.64s is outside the years 1 to 9999 in UTC", v)
	}
	return t, nil
}

// RFC 3339 supports only the years 1 to 9999.
var (
	minTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
)

// compact validates JSON and removes white space.
func compact(text []byte) ([]byte, error) {
	own, err := jsonvalue.Parse(text)
	if at := (*jsonvalue.Error)(nil); errors.As(err, &at) {
		return nil, fieldErr(strings.TrimPrefix(at.Pointer, "/"), "%s (byte %d)", at.Problem, at.Offset)
	}
	return own, nil
}

func fieldErr(field, format string, args ...any) *patch.FieldError {
	return &patch.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// clip shortens text for an error message.
func clip(text []byte) string {
	const maxBytes = 200
	if len(text) <= maxBytes {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:maxBytes]), "") + "…"
}
