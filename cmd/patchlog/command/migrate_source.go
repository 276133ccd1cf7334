package command

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/patchlog-dev/patchlog/store/migrate"
)

// SQLEngine opens SQL databases of other services.
type SQLEngine struct {
	// Schemes are how the URLs begin of the databases that it opens, in lower case and without
	// the colon. If there are none, it opens files of SQLite's.
	Schemes []string

	// Dialect is the SQL of the databases.
	Dialect migrate.Dialect

	// Open opens a database for reading only: the file with that path, which is there, or the
	// database that a URL names, as for [Engine]. No error has a password of the URL.
	Open func(ctx context.Context, name string) (*sql.DB, error)
}

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
	var known []Engine
	for _, e := range a.sql {
		known = append(known, Engine{Schemes: e.Schemes})
	}
	scheme, rest, isURL, err := splitURL(name, known)
	switch {
	case err != nil:
		return nil, err
	case isURL:
		return a.openSQL(ctx, scheme+"://"+rest, scheme, ignored)
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
		return a.openSQL(ctx, name, "", ignored)
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

// openSQL opens a SQL database, by a URL with the scheme, or a file.
func (a *app) openSQL(ctx context.Context, name, scheme string, ignored []string) (*source, error) {
	i := slices.IndexFunc(a.sql, func(e SQLEngine) bool {
		return slices.Contains(e.Schemes, scheme) || scheme == "" && len(e.Schemes) == 0
	})
	if i < 0 {
		what := "PostgreSQL"
		if scheme == "" {
			what = "SQLite, whose database " + name + " is"
		}
		return nil, fmt.Errorf("this build of patchlog has no %s; the one that has is installed by 'go install %s@latest'", what, withPostgres)
	}
	if scheme == "" {
		if _, err := os.Stat(name); err != nil { // a driver might make it
			return nil, err
		}
	}
	db, err := a.sql[i].Open(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := migrate.OpenSQL(ctx, db, a.sql[i].Dialect, migrate.SQLOptions{IgnoreColumns: ignored})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &source{Source: s, close: db.Close}, nil
}
