package command

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/patchlog-dev/patchlog/store/migrate"
)

// source is where a migration reads.
type source struct {
	migrate.Source
	size  int64 // of a file that is read to its end, or 0
	count *counting
	close func() error
}

// openSource opens sessions of ADK's.
func openSource(ctx context.Context, src *importSource, ignored []string) (*source, error) {
	if src.input == nil {
		db, err := openPostgresSQL(src.name)
		return newSQLSource(ctx, db, err, migrate.PostgreSQL, ignored)
	}
	head, _ := src.r.(*bufio.Reader).Peek(len(sqliteMagic))
	if bytes.Equal(head, sqliteMagic) && src.file != nil {
		db, err := openSQLite(src.name)
		return newSQLSource(ctx, db, err, migrate.SQLite, ignored)
	}
	count := &counting{r: src.r}
	return &source{migrate.NewREST(count, src.input.name), src.size, count, func() error { return nil }}, nil
}

// newSQLSource reads from a database that was opened, unless that failed with err. It closes
// the database if it is none of ADK's.
func newSQLSource(ctx context.Context, db *sql.DB, err error, dialect migrate.Dialect, ignored []string) (*source, error) {
	if err != nil {
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s, err := migrate.OpenSQL(ctx, db, dialect, migrate.SQLOptions{IgnoreColumns: ignored})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &source{Source: s, close: db.Close}, nil
}

// sqliteDriver is the name of the database/sql driver that patchlog-sqlite links.
const sqliteDriver = "sqlite"

// openSQLite opens an existing file for reading. It waits a moment for a service that writes
// to it.
func openSQLite(path string) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), sqliteDriver) {
		return nil, fmt.Errorf("%s is a database of SQLite's, which the command patchlog-sqlite reads: 'go install github.com/patchlog-dev/patchlog/cmd/patchlog-sqlite@latest', then 'patchlog-sqlite import'", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=ro&_pragma=busy_timeout(5000)&_pragma=query_only(true)"}
	return sql.Open(sqliteDriver, file.String())
}

// openPostgresSQL opens a database for reading, by a URL or by what the PG* variables and the
// files of PostgreSQL's clients say. No error has a password of the URL.
func openPostgresSQL(name string) (*sql.DB, error) {
	if _, rest, _ := strings.Cut(name, "://"); rest == "" {
		name = ""
	}
	config, err := pgx.ParseConfig(name)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["default_transaction_read_only"] = "on"
	return stdlib.OpenDB(*config), nil
}
