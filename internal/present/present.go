// Package present describes sessions in figures and plain lines. The command uses it for stats, audit, diff,
// loss and log, and the inspector for its pages. Callers lay out, truncate and colour the lines.
//
// A text for people is one printable line (see [Printable]), whatever the session contains. Ids and JSON
// documents are not changed. Functions have no state and are safe for concurrent use.
package present

// Row is a figure with its name. A name that starts with spaces belongs to the row above.
type Row struct {
	Name string `json:"name"`
	Text string `json:"text"`
}
