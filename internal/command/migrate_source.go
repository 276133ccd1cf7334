package command

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
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

// sqliteMagic is how a file of SQLite's begins.
var sqliteMagic = []byte("SQLite format 3")

// openSource finds out what the user has named, and opens it.
func (a *app) openSource(ctx context.Context, name string, ignored []string) (*source, error) {
	scheme, rest, isURL, err := splitURL(name)
	switch {
	case err != nil:
		return nil, err
	case isURL:
		db, err := openPostgresSQL(scheme + "://" + rest)
		return newSQLSource(ctx, db, err, migrate.PostgreSQL, ignored)
	}
	in, err := a.input(ctx, name)
	if err != nil {
		return nil, err
	}
	head := make([]byte, 512)
	n, err := io.ReadFull(in.r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		in.close()
		return nil, err
	}
	head, err = head[:n], nil
	if bytes.HasPrefix(head, sqliteMagic) && in.file != nil {
		in.close()
		db, err := openSQLite(name)
		return newSQLSource(ctx, db, err, migrate.SQLite, ignored)
	}
	switch text := bytes.TrimLeft(head, " \t\r\n"); {
	case n == 0:
		err = fmt.Errorf("%s is empty", in.name)
	case len(text) > 0 && (text[0] == '{' || text[0] == '['), len(text) == 0:
	default:
		err = fmt.Errorf("%s is neither a database of SQLite's nor JSON; databases of patchlog's own are copied by 'patchlog copy'", in.name)
	}
	if err != nil {
		in.close()
		return nil, err
	}
	count := &counting{r: io.MultiReader(bytes.NewReader(head), in.r)}
	return &source{migrate.NewREST(count, in.name), in.size, count, func() error { in.close(); return nil }}, nil
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
		return nil, fmt.Errorf("%s is a database of SQLite's, which the command patchlog-sqlite reads: 'go install github.com/patchlog-dev/patchlog/cmd/patchlog-sqlite@latest', then 'patchlog-sqlite migrate'", path)
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
