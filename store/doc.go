// Package store keeps sessions: it appends events, applies patches, and reads back the
// visible log, the state and the raw log.
//
// A [Store] is opened on a file ([Open]), in memory ([OpenMemory]) or on another storage engine ([New]). Appends and
// patches are atomic and durable: when a call returns no error, all that it wrote is on disk, unless Options.NoSync or
// OpenMemory says otherwise. Reading returns immutable views (package fold).
//
// All methods may be called from any number of goroutines.
package store
