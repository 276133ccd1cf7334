// Package patch is the vocabulary of patchlog: what a session's log is made of.
//
// An [Event] is one regular event of an agent's session, in the shape of ADK's
// session event. A [PatchEvent] says how the visible log changes. A [Record] is
// one of the two at its place, its seq, in the log. All three are immutable and
// may be shared between goroutines without copying.
//
// The package decides form: what a well-formed event or patch is ([NewEvent],
// [ParseEvent], [ParseRecord], [PatchEvent.Validate]), how records look as JSON
// text ([Decoder], [Encoder]) and as bytes in a store ([AppendRecord],
// [DecodeRecord]), and when two records mean the same ([Same]). What a patch does
// to a log is package fold's matter.
package patch
