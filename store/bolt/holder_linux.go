package bolt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockHolder returns the process that has locked a file, such as "process 4711 (shop-agent)", or "" if it is unknown.
// The kernel's table of locks identifies a file by its inode, which is unique only within a file system. lockHolder
// therefore also checks that the process has the file open.
func lockHolder(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	table, err := os.ReadFile("/proc/locks")
	if err != nil || !ok {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		// An example of a line is "1: FLOCK ADVISORY WRITE 4711 fe:00:11011786 0 EOF".
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], fmt.Sprintf(":%d", stat.Ino)) {
			continue
		}
		process := filepath.Join("/proc", f[4])
		files, _ := filepath.Glob(filepath.Join(process, "fd", "*"))
		for _, open := range files {
			if other, err := os.Stat(open); err == nil && os.SameFile(info, other) {
				name, _ := os.ReadFile(filepath.Join(process, "comm"))
				return fmt.Sprintf("process %s (%s)", f[4], strings.TrimSpace(string(name)))
			}
		}
	}
	return ""
}
