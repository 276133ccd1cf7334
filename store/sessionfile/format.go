// Package sessionfile reads the session files that coding agents keep: pi's, the transcripts
// of Claude Code and the rollouts of Codex, JSON lines all three.
//
// A [Decoder] makes records of a log of them. Each line becomes one event, with what it says
// as content in ADK's shape, and the line itself beside it, so that [Line] gives every line
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
	eventJSON        // what it says besides its content; without an author it is the system's
	id        string // the line's own; "" if it has none
	time      time.Time
	role      string
	parts     []part
	prompt    bool   // it begins a turn
	note      string // why it has no content, or what became of it

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

// reader returns the function that makes entries of lines. It never fails: a line that it does
// not know has no content.
func (f Format) reader() func(line []byte, t *tree) entry {
	switch f {
	case Pi:
		return readPi
	case ClaudeCode:
		return (&claudeReader{messages: map[string]bool{}}).read
	default:
		return readCodex
	}
}
