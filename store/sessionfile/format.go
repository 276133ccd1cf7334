// Package sessionfile reads the session files that coding agents keep: pi's, the transcripts
// of Claude Code and the rollouts of Codex, JSON lines all three.
//
// A [Decoder] makes records of a log of them. Each line becomes one event, with what it says
// as content in ADK's shape, and the line itself beside it, so that [Lines] gives every line
// back. What the agent did to its context becomes patches: a rewind to an earlier message
// hides what it left behind, and a compaction puts its summary in the place of what it
// covers. So the visible log of what was read is the conversation as it stands, and the
// audit log is the file. docs/FORMAT.md says how each format is mapped.
//
// The records of the first lines of a file do not depend on those that follow: a file that
// has grown gives the records that it gave before, and more.
package sessionfile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// Format is a format of session files. Its text is the name of the agent.
type Format string

// The formats.
const (
	Pi         Format = "pi"          // ~/.pi/agent/sessions/*/*.jsonl, versions 1 to 3
	ClaudeCode Format = "claude-code" // ~/.claude/projects/*/*.jsonl, those of subagents too
	Codex      Format = "codex"       // ~/.codex/sessions/*/*/*/rollout-*.jsonl, those without envelopes too
)

// Formats returns all formats.
func Formats() []Format { return []Format{Pi, ClaudeCode, Codex} }

// Validate reports whether the format is one of [Formats]. The error is a
// *[patch.FieldError] that lists them.
func (f Format) Validate() error {
	if slices.Contains(Formats(), f) {
		return nil
	}
	return &patch.FieldError{Field: "format", Problem: fmt.Sprintf("there is no format %q; the formats are %s", string(f), names(Formats()))}
}

func names(formats []Format) string {
	var all []string
	for _, f := range formats {
		all = append(all, string(f))
	}
	return strings.Join(all, ", ")
}

// formatOf tells by its first line which format a file has; "" if none.
func formatOf(line []byte) Format {
	var first struct {
		Type, ID, Timestamp, UUID, SessionID, LeafUUID, MessageID *string

		Payload map[string]json.RawMessage
	}
	if !decode(line, &first) {
		return ""
	}
	is := func(types ...string) bool { return first.Type != nil && slices.Contains(types, *first.Type) }
	switch {
	case is("session") && first.ID != nil:
		return Pi
	case is("session_meta", "response_item", "event_msg", "turn_context", "compacted") && first.Payload != nil,
		first.Type == nil && first.ID != nil && first.Timestamp != nil:
		return Codex
	case first.Type != nil && (first.UUID != nil || first.SessionID != nil || first.LeafUUID != nil || first.MessageID != nil):
		return ClaudeCode
	}
	return ""
}

// entry is what a line means.
type entry struct {
	id     string // the line's own; "" if it has none
	time   time.Time
	author string
	branch string

	role        string
	parts       []json.RawMessage
	usage       map[string]json.RawMessage
	model       string
	errorText   string
	interrupted bool

	prompt bool   // it begins a turn
	note   string // why it has no content, or what became of it

	// What it is in the conversation's tree. An entry without place is none of its nodes.
	place   bool
	parent  *node
	message json.RawMessage // what it says, to tell a copy from another line of its id
	moves   bool            // it is where the conversation stands, wherever that was before
	piece   string          // the message that it is a piece of
	calls   []string        // of which it has
	known   []string        // calls that it answers

	// The summary of a compaction; see covers.
	compaction bool // it is one
	summary    bool // that says what it stands for
	kept       []*node
	strict     bool
	relink     bool // what is kept follows the summary in the tree
}

// reader makes entries of the lines of a format.
type reader interface {
	// read returns what a line means. It never fails: what it does not know has no content.
	read(line []byte, l *tree) entry

	// added tells which node an entry became.
	added(n *node)

	// session returns the id of the file's session as far as it has been read, or "".
	session() string
}

func (f Format) reader() reader {
	switch f {
	case Pi:
		return &piReader{}
	case ClaudeCode:
		return &claudeReader{names: map[string]string{}, messages: map[string]bool{}}
	default:
		return &codexReader{names: map[string]string{}}
	}
}
