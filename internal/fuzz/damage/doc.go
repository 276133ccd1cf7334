// Package damage damages closed files as a disk or a file system might, and compares what a store then
// returns, writes, verifies and salvages with the content that was stored. A file that is replaced or
// truncated while a store has it open must not crash the process. The package has only tests:
//
//	go test ./internal/fuzz/damage -run TestDamage -timeout 0 -rounds 20000 -v
package damage
