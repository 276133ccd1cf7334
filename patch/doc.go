// Package patch defines the records of a session log: events and patches.
//
// An [Event] is one event of an agent's session, with the fields of ADK's session event. A [PatchEvent]
// describes a change of the visible log. The visible log is the list of events that the model sees. A [Record]
// is an event or a patch with its seq, which is its position in the log. Events, patches and records are
// immutable. Goroutines may share them without copying.
//
// The package validates records, and reads and writes them in two forms:
//
//   - as JSON text, with [ParseRecord], [Decoder] and [WriteRecord]
//   - as bytes for a store, with [AppendRecord] and [DecodeRecord]
//
// [Same] compares two records. Package fold applies patches to a log.
package patch
