package command

import (
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
)

// entriesOf returns the visible log.
func entriesOf(v fold.View) []fold.Entry {
	var entries []fold.Entry
	for _, e := range v.Entries() {
		entries = append(entries, e)
	}
	return entries
}

// eventCells are the cells that say id, author and content of an event.
func eventCells(entry fold.Entry) []cell {
	e := entry.Event
	id := cell{present.Printable(e.ID()), dim}
	if e.ID() == "" {
		id.text = "(new)"
	}
	text := cell{present.EntryText(entry), textStyles[present.KindOf(entry)]}
	author := cell{authorText(e.Author()), cyan}
	if e.Author() == "user" && present.KindOf(fold.Entry{Event: e}) != present.Response {
		author.style = green
	}
	return []cell{id, author, text}
}

var textStyles = map[present.Kind]style{present.Call: yellow, present.Response: yellow, present.Summary: magenta}

// authorText is an author as a column shows it.
func authorText(author string) string { return cut(present.Printable(author), 24) }
