package patch

import (
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// The tools of package recall say by handles which events of the log they bring. A blank keeps of
// these the places in the log: so what was brought of an event is found when that is erased later.
const (
	recallSearch = "recall_search"
	recallRead   = "recall_read"
)

// blankFields returns what a blank has of a call or response besides id and name.
func blankFields(p Part, of FunctionPart) string {
	switch {
	case !of.Response && of.Name == recallRead:
		if place := placeOf(jsontext.Member(jsontext.Member(p.value, "args"), "handle")); place != "" {
			return `"args":{"handle":"` + place + `"}`
		}
	case of.Response && of.Name == recallSearch:
		var all []string
		results := jsontext.Member(jsontext.Member(p.value, "response"), "results")
		if jsontext.KindOf(results) == jsontext.Array {
			for _, r := range jsontext.Elements(results) {
				if place := placeOf(jsontext.Member(r, "handle")); place != "" {
					all = append(all, `{"handle":"`+place+`"}`)
				}
			}
		}
		if all != nil {
			return `"response":{"erased":true,"results":[` + strings.Join(all, ",") + `]}`
		}
	}
	if of.Response {
		return `"response":{"erased":true}`
	}
	return ""
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
