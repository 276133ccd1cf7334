package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// The statements of appends and of Fetch are prepared, so that the server does not plan them for each call.

// planTime is how long the statements of a connection stay prepared. For a table of a page or two the server plans a
// sequential scan, and keeps that plan until the table is analyzed.
const planTime = 5 * time.Second

// plannedKey is the key, in a connection's custom data, of the time when its plans were made.
const plannedKey = "patchlog.planned"

// preparedError is the error of a prepared statement.
type preparedError struct {
	error
	unsent bool // preparing failed, so the statement was not executed
}

func (e *preparedError) Unwrap() error { return e.error }

// sendPrepared prepares text on the connection, unless stopPreparing was called, and then calls send, which sends the
// statement any number of times in one transaction.
func (b *Backend) sendPrepared(ctx context.Context, c *pgx.Conn, text string, send func() error) error {
	if !b.prepares.Load() {
		return send()
	}
	var err error
	data := c.PgConn().CustomData()
	if planned, ok := data[plannedKey].(time.Time); !ok || time.Since(planned) > b.planTime {
		if ok {
			err = c.DeallocateAll(ctx)
		}
		data[plannedKey] = time.Now()
	}
	if err == nil {
		_, err = c.Prepare(ctx, text, text) // the driver derives the statement's name from the text
	}
	if err != nil {
		return &preparedError{err, true}
	}
	if err = send(); err == nil {
		return nil
	}
	err = &preparedError{err, false}
	if isOutdated(err) {
		data[plannedKey] = time.Time{}
	}
	return err
}

// isUnprepared reports whether a statement did nothing because a pooler switched to another server connection, on which
// the prepared statement is missing or its name is taken. After stopPreparing, a connection still executes a statement
// that it has prepared, whichever call sends the text.
func isUnprepared(err error) bool { return hasCode(err, "26000", "42P05") }

// isOutdated reports whether a statement did nothing because a table was altered after it was prepared.
func isOutdated(err error) bool { return errors.As(err, new(*preparedError)) && hasCode(err, "0A000") }

// unsent reports whether a statement was not executed because preparing it failed.
func unsent(err error) bool {
	var p *preparedError
	return errors.As(err, &p) && p.unsent
}

// stopPreparing makes later calls send statements unprepared. It resets the pool, because open connections would
// continue to execute the statements that they have prepared.
func (b *Backend) stopPreparing(why error) {
	if b.prepares.Swap(false) {
		b.pool.Reset()
		b.opts.Logger.Info("patchlog: the database is behind a pooler that does not keep prepared statements: the server plans each statement anew",
			"schema", b.opts.Schema, "error", why)
	}
}
