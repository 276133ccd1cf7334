package command

import (
	"bufio"
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

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// isSource reports whether an operand is a SOURCE, not a KEY.
func isSource(name string) bool {
	_, err := os.Stat(name)
	_, _, isURL, urlErr := splitURL(name)
	found, _ := filepath.Glob(name)
	return name == "-" || err == nil || isURL || urlErr != nil || len(found) > 0
}

// open opens a source. A file is read to its end.
func (r *importing) open(ctx context.Context, in migrate.Input) (migrate.Source, error) {
	source, err := r.openSource(ctx, in)
	if err != nil {
		if text, found := strings.CutPrefix(err.Error(), "SOURCE: "); found && in.Folder != "" {
			err = errors.New(text)
		}
		return nil, err
	}
	n, err := source.Count(ctx)
	if err != nil {
		return nil, err
	}
	if _, isFile := source.(*migrate.File); !isFile || n > 1 {
		if r.many = true; !r.json {
			r.out.linef("from %s", source)
		}
	}
	return source, nil
}

func (r *importing) openSource(ctx context.Context, in migrate.Input) (migrate.Source, error) {
	scheme, rest, isURL, err := splitURL(in.Name)
	switch {
	case err != nil:
		return nil, err
	case sameFile(in.Name, r.db):
		return nil, usagef("SOURCE is the database to write")
	case isURL:
		return r.openPostgresSource(ctx, scheme+"://"+rest)
	}
	file, err := r.input(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	defer file.close()
	head, err := file.Peek(migrate.HeadBytes)
	if err != nil && err != io.EOF {
		return nil, err
	}
	format, err := migrate.Detect(head, file.name)
	switch {
	case err != nil:
		return nil, err
	case format.Database && file.stdin:
		return nil, fmt.Errorf("%s is %s; give the file by its name", file.name, format.Title)
	case format.Database && !bytes.HasPrefix(head, []byte("SQLite")):
		return r.openCopied(ctx, in.Name)
	case format.Database:
		return r.openADK(ctx, in.Name, migrate.SQLite, openSQLite)
	}
	text, err := io.ReadAll(io.LimitReader(file, r.maxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > r.maxBytes:
		return nil, fmt.Errorf("%s: %w: it is longer than %d bytes; --max-bytes sets the limit", file.name, store.ErrTooLarge, r.maxBytes)
	}
	source, err := migrate.OpenFile(text, migrate.FileOptions{
		Name: file.name, NoFile: file.stdin, Folder: in.Folder, Key: r.key, AdoptLines: r.compactions == "adopt",
		Progress: func(n int) { r.bar.update(int64(n), int64(len(text)), file.name) },
	})
	if _, isADK := source.(*migrate.REST); isADK && r.key != (store.Key{}) {
		return nil, hasKeys(in.Name)
	}
	return source, err
}

// databaseSource is a database as a source. Closing it closes the database.
type databaseSource struct {
	migrate.Source
	io.Closer
}

// hasKeys returns the error about a key given for a source whose sessions have keys.
func hasKeys(name string) error {
	return usagef("KEY, --app and --user do not go with %s, whose sessions have keys of their own", name)
}

// openPostgresSource opens a database on PostgreSQL: the sessions of patchlog if it has some, unless it is the database
// to write, else those of ADK.
func (r *importing) openPostgresSource(ctx context.Context, name string) (migrate.Source, error) {
	if name != r.db {
		if source, err := r.openCopied(ctx, name); !errors.Is(err, ErrNoDatabase) {
			return source, err
		}
	}
	return r.openADK(ctx, name, migrate.PostgreSQL, openPostgresSQL)
}

// openCopied opens a database of patchlog as a source.
func (r *importing) openCopied(ctx context.Context, name string) (migrate.Source, error) {
	s, err := r.openDatabase(ctx, name, Reading, r.bulk())
	if err != nil {
		return nil, fmt.Errorf("SOURCE: %w", err)
	}
	return databaseSource{migrate.NewDatabase(s, r.key), s}, nil
}

// openADK opens a database of ADK as a source.
func (r *importing) openADK(ctx context.Context, name string, dialect migrate.Dialect, open func(name string) (*sql.DB, error)) (migrate.Source, error) {
	if r.key != (store.Key{}) {
		return nil, hasKeys(name)
	}
	db, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("SOURCE: %w", err)
	}
	var source *migrate.SQL
	if err = db.PingContext(ctx); err == nil {
		source, err = migrate.OpenSQL(ctx, db, dialect, migrate.SQLOptions{IgnoreColumns: r.ignored})
	}
	if err != nil {
		return nil, fmt.Errorf("SOURCE: %w", errors.Join(err, db.Close()))
	}
	return databaseSource{source, db}, nil
}

// sqliteDriver is the name of the database/sql driver that patchlog-sqlite links.
const sqliteDriver = "sqlite"

// openSQLite opens an existing file for reading. It waits up to 5 s for a service that writes to it.
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

// openPostgresSQL opens a database for reading, by a URL or by the PG* variables and the files of PostgreSQL's
// clients. No error quotes the URL's password.
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

// sameFile reports whether two names are names of the same file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// bulk returns the options for a database whose sessions are used once each.
func (a *app) bulk() store.Options {
	opts := a.options
	opts.CacheBytes, opts.MaxRecordBytes = -1, patch.MaxRecordBytes
	return opts
}

// input is a file or standard input, as a command reads it.
type input struct {
	*bufio.Reader
	name  string // for messages
	stdin bool
	close func()
}

// input opens the named file; "-" is standard input.
func (a *app) input(ctx context.Context, name string) (*input, error) {
	in, from := &input{name: name}, a.stdin
	var file *os.File
	if name == "-" {
		in.name, in.stdin = "stdin", true
	} else {
		var err error
		if file, err = os.Open(name); err != nil {
			return nil, err
		}
		from = file
	}
	pipe := interruptible(ctx, from)
	in.Reader = bufio.NewReaderSize(pipe, migrate.HeadBytes)
	in.close = func() {
		pipe.Close()
		file.Close() // it was only read, or is nil
	}
	return in, nil
}

// interruptible is a reader whose Read returns when the context is done, although a Read of r may block for ever.
func interruptible(ctx context.Context, r io.Reader) *io.PipeReader {
	out, in := io.Pipe()
	go func() {
		_, err := io.CopyBuffer(in, r, make([]byte, 256<<10))
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	return out
}
