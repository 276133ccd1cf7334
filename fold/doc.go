// Package fold replays a session's log into what a model should see: the visible log
// and the state.
//
// A [View] is the result of a fold, an immutable value. [View.Apply] gives the view
// after one more record, [Fold] after many; neither ever fails because of what a record
// says, for a log may hold anything, and what cannot be applied is listed as skipped.
// [View.Check] judges a patch before it is logged, by the same step that Apply would
// take, and by the rules that only an author has to keep: what it must have seen, and
// that no function call is split from its response. The contract is docs/SEMANTICS.md,
// sections 3 to 6 and 9.
//
// Views share structure: a view costs what changed since the one that it was made
// from, and one that is dropped costs nothing. Of what patches hide a view keeps only which records
// hold it. It never reads: what it needs to bring events back it says by a [NeedError], and is given
// it by [View.With].
package fold
