// Package patch defines events, patches and records of a session log, and their JSON and byte forms.
//
// An [Event] is one regular event of an agent's session, in the shape of ADK's session event. A [PatchEvent] says
// how the visible log changes. A [Record] is either, with its seq in the log. All three are immutable and may be
// shared between goroutines without copying.
//
// The package checks form ([NewEvent], [ParseEvent], [ParseRecord], [PatchEvent.Validate]), reads and writes records
// as JSON text ([Decoder], [WriteRecord]) and as bytes for a store ([AppendRecord], [DecodeRecord]), and compares
// records ([Same]). Package fold applies patches to a log.
package patch
