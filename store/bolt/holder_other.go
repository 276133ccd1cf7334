//go:build !linux

package bolt

// lockHolder returns "", because on this system the process that has locked a file cannot be determined.
func lockHolder(string) string { return "" }
