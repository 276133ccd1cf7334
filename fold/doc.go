// Package fold folds a session log into a view: the visible log, which a model should see, and the state.
//
// A [View] is an immutable value. [View.Apply] returns the view after more records. It never fails because of
// what a record says: a log may hold anything, and patches that cannot be applied are listed as skipped.
// [View.Check] judges a patch before it is logged. It takes the same step as Apply, and applies the rules for
// authors: a patch must not conflict with patches that its author has not seen, hide pinned events, or split a
// function call from its response. The contract is docs/SEMANTICS.md, sections 3 to 6 and 9.
//
// Views share structure: a view costs what changed since the view that it was made from. A view does not hold
// the events that patches hide, only which records hold them. A view does not read: a [MissingRecordsError]
// names the records that it needs to restore hidden events, and [View.WithRecords] supplies them.
package fold
