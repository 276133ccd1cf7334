// Package pg is the storage port on PostgreSQL, for sessions that many processes share. It
// is the only code that knows a table or a statement.
//
// # Connecting
//
// The connection string is a URL or key words and values, as in libpq. Missing parts come
// from the PG* variables, the password file and the service file; TLS is set by sslmode and
// its companions. Keep the password in a password file or a variable: other users of the
// machine see command lines. Neither errors nor logs of this package contain the connection
// string.
//
// The statements of a lone append and of a Fetch are prepared. The server plans them a
// few times per connection, and again after five seconds, so that no plan made for small
// tables stays. Other statements are planned each time.
//
// Every call works through a pooler that gives each transaction another connection, such as
// PgBouncer in transaction mode. If the pooler does not keep prepared statements, the first
// one that is lost is sent again in another mode, as are all later ones; the log
// says so once. default_query_exec_mode in the connection string chooses the mode from the
// start: cache_describe fits every pooler, and cache_statement a direct connection whose
// tables are analyzed.
//
// Every default isolation level of the server works; read committed repeats the fewest
// transactions. Commits are as durable as synchronous_commit says; off loses acknowledged
// commits in a crash. A failover loses none of them if the standby is synchronous.
//
// # Rights
//
// [CreateSchema] needs a role that may create a schema in the database. Everything else
// needs only
//
//	GRANT USAGE ON SCHEMA patchlog TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA patchlog TO app;
//
// # Concurrent calls
//
// An append is one statement and one round trip; appends of many sessions that wait at the
// same time share one. It locks the sessions' rows without waiting: an append whose row is
// locked by another transaction is sent again by itself. A transaction that waits for a session's row holds no
// other lock, and rows of shared values are locked in the order of their hashes, so no
// two wait for each other. Transactions that the server aborts with 40001 or 40P01 are repeated.
//
// # Cleaning up
//
// A backend removes unlinked rows when it is opened and after each Delete: the row of a session an hour after its
// deletion, with records that a crash or an error has left, the row of a fenced creation after thirty days, and a lease
// a day after it expired.
package pg
