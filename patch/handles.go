package patch

import (
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// The tools of package recall say by handles which events of the log they bring. A blank keeps of
// the handles only the places in the log: so a copy that a tool made of an event is found when that event is erased later.
const (
	recallSearch = "recall_search"
	recallRead   = "recall_read"
)

// blankFunction returns what a blank has of a call or response.
func blankFunction(p part, of FunctionPart) (fields []orderedField) {
	if of.ID != "" {
		fields = append(fields, orderedField{"id", of.ID})
	}
	if of.Name != "" {
		fields = append(fields, orderedField{"name", of.Name})
	}
	if !of.Response {
		if place := placeOf(jsontext.Member(jsontext.Member(p.value, "args"), "handle")); of.Name == recallRead && place != "" {
			fields = append(fields, orderedField{"args", map[string]any{"handle": place}})
		}
		return fields
	}
	response := []orderedField{{"erased", true}}
	if of.Name == recallSearch {
		var results []any
		for _, r := range jsontext.Elements(jsontext.Member(jsontext.Member(p.value, "response"), "results")) {
			if place := placeOf(jsontext.Member(r, "handle")); place != "" {
				results = append(results, map[string]any{"handle": place})
			}
		}
		if results != nil {
			response = append(response, orderedField{"results", results})
		}
	}
	return append(fields, orderedField{"response", response})
}

// placeOf returns the place that a handle names, a record and perhaps the index of an event in it, or
// "" if it names none.
func placeOf(handle []byte) string {
	if jsontext.KindOf(handle) != jsontext.String {
		return ""
	}
	text := strings.TrimSpace(jsontext.Unquote(handle))
	if i := strings.LastIndex(text, "/"); i >= 0 {
		text = text[:i]
	}
	number, index, several := strings.Cut(text, ".")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return ""
	}
	place := strconv.FormatUint(seq, 10)
	if several {
		i, err := strconv.ParseUint(index, 10, 31)
		if err != nil {
			return ""
		}
		place += "." + strconv.FormatUint(i, 10)
	}
	return place
}
