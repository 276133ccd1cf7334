package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
)

// openPostgres opens a database on PostgreSQL. No error has a password of the URL.
func openPostgres(ctx context.Context, name string, use Use, opts store.Options) (*store.Store, error) {
	dsn, schema := cutSchema(name)
	logger := opts.Logger
	if use == Reading {
		logger = slog.New(slog.DiscardHandler) // of what it may not remove
	}
	b, err := pg.OpenBackend(ctx, dsn, pg.Options{Schema: schema, NoCreate: use != Creating, Logger: logger})
	var version *pg.VersionError
	switch {
	case errors.As(err, &version) && version.Has == 0 && use != Creating:
		return nil, fmt.Errorf("%w: the database on PostgreSQL has no schema %q with sessions; 'patchlog import' makes it", ErrNoDatabase, version.Schema)
	case err != nil:
		return nil, err
	case use == Reading:
		return store.New(&readOnly{b}, opts)
	}
	return store.New(b, opts)
}

// cutSchema takes the schema's name out of a URL. A URL without anything behind its scheme
// becomes "", the driver's defaults.
func cutSchema(name string) (dsn, schema string) {
	if _, rest, _ := strings.Cut(name, "://"); rest == "" {
		return "", ""
	}
	before, query, _ := strings.Cut(name, "?")
	var kept []string
	for _, setting := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(setting, "=")
		text, err := url.QueryUnescape(value)
		switch {
		case key == "schema" && err == nil:
			schema = text
		case setting != "":
			kept = append(kept, setting)
		}
	}
	if len(kept) > 0 {
		before += "?" + strings.Join(kept, "&")
	}
	return before, schema
}

// readOnly is a backend that refuses writes.
type readOnly struct{ *pg.Backend }

// Append implements [backend.Backend].
func (*readOnly) Append(context.Context, string, backend.Batch) error { return backend.ErrReadOnly }

// Replace implements [backend.Backend].
func (*readOnly) Replace(context.Context, string, backend.Replacement) error {
	return backend.ErrReadOnly
}

// Stage implements [backend.Backend].
func (*readOnly) Stage(context.Context, string, uint64, []backend.Record) error {
	return backend.ErrReadOnly
}

// Unstage implements [backend.Backend].
func (*readOnly) Unstage(string) {}

// Fence implements [backend.Backend].
func (*readOnly) Fence(context.Context, string, string, backend.Token, backend.Token) (bool, error) {
	return false, backend.ErrReadOnly
}

// PutSnapshot implements [backend.Backend].
func (*readOnly) PutSnapshot(context.Context, string, string, backend.Snapshot) error {
	return backend.ErrReadOnly
}

// Delete implements [backend.Backend].
func (*readOnly) Delete(context.Context, string, string, *backend.Head) error {
	return backend.ErrReadOnly
}

// Lease implements [backend.Backend].
func (*readOnly) Lease(context.Context, string, string, time.Duration) (bool, error) {
	return false, backend.ErrReadOnly
}
