// Package kill kills processes while 32 clients use them. The clients' history, followed by a client that
// repeats the operations that were in flight, must be linearizable: nothing that was acknowledged is lost,
// and each other operation takes effect once, whole, or not at all.
//
//	go test ./fuzz/kill -run 'TestKilled$' -timeout 0 -rounds 2000 -v
//
// [Harness] does this for any storage.
package kill
