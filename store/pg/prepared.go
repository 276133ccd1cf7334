package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// The backend prepares the statements of appends and of Fetch, because these calls are frequent and planning
// takes time.

// planTime is how long a connection uses its prepared statements before it prepares them again. If a table has
// only one or two pages, the server plans a sequential scan, and a prepared statement keeps this plan until the
// table is analyzed.
const planTime = 5 * time.Second

// plannedKey is the key in a connection's custom data for the time when the connection began to prepare its current
// statements.
const plannedKey = "patchlog.planned"

// preparedError is the error of preparing or executing a prepared statement.
type preparedError struct {
	error
	unsent bool // set if preparing failed, so that nothing was executed
}

func (e *preparedError) Unwrap() error { return e.error }

// sendPrepared prepares text on the connection and then calls send. The function send executes the statement,
// once or several times, in one transaction. After stopPreparing, sendPrepared only calls send.
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
		_, err = c.Prepare(ctx, text, text) // the driver derives the name of the statement from its text
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

// isUnprepared reports whether a statement did nothing because a pooler switched to another server connection,
// which lacks the prepared statement or uses its name for another statement. Even a call that does not prepare
// statements can get this error, because the driver executes a prepared statement if the connection has prepared
// the same text.
func isUnprepared(err error) bool { return hasCode(err, "26000", "42P05") }

// isOutdated reports whether a prepared statement did nothing because a table was altered after the statement
// was prepared.
func isOutdated(err error) bool { return errors.As(err, new(*preparedError)) && hasCode(err, "0A000") }

// unsent reports whether err means that preparing the statement failed, so that nothing was executed.
func unsent(err error) bool {
	var p *preparedError
	return errors.As(err, &p) && p.unsent
}

// stopPreparing makes later calls send statements without preparing them. It also resets the pool, because open
// connections would still execute the statements that they have prepared.
func (b *Backend) stopPreparing(why error) {
	if b.prepares.Swap(false) {
		b.pool.Reset()
		b.opts.Logger.Info("patchlog: the database is behind a pooler that does not keep prepared statements: the server plans each statement anew",
			"schema", b.opts.Schema, "error", why)
	}
}
