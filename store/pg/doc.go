// Package pg implements the storage port, [backend.Backend], on PostgreSQL. Several processes can share the sessions of
// one database.
//
// # Connecting
//
// The connection string is a URL or a list of keywords and values, as in libpq. Missing parts come from the PG*
// environment variables, the password file and the service file. sslmode and the other ssl parameters set up TLS. Keep
// the password in a password file or an environment variable, because other users of the machine can read command
// lines. Errors and logs of this package never contain the connection string.
//
// The package uses prepared statements for appends and for Fetch. Each connection prepares them again after five
// seconds, because the server would otherwise keep plans made when the tables were small. The server plans all other
// statements for each call.
//
// All calls work behind a pooler such as PgBouncer in transaction mode, where each transaction may get another
// connection. If the pooler does not support prepared statements, a server connection may lack a statement that the
// client has prepared. At the first such error, the backend logs the error, stops using prepared statements, and
// repeats the statement.
//
// To choose how statements are sent, set default_query_exec_mode in the connection string. The mode cache_describe
// works with every pooler. The mode cache_statement is for a direct connection to analyzed tables.
//
// The package supports every default isolation level of the server. Read committed causes the fewest repeated
// transactions. If synchronous_commit is off, a crash can lose acknowledged commits. With a synchronous standby, a
// failover loses no acknowledged commit.
//
// # Rights
//
// [CreateSchema] needs a role that may create a schema in the database. All other calls need only these rights:
//
//	GRANT USAGE ON SCHEMA patchlog TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA patchlog TO app;
//
// # Concurrent calls
//
// An append is one statement. A process sends concurrent appends to different sessions in one transaction and one round
// trip. An append with shared values has its own transaction.
//
// An append does not wait for its session's row. If another transaction has locked the row, the package sends the
// append again in a transaction that locks this row first. That transaction holds no other lock while it waits. Rows of
// shared values are locked in the order of their hashes. Therefore the transactions of this package do not deadlock
// with each other. If the server aborts a transaction with 40001 or 40P01, the package repeats the transaction.
//
// # Cleaning up
//
// A backend removes rows that are no longer needed when it is opened and after each Delete. It removes the row of a
// deleted session an hour after the deletion, together with any records that a crash or an error has left. If Fence
// prevented the creation of a session, its row is removed after thirty days. A lease is removed one day after it
// expired.
package pg
