// Package pg is the storage port on PostgreSQL, for sessions that many processes share. It
// is the only code that knows a table or a statement.
//
// # Connecting
//
// The connection string is a URL or key words and values, as libpq has them. What it leaves
// out comes from the PG* variables, the password file and the service file; TLS is as sslmode
// and its like say. Keep the password in a password file or a variable: command lines are
// seen by others. No error and no log of this package has the connection string.
//
// The statements of a lone append and of a lone Look are prepared: the server plans them a
// few times per connection, and again after five seconds, so that no plan stays that was made
// for small tables. Other statements are planned each time; those of groups are long, and
// serve many calls.
//
// All goes through a pooler that gives each transaction another connection, such as PgBouncer
// in transaction mode: no call needs what another left behind on its connection. Where such a
// pooler does not keep prepared statements, the first that is lost is sent again in another
// way, which no caller sees, and so are all from then on: the log says so once. With
// default_query_exec_mode in the connection string all statements are sent as it says, from
// the start: cache_describe fits every pooler, and cache_statement a direct connection whose
// tables are analyzed.
//
// Any default of the server for the isolation of transactions will do. Read committed, which
// is PostgreSQL's own, repeats the fewest transactions. Commits are as durable as
// synchronous_commit says; off loses acknowledged commits in a crash. Where a standby takes
// over after a failure, it loses none of them if it is synchronous.
//
// # Rights
//
// Creating the schema is for a role that may create a schema in the database: see
// [CreateSchema]. Everything else takes this and no more:
//
//	GRANT USAGE ON SCHEMA patchlog TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA patchlog TO app;
//
// The tables are in schema.sql.
//
// # How calls meet
//
// An append is one statement and one round trip. Those of many sessions that wait at the same
// time share one. It locks the sessions' rows but waits for none: an append whose row another
// transaction holds goes again by itself. A lone append that is refused takes a second round
// trip, which says why. A transaction that waits for a session's row holds
// nothing else, and rows of shared values are taken in the order of their hashes: no two wait
// for each other. Transactions that the server ends all the same, with 40001 or 40P01, are
// made again.
//
// Calls of Look that wait at the same time share a statement too. It is sent after each of
// them began, and has one snapshot.
//
// # What has no owner any more
//
// Staged records go when the backend is closed; those of a process that did not live to close
// it are removed after a day, by whoever opens a backend or begins to stage. So are the rows
// of a deleted session that could not be removed at once, after an hour. A row that keeps a
// session from being created stays for thirty days, and a lease for a day after it ran out.
package pg
