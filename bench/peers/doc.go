// Package peers compares patchlog in one run with its alternatives for users of ADK for Go: the
// same workload through ADK's session service in memory, its SQL service on a SQLite file, and
// patchlog on a file; both services and LangGraph's checkpointer on PostgreSQL; and the same log
// and questions through bleve, a search library, and package recall.
//
//	go test -run '^$' -bench . -benchmem ./...
//
// All files are opened with full durability: a call that has returned without error survives a
// power failure. sqlite is the SQL service as gorm opens it; sqlite-wal is tuned, with a
// write-ahead log and one connection.
package peers
