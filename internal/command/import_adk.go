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

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// importADK imports all sessions of ADK's.
func (r *importing) importADK(ctx context.Context, src *importSource) (err error) {
	if sameFile(src.name, r.db) {
		return usagef("SOURCE is the database to write")
	}
	from, count, closeSource, err := openADK(ctx, src, r.ignored)
	if err != nil {
		return fmt.Errorf("SOURCE: %w", err)
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	target, err := r.openTarget(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	r.many = true
	if !r.json {
		r.out.linef("from %s", from)
	}
	opts := r.adk
	opts.DryRun, opts.KeepCompactions = *r.dryRun, r.compactions == "keep"
	opts.Progress = r.progressOf
	if count != nil {
		opts.Progress = func(done, _ int) { r.bar.update(count.n, src.size, present.Counted(done, "session")) }
	}
	opts.Session = func(s migrate.Result) error {
		o := outcome{Key: s.Key.String(), Status: s.Status, Added: s.Added, Present: s.Present, Seq: s.Seq, Differences: s.Differences}
		if len(s.Adopted)+len(s.Left) > 0 {
			o.adopt(adoptionOf(s.Adopted, s.Left))
		}
		for _, d := range s.Differences {
			o.notes = append(o.notes, d.String())
		}
		return r.report(o, s.Err)
	}
	report, err := migrate.Run(ctx, target, from, opts)
	if err != nil {
		r.bar.end()
		return err
	}
	return r.sum(report.Shared, report.SharedErr, fmt.Sprint(from), report.Source)
}

// openADK opens sessions of ADK's, and counts what is read if they are in a file that is read to its end.
func openADK(ctx context.Context, src *importSource, ignored []string) (from migrate.Source, count *counting, closeSource func() error, err error) {
	dialect, open := migrate.PostgreSQL, openPostgresSQL
	if src.input != nil {
		head, _ := src.r.(*bufio.Reader).Peek(len(sqliteMagic))
		if !bytes.Equal(head, sqliteMagic) || src.file == nil {
			count = &counting{r: src.r}
			return migrate.NewREST(count, src.input.name), count, func() error { return nil }, nil
		}
		dialect, open = migrate.SQLite, openSQLite
	}
	db, err := open(src.name)
	if err != nil {
		return nil, nil, nil, err
	}
	if err = db.PingContext(ctx); err == nil {
		from, err = migrate.OpenSQL(ctx, db, dialect, migrate.SQLOptions{IgnoreColumns: ignored})
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, db.Close())
	}
	return from, nil, db.Close, nil
}

// sqliteDriver is the name of the database/sql driver that patchlog-sqlite links.
const sqliteDriver = "sqlite"

// openSQLite opens an existing file for reading. It waits a moment for a service that writes to it.
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

// openPostgresSQL opens a database for reading, by a URL or by the PG* variables and the files of PostgreSQL's
// clients. No error has a password of the URL.
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
