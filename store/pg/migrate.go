package pg

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SchemaVersion is the version of the schema that this program uses.
const SchemaVersion = 2

//go:embed schema.sql
var version1 string

//go:embed schema2.sql
var version2 string

// migrations[i] makes version i+1 of version i. What was released is never changed.
var migrations = []string{version1, version2}

// VersionError is the error of a schema that this program does not use as it is.
type VersionError struct {
	Schema string
	Has    int // the version that is there, 0 if none is
	Wants  int // the version that this program uses
}

func (e *VersionError) Error() string {
	switch {
	case e.Has > e.Wants:
		return fmt.Sprintf("schema %q is of version %d, newer than %d, which this program knows: use a newer program", e.Schema, e.Has, e.Wants)
	case e.Has == 0:
		return fmt.Sprintf("there is no schema %q with version %d: let a role that may create it migrate", e.Schema, e.Wants)
	}
	return fmt.Sprintf("schema %q is of version %d, older than %d, which this program uses: let its owner migrate", e.Schema, e.Has, e.Wants)
}

// Migrate makes the schema, or brings it up to date, in one transaction. It takes a role
// that may create a schema in the database, or that owns the one that is there. Several may
// do so at a time. A schema that is up to date is left alone, and a newer one is refused
// with a [*VersionError].
func Migrate(ctx context.Context, dsn string, opts Options) error {
	opts.NoMigrate = false
	b, err := OpenBackend(ctx, dsn, opts)
	if err != nil {
		return err
	}
	return b.Close()
}

// prepare sees to it that the schema is the one that this program uses.
func (b *Backend) prepare(ctx context.Context) error {
	has, err := b.version(ctx)
	if err != nil {
		return fmt.Errorf("read the version of schema %q: %w", b.opts.Schema, err)
	}
	wants := len(migrations)
	if has > wants || has < wants && b.opts.NoMigrate {
		return &VersionError{Schema: b.opts.Schema, Has: has, Wants: wants}
	}
	if has < wants {
		if err := b.migrate(ctx); err != nil {
			return fmt.Errorf("migrate schema %q from version %d to %d: %w", b.opts.Schema, has, wants, err)
		}
	}
	b.sweep(ctx)
	return nil
}

// version returns the version of the schema that is there, or 0.
func (b *Backend) version(ctx context.Context) (has int, err error) {
	var absent bool
	err = b.call(ctx, reads, func(ctx context.Context, c *pgx.Conn) error {
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

// migrate brings the schema up to date. The row of the version is locked meanwhile. Where
// two make the schema at once, one of them fails, and finds it made.
func (b *Backend) migrate(ctx context.Context) error {
	var err error
	for range failureTries {
		err = b.call(ctx, repeats, b.migrateOnce)
		// What CREATE IF NOT EXISTS says if another transaction is about to.
		if !hasCode(err, uniqueViolation, "42P06", "42P07", "42710", "XX000") {
			return err
		}
	}
	return err
}

func (b *Backend) migrateOnce(ctx context.Context, c *pgx.Conn) error {
	return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_catalog.pg_namespace WHERE nspname = $1`, b.opts.Schema).Scan(&there); err != nil {
			return err
		}
		if !there { // which takes a right even where it does nothing
			if _, err := tx.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+b.schema[:len(b.schema)-1]); err != nil {
				return err
			}
		}
		for _, text := range []string{
			`CREATE TABLE IF NOT EXISTS patchlog.schema_version (one boolean PRIMARY KEY CHECK (one), version integer NOT NULL)`,
			`INSERT INTO patchlog.schema_version (one, version) VALUES (true, 0) ON CONFLICT DO NOTHING`,
		} {
			if _, err := tx.Exec(ctx, b.sql(text)); err != nil {
				return err
			}
		}
		var has int
		if err := tx.QueryRow(ctx, b.sql(`SELECT version FROM patchlog.schema_version FOR UPDATE`)).Scan(&has); err != nil {
			return err
		}
		if has >= len(migrations) { // another has been faster
			return nil
		}
		for _, text := range migrations[has:] {
			if err := c.PgConn().Exec(ctx, b.sql(text)).Close(); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, b.sql(`UPDATE patchlog.schema_version SET version = $1`), len(migrations))
		return err
	})
}

func hasCode(err error, codes ...string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && slices.Contains(codes, server.Code)
}
