// Package linear holds what clients of a store saw against a model of it: there must be an order
// of their calls, each at a moment between its beginning and its end, that explains all replies.
// [Check] does so with a store on a backend; a [Load] is clients, in one process or in several, and
// [History.Judge] the checker.
//
//	go test ./fuzz/linear -run 'TestLinearizable$' -timeout 0 -rounds 250 -progress linear.json -v
//
// makes 1,048,000 calls on bbolt and as many in memory, and goes on where it was cut short. The same
// command in store/pg, without the package's path, makes them on PostgreSQL.
package linear
