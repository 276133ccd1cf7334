// Package fold folds a session log into a view: the visible log, which a model should see, and the state.
//
// A [View] is an immutable value. [View.Apply] returns the view after more records. It never fails because of
// a record's content: patches that cannot be applied are listed as skipped. [View.Check] judges a patch before
// it is logged. It shares code with Apply, and applies the rules for authors: a patch must not conflict with
// patches that its author has not seen, hide pinned events, or separate a function call from its response. The
// contract is docs/SEMANTICS.md, sections 3 to 6 and 9.
//
// Views share structure: a new view costs only what changed since the previous one. A view does not hold the
// events that patches hide, only the seqs of their records. A view does no I/O: a [MissingRecordsError] names
// the records that it needs to restore hidden events, and [View.WithRecords] supplies them.
package fold
