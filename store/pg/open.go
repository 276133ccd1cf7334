package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// Backend stores sessions in a PostgreSQL database. Any number of processes may use the same schema.
type Backend struct {
	opts    Options
	pool    *pgxpool.Pool
	schema  string        // quoted, with the dot
	waiters chan struct{} // holds a token for each call that may wait for a row lock

	appends groupcommit.Queue[*change]
	senders chan struct{} // holds a token for each group of appends that is being sent

	fetchTexts [3]string   // statements of Fetch, by the number of prefixes
	prepares   atomic.Bool // statements of appends and of Fetch are prepared
	planTime   time.Duration

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // calls that use the pool; Close waits for them
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Checker = (*Backend)(nil)
	_ backend.Leaser  = (*Backend)(nil)
)

// maxSenders is the number of groups of appends that are sent at a time. With few senders the groups are large; with one
// sender a connection that stalls would delay all appends.
const maxSenders = 4

// Open opens a store in a PostgreSQL database. dsn is a connection string of libpq, a URL or keywords and values; "" means the
// PG* environment variables. The store's Close closes the connections.
func Open(ctx context.Context, dsn string, sopts store.Options, opts Options) (*store.Store, error) {
	if err := sopts.Validate(); err != nil {
		return nil, err
	}
	b, err := OpenBackend(ctx, dsn, opts)
	if err != nil {
		return nil, err
	}
	s, err := store.New(b, sopts)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

// OpenBackend opens the backend of [Open]. It connects, and creates a missing schema unless opts say otherwise. It fails with a
// [*VersionError] if it cannot use the existing schema.
func OpenBackend(ctx context.Context, dsn string, opts Options) (*Backend, error) {
	config, modeGiven, err := configure(dsn, opts)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	b := &Backend{opts: opts.withDefaults(), pool: pool, planTime: planTime}
	b.schema = pgx.Identifier{b.opts.Schema}.Sanitize() + "."
	for prefixes := range b.fetchTexts {
		b.fetchTexts[prefixes] = b.sql(fetchSQL(prefixes, false))
	}
	b.prepares.Store(!modeGiven)
	b.appends.Detached = true
	b.senders = make(chan struct{}, min(maxSenders, config.MaxConns))
	b.waiters = make(chan struct{}, max(1, config.MaxConns/2))
	if err := b.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return b, nil
}

// configure parses the connection string. modeGiven reports that the string says how to send statements. Errors never quote the
// string, which may hold a password.
func configure(dsn string, opts Options) (config *pgxpool.Config, modeGiven bool, err error) {
	if err := opts.Validate(); err != nil {
		return nil, false, err
	}
	given, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, false, unreadable(err)
	}
	config, err = pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, false, unreadable(err)
	}
	says := func(key string) bool { _, ok := given.RuntimeParams[key]; return ok }
	// Named prepared statements are lost behind a pooler that gives each transaction another connection.
	modeGiven = says("default_query_exec_mode")
	if !modeGiven {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	switch {
	case opts.MaxConns > 0:
		config.MaxConns = int32(opts.MaxConns)
	case !says("pool_max_conns"):
		config.MaxConns = DefaultMaxConns
	}
	switch {
	case opts.ConnectTimeout > 0:
		config.ConnConfig.ConnectTimeout = opts.ConnectTimeout
	case given.ConnectTimeout == 0:
		config.ConnConfig.ConnectTimeout = DefaultConnectTimeout
	}
	config.ConnConfig.OnNotice = onNotice
	if !says("application_name") {
		config.ConnConfig.RuntimeParams["application_name"] = "patchlog"
	}
	return config, modeGiven, nil
}

// unreadable returns the error of a malformed connection string. It omits the driver's message, which quotes the string
// and may fail to hide a password.
func unreadable(err error) error {
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return fmt.Errorf("%w: the connection string names a file that cannot be read: %w", patch.ErrInvalid, file)
	}
	return fmt.Errorf("%w: the connection string cannot be read; it is not shown, since it may hold a password", patch.ErrInvalid)
}

// sql returns a statement with the name of the schema.
func (b *Backend) sql(text string) string {
	if b.opts.Schema == DefaultSchema {
		return text
	}
	return strings.ReplaceAll(text, "patchlog.", b.schema)
}

// Close implements [backend.Backend]. It waits for attempts in flight; no new ones begin.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return backend.ErrClosed
	}
	b.closed = true
	b.mu.Unlock()
	b.calls.Wait()
	b.pool.Close()
	return nil
}
