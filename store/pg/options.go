package pg

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/patch"
)

// Defaults of [Options].
const (
	DefaultSchema           = "patchlog"
	DefaultMaxConns         = 10
	DefaultStatementTimeout = 10 * time.Second
	DefaultConnectTimeout   = 5 * time.Second
)

// Options are the options of [Open]. The zero value means the defaults.
type Options struct {
	// Schema is the schema that contains the tables. "" means [DefaultSchema].
	Schema string

	// MaxConns limits the number of open connections. 0 means the value of pool_max_conns in the connection string or,
	// if this is not set, [DefaultMaxConns].
	MaxConns int

	// StatementTimeout limits the wait for a free connection, and separately the duration of each transaction. The
	// client enforces the limit, even if the context has no deadline. 0 means [DefaultStatementTimeout].
	StatementTimeout time.Duration

	// ConnectTimeout limits the time to open a connection. 0 means the value of connect_timeout in the connection
	// string or, if this is not set, [DefaultConnectTimeout].
	ConnectTimeout time.Duration

	// NoCreate makes Open fail if the schema does not exist. By default, Open creates a missing schema, which requires
	// the right to create schemas.
	NoCreate bool

	// Logger receives messages for operators. nil means [slog.Default].
	Logger *slog.Logger
}

// Validate returns an error for the first invalid option. The error matches [patch.ErrInvalid] and names the
// option.
func (o Options) Validate() error {
	bad := func(field, problem string, args ...any) error {
		return &patch.FieldError{Field: "pg.Options." + field, Problem: fmt.Sprintf(problem, args...)}
	}
	switch {
	case len(o.Schema) > 63 || !utf8.ValidString(o.Schema) || strings.ContainsRune(o.Schema, 0):
		return bad("Schema", "%q is no name: that has up to 63 bytes of UTF-8 without NUL", o.Schema)
	case strings.HasPrefix(o.Schema, "pg_"):
		return bad("Schema", "%q is no name: those that begin with pg_ are the server's own", o.Schema)
	case o.MaxConns < 0 || o.MaxConns > 1<<16:
		return bad("MaxConns", "%d is not between 0 and %d", o.MaxConns, 1<<16)
	case o.StatementTimeout < 0:
		return bad("StatementTimeout", "%v is below 0", o.StatementTimeout)
	case o.ConnectTimeout < 0:
		return bad("ConnectTimeout", "%v is below 0", o.ConnectTimeout)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Schema = cmp.Or(o.Schema, DefaultSchema)
	o.StatementTimeout = cmp.Or(o.StatementTimeout, DefaultStatementTimeout)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}
