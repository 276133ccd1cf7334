package command

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// isSource reports whether an operand is a source, and no key.
func isSource(name string) bool {
	_, err := os.Stat(name)
	_, _, isURL, urlErr := splitURL(name)
	found, _ := filepath.Glob(name)
	return name == "-" || err == nil || isURL || urlErr != nil || len(found) > 0
}

// expand returns the files that operands name, by folders and patterns too, and the folders of those that are in one.
func expand(names []string) (files []string, folders map[string]string) {
	folders = map[string]string{}
	for _, name := range names {
		found := []string{name}
		if _, err := os.Stat(name); err != nil {
			if match, _ := filepath.Glob(name); len(match) > 0 {
				found = match
			}
		}
		for _, name := range found {
			info, err := os.Stat(name)
			if err != nil || !info.IsDir() {
				files = append(files, name)
				continue
			}
			filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
				switch {
				case err != nil:
					files = append(files, path) // opening it tells
				case entry.IsDir() && entry.Name() == ".git":
					return fs.SkipDir
				case entry.Type().IsRegular():
					files, folders[path] = append(files, path), name
				}
				return nil
			})
		}
	}
	return files, folders
}

// open opens a source. A file is read to its end.
func (r *importing) open(ctx context.Context, name string) (_ migrate.Source, closeSource func() error, err error) {
	nothing := func() error { return nil }
	scheme, rest, isURL, err := splitURL(name)
	switch {
	case err != nil:
		return nil, nil, err
	case sameFile(name, r.db):
		return nil, nil, usagef("SOURCE is the database to write")
	case isURL:
		return r.openPostgresSource(ctx, scheme+"://"+rest)
	}
	in, err := r.input(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer in.close()
	head := make([]byte, migrate.HeadBytes)
	n, err := io.ReadFull(in.r, head)
	if head = head[:n]; err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, nil, err
	}
	format, err := migrate.Detect(head, in.name)
	switch {
	case err != nil:
		return nil, nil, err
	case format.Database && in.file == nil:
		return nil, nil, fmt.Errorf("%s is %s; give the file by its name", in.name, format.Title)
	case format.Database && !bytes.HasPrefix(head, []byte("SQLite")):
		return r.openCopied(ctx, name)
	case format.Database:
		return r.openADK(ctx, name, migrate.SQLite, openSQLite)
	}
	text, err := readMost(in, head, r)
	if err != nil {
		return nil, nil, err
	}
	source, err := migrate.OpenFile(text, migrate.FileOptions{
		Name: in.name, NoFile: in.file == nil, Folder: r.folders[name], Key: r.key, AdoptLines: r.compactions == "adopt",
		Progress: func(n int) { r.bar.update(int64(n), int64(len(text)), in.name) },
	})
	if _, isADK := source.(*migrate.REST); isADK && r.key != (store.Key{}) {
		return nil, nil, hasKeys(name)
	}
	return source, nothing, err
}

// hasKeys is the error of a key given for a source whose sessions have keys.
func hasKeys(name string) error {
	return usagef("KEY, --app and --user do not go with %s, whose sessions have keys of their own", name)
}

// readMost reads a file to its end, behind its beginning.
func readMost(in *input, head []byte, r *importing) ([]byte, error) {
	text := bytes.NewBuffer(make([]byte, 0, min(max(in.size, int64(len(head))), r.maxBytes)+bytes.MinRead))
	text.Write(head)
	if _, err := text.ReadFrom(io.LimitReader(in.r, r.maxBytes+1-int64(len(head)))); err != nil {
		return nil, err
	}
	if int64(text.Len()) > r.maxBytes {
		return nil, fmt.Errorf("%s: %w: it goes on beyond %d bytes; --max-bytes sets the limit", in.name, store.ErrTooLarge, r.maxBytes)
	}
	return text.Bytes(), nil
}

// openPostgresSource opens a database on PostgreSQL. Where it has both sessions of patchlog's and of ADK's, patchlog's
// are taken, unless it is the database to write.
func (r *importing) openPostgresSource(ctx context.Context, name string) (migrate.Source, func() error, error) {
	if name != r.db {
		source, closeSource, err := r.openCopied(ctx, name)
		if !errors.Is(err, ErrNoDatabase) {
			return source, closeSource, err
		}
	}
	return r.openADK(ctx, name, migrate.PostgreSQL, openPostgresSQL)
}

// openCopied opens a database of patchlog's.
func (r *importing) openCopied(ctx context.Context, name string) (migrate.Source, func() error, error) {
	s, err := r.openDatabase(ctx, name, Reading, r.bulk())
	if err != nil {
		return nil, nil, fmt.Errorf("SOURCE: %w", err)
	}
	r.copies = true
	return migrate.NewDatabase(s, r.key), s.Close, nil
}

// openADK opens a database of ADK's.
func (r *importing) openADK(ctx context.Context, name string, dialect migrate.Dialect, open func(name string) (*sql.DB, error)) (migrate.Source, func() error, error) {
	if r.key != (store.Key{}) {
		return nil, nil, hasKeys(name)
	}
	db, err := open(name)
	if err != nil {
		return nil, nil, fmt.Errorf("SOURCE: %w", err)
	}
	var source *migrate.SQL
	if err = db.PingContext(ctx); err == nil {
		source, err = migrate.OpenSQL(ctx, db, dialect, migrate.SQLOptions{IgnoreColumns: r.ignored})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("SOURCE: %w", errors.Join(err, db.Close()))
	}
	return source, db.Close, nil
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

// sameFile reports whether two names are of one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// bulk returns the options of a database of which each session is used once.
func (a *app) bulk() store.Options {
	opts := a.options
	opts.CacheBytes, opts.MaxRecordBytes = -1, patch.MaxRecordBytes
	return opts
}

// input is a file or standard input, as a command reads it.
type input struct {
	name string // as messages call it
	size int64  // 0 if not known
	r    io.Reader
	pipe io.Closer
	file *os.File
}

// input opens the named file; "-" is standard input.
func (a *app) input(ctx context.Context, name string) (*input, error) {
	if name == "-" {
		r := interruptible(ctx, a.stdin)
		return &input{name: "stdin", r: r, pipe: r}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	r := interruptible(ctx, f)
	in := &input{name: name, r: r, pipe: r, file: f}
	switch info, err := f.Stat(); {
	case err != nil:
		in.close()
		return nil, err
	case info.IsDir():
		in.close()
		return nil, fmt.Errorf("%s is a directory", name)
	case info.Mode().IsRegular():
		in.size = info.Size()
	}
	return in, nil
}

func (in *input) close() {
	in.pipe.Close()
	if in.file != nil {
		in.file.Close() // it was only read
	}
}

// interruptible is a reader whose Read returns when the context is done, though the
// one that it reads may block for ever.
func interruptible(ctx context.Context, r io.Reader) *io.PipeReader {
	out, in := io.Pipe()
	go func() {
		_, err := io.CopyBuffer(in, r, make([]byte, 256<<10))
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	return out
}
