// Package present describes sessions in figures and plain lines, for the command and the inspector:
// the output of the commands stats, audit, diff, loss and log. Callers lay out, truncate and colour
// the lines.
//
// A text for people is one printable line (see [Printable]), whatever the session contains.
// Identifying fields, mainly ids, and JSON documents are unchanged. Functions have no state and are
// safe for concurrent use.
package present

// Row is a figure with its name. A name that starts with blanks belongs to the row above.
type Row struct {
	Name string `json:"name"`
	Text string `json:"text"`
}
