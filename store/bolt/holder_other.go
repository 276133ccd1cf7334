//go:build !linux

package bolt

// lockHolder returns "": this system does not tell which process holds a lock of a file.
func lockHolder(string) string { return "" }
