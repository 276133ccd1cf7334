package extractive

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/patchlog-dev/patchlog/internal/words"
)

// action describes what a call does, as far as its arguments show.
type action struct {
	files []string // files that the call changes
	shell bool     // the call runs a shell command
	looks bool     // the command changes nothing and runs nothing
	check string   // the command of a check, such as a build, test or commit
	key   string   // the outcome of a later call with the same key replaces the outcome of this call
}

// patched matches the file names in the patch format that agents use.
var patched = regexp.MustCompile(`(?m)^\*\*\* (?:Add|Update|Delete) File: (\S+)`)

// actionOf returns the action of a call. A call that changes a file has arguments with a path and a text.
func actionOf(args json.RawMessage) (a action) {
	path, writes := "", false
	for l := range leaves(args) {
		key := strings.ToLower(l.key)
		switch {
		case !l.text:
		case key == "command" || key == "cmd" || key == "script":
			a.shell = true
			if a.command(l.value); a.check != "" {
				continue
			}
		case strings.Contains(key, "path") || strings.Contains(key, "file"):
			if path == "" {
				path = oneLine(l.value)
			}
			continue
		case isWriting(key):
			writes = true
		}
		for _, m := range patched.FindAllStringSubmatch(l.value, -1) {
			if !slices.Contains(a.files, m[1]) {
				a.files = append(a.files, m[1])
			}
		}
	}
	if path != "" && writes && len(path) <= maxFact {
		a.files = append(a.files, path)
	}
	if a.key == "" {
		a.key = path
	}
	return a
}

// isWriting reports whether an argument contains text to be written to a file.
func isWriting(key string) bool {
	for _, name := range []string{"content", "new", "old", "text", "insert", "replace", "edits", "patch", "diff", "source"} {
		if strings.HasPrefix(key, name) || strings.HasSuffix(key, "_"+name) {
			return true
		}
	}
	return false
}

// checks are words of commands whose outcome matters later.
var checks = words.Set(`test tests pytest jest vitest build check lint typecheck tsc compile vet clippy mypy eslint make
	commit push merge tag deploy publish release`)

// looks are commands that do not run their arguments.
var looks = words.Set("add awk cat cd cp echo find grep head install ls mkdir mv rg rm sed tail touch which")

// command reads a shell command.
func (a *action) command(text string) {
	text = withoutDocuments(text)
	for _, m := range writesFile.FindAllStringSubmatch(quotes.ReplaceAllString(text, "''"), -1) {
		if file := m[1]; !strings.HasPrefix(file, "/dev/") && strings.ContainsFunc(file, unicode.IsLetter) && !slices.Contains(a.files, file) {
			a.files = append(a.files, file)
		}
	}
	looked := "" // the first command in looks
	for segment := range strings.SplitSeq(strings.NewReplacer("&&", "\n", ";", "\n").Replace(text), "\n") {
		said := strings.Fields(oneLine(segment))
		for len(said) > 0 && (said[0] == "bash" || said[0] == "-lc") {
			said = said[1:]
		}
		switch {
		case len(said) == 0 || said[0] == "cd":
		case said[0][0] == '#':
			continue
		case looks[said[0]]:
			looked = cmp.Or(looked, commandName(said))
		default:
			a.key = cmp.Or(a.key, commandName(said))
		}
		for n, w := range said[:min(4, len(said))] {
			if looks[w] {
				break
			}
			if checks[w] || strings.ContainsRune(w, ':') && checks[w[:strings.IndexByte(w, ':')]] {
				a.check = cut(strings.Join(said, " "), maxCheck)
				a.key = strings.Join(said[:n+1], " ")
				return
			}
		}
	}
	a.looks = a.key == ""
	a.key = cmp.Or(a.key, looked)
}

// commandName returns a command up to its first argument that is not a flag.
func commandName(said []string) string {
	n := 1
	for n < len(said) && strings.HasPrefix(said[n], "-") {
		n++
	}
	return cut(strings.Join(said[:min(n+1, len(said))], " "), maxCheck)
}

const maxCheck = maxArgs / 3

var (
	document   = regexp.MustCompile(`<<-?\s*['"]?(\w+)`)
	quotes     = regexp.MustCompile(`'[^']*'|"(?:[^"\\]|\\.)*"`)
	writesFile = regexp.MustCompile(`(?:(?:^|[^-=])>|\btee (?:-a )?|\bsed -[a-zA-Z]*i\S* (?:-e )?(?:'' )+)\s*([\w./~@-]+)`)
)

// withoutDocuments returns a command without its here-documents.
func withoutDocuments(command string) string {
	var b strings.Builder
	end := ""
	for line := range strings.SplitSeq(command, "\n") {
		if end == "" {
			b.WriteString(line + "\n")
			if m := document.FindStringSubmatch(line); m != nil {
				end = m[1]
			}
		} else if strings.TrimSpace(line) == end {
			end = ""
		}
	}
	return b.String()
}

// exited matches the exit code that many tools write to their output.
var exited = regexp.MustCompile(`(?i)(?:exit(?:ed)?(?: with)?[ _]?(?:code|status)|returncode)\W{1,4}(\d+)`)

// outcome returns the most informative line of a function's response, and whether the call failed. If the call
// succeeded, a long line that does not look like a result is left out.
func outcome(response json.RawMessage) (line string, failed bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(response, &members) != nil {
		return "", false
	}
	known := false // whether a field states success or failure
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value := string(members[key])
		switch strings.ToLower(key) {
		case "error", "errors", "errormessage", "error_message", "exception":
			switch value {
			case "null", "false", `""`, "{}", "[]", "0":
			default:
				return unlabelled(tellingLine(stringIn(members[key]), troubles)), true
			}
		case "iserror", "is_error", "failed":
			failed, known = failed || value == "true", true
		case "success", "ok":
			failed, known = failed || value == "false", true
		case "returncode", "exitcode", "exit_code", "exitstatus":
			failed, known = failed || value != "0" && value != "null", true
		}
	}
	for _, key := range []string{"message", "stderr", "result", "output", "content"} {
		text := stringIn(members[key])
		if text == "" {
			continue
		}
		if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
			return outcome(json.RawMessage(text))
		}
		if m := exited.FindStringSubmatch(text[:min(len(text), 4_000)]); m != nil && !known {
			failed, known = m[1] != "0", true
		}
		failed = failed || !known && saysError(text)
		if failed {
			if line := tellingLine(text, troubles); line != "" {
				return unlabelled(line), true
			}
			continue
		}
		if key != "stderr" {
			if line = tellingLine(text, results); !says(line, results) && len(line) > 80 {
				line = ""
			}
			return line, false
		}
	}
	return line, failed
}

// Words of informative lines, the most informative first.
var (
	troubles = []string{"error", "exception", "fail", "panic", "fatal"}
	results  = []string{"passed", "failed", "pass", "fail", "error", "success", "built", "warning", "changed", "ok", "done"}
)

func says(line string, words []string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) })
}

// saysError reports whether a text begins like an error report.
func saysError(text string) bool {
	text = strings.TrimSpace(text)
	for _, begin := range []string{"error", "traceback", "fatal:", "exception"} {
		if len(text) >= len(begin) && strings.EqualFold(text[:len(begin)], begin) {
			return true
		}
	}
	return false
}

// unlabelled returns a line without the prefix "error: ".
func unlabelled(line string) string {
	if rest := line; len(rest) > 7 && strings.EqualFold(rest[:7], "error: ") {
		return rest[7:]
	}
	return line
}

// stringIn returns the string that the JSON text encodes. For an object with a member Message, it returns that message.
// Otherwise it returns the JSON text.
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

// wrapper matches lines of build tools that only repeat a command or report a failure.
var wrapper = regexp.MustCompile(`(?i)^(?:[>$+] |npm (?:err|error)|make(?:\[\d+\])?: \*\*\*|error command failed)`)

// tellingLine returns the last line with the most informative word. If no line has one of the words, it returns the
// last line.
func tellingLine(text string, words []string) (best string) {
	rank := len(words) + 2
	for _, line := range slices.Backward(strings.Split(text, "\n")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "<") && strings.HasSuffix(line, ">") || wrapper.MatchString(line) {
			continue
		}
		of := slices.IndexFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(line), w) })
		if of < 0 {
			of = len(words)
		}
		if len(line) < 40 && exited.MatchString(line) {
			of = len(words) + 1
		}
		if of < rank {
			best, rank = line, of
		}
	}
	if rank > len(words) { // only an exit code, without a reason
		return ""
	}
	return best
}
