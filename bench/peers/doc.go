// Package peers compares patchlog with alternatives for users of ADK for Go. It runs the same workloads on each of
// them:
//
//   - in files: ADK's session service in memory, its SQL service on SQLite, and patchlog
//   - on PostgreSQL: ADK's SQL service, patchlog, and LangGraph's checkpointer
//   - for search: package recall and the search library bleve
//
// Run it with:
//
//	go test -run '^$' -bench . -benchmem ./...
//
// All files are opened with full durability: a call that has returned without error survives a power failure. In names
// of benchmarks, sqlite is the SQL service with gorm's defaults, and sqlite-wal uses a write-ahead log and one
// connection.
package peers
