// Package recall finds again what a session's log says: an index of the words of its
// events, a ranking, and the readings of what was found.
//
// [Index], [Terms] and [Snippet] are pure: they know records, and read nothing. [Finder]
// keeps indexes of the sessions of a log, feeds them with what was appended, and forgets
// them when they take too much memory. An index is a cache: whatever becomes of it, the log
// has the answer.
package recall
