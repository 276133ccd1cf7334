// Package recall searches session logs. It indexes their words, ranks events, and shows results in pages.
//
// [Index], [Terms] and [Snippet] do no I/O: the caller passes them records. [Finder] reads a log, and caches an index
// for each session within a memory limit. An index can always be rebuilt from the log.
package recall
