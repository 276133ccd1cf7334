// Package transcript formats events as text for a model.
package transcript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction/internal/oneline"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// Of formats events as text, with one line per part. A line names the author and has the text, the function call or the
// result. Control characters and line separators in a part are escaped, so a tool result cannot forge a message.
//
// If maxRunes is above 0, longer arguments and results are cut, with a note of how many characters are missing. A call
// with an id that no event answers is marked as never answered. For a long-running call, only a response by the user
// counts as an answer. Thoughts, events without text, and nil events are left out.
func Of(events []*patch.Event, maxRunes int) string {
	if slices.Contains(events, nil) {
		events = slices.DeleteFunc(slices.Clone(events), func(e *patch.Event) bool { return e == nil })
	}
	return Truncated(events, maxRunes, 0)
}

// Truncated is like [Of], but if maxText is above 0, it also cuts longer texts. No event may be nil.
func Truncated(events []*patch.Event, maxRunes, maxText int) string {
	answered, longRunning := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		for _, id := range e.LongRunningToolIDs() {
			longRunning[id] = true
		}
		for p := range e.FunctionParts() {
			placeholder := longRunning[p.ID] && e.Author() != "user"
			answered[p.ID] = answered[p.ID] || p.Response && !placeholder || p.ID == ""
		}
	}
	var b strings.Builder
	for _, e := range events {
		writeEvent(&b, e, maxRunes, maxText, answered)
	}
	return b.String()
}

func writeEvent(b *strings.Builder, e *patch.Event, maxRunes, maxText int, answered map[string]bool) {
	who := oneline.Escape(e.Author())
	if who == "" {
		who = "unknown"
	}
	if _, ok := summaries.CompactionOf(e); ok {
		who = "summary of earlier events"
	}
	for _, p := range e.Parts() {
		switch p.Kind {
		case patch.PartText:
			if text := strings.TrimSpace(p.Text); text != "" {
				fmt.Fprintf(b, "%s: %s\n", who, oneline.Truncate(oneline.Escape(text), maxText))
			}
		case patch.PartCall:
			fmt.Fprintf(b, "%s calls %s%s", who, oneline.Escape(p.Name), idNote(p.ID))
			if args := p.Args.String(); args != "null" {
				b.WriteString(" " + oneline.Truncate(oneline.Escape(args), maxRunes))
			}
			if !answered[p.ID] {
				b.WriteString(" (never answered)")
			}
			b.WriteByte('\n')
		case patch.PartResponse:
			fmt.Fprintf(b, "%s returns%s to %s: %s\n", oneline.Escape(p.Name), idNote(p.ID), who, oneline.Truncate(oneline.Escape(p.Response.String()), maxRunes))
		case patch.PartCode:
			fmt.Fprintf(b, "%s runs code: %s\n", who, oneline.Truncate(oneline.Escape(p.Text), maxRunes))
		case patch.PartCodeResult:
			fmt.Fprintf(b, "code returns to %s: %s\n", who, oneline.Truncate(oneline.Escape(p.Text), maxRunes))
		case patch.PartData:
			fmt.Fprintf(b, "%s sends data:%s\n", who, joinWords(p.MIMEType, p.Name))
		case patch.PartFile:
			fmt.Fprintf(b, "%s sends a file:%s\n", who, joinWords(p.MIMEType, p.URI))
		case patch.PartOther:
			fmt.Fprintf(b, "%s sends: %s\n", who, oneline.Truncate(oneline.Escape(p.JSON.String()), maxRunes))
		}
	}
}

// maxIDRunes is the maximum length of a call id in a transcript. Longer ids are cut, because some ids contain
// kilobytes of state.
const maxIDRunes = 40

func idNote(callID string) string {
	if callID == "" {
		return ""
	}
	if id := []rune(callID); len(id) > maxIDRunes {
		callID = string(id[:maxIDRunes]) + "…"
	}
	return " (" + oneline.Escape(callID) + ")"
}

// joinWords returns a space and the word for each word that is not empty.
func joinWords(all ...string) string {
	var b strings.Builder
	for _, w := range all {
		if w != "" {
			b.WriteString(" " + oneline.Escape(w))
		}
	}
	return b.String()
}

// HasLine reports whether the transcript of the event would have a line.
func HasLine(e *patch.Event) bool {
	if !e.SaysSomething() {
		return false
	}
	var b strings.Builder
	writeEvent(&b, e, 1, 1, nil)
	return b.Len() > 0
}
