// Package peers measures, in one run, what users of ADK for Go would pick instead of
// patchlog: the same workload through ADK's session service in memory, its SQL service on
// a SQLite file, and patchlog on a file; both services and LangGraph's checkpointer on
// PostgreSQL; and the same log and questions through bleve, a library for search, and package
// recall.
//
//	go test -run '^$' -bench . -benchmem ./...
//
// Both files are opened as durable as they can be: what a call has returned without error
// survives a power failure. sqlite is the SQL service as gorm opens it; sqlite-wal is
// tuned: a write-ahead log and one connection.
package peers
