// Package present says what a session comes to, in numbers and in plain lines, as the command
// and the inspector say it: what the commands stats, audit, diff, loss and log show. What lays
// lines out, cuts them to a width or colours them is up to its callers.
//
// A text for people is always one printable line (see [Printable]), whatever a session has in it.
// Fields that name what is in a session, ids above all, and documents for JSON have it as it is.
// Functions keep nothing, and may be called from any number of goroutines.
package present

// Row is a figure with its name. A name that begins with blanks belongs to the row above.
type Row struct {
	Name string `json:"name"`
	Text string `json:"text"`
}
