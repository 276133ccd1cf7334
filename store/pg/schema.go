package pg

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/patchlog-dev/patchlog/patch"
)

// SchemaVersion is the version of the schema that this program supports.
const SchemaVersion = 1

//go:embed schema.sql
var schemaSQL string

// VersionError reports that the schema is missing or has another version.
type VersionError struct {
	Schema string
	Has    int // the version of the existing schema; 0 if the schema is missing
	Wants  int // the version of this program
}

func (e *VersionError) Error() string {
	if e.Has == 0 {
		return fmt.Sprintf("there is no schema %q with version %d: let a role that may create it do so", e.Schema, e.Wants)
	}
	return fmt.Sprintf("schema %q is of version %d; this program knows %d, a newer one may know it", e.Schema, e.Has, e.Wants)
}

// CreateSchema creates the schema in one transaction, unless it exists. The role needs the right to create a schema
// in the database, or must own an existing empty schema. Concurrent calls are safe. If the existing schema has
// another version, CreateSchema fails with a [*VersionError].
func CreateSchema(ctx context.Context, dsn string, opts Options) error {
	opts.NoCreate = false
	b, err := OpenBackend(ctx, dsn, opts)
	if err != nil {
		return err
	}
	return b.Close()
}

// prepare creates the schema if it is missing, checks its version, and removes unlinked rows.
func (b *Backend) prepare(ctx context.Context) error {
	has, err := b.version(ctx)
	if err != nil {
		return fmt.Errorf("read the version of schema %q: %w", b.opts.Schema, withoutRepeats{err})
	}
	if err := b.checkWarnings(ctx); err != nil {
		return err
	}
	switch {
	case has == SchemaVersion:
	case has != 0 || b.opts.NoCreate:
		return &VersionError{Schema: b.opts.Schema, Has: has, Wants: SchemaVersion}
	default:
		if err := b.createSchema(ctx); err != nil {
			return fmt.Errorf("create schema %q: %w", b.opts.Schema, err)
		}
	}
	b.sweep(ctx)
	return nil
}

// withoutRepeats is an error whose text omits repeated lines. The driver reports a failed connection twice, once
// with TLS and once without.
type withoutRepeats struct{ error }

func (e withoutRepeats) Error() string {
	var lines []string
	for line := range strings.SplitSeq(e.error.Error(), "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func (e withoutRepeats) Unwrap() error { return e.error }

// checkWarnings fails if the server suppresses warnings for this role or database. The backend needs the warning
// about unreplicated commits. See [isUnreplicated].
func (b *Backend) checkWarnings(ctx context.Context) error {
	var level string
	err := b.attempt(ctx, reads, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, `SELECT current_setting('client_min_messages')`).Scan(&level)
	})
	if err != nil {
		return fmt.Errorf("read client_min_messages: %w", err)
	}
	if slices.Contains([]string{"error", "fatal", "panic"}, level) {
		return fmt.Errorf("%w: client_min_messages is %q for this role or database, which hides a warning that commits may be lost; set it to warning or lower",
			patch.ErrInvalid, level)
	}
	return nil
}

// version returns the version of the existing schema, or 0 if the schema is missing.
func (b *Backend) version(ctx context.Context) (has int, err error) {
	var absent bool
	err = b.attempt(ctx, reads, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, b.sql(`SELECT version FROM patchlog.schema_version`)).Scan(&has)
		absent = errors.Is(err, pgx.ErrNoRows) || hasCode(err, "42P01", "3F000")
		if absent {
			return nil
		}
		return err
	})
	if absent {
		return 0, nil
	}
	return has, err
}

// createSchema creates the schema unless it exists. Of several concurrent callers, one creates it.
func (b *Backend) createSchema(ctx context.Context) error {
	return b.attempt(ctx, repeats, func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, b.schema); err != nil {
				return err
			}
			var there bool
			if err := tx.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_catalog.pg_namespace WHERE nspname = $1`, b.opts.Schema).Scan(&there); err != nil {
				return err
			}
			if !there { // CREATE SCHEMA IF NOT EXISTS would need the right to create schemas even if the schema exists
				if _, err := tx.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+b.schema[:len(b.schema)-1]); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, b.sql(`CREATE TABLE IF NOT EXISTS patchlog.schema_version (one boolean PRIMARY KEY CHECK (one), version integer NOT NULL)`)); err != nil {
				return err
			}
			made, err := tx.Exec(ctx, b.sql(`INSERT INTO patchlog.schema_version (one, version) VALUES (true, $1) ON CONFLICT DO NOTHING`), SchemaVersion)
			if err != nil || made.RowsAffected() == 0 { // another caller has created the tables
				return err
			}
			return c.PgConn().Exec(ctx, b.sql(schemaSQL)).Close()
		})
	})
}

func hasCode(err error, codes ...string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && slices.Contains(codes, server.Code)
}
