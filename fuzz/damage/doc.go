// Package damage harms files that stores have closed or have open, in every way that a disk, a
// file system or another program might, and holds what the store then answers, writes, verifies
// and salvages against what was stored. Its tests are all it has; long, and resumed where it was:
//
//	go test ./fuzz/damage -run TestDamage -timeout 0 -rounds 20000 -progress damage.json -v
package damage
