package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/patchlog-dev/patchlog/cmd/patchlog/command"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// sources are the databases of other services that migrate reads.
var sources = []command.SQLEngine{
	{Dialect: migrate.SQLite, Open: openSQLite},
	{Dialect: migrate.PostgreSQL, Schemes: engine.Schemes, Open: openPostgreSQL},
}

// openSQLite opens a file for reading. It waits a moment for a service that writes to it.
func openSQLite(ctx context.Context, path string) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=ro&_pragma=busy_timeout(5000)&_pragma=query_only(true)"}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return nil, err
	}
	return db, closeUnless(db, db.PingContext(ctx))
}

// openPostgreSQL opens a database for reading, by a URL or by what the PG* variables and the
// files of PostgreSQL's clients say.
func openPostgreSQL(ctx context.Context, name string) (*sql.DB, error) {
	if _, rest, _ := strings.Cut(name, "://"); rest == "" {
		name = ""
	}
	config, err := pgx.ParseConfig(name)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["default_transaction_read_only"] = "on"
	db := stdlib.OpenDB(*config)
	return db, closeUnless(db, db.PingContext(ctx))
}

// closeUnless closes a database that is of no use for an error.
func closeUnless(db *sql.DB, err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, db.Close())
}
