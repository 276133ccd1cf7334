package command

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

// Commands that only read, and dry runs, run beside others that read, and leave the file
// as it is to the last byte; those that write do not run then.
func TestCommandsThatRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	invoke := func(args ...string) (code int, text string) {
		var out bytes.Buffer
		a := newApp(strings.NewReader(""), &out, &out, noEnv, Options{})
		a.options.LockTimeout = time.Millisecond
		code = a.run(context.Background(), append([]string{"--db", path}, args...))
		return code, out.String()
	}
	if code, text := invoke("import", "shop/ada/4711", "demo/session.jsonl"); code != exitDone {
		t.Fatal(text)
	}
	s := testlog.Must(store.Open(path, store.Options{ReadOnly: true}))(t)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	key := "shop/ada/4711"
	v := testlog.Must(s.View(t.Context(), store.Key{App: "shop", User: "ada", Session: "4711"}))(t)
	pinned := v.At(0).ID()
	before := testlog.Must(os.ReadFile(path))(t)
	for _, args := range [][]string{
		{"sessions"}, {"stats", key}, {"log", key}, {"audit", key}, {"search", key, "order"}, {"search", key, "order", "--all"}, {"loss", key}, {"log", key, "--type", "splice"}, {"export", key}, {"verify"}, {"stats"}, {"backup", path + ".saved"}, {"diff", key, "1"},
		{"compact", key, "--dry-run"}, {"import", path, "--db", path + ".copy"}, {"import", path, "--db", path + ".copy"}, {"fork", key, "a/b/c", "--dry-run"}, {"patch", key, "0", "1", "--dry-run", "--allow-orphans"}, {"pin", key, pinned, "--dry-run"},
	} {
		if code, text := invoke(args...); code != exitDone {
			t.Errorf("%v: exit code %d: %s", args, code, text)
		}
	}
	for _, args := range [][]string{{"delete", key, "--yes"}, {"vacuum"}, {"import", path + ".copy"}, {"fork", key, "a/b/c"}, {"pin", key, pinned}, {"pin", key, pinned, "--remove"}, {"patch", key, "0", "1", "--allow-orphans"}} {
		if code, text := invoke(args...); code != exitFailed || !strings.Contains(text, "locked") {
			t.Errorf("%v: exit code %d: %s", args, code, text)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed (%v)", err)
	}
}
