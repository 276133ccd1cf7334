package extractive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction/internal/oneline"
)

// callList is the function calls of an invocation, those of one function together. Cut
// short, it loses arguments first and names last.
type callList struct {
	groups []*callGroup
	byName map[string]*callGroup
}

type callGroup struct {
	name  string
	count int
	args  []string
	known map[string]bool // the args
	text  *passage        // of the args; made when it is needed
}

// Bounds on what is kept of calls and results.
const (
	maxNameWidth  = 64  // of a function's name
	maxNamesWidth = 96  // of the names that a list shows at least
	maxValueWidth = 160 // of one argument
	maxIDWidth    = 48  // of an id in a result
	maxGroupArgs  = 200 // different arguments of one function
	maxLeaves     = 64  // values of one call or result
	maxResultIDs  = 24  // values of an invocation's results
)

func (l *callList) add(name, args string) {
	if l.byName == nil {
		l.byName = make(map[string]*callGroup)
	}
	g := l.byName[name]
	if g == nil {
		g = &callGroup{name: name, known: make(map[string]bool)}
		l.byName[name] = g
		l.groups = append(l.groups, g)
	}
	g.count++
	g.text = nil
	if args != "" && !g.known[args] && len(g.args) < maxGroupArgs {
		g.known[args] = true
		g.args = append(g.args, args)
	}
}

// times is what stands behind the name of a function called more than once.
func (g *callGroup) times() string {
	if g.count == 1 {
		return ""
	}
	return fmt.Sprintf("×%d", g.count)
}

func (g *callGroup) passage() *passage {
	if g.text == nil {
		g.text = newPassage(strings.Join(g.args, "; "))
	}
	return g.text
}

// bare is the width of the group without arguments.
func (g *callGroup) bare() int {
	return utf8.RuneCountInString(g.name) + utf8.RuneCountInString(g.times())
}

// worth is that of a passage without facts.
func (l *callList) worth() int { return 0 }

// names is the width of the list without arguments.
func (l *callList) names() int {
	n := 2 * max(0, len(l.groups)-1)
	for _, g := range l.groups {
		n += g.bare()
	}
	return n
}

// least is the width of the names, or what is reasonable of it.
func (l *callList) least() int { return min(l.names(), maxNamesWidth) }

func (l *callList) width() int {
	n := l.names()
	for _, g := range l.groups {
		if len(g.args) > 0 {
			n += 2 + g.passage().width()
		}
	}
	return n
}

// cut returns the list in at most width runes: all names if there is room, and then
// arguments, the same for each function.
func (l *callList) cut(width int) string {
	shown, room := l.groups, width
	for i, g := range l.groups {
		n := g.bare()
		if i > 0 {
			n += 2
		}
		rest := 0
		if i < len(l.groups)-1 {
			rest = 3 // for an ellipsis in place of the next
		}
		if n+rest > room {
			shown = l.groups[:i]
			break
		}
		room -= n
	}
	if len(shown) == 0 {
		return ""
	}
	var b strings.Builder
	if len(shown) < len(l.groups) {
		room = 0
	}
	for i, g := range shown {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(g.name)
		if len(g.args) > 0 {
			if args := g.passage().cut(room/(len(shown)-i) - 2); args != "" {
				b.WriteString("(" + args + ")")
				room -= utf8.RuneCountInString(args) + 2
			}
		}
		b.WriteString(g.times())
	}
	if len(shown) < len(l.groups) {
		b.WriteString(", …")
	}
	return b.String()
}

// leaf is a value in a JSON text that is neither object nor array.
type leaf struct {
	key   string // that it stands under, or that its array does
	value string // on one line
	depth int    // 1: a member of the text's object
	text  bool
}

func (l leaf) String() string {
	if l.key == "" {
		return l.value
	}
	return l.key + "=" + l.value
}

// leavesOf returns the first values of a JSON text, in its order.
func leavesOf(text json.RawMessage) []leaf {
	type level struct {
		object bool
		key    string
		isKey  bool // the next token is a key
	}
	var leaves []leaf
	var levels []level
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for len(leaves) < maxLeaves {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		top := len(levels) - 1
		if top >= 0 && levels[top].object && levels[top].isKey {
			if key, ok := token.(string); ok {
				levels[top].key, levels[top].isKey = newPassage(key).cut(maxNameWidth), false
				continue
			}
		}
		key := ""
		if top >= 0 {
			key = levels[top].key
			levels[top].isKey = true
		}
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{', '[':
				levels = append(levels, level{token == '{', key, true})
			default:
				levels = levels[:top]
			}
		case string:
			if value := newPassage(token).cut(maxValueWidth); value != "" {
				leaves = append(leaves, leaf{key, value, len(levels), true})
			}
		case json.Number:
			leaves = append(leaves, leaf{key, oneline.Cut(token.String(), maxValueWidth), len(levels), false})
		case bool:
			leaves = append(leaves, leaf{key, fmt.Sprint(token), len(levels), false})
		}
	}
	return leaves
}

// argsText is a call's arguments.
func argsText(args json.RawMessage) string {
	var all []string
	for _, l := range leavesOf(args) {
		all = append(all, l.String())
	}
	return strings.Join(all, ", ")
}

// isID reports whether the value is one that later turns may need word for word: it looks
// like an id, it is called one, or it is a number that the result itself consists of.
func (l leaf) isID() bool {
	switch {
	case strings.Contains(l.value, " ") || utf8.RuneCountInString(l.value) > maxIDWidth:
		return false
	case isReference(l.value) && !isAmount(l.value), codeGrade(l.value) == idFact:
		return true
	case len(l.value) < 2 || !hasDigit(l.value):
		return false
	}
	return strings.HasSuffix(strings.ToLower(l.key), "id") || l.depth == 1 && !l.text
}

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
