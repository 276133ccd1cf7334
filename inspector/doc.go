// Package inspector shows the sessions of a store in a browser: raw log, visible log and patches, at any record, while
// the log grows. If allowed, a person can log patches, each with a preview.
//
// An [Inspector] is an http.Handler for the process that has the store open. Pages are rendered on the server, work
// without scripts, and load nothing from other hosts. Contents of sessions are always escaped text.
package inspector
