// Package pg implements the storage port on PostgreSQL, for sessions that several processes share.
//
// # Connecting
//
// The connection string is a URL or a list of keywords and values, as in libpq. Missing parts come from the PG*
// environment variables, the password file and the service file. sslmode and the other ssl parameters set up TLS. Keep
// the password in a password file or an environment variable: other users of the machine see command lines. Neither
// errors nor logs of this package contain the connection string.
//
// The statements of appends and of Fetch are prepared. Each connection prepares them again after five seconds, so that a plan made
// for small tables is not used for large ones. The server plans other statements each time.
//
// Every call works through a pooler that gives each transaction another connection, such as PgBouncer in transaction
// mode. If the pooler does not keep prepared statements, the backend notices when the first is lost. It logs this once,
// and from then on sends statements unprepared. The parameter default_query_exec_mode in the connection string sets the
// mode from the start: cache_describe suits every pooler, and cache_statement suits a direct connection whose tables
// are analyzed.
//
// Every default isolation level of the server works; read committed repeats the fewest transactions. Commits are as
// durable as synchronous_commit says: with off, a crash loses acknowledged commits. A failover loses no acknowledged
// commit if the standby is synchronous.
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
// An append is one statement and one round trip, which does not wait for the session's row. If another transaction has
// locked the row, the append is sent again; that statement waits for the row while it holds no other lock. Rows of
// shared values are locked in the order of their hashes. So no two transactions wait for each other. A transaction that
// the server aborts with 40001 or 40P01 is repeated.
//
// # Cleaning up
//
// A backend removes unlinked rows when it is opened and after each Delete. A session's row goes an hour after its
// deletion, with records that a crash or an error has left. The row of a fenced creation goes after thirty days, and a
// lease a day after it expired.
package pg
