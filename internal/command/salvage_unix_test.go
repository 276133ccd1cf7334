//go:build unix

package command

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// If the disk is full, salvage reports an error and leaves no file behind.
func TestSalvageWithoutSpace(t *testing.T) {
	if os.Getenv("PATCHLOG_TEST_FILE_LIMIT") != "" {
		signal.Ignore(syscall.SIGXFSZ)                        // if the signal is ignored, a write beyond the limit returns an error
		limit := syscall.Rlimit{Cur: 17 << 20, Max: 17 << 20} // an empty database has 16 MiB, so few records fit
		testlog.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
		os.Exit(run(t.Context(), []string{"salvage", defaultDatabase, "new.db"}, strings.NewReader(""), os.Stdout, os.Stderr, noEnv))
	}
	t.Chdir(t.TempDir())
	var lines strings.Builder
	noise, raw := rand.NewChaCha8([32]byte{}), make([]byte, 3<<20)
	for i := range 6 {
		noise.Read(raw)
		fmt.Fprintf(&lines, `{"id":"e%d","content":{"parts":[{"text":%q}]}}`+"\n", i, base64.StdEncoding.EncodeToString(raw))
	}
	must(t, lines.String(), "import", "a/u/s", "-")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSalvageWithoutSpace$")
	cmd.Env = append(os.Environ(), "PATCHLOG_TEST_FILE_LIMIT=1")
	out, err := cmd.CombinedOutput()
	says := string(out)
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 1 || !strings.Contains(says, `the incomplete file "new.db" was removed`) ||
		!strings.Contains(says, syscall.EFBIG.Error()) || strings.Contains(says, "outcome unknown") {
		t.Errorf("%v: %s", err, says)
	}
	files, err := fs.Glob(os.DirFS("."), "*new.db*")
	if err != nil || len(files) > 0 {
		t.Errorf("%q are left, %v", files, err)
	}
}
