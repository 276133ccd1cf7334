package command

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// damageDatabase calls change with the rows of the first session in a bucket.
func damageDatabase(t *testing.T, bucket string, change func(b *bbolt.Bucket, k, v []byte) error) {
	t.Helper()
	db := testlog.Must(bbolt.Open(defaultDatabase, 0o600, nil))(t)
	err := db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		rows := map[string][]byte{}
		err := b.ForEach(func(k, v []byte) error {
			if binary.BigEndian.Uint64(k) == 1 {
				rows[string(k)] = bytes.Clone(v)
			}
			return nil
		})
		for k, v := range rows {
			err = errors.Join(err, change(b, []byte(k), v))
		}
		return err
	})
	testlog.NoError(t, errors.Join(err, db.Close()))
}

// verifyFails runs verify, which must report a problem. It returns the lines of the output.
func verifyFails(t *testing.T, says string, args ...string) []string {
	t.Helper()
	code, stdout, stderr := newShell().try(t, "", append([]string{"verify"}, args...)...)
	want := "patchlog: " + says + "\n"
	if slices.Contains(args, "--json") {
		want = fmt.Sprintf("{\"error\":%q}\n", says)
	}
	if code != 1 || stderr != want {
		t.Errorf("verify %q: exit code %d, stderr %q, want 1, %q", args, code, stderr, says)
	}
	return strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
}

// If verify finds damage, it lists the problems and exits with code 1.
func TestVerifyFindsDamage(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	must(t, twoEvents, "import", "a/u/t", "-")
	damageDatabase(t, "records", func(b *bbolt.Bucket, k, v []byte) error {
		if binary.BigEndian.Uint64(k[8:]) == 2 {
			v[len(v)/2] ^= 1
		}
		return b.Put(k, v)
	})
	for _, args := range [][]string{nil, {"a/u/s"}} {
		sessions := "2"
		if args != nil {
			sessions = "1"
		}
		lines := verifyFails(t, "1 problem found", args...)
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "session a/u/s, record 2: ") || !strings.Contains(lines[0], "checksum") {
			t.Errorf("verify %q: %q", args, lines)
		}
		lines = verifyFails(t, "1 problem found", append(args, "--json")...)
		var doc struct {
			Key     string
			Seq     uint64
			Problem string
		}
		if err := json.Unmarshal([]byte(lines[0]), &doc); err != nil || len(lines) != 2 || lines[1] != `{"sessions":`+sessions+`,"problems":1}` {
			t.Fatalf("verify %q --json: %q, %v", args, lines, err)
		}
		if doc.Key != "a/u/s" || doc.Seq != 2 || !strings.Contains(doc.Problem, "checksum") || strings.Contains(doc.Problem, "a/u/s") {
			t.Errorf("verify %q --json: %+v", args, doc)
		}
	}
	if out := must(t, "", "verify", "a/u/t"); out != "a/u/t: nothing is wrong\n" {
		t.Errorf("verify of the other session: %q", out)
	}
}

// runWithDamagedSession runs a command on two sessions, of which the first is damaged. It checks that the command reports
// the damaged session and exits with code 1. It returns the output.
func runWithDamagedSession(t *testing.T, args ...string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	must(t, twoEvents, "import", "a/u/t", "-")
	damageDatabase(t, "records", func(b *bbolt.Bucket, k, v []byte) error {
		if binary.BigEndian.Uint64(k[8:]) == 2 {
			return b.Delete(k)
		}
		return nil
	})
	code, stdout, stderr := newShell().try(t, "", args...)
	if code != 1 || !strings.Contains(stderr, "session a/u/s: corrupt: the last record, 2, is missing") || !strings.Contains(stderr, "1 damaged session") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	return stdout
}

// If one session is damaged, the command sessions names it, lists the other sessions, and exits with code 1.
func TestSessionsBesideADamagedOne(t *testing.T) {
	if out := runWithDamagedSession(t, "sessions"); !strings.Contains(out, "a/u/t") || strings.Contains(out, "a/u/s") {
		t.Errorf("it lists\n%s", out)
	}
}

// If only the first part of a backup is salvaged, the report counts the sessions and receipts of the missing
// part.
func TestSalvageOfHalfABackup(t *testing.T) {
	t.Chdir(t.TempDir())
	random := rand.NewChaCha8([32]byte{}) // random text, so that compression does not make the records small
	for n := range 3 {
		var events strings.Builder
		for i := range 100 {
			text := make([]byte, 2000)
			_, _ = random.Read(text)
			fmt.Fprintf(&events, `{"id":"e%d","author":"user","content":{"role":"user","parts":[{"text":"%x"}]}}`+"\n", i, text)
		}
		must(t, events.String(), "import", fmt.Sprint("a/u/", n), "-")
	}
	must(t, "", "erase", "a/u/1", "e0", "--yes")
	must(t, "", "backup", "backup.db")
	size := testlog.Must(os.Stat("backup.db"))(t).Size()
	testlog.NoError(t, os.Truncate("backup.db", size*55/100))
	code, stdout, stderr := newShell().try(t, "", "salvage", "backup.db", "new.db")
	if code != 1 || !strings.Contains(stderr, "losses or doubts in 2 of the sessions and shared values") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{"a/u/0: 100 records\n", "-101, erased, and the receipt is lost: 1\n", "a/u/2: 0 records, lost: 1-100\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in %q", want, stdout)
		}
	}
}
