// Package fold computes a view of a session from its log. A view consists of the visible log and the state. The
// visible log is the list of events that the model sees.
//
// A [View] is an immutable value. [View.Apply] returns the view after more records. A record's content never
// makes Apply fail: if a patch cannot be applied, the view lists it as skipped.
//
// [View.Check] checks a patch before it is logged. It uses the same code as Apply, and also enforces the rules
// for authors:
//
//   - The author must have seen the log's newest patch.
//   - The patch must not hide a pinned event.
//   - The patch must not separate a function call from its response.
//
// Sections 3 to 6 and 9 of docs/SEMANTICS.md specify these rules.
//
// Views share structure, so a new view costs little more than the changes since the previous view. For an event
// that a patch has hidden, a view keeps only the seq of the record. A view does no I/O. If it needs records to
// restore hidden events, it returns a [MissingRecordsError], and the caller supplies the records with
// [View.WithRecords].
package fold
