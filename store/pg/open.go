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
	schema  string        // the quoted name of the schema, followed by a dot
	waiters chan struct{} // contains one element for each call that may currently wait for a row lock

	appends groupcommit.Queue[*change]
	senders chan struct{} // contains one element for each group of appends that is being sent

	fetchTexts [3]string   // the statements of Fetch, indexed by the number of prefixes
	prepares   atomic.Bool // whether appends and Fetch use prepared statements
	planTime   time.Duration

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // calls that use the pool; Close waits for these calls
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Checker = (*Backend)(nil)
	_ backend.Leaser  = (*Backend)(nil)
)

// maxSenders is the number of groups of appends that can be sent at the same time. With fewer senders, the
// groups are larger. With only one sender, a stalled connection would delay all appends.
const maxSenders = 4

// Open opens a store in a PostgreSQL database. The argument dsn is a connection string, as described in the package
// documentation. If dsn is "", all settings come from the PG* environment variables. Closing the store closes the
// connections.
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

// OpenBackend opens the backend that [Open] uses. It creates a missing schema, unless opts.NoCreate is set. If the
// schema is then missing or has another version, OpenBackend fails with a [*VersionError].
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

// configure parses the connection string. The result modeGiven reports whether the string sets
// default_query_exec_mode. Errors never quote the string, because it may contain a password.
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
	// The driver's own default uses named prepared statements, which fail behind a pooler in transaction mode.
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

// unreadable returns the error for a malformed connection string. It omits the driver's message, which quotes
// the string and may reveal the password.
func unreadable(err error) error {
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return fmt.Errorf("%w: the connection string names a file that cannot be read: %w", patch.ErrInvalid, file)
	}
	return fmt.Errorf("%w: the connection string cannot be read; it is not shown, since it may hold a password", patch.ErrInvalid)
}

// sql returns the statement text with the configured schema.
func (b *Backend) sql(text string) string {
	if b.opts.Schema == DefaultSchema {
		return text
	}
	return strings.ReplaceAll(text, "patchlog.", b.schema)
}

// Close implements [backend.Backend]. It waits for attempts in flight and prevents new ones.
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
