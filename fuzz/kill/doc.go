// Package kill kills processes in the midst of their work, and holds what is then in the store
// against what they were told. 32 clients make all calls that write, on sessions of their own and
// on some that they share. Nothing that was acknowledged is lost, or elsewhere; of each other
// call there is all or nothing, and made again it is there once.
//
//	go test ./fuzz/kill -run TestKilled$ -timeout 0 -rounds 2000 -progress kill.json -v
//
// A [Harness] has it for a storage of one's own.
package kill
