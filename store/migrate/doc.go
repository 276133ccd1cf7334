// Package migrate imports the sessions of other services into a store. The sources are
//
//   - SQL databases of ADK for Go and ADK for Python ([OpenSQL]),
//   - exports of their REST servers ([NewREST]),
//   - session files of other agents ([OpenFile]),
//   - other patchlog databases ([NewDatabase]), and
//   - any other [Source].
//
// [Run] migrates the sessions one after the other, each atomically, and reports every difference from the source. If
// Run is repeated, it continues where it was interrupted and adds only records that are new in the source. [RunAll]
// migrates several inputs, such as the files of a folder.
//
// The package does not include SQL drivers: the caller of [OpenSQL] passes a [database/sql.DB].
package migrate
