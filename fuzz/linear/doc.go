// Package linear checks that stores are linearizable: some order of the clients' operations, each at a
// moment between its start and its end, must explain all replies. [Check] checks a store on a backend;
// a [Load] generates the operations, and [History.Judge] looks for the order.
//
//	go test ./fuzz/linear -run 'TestLinearizable$' -timeout 0 -rounds 250 -v
//
// makes 1,048,000 operations on bbolt and as many in memory; with ./store/pg, on PostgreSQL.
package linear
