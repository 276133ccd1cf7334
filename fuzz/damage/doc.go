// Package damage damages closed files in every way that a disk or a file system might, and checks what
// a store then answers, writes, verifies and salvages against what was stored. A file that is replaced
// or truncated while a store has it open crashes nothing. Its tests are all it has; long:
//
//	go test ./fuzz/damage -run TestDamage -timeout 0 -rounds 20000 -v
package damage
