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
	files      []string // files that the call changes
	shell      bool     // whether the call runs a shell command
	isReadOnly bool     // whether the command changes nothing and runs nothing
	check      string   // command of a check, such as a build, test or commit
	key        string   // if a later call has the same key, its outcome replaces the outcome of this call
}

// patchedFile matches the file names in the patch format of coding agents.
var patchedFile = regexp.MustCompile(`(?m)^\*\*\* (?:Add|Update|Delete) File: (\S+)`)

// actionOf returns the action of a call. A call that changes a file has arguments with a path and a text.
func actionOf(args json.RawMessage) (a action) {
	path, writes := "", false
	for l := range leaves(args) {
		key := strings.ToLower(l.key)
		switch {
		case !l.isString:
		case key == "command" || key == "cmd" || key == "script":
			a.shell = true
			if a.readCommand(l.value); a.check != "" {
				continue
			}
		case strings.Contains(key, "path") || strings.Contains(key, "file"):
			if path == "" {
				path = oneLine(l.value)
			}
			continue
		case isFileText(key):
			writes = true
		}
		for _, m := range patchedFile.FindAllStringSubmatch(l.value, -1) {
			if !slices.Contains(a.files, m[1]) {
				a.files = append(a.files, m[1])
			}
		}
	}
	if path != "" && writes && len(path) <= maxIDRunes {
		a.files = append(a.files, path)
	}
	if a.key == "" {
		a.key = path
	}
	return a
}

// isFileText reports whether an argument contains text to be written to a file.
func isFileText(key string) bool {
	for _, name := range []string{"content", "new", "old", "text", "insert", "replace", "edits", "patch", "diff", "source"} {
		if strings.HasPrefix(key, name) || strings.HasSuffix(key, "_"+name) {
			return true
		}
	}
	return false
}

// checkWords are words that occur in commands whose outcome matters later.
var checkWords = words.Set(`test tests pytest jest vitest build check lint typecheck tsc compile vet clippy mypy eslint make
	commit push merge tag deploy publish release`)

// readOnlyCommands are commands that only read, and that do not run their arguments.
var readOnlyCommands = words.Set("add awk cat cd cp echo find grep head install ls mkdir mv rg rm sed tail touch which")

// readCommand sets the fields of the action from a shell command.
func (a *action) readCommand(text string) {
	text = withoutHereDocuments(text)
	for _, m := range redirection.FindAllStringSubmatch(quotedText.ReplaceAllString(text, "''"), -1) {
		if file := m[1]; !strings.HasPrefix(file, "/dev/") && strings.ContainsFunc(file, unicode.IsLetter) && !slices.Contains(a.files, file) {
			a.files = append(a.files, file)
		}
	}
	readOnly := "" // first read-only command
	for segment := range strings.SplitSeq(strings.NewReplacer("&&", "\n", ";", "\n").Replace(text), "\n") {
		words := strings.Fields(oneLine(segment))
		for len(words) > 0 && (words[0] == "bash" || words[0] == "-lc") {
			words = words[1:]
		}
		switch {
		case len(words) == 0 || words[0] == "cd":
		case words[0][0] == '#':
			continue
		case readOnlyCommands[words[0]]:
			readOnly = cmp.Or(readOnly, commandName(words))
		default:
			a.key = cmp.Or(a.key, commandName(words))
		}
		for n, w := range words[:min(4, len(words))] {
			if readOnlyCommands[w] {
				break
			}
			if checkWords[w] || strings.ContainsRune(w, ':') && checkWords[w[:strings.IndexByte(w, ':')]] {
				a.check = truncate(strings.Join(words, " "), maxCheckSize)
				a.key = strings.Join(words[:n+1], " ")
				return
			}
		}
	}
	a.isReadOnly = a.key == ""
	a.key = cmp.Or(a.key, readOnly)
}

// commandName returns the beginning of a command, up to and including its first argument that is not a flag.
func commandName(words []string) string {
	n := 1
	for n < len(words) && strings.HasPrefix(words[n], "-") {
		n++
	}
	return truncate(strings.Join(words[:min(n+1, len(words))], " "), maxCheckSize)
}

const maxCheckSize = maxArgsSize / 3

var (
	hereDocument = regexp.MustCompile(`<<-?\s*['"]?(\w+)`)
	quotedText   = regexp.MustCompile(`'[^']*'|"(?:[^"\\]|\\.)*"`)
	redirection  = regexp.MustCompile(`(?:(?:^|[^-=])>|\btee (?:-a )?|\bsed -[a-zA-Z]*i\S* (?:-e )?(?:'' )+)\s*([\w./~@-]+)`)
)

// withoutHereDocuments returns a command without the texts of its here-documents.
func withoutHereDocuments(command string) string {
	var b strings.Builder
	end := ""
	for line := range strings.SplitSeq(command, "\n") {
		if end == "" {
			b.WriteString(line + "\n")
			if m := hereDocument.FindStringSubmatch(line); m != nil {
				end = m[1]
			}
		} else if strings.TrimSpace(line) == end {
			end = ""
		}
	}
	return b.String()
}

// exitCode matches the exit code that many tools write to their output.
var exitCode = regexp.MustCompile(`(?i)(?:exit(?:ed)?(?: with)?[ _]?(?:code|status)|returncode)\W{1,4}(\d+)`)

// outcome returns the most informative line of a function's response, and whether the call failed. If the call
// succeeded, a long line that does not look like a result is left out.
func outcome(response json.RawMessage) (line string, failed bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(response, &members) != nil {
		return "", false
	}
	hasStatus := false // whether a field states success or failure
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value := string(members[key])
		switch strings.ToLower(key) {
		case "error", "errors", "errormessage", "error_message", "exception":
			switch value {
			case "null", "false", `""`, "{}", "[]", "0":
			default:
				return withoutErrorPrefix(informativeLine(messageOf(members[key]), errorWords)), true
			}
		case "iserror", "is_error", "failed":
			failed, hasStatus = failed || value == "true", true
		case "success", "ok":
			failed, hasStatus = failed || value == "false", true
		case "returncode", "exitcode", "exit_code", "exitstatus":
			failed, hasStatus = failed || value != "0" && value != "null", true
		}
	}
	for _, key := range []string{"message", "stderr", "result", "output", "content"} {
		text := messageOf(members[key])
		if text == "" {
			continue
		}
		if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
			return outcome(json.RawMessage(text))
		}
		if m := exitCode.FindStringSubmatch(text[:min(len(text), 4_000)]); m != nil && !hasStatus {
			failed, hasStatus = m[1] != "0", true
		}
		failed = failed || !hasStatus && isErrorReport(text)
		if failed {
			if line := informativeLine(text, errorWords); line != "" {
				return withoutErrorPrefix(line), true
			}
			continue
		}
		if key != "stderr" {
			if line = informativeLine(text, resultWords); !containsAny(line, resultWords) && len(line) > 80 {
				line = ""
			}
			return line, false
		}
	}
	return line, failed
}

// Words that make a line informative, the most informative first.
var (
	errorWords  = []string{"error", "exception", "fail", "panic", "fatal"}
	resultWords = []string{"passed", "failed", "pass", "fail", "error", "success", "built", "warning", "changed", "ok", "done"}
)

func containsAny(line string, words []string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) })
}

// isErrorReport reports whether a text begins like an error report.
func isErrorReport(text string) bool {
	text = strings.TrimSpace(text)
	for _, begin := range []string{"error", "traceback", "fatal:", "exception"} {
		if len(text) >= len(begin) && strings.EqualFold(text[:len(begin)], begin) {
			return true
		}
	}
	return false
}

// withoutErrorPrefix returns a line without the prefix "error: ".
func withoutErrorPrefix(line string) string {
	if rest := line; len(rest) > 7 && strings.EqualFold(rest[:7], "error: ") {
		return rest[7:]
	}
	return line
}

// messageOf returns the string that the JSON text encodes. For an object with a member Message, it returns that
// message. Otherwise it returns the JSON text.
func messageOf(text json.RawMessage) string {
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

// wrapperLine matches lines of build tools that only repeat a command or report that it failed.
var wrapperLine = regexp.MustCompile(`(?i)^(?:[>$+] |npm (?:err|error)|make(?:\[\d+\])?: \*\*\*|error command failed)`)

// informativeLine returns the last of the lines with the most informative word. If no line contains one of the words,
// it returns the last line.
func informativeLine(text string, words []string) (best string) {
	rank := len(words) + 2
	for _, line := range slices.Backward(strings.Split(text, "\n")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "<") && strings.HasSuffix(line, ">") || wrapperLine.MatchString(line) {
			continue
		}
		lineRank := slices.IndexFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(line), w) })
		if lineRank < 0 {
			lineRank = len(words)
		}
		if len(line) < 40 && exitCode.MatchString(line) {
			lineRank = len(words) + 1
		}
		if lineRank < rank {
			best, rank = line, lineRank
		}
	}
	if rank > len(words) { // the line has only an exit code, without a reason
		return ""
	}
	return best
}
