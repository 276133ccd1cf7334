package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgtest.Options{})) }

var ctx = context.Background()

func value(dsn, query string) (n int, err error) {
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	return n, c.QueryRow(ctx, query).Scan(&n)
}

func TestDatabases(t *testing.T) {
	a, b := pgtest.New(t), pgtest.New(t)
	pgtest.Exec(t, a, "CREATE TABLE x AS SELECT 1 AS n")
	if n, err := value(a, "SELECT n FROM x"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := value(b, "SELECT n FROM x"); err == nil {
		t.Error("two databases are one")
	}
}

// After a kill no process of the server is left, and after a restart the committed rows are still there.
func TestKill(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{})
	dsn := s.Database(t)
	pgtest.Exec(t, dsn, "CREATE TABLE x AS SELECT 1 AS n")
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	s.Kill()
	if _, err := c.Exec(ctx, "SELECT 1"); err == nil {
		t.Error("a process of the server is still there")
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := value(dsn, "SELECT n FROM x"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if n, err := value(dsn, "SELECT n FROM x"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestStandby(t *testing.T) {
	primary := pgtest.Start(t, pgtest.Options{})
	dsn := primary.Database(t)
	standby := primary.Standby(t)
	pgtest.Exec(t, dsn, "CREATE TABLE x AS SELECT 1 AS n")
	other := standby.DSN(strings.Fields(dsn)[3][len("dbname="):])
	if n, err := value(other, "SELECT n FROM x"); n != 1 || err != nil { // the row is visible on the standby at once
		t.Errorf("%d, %v", n, err)
	}
	primary.Kill()
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, other, "INSERT INTO x VALUES (2)")
}

func TestPgBouncer(t *testing.T) {
	dsn := pgtest.PgBouncer(t, pgtest.New(t))
	if n, err := value(dsn+" default_query_exec_mode=exec", "SELECT 1"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

const child = "PGTEST_CHILD"

// A server ends when its test process is killed.
func TestEndsWithProcess(t *testing.T) {
	if os.Getenv(child) != "" {
		fmt.Println("dsn", pgtest.New(t))
		time.Sleep(time.Minute)
		return
	}
	pgtest.Common(t) // skips the test if there is no server
	c := exec.Command(os.Args[0], "-test.run=TestEndsWithProcess", "-test.v")
	c.Env = append(os.Environ(), child+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	dsn := ""
	for lines := bufio.NewScanner(out); dsn == "" && lines.Scan(); {
		dsn, _ = strings.CutPrefix(lines.Text(), "dsn ")
		if !strings.HasPrefix(lines.Text(), "dsn ") {
			dsn = ""
		}
	}
	if _, err := value(dsn, "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	for range 30_000 {
		if _, err = value(dsn, "SELECT 1"); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err == nil {
		t.Error("the server is still there")
	}
	if folder := strings.TrimPrefix(strings.Fields(dsn)[0], "host="); folder != "" {
		if err := os.RemoveAll(folder); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Log(err)
		}
	}
}
