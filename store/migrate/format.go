package migrate

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
)

// Format is a format in which a program stores sessions, either in files or in a database.
type Format struct {
	// Name identifies the format. It is the app of sessions whose app is not in the file. In files of programs with a
	// single agent, it is also the author of the model's events.
	Name string

	Title    string // description of the format, for tables and messages
	Versions string // versions of the program that are tested
	Kept     string // content that is imported besides messages
	Omitted  string // content that is not imported

	// Database is set if the format is a database, which [OpenFile] cannot read.
	Database bool

	// count returns the number of objects at the start of a file that match the format. magic recognises binary
	// formats by their first bytes.
	count func(b *fileHead) int
	magic func(head []byte) bool

	open   func(f *File) (Source, error) // nil for a session file, which the field reader reads
	reader func() reader
	lists  bool // whether a document may have several lists of messages, each of which is a session
}

// Formats returns the supported formats. The table in docs/OPERATIONS.md is generated from them.
func Formats() []Format {
	return []Format{
		patchlogText, patchlogDatabase, adkEvents, adkSessions, adkDatabase,
		claudeCode, codex, pi, geminiCLI, opencode, anthropicMessages, openAIChat, openAIResponses,
	}
}

// FormatNames returns the names of the formats, separated by commas.
func FormatNames() string {
	var names []string
	for _, f := range Formats() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// HeadBytes is the number of bytes that [Detect] needs.
const HeadBytes = 256 << 10

var byteOrderMark = []byte("\ufeff")

// Detect returns the format of a file from the first bytes and the name of the file. At least half of the objects in
// head must match the format, and more objects must match it than any other format. Otherwise, the error is an
// *[UnknownFormatError].
func Detect(head []byte, name string) (Format, error) {
	head = head[:min(len(head), HeadBytes)]
	for _, f := range Formats() {
		if f.magic != nil && f.magic(head) {
			return f, nil
		}
	}
	b := parseHead(head, name)
	var found []Format
	most := 0
	for _, f := range Formats() {
		n := 0
		if f.count != nil {
			n = f.count(b)
		}
		if n > most {
			found, most = nil, n
		}
		if n == most && n > 0 && 2*n >= len(b.objects) {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Format{}, &UnknownFormatError{Name: name, Reason: fmt.Sprintf("it could be %s or %s", found[0].Title, found[1].Title)}
	}
	reason := "its format is unknown"
	switch i := slices.IndexFunc(unsupportedFormats, func(r unsupportedFormat) bool { return b.has(r.match) }); {
	case len(bytes.TrimSpace(head)) == 0:
		reason = "it is empty"
	case bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")):
		reason = "it is in UTF-16; convert it to UTF-8"
	case i >= 0:
		reason = unsupportedFormats[i].reason
	case len(b.objects) > 0 && b.has(func(o obj) bool { return o.has("type") || o.has("role") || o.has("id") }):
		reason = "no line has a supported format, or has the author, content or actions of an ADK event"
	}
	return Format{}, &UnknownFormatError{Name: name, Reason: reason}
}

// UnknownFormatError is the error for a file whose format was not recognised. It has the reason.
type UnknownFormatError struct {
	Name   string
	Reason string
}

func (e *UnknownFormatError) Error() string {
	return fmt.Sprintf("%s: %s; supported formats: %s", e.Name, e.Reason, FormatNames())
}

// Is reports whether target is [store.ErrInvalid].
func (e *UnknownFormatError) Is(target error) bool { return target == store.ErrInvalid }

// unsupportedFormat is a format that is recognised but not supported.
type unsupportedFormat struct {
	match  func(o obj) bool
	reason string
}

var unsupportedFormats = []unsupportedFormat{
	{func(o obj) bool { return o.has("eval_set_id", "evalSetId") && o.has("eval_cases", "evalCases") },
		"it is an eval set of ADK, which has expected answers but no session"},
	{func(o obj) bool { return o.has("ts") && (o.text("type") == "say" || o.text("type") == "ask") },
		"it is the list of messages that Cline displays (ui_messages.json); the session is in api_conversation_history.json in the same folder"},
	{func(o obj) bool { return o.has("sessionId") && o.has("messageId") && o.text("message") != "" },
		"it is Gemini CLI's list of prompts (logs.json); the sessions are in chats/"},
	{func(o obj) bool { return o.has("display") && o.has("pastedContents") },
		"it is Claude Code's list of prompts (history.jsonl); the sessions are in projects/"},
	{func(o obj) bool { return o.has("session_id") && o.has("ts") && o.has("text") },
		"it is Codex's list of prompts (history.jsonl); the sessions are in sessions/"},
	{func(o obj) bool { return o.has("parentUuid") && o.object("message").has("parts") },
		"it is a session of Qwen Code, which is not supported"},
	{func(o obj) bool { return o.has("sessionID") && o.has("part") },
		"it is the output of 'opencode run --format json'; export the session with 'opencode export SESSION'"},
}

// Magic bytes of binary formats. bbolt has them at offset 16 of a meta page, and SQLite at the start of the file.
var (
	boltMagic   = []byte{0xed, 0xda, 0x0c, 0xed}
	sqliteMagic = []byte("SQLite format 3")
)

var patchlogDatabase = Format{
	Name: "patchlog-database", Title: "a patchlog database", Versions: "the current one",
	Kept: "everything", Omitted: "snapshots", Database: true,
	// The magic bytes are in the first meta page, or in the second one for common page sizes.
	magic: func(head []byte) bool {
		return slices.ContainsFunc([]int{0, 4096, 8192, 16384}, func(page int) bool {
			at := page + 16
			return len(head) >= at+4 && bytes.Equal(head[at:at+4], boltMagic)
		})
	},
}

var adkDatabase = Format{
	Name: "adk-database", Title: "an ADK database on SQLite or PostgreSQL", Versions: "ADK for Go; ADK for Python from schema 1 on, and its SqliteSessionService",
	Kept: "events, state, shared values, compactions, rewinds", Omitted: "temp: keys, partial events, events without a session", Database: true,
	magic: func(head []byte) bool { return bytes.HasPrefix(head, sqliteMagic) },
}

// sessionName returns the name of a session that has no id. The name is the file's name without the extension. If
// folder is not empty, the names of the folders between folder and the file precede it. If a program gives all its
// files the same name, the name of the file's folder replaces the file's name.
func sessionName(file, folder string) string {
	base := filepath.Base(file)
	if dir := filepath.Dir(file); base == clineHistory && filepath.Base(dir) != "." && filepath.Base(dir) != string(filepath.Separator) {
		file, base = dir, filepath.Base(dir)
	}
	name, _ := strings.CutSuffix(base, filepath.Ext(base))
	if rel, err := filepath.Rel(folder, filepath.Dir(file)); folder != "" && err == nil && filepath.IsLocal(rel) && rel != "." {
		name = strings.ReplaceAll(filepath.ToSlash(rel), "/", ".") + "." + name
	}
	return name
}
