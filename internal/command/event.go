package command

import (
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/inspector/figures"
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
	id := cell{figures.Printable(e.ID()), dim}
	if e.ID() == "" {
		id.text = "(new)"
	}
	text := cell{figures.EntryText(entry), textStyles[figures.KindOf(entry)]}
	author := cell{authorText(e.Author()), cyan}
	if e.Author() == "user" && figures.KindOf(fold.Entry{Event: e}) != figures.Response {
		author.style = green
	}
	return []cell{id, author, text}
}

var textStyles = map[figures.Kind]style{figures.Call: yellow, figures.Response: yellow, figures.Summary: magenta}

// authorText is an author as a column shows it.
func authorText(author string) string { return cut(figures.Printable(author), 24) }
