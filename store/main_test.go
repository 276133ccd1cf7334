package store_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Some tests need another process: they run the test binary again with a part to play
// and a path.
const (
	envPart = "PATCHLOG_TEST_PART"
	envPath = "PATCHLOG_TEST_PATH"
)

var parts = map[string]func(path string) error{
	"hold":  holdFile,
	"open":  openFile,
	"erase": eraseUntilKilled,
}

func TestMain(m *testing.M) {
	if part := os.Getenv(envPart); part != "" {
		if err := parts[part](os.Getenv(envPath)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child returns a process that plays a part, ready to start. wrap is put before it.
func child(t *testing.T, part, path string, wrap ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Skipf("needs to run its own binary again: %v", err)
	}
	args := append(wrap, self)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), envPart+"="+part, envPath+"="+path, "GORACE=halt_on_error=1")
	return cmd
}
