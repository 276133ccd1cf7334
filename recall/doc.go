// Package recall searches session logs: an index of their words, ranking, and reading of results.
//
// [Index], [Terms] and [Snippet] are pure: they are given records and read nothing. [Finder] caches indexes of the
// sessions of a log, adds appended records to them, and evicts them within a bound of memory. An index can always be
// made again from the log.
package recall
