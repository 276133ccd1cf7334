// Package damage damages closed files as a disk or a file system might. It compares what a store then returns,
// writes, verifies and salvages with the content of the file before the damage. It also replaces or truncates a
// file that a store has open, which must not crash the process. The package has only tests:
//
//	go test ./internal/fuzz/damage -run TestDamage -timeout 0 -rounds 20000 -v
package damage
