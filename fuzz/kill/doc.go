// Package kill kills processes while 32 clients are at work in them. What the clients saw before, and
// what a client sees afterwards that repeats the operations in flight, must be linearizable: nothing
// that was acknowledged is lost, and each other operation took effect once, whole, or not at all.
//
//	go test ./fuzz/kill -run 'TestKilled$' -timeout 0 -rounds 2000 -v
//
// [Harness] does so for any storage.
package kill
