// Package sources opens what a user names as the source of an import: files, folders, databases and standard input. Package
// migrate imports the sources.
package sources

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// Opener opens sources.
type Opener struct {
	Target   string // name of the database to write, which is never a source
	Database database.Options
	Stdin    io.Reader
	ParseKey func(text string) (store.Key, error)

	Key           store.Key // key of the session in a file, or of the session to select in a patchlog database; parts may be empty
	MaxBytes      int       // size limit of a file
	IgnoreColumns []string  // see [migrate.SQLOptions]
	AdoptLines    bool      // see [migrate.FileOptions]
	Progress      func(done, total int, name string)
}

// ArgumentError reports that a source and another argument exclude each other.
type ArgumentError struct{ Problem string }

func (e *ArgumentError) Error() string { return e.Problem }

// Inputs expands the import arguments [KEY] SOURCE... to files and databases, and sets o.Key. It leaves out the
// target's file when it expands folders.
func (o *Opener) Inputs(args []string) ([]migrate.Input, error) {
	if key, err := o.ParseKey(args[0]); !isSource(args[0]) {
		switch {
		case err == nil && len(args) == 1:
			return nil, &ArgumentError{fmt.Sprintf("SOURCE is missing: %s is a KEY, and no file", args[0])}
		case err == nil && o.Key != (store.Key{}):
			return nil, &ArgumentError{"--app and --user do not go with a KEY"}
		case err == nil:
			o.Key, args = key, args[1:]
		case len(args) == 2:
			return nil, err
		}
	}
	inputs := o.expand(args)
	if len(inputs) != 1 && o.Key.Session != "" {
		return nil, &ArgumentError{"KEY goes with one file or database, and SOURCE is not one"}
	}
	return inputs, nil
}

// expand expands folders and patterns to files. It leaves out the target's file.
func (o *Opener) expand(names []string) []migrate.Input {
	return slices.DeleteFunc(migrate.Inputs(names), func(in migrate.Input) bool { return in.Folder != "" && isSameFile(in.Name, o.Target) })
}

// isSource reports whether an argument is the name of a source. An argument that is no source may be the key of
// a session.
func isSource(name string) bool {
	_, err := os.Stat(name)
	url, urlErr := database.PostgresURL(name)
	found, _ := filepath.Glob(name)
	return name == "-" || err == nil || url != "" || urlErr != nil || len(found) > 0
}

// Open opens a source. If the source is a file, Open reads the whole file. If the source is an [io.Closer], the
// caller closes it.
func (o *Opener) Open(ctx context.Context, in migrate.Input) (migrate.Source, error) {
	url, err := database.PostgresURL(in.Name)
	switch {
	case err != nil:
		return nil, err
	case isSameFile(in.Name, o.Target):
		return nil, &ArgumentError{"SOURCE is the database to write"}
	case url != "":
		return o.openPostgres(ctx, in, url)
	}
	file, err := Read(ctx, in.Name, o.Stdin)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	head, err := file.Peek(migrate.HeadBytes)
	if err != nil && err != io.EOF {
		return nil, err
	}
	format, err := migrate.Detect(head, file.Name)
	switch {
	case err != nil:
		return nil, err
	case format.Database && file.isStdin:
		return nil, fmt.Errorf("%s is %s; give the file by its name", file.Name, format.Title)
	case format.Database && !bytes.HasPrefix(head, []byte("SQLite")):
		return o.openPatchlog(ctx, in, in.Name)
	case format.Database:
		return o.openADK(ctx, in, migrate.SQLite, func() (*sql.DB, error) { return openSQLite(in.Name) })
	}
	text, err := io.ReadAll(io.LimitReader(file, int64(o.MaxBytes)+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > o.MaxBytes:
		return nil, fmt.Errorf("%s: %w: it is longer than %d bytes; --max-bytes sets the limit", file.Name, store.ErrTooLarge, o.MaxBytes)
	}
	source, err := migrate.OpenFile(text, migrate.FileOptions{
		Name: file.Name, NoFile: file.isStdin, Folder: in.Folder, Key: o.Key, AdoptLines: o.AdoptLines,
		Progress: func(n int) { o.Progress(n, len(text), file.Name) },
	})
	if _, isREST := source.(*migrate.REST); isREST && o.Key != (store.Key{}) {
		return nil, errHasKeys(in)
	}
	return source, err
}

// errHasKeys returns the error for a key argument if the sessions of the source have their own keys.
func errHasKeys(in migrate.Input) error {
	return &ArgumentError{fmt.Sprintf("KEY, --app and --user do not go with %s, whose sessions have keys of their own", in.Name)}
}

// databaseSource is a source that reads from a database. Closing the source closes the database.
type databaseSource struct {
	migrate.Source
	io.Closer
}

// openPostgres opens a PostgreSQL database. If the database is not the target and contains sessions of patchlog, the
// source consists of these sessions. Otherwise it consists of the sessions of ADK.
func (o *Opener) openPostgres(ctx context.Context, in migrate.Input, url string) (migrate.Source, error) {
	if url != o.Target {
		if source, err := o.openPatchlog(ctx, in, url); !errors.Is(err, database.ErrNotExist) {
			return source, err
		}
	}
	return o.openADK(ctx, in, migrate.PostgreSQL, func() (*sql.DB, error) { return openPostgres(url) })
}

func (o *Opener) openPatchlog(ctx context.Context, in migrate.Input, name string) (migrate.Source, error) {
	s, err := database.Open(ctx, name, database.Reading, o.Database)
	if err != nil {
		return nil, databaseError(in, err)
	}
	return databaseSource{migrate.NewDatabase(s, o.Key), s}, nil
}

func (o *Opener) openADK(ctx context.Context, in migrate.Input, dialect migrate.Dialect, open func() (*sql.DB, error)) (migrate.Source, error) {
	if o.Key != (store.Key{}) {
		return nil, errHasKeys(in)
	}
	db, err := open()
	if err != nil {
		return nil, databaseError(in, err)
	}
	var source *migrate.SQL
	if err = db.PingContext(ctx); err == nil {
		source, err = migrate.OpenSQL(ctx, db, dialect, migrate.SQLOptions{IgnoreColumns: o.IgnoreColumns})
	}
	if err != nil {
		return nil, databaseError(in, errors.Join(err, db.Close()))
	}
	return databaseSource{source, db}, nil
}

// databaseError makes an error about a source distinguishable from an error about the target.
func databaseError(in migrate.Input, err error) error {
	if in.Folder != "" {
		return err
	}
	return fmt.Errorf("SOURCE: %w", err)
}

// sqliteDriver is the name of the SQL driver that the command patchlog-sqlite includes.
const sqliteDriver = "sqlite"

// openSQLite opens an existing file for reading. If another process is writing to the file, a read waits for up
// to 5 s.
func openSQLite(path string) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), sqliteDriver) {
		return nil, fmt.Errorf("%s is an SQLite database, which the command patchlog-sqlite reads: 'go install github.com/patchlog-dev/patchlog/cmd/patchlog-sqlite@latest', then 'patchlog-sqlite import'", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=ro&_pragma=busy_timeout(5000)&_pragma=query_only(true)"}
	return sql.Open(sqliteDriver, file.String())
}

// openPostgres opens a database for reading. If the URL is only a scheme, the PG* environment variables and
// PostgreSQL's client files name the database.
func openPostgres(url string) (*sql.DB, error) {
	if strings.HasSuffix(url, "://") {
		url = ""
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["default_transaction_read_only"] = "on"
	return stdlib.OpenDB(*config), nil
}
