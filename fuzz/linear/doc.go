// Package linear checks what clients of a store saw against a model: there must be an order of their
// operations, each at a moment between its beginning and its end, that explains all replies. [Check]
// does so for a store on a backend; a [Load] is clients, and [History.Judge] the checker.
//
//	go test ./fuzz/linear -run 'TestLinearizable$' -timeout 0 -rounds 250 -v
//
// makes 1,048,000 operations on bbolt and as many in memory. The
// same command with ./store/pg makes them on PostgreSQL.
package linear
