// Package store keeps sessions. It appends events to a session, applies patches to it, and returns its visible log,
// its state and its raw log.
//
// A [Store] is opened on a file ([Open]), in memory ([OpenMemory]) or on another storage engine ([New]). Each
// append and each patch is atomic and durable: if the call returns no error, everything that it wrote is on disk.
// With [Options.NoSync] or [OpenMemory], writes are not durable.
//
// The raw log of a session contains its records: events and patches. The seq of a record is its position in the raw
// log: 1, 2, 3 and so on. Reads return immutable views (package fold). A view contains the visible log and the
// state after a record. A patch that cannot be applied stays in the raw log, and the view skips it.
//
// A state key with the prefix "app:" belongs to all sessions of an app. A state key with the prefix "user:" belongs
// to all sessions of a user of an app. These keys form the shared scopes. They are not part of a session's log or
// view. A key with the prefix "temp:" is never stored.
//
// All functions and methods may be called from several goroutines at the same time.
package store
