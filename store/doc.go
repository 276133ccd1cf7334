// Package store keeps sessions: it appends events, applies patches, and reads back the
// visible log, the state and the raw log.
//
// A [Store] is opened on a file ([Open]), in memory ([OpenMemory]) or on another
// storage engine ([New]). Appending and patching are atomic and durable: what a call
// has returned without error is on disk. Reading gives immutable views (package fold)
// that stay as they are while others write.
//
// All methods may be called from any number of goroutines.
package store
