package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
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
	var others []string
	for _, setting := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(setting, "=")
		text, err := url.QueryUnescape(value)
		switch {
		case key == "schema" && err == nil:
			schema = text
		case setting != "":
			others = append(others, setting)
		}
	}
	if len(others) > 0 {
		before += "?" + strings.Join(others, "&")
	}
	return before, schema
}
