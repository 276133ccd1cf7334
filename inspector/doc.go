// Package inspector shows the sessions of a store in a browser. A page shows the raw log, the visible log and
// the patches as of any record, and follows the log as it grows. If writing is enabled, a person can log
// patches, each after a preview.
//
// An [Inspector] is an http.Handler for the process that has the store open. Pages are rendered on the server,
// work without scripts, and load nothing from other hosts. Session contents are always escaped.
package inspector
