package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
)

// Use is the purpose for which a database is opened.
type Use int

const (
	// Reading changes no file and needs only read permission. Several processes can read at the same time.
	Reading Use = iota
	// Writing requires an existing database.
	Writing
	// Creating creates the database if it does not exist.
	Creating
	// Trying is like Reading. But if the database does not exist, an empty database in memory is opened.
	Trying
)

// ErrNotExist reports that the database does not exist.
var ErrNotExist = errors.New("there is no database")

// Options are the options of [Open].
type Options struct {
	Store store.Options

	// The remaining fields are only for an inspector. They are the token, if the address contains none; the sessions to
	// copy, where none means all; and a function that is called with the number of copied sessions and their total.
	Token    string
	Only     []store.Key
	Progress func(done, total int)
}

// Open opens a database. If the name is the address of an inspector, Open copies the inspector's sessions into
// memory.
func Open(ctx context.Context, name string, use Use, opts Options) (*store.Store, error) {
	if IsInspector(name) {
		return openInspector(ctx, name, use, opts)
	}
	if use == Trying {
		s, err := Open(ctx, name, Reading, opts)
		if errors.Is(err, ErrNotExist) {
			return store.OpenMemory(opts.Store)
		}
		return s, err
	}
	opts.Store.ReadOnly = use == Reading
	url, err := PostgresURL(name)
	switch {
	case err != nil:
		return nil, err
	case url != "":
		return openPostgres(ctx, url, use, opts.Store)
	}
	return openFile(name, use, opts.Store)
}

// isAddress reports whether a file name looks like the address HOST:PORT of an inspector.
func isAddress(name string) bool {
	host, port, err := net.SplitHostPort(strings.TrimRight(name, "/"))
	_, notPort := strconv.ParseUint(port, 10, 16)
	return err == nil && notPort == nil && host != ""
}

func openFile(path string, use Use, opts store.Options) (*store.Store, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist) && use != Creating && isAddress(path):
		return nil, fmt.Errorf("%w %q; the address of an inspector begins with http://", ErrNotExist, path)
	case errors.Is(err, fs.ErrNotExist) && use != Creating:
		return nil, fmt.Errorf("%w %q; 'patchlog import' creates one, and --db names another", ErrNotExist, path)
	case err != nil && use != Creating:
		return nil, err
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%q is a directory, not a database", path)
	case err == nil && info.Mode().IsRegular() && info.Size() == 0 && use != Creating:
		return nil, fmt.Errorf("%q is an empty file, not a database", path)
	}
	return store.Open(path, opts)
}

func openPostgres(ctx context.Context, url string, use Use, opts store.Options) (*store.Store, error) {
	dsn, schema := cutSchema(url)
	logger := opts.Logger
	if use == Reading {
		logger = slog.New(slog.DiscardHandler) // discard the backend's warnings about leftover records, which only a writer may remove
	}
	b, err := pg.OpenBackend(ctx, dsn, pg.Options{Schema: schema, NoCreate: use != Creating, Logger: logger})
	var version *pg.VersionError
	switch {
	case errors.As(err, &version) && version.Has == 0 && use != Creating:
		return nil, fmt.Errorf("%w: PostgreSQL has no schema %q with sessions; 'patchlog import' creates it", ErrNotExist, version.Schema)
	case err != nil:
		return nil, err
	}
	return store.New(b, opts)
}
