// Package recall searches session logs by words. It ranks the events that it finds, and returns events as pages of
// text.
//
// [Index], [Terms] and [Snippet] do no I/O: the caller passes them records. [Finder] reads a log and caches one index
// per session within a memory limit. An index can always be rebuilt from the log.
package recall
