// Package migrate brings the sessions of other services into a store: those that ADK for Go
// and ADK for Python keep in SQL databases ([OpenSQL]), those that their REST servers export
// ([NewREST]), and those of any other [Source].
//
// [Run] migrates one session after the other, each as a whole. Running it again adds nothing,
// goes on where it was cut short, and adds what the source has got since. What cannot be as
// it is in the source is reported; nothing is altered silently.
//
// No driver comes with the package: the SQL source takes a [database/sql.DB].
package migrate
