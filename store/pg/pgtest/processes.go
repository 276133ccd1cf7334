package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// childrenOf returns the processes that a process has started, as /proc knows them. Where
// there is none it returns nothing.
func childrenOf(pid int) (children []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		_, parent := status(path)
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && parent == pid {
			children = append(children, child)
		}
	}
	return children
}

// awaitEnd waits until a process that was killed holds nothing any more.
func awaitEnd(pid int) {
	for range 1000 {
		if state, _ := status(filepath.Join("/proc", strconv.Itoa(pid), "stat")); state == "" || state == "Z" {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// status returns a process's state and its parent, from its file in /proc.
func status(path string) (state string, parent int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
