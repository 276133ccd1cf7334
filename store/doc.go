// Package store keeps sessions. It appends events to a session, applies patches to it, and returns its visible log,
// its state and its raw log.
//
// A [Store] is opened on a file ([Open]), in memory ([OpenMemory]) or on another storage engine ([New]). Each
// append and each patch is atomic and durable: if the call returns no error, everything that it wrote is on disk.
// With [Options.NoSync] or [OpenMemory], writes are not durable. Reads return immutable views (package fold).
//
// All functions and methods may be called from several goroutines at the same time.
package store
