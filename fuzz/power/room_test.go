//go:build linux

package power

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	sys "syscall"
	"testing"
)

// All that these tests make lies below one directory, in memory if there is one. Tests remove it.
// What one that was killed has left, the next one removes.
const roomPrefix = "patchlog-power-"

var firstRoom = sync.OnceValue(func() string {
	base := os.TempDir()
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		base = "/dev/shm"
	}
	there, _ := filepath.Glob(filepath.Join(base, roomPrefix+"*"))
	for _, path := range there {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), roomPrefix))
		if err == nil && sys.Kill(pid, 0) == sys.ESRCH {
			leave(path)
		}
	}
	path := filepath.Join(base, fmt.Sprint(roomPrefix, os.Getpid()))
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, sys.SIGTERM)
	go func() {
		<-ended
		leave(path)
		os.Exit(1)
	}()
	return path
})

// leave unmounts and removes all below a directory.
func leave(path string) {
	volumes, _ := filepath.Glob(filepath.Join(path, "*", volumeName))
	for _, v := range volumes {
		_ = exec.Command("umount", "-l", v).Run()
	}
	_ = os.RemoveAll(path)
}

const volumeName = "volume"

// room returns a directory, for as long as the test runs.
func room(t testing.TB) string {
	t.Helper()
	base := firstRoom()
	err := os.MkdirAll(base, 0o700)
	dir := ""
	if err == nil {
		dir, err = os.MkdirTemp(base, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.RemoveAll(dir)
		_ = os.Remove(base) // if it is the last one
	})
	return dir
}
