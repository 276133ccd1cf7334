package migrate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

const envDir = "PATCHLOG_TEST_MIGRATE" // environment variable with the directory in which the child process migrates

const sessions = 40

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		if err := migrateIn(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// migrateIn migrates the export in a directory to a database in the same directory. Before the last session, it
// waits until standard input is closed, so that the parent can always kill it before it finishes.
func migrateIn(dir string) error {
	export, err := os.Open(filepath.Join(dir, "export.jsonl"))
	if err != nil {
		return err
	}
	defer export.Close()
	s, err := store.Open(filepath.Join(dir, "log.db"), store.Options{LockTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	done := 0
	_, err = migrate.Run(context.Background(), s, migrate.NewREST(export, "export"), migrate.Options{
		Session: func(r migrate.Result) error {
			fmt.Println(r.Key, r.Status)
			if done++; done == sessions-1 {
				_, _ = io.Copy(io.Discard, os.Stdin)
			}
			return r.Err
		},
	})
	if err != nil {
		return err
	}
	return s.Close()
}

// If a migration is killed and then repeated, the result is the same as after an uninterrupted migration.
func TestInterruptedMigration(t *testing.T) {
	const kills = 12
	var lines []string
	for i := range sessions {
		events := []json.RawMessage{}
		for j := range 20 {
			text := eventText(fmt.Sprint("e", j), j, fmt.Sprintf(`{"k%d":%d.0,"app:last":%d}`, j%3, j, j))
			if j == 7 {
				text = compactionRecord("c", j, 0, 5, "summary")
			}
			events = append(events, json.RawMessage(text))
		}
		if i%10 == 9 { // make this session so long that it needs more than one commit
			for j := range 700 {
				events = append(events, json.RawMessage(fmt.Sprintf(`{"author":"user","content":{"parts":[{"text":"%d"}]}}`, j)))
			}
		}
		line, err := json.Marshal(map[string]any{
			"id": fmt.Sprint(i), "appName": "shop", "userId": fmt.Sprint("u", i%3), "lastUpdateTime": 1748772001,
			"state": map[string]any{"k0": i, "start": i, "app:last": 19, "user:of": i % 3}, "events": events,
		})
		testlog.NoError(t, err)
		lines = append(lines, string(line))
	}
	text := []byte(strings.Join(lines, "\n"))
	want := openMemory(t)
	_, report := runSource(t, want, migrate.Options{}, migrate.NewREST(strings.NewReader(string(text)), "export"))
	equal(t, "created", report.Sessions[migrate.Created], sessions)

	self, err := os.Executable()
	if err != nil {
		t.Skipf("needs to run its own binary again: %v", err)
	}
	dir := t.TempDir()
	testlog.NoError(t, os.WriteFile(filepath.Join(dir, "export.jsonl"), text, 0o600))
	for run := 0; ; run++ {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), envDir+"="+dir)
		cmd.Stderr = os.Stderr
		if run < kills {
			input := testlog.Must(cmd.StdinPipe())(t) // keeps the child's standard input open
			defer input.Close()
		}
		out := testlog.Must(cmd.StdoutPipe())(t)
		testlog.NoError(t, cmd.Start())
		in, done := bufio.NewScanner(out), 0
		after := 1 + rand.IntN(sessions-1)
		for in.Scan() {
			if done++; run < kills && done == after {
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
			}
		}
		if err := cmd.Wait(); err == nil && run >= kills {
			break
		} else if run >= kills {
			t.Fatal(err)
		}
		if done >= sessions {
			t.Error("a run was not killed midway; the test tests nothing")
		}
	}
	s := testlog.Must(store.Open(filepath.Join(dir, "log.db"), store.Options{}))(t)
	defer s.Close()
	equal(t, "the database", dump(t, s), dump(t, want))
	for p, err := range s.Verify(t.Context(), store.VerifyOptions{}) {
		t.Errorf("%v, %v", p, err)
	}
}
