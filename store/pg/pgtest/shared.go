package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

var (
	mu            sync.Mutex
	common        *Server
	commonOptions Options
	count         atomic.Int64
)

// New returns the connection string of an empty database on the server of [Common]. The database is dropped when
// the test ends.
func New(t testing.TB) string {
	t.Helper()
	return Common(t).Database(t)
}

// Common returns the server that all tests of the process share. The first call starts it.
func Common(t testing.TB) *Server {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if common != nil {
		return common
	}
	s := blank(t)
	if err := s.start(commonOptions); err != nil {
		s.remove()
		t.Fatal(err)
	}
	common = s
	return s
}

// Main runs the tests of a package. The argument opts has the options of the server of [Common]. After the tests,
// Main stops this server and removes its files. A TestMain passes the result to os.Exit.
func Main(m *testing.M, opts Options) int {
	commonOptions = opts
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		if common != nil {
			common.remove()
			common = nil
		}
	}()
	return m.Run()
}

// Database creates an empty database on the server and returns its connection string. The database is dropped when
// the test ends.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprint("test", count.Add(1))
	s.Exec(t, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		c, err := pgx.Connect(context.Background(), s.DSN("postgres"))
		if err != nil { // the test may have stopped the server
			return
		}
		defer c.Close(context.Background())
		if _, err := c.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return s.DSN(name)
}

// URL converts a connection string of this package to a URL.
func URL(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return "postgres://" + config.User + "@/" + config.Database + "?sslmode=disable&port=5432&host=" + url.QueryEscape(config.Host)
}

// Exec executes a statement in the database postgres, as the superuser.
func (s *Server) Exec(t testing.TB, sql string) {
	t.Helper()
	Exec(t, s.DSN("postgres"), sql)
}

// Exec opens a connection, executes a statement and closes the connection.
func Exec(t testing.TB, dsn, sql string) {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
