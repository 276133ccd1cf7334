// Package figures says what a session comes to, in numbers and in plain lines, as the command
// and the inspector say it: what stats, audit, diff, loss and log show, without the ink. It
// decides on texts alone; what cuts them to a width, colours them or lays them out is its
// callers' business.
//
// Every text that it returns is one printable line (see [Printable]), whatever a session has in
// it. Its values are plain data: functions keep nothing and may be called from any number of
// goroutines; only a [Tally] has a state of its own.
package figures

// Row is a figure with its name. A name that begins with blanks belongs to the row above.
type Row struct {
	Name string `json:"name"`
	Text string `json:"text"`
}
