// Package migrate imports the sessions of other services into a store: from the SQL databases of
// ADK for Go and ADK for Python ([OpenSQL]), from exports of their REST servers ([NewREST]), from
// session files of other agents ([OpenFile]), and from any other [Source].
//
// [Run] migrates one session after the other, each atomically. Running it again is idempotent: it
// continues where it was interrupted, and adds what the source has added. It reports every
// difference from the source. [RunAll] migrates several inputs, such as the files of a folder.
//
// The package includes no SQL driver: [OpenSQL] takes a [database/sql.DB].
package migrate
