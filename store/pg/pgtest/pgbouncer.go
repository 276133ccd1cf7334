package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// PgBouncer starts a PgBouncer in transaction mode for the database of dsn, and returns a connection string for it.
// The PgBouncer ends with the test. If PgBouncer is not installed, the test is skipped.
func PgBouncer(t testing.TB, dsn string) string {
	t.Helper()
	program, err := find("pgbouncer")
	if err != nil {
		t.Skip("PgBouncer is not installed (apt-get install pgbouncer)")
	}
	to, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	folder := newFolder(t)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	config := filepath.Join(folder, "ini")
	text := fmt.Sprintf(`[databases]
%s = host=%s port=%d dbname=%s user=%s
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
`, to.Database, to.Host, to.Port, to.Database, to.User, folder)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	process := command(program, config)
	process.Dir, process.Stdout, process.Stderr = folder, log, log
	if err := launch(process); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	through := fmt.Sprintf("host=%s port=6432 user=%s dbname=%s sslmode=disable", folder, to.User, to.Database)
	if err := awaitAnswer(through, nil); err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("PgBouncer: %v: %s", err, said)
	}
	return through
}
