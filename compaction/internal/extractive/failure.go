package extractive

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// failure returns what a function's response says went wrong, and whether anything did.
func failure(response json.RawMessage) (string, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(response, &members) != nil {
		return "", false
	}
	failed := false
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value := string(members[key])
		switch strings.ToLower(key) {
		case "error", "errors", "errormessage", "error_message", "exception":
			switch value {
			case "null", "false", `""`, "{}", "[]", "0":
			default:
				return tellingLine(stringIn(members[key])), true
			}
		case "iserror", "is_error", "failed":
			failed = failed || value == "true"
		case "success", "ok":
			failed = failed || value == "false"
		case "returncode", "exitcode", "exit_code", "exitstatus":
			failed = failed || value != "0" && value != "null"
		}
	}
	for _, key := range []string{"message", "stderr", "result", "output"} {
		var text string
		if json.Unmarshal(members[key], &text) != nil {
			continue
		}
		if line := tellingLine(text); line != "" && (failed || saysError(text)) {
			return line, true
		}
	}
	return "", false
}

// saysError reports whether a text begins as reports of errors do.
func saysError(text string) bool {
	text = strings.TrimSpace(text)
	for _, begin := range []string{"error", "traceback", "fatal:", "exception"} {
		if len(text) >= len(begin) && strings.EqualFold(text[:len(begin)], begin) {
			return true
		}
	}
	return false
}

// stringIn is the string that a JSON text is, or that it holds as its message, or else
// the text.
func stringIn(text json.RawMessage) string {
	var s string
	if json.Unmarshal(text, &s) == nil {
		return s
	}
	var object struct{ Message string }
	if json.Unmarshal(text, &object) == nil && object.Message != "" {
		return object.Message
	}
	return string(text)
}

// tellingLine is the line of a longer text that says what went wrong: the last one with
// an error's name, or else the last one.
func tellingLine(text string) string {
	last := ""
	for _, line := range slices.Backward(strings.Split(text, "\n")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "<") && strings.HasSuffix(line, ">") {
			continue
		}
		if last == "" {
			last = line
		}
		lower := strings.ToLower(line)
		if strings.Contains(lower, "error") || strings.Contains(lower, "exception") {
			return line
		}
	}
	return last
}
