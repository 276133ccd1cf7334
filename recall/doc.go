// Package recall searches session logs. It indexes their words, ranks events, and shows results in pages.
//
// [Index], [Terms] and [Snippet] do no I/O: the caller passes them records. [Finder] reads a log. It caches an index
// for each session, adds appended records to the index, and evicts indexes to stay within a memory limit. An index can
// always be rebuilt from the log.
package recall
