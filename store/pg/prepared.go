package pg

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The statements of one append and of one look are prepared, so that the server plans them
// a few times for a connection and not each time. They find their rows by unique indexes, or
// by a range of an index.

// planTime is how long a statement stays prepared. A plan that was made for tables of a page
// or two reads them whole, and stays until the server has analyzed the tables again.
const planTime = 5 * time.Second

// statement is one that can be prepared. Its name is that of no other text: behind a pooler,
// what another has prepared under it is the same.
type statement struct {
	name, text string
}

func newStatement(text string) statement {
	return statement{fmt.Sprintf("patchlog_%x", sha256.Sum256([]byte(text)))[:60], text} // a name has up to 63 bytes
}

// plans are the statements that a connection has prepared, by name, and when.
type plans map[string]time.Time

const plansKey = "patchlog.plans" // in a connection's own data

// preparedError is the error of a statement that was to be prepared before.
type preparedError struct {
	error
	unsent bool // it failed while it was prepared, and was not executed
}

func (e *preparedError) Unwrap() error { return e.error }

// lone sends a statement of one call: prepared, if that works.
func (b *Backend) lone(ctx context.Context, c *pgx.Conn, s statement, args []any, scan func(pgx.Rows) error) error {
	if !b.prepares.Load() {
		rows, err := c.Query(ctx, s.text, args...)
		return first(err, scan(rows))
	}
	data := c.PgConn().CustomData()
	have, _ := data[plansKey].(plans)
	if have == nil {
		have = plans{}
		data[plansKey] = have
	}
	if at, ok := have[s.name]; !ok || time.Since(at) > b.planTime {
		err := error(nil)
		if ok {
			err = c.Deallocate(ctx, s.name)
		}
		if err == nil {
			_, err = c.Prepare(ctx, s.name, s.text)
		}
		if err != nil {
			return &preparedError{err, true}
		}
		have[s.name] = time.Now()
	}
	rows, err := c.Query(ctx, s.name, args...)
	if err = first(err, scan(rows)); err == nil {
		return nil
	}
	err = &preparedError{err, false}
	if isOutdated(err) {
		have[s.name] = time.Time{}
	}
	return err
}

// isUnprepared reports whether a statement did nothing since its connection is not always
// the same one of the server's: what was prepared is not there, or is already.
func isUnprepared(err error) bool {
	var p *preparedError
	return errors.As(err, &p) && hasCode(err, "26000", "42P05")
}

// isOutdated reports whether a statement did nothing since what it returns has changed from
// when it was prepared: a table was altered.
func isOutdated(err error) bool {
	var p *preparedError
	return errors.As(err, &p) && hasCode(err, "0A000")
}

// unsent reports whether a statement was not sent, since it failed while it was prepared.
func unsent(err error) bool {
	var p *preparedError
	return errors.As(err, &p) && p.unsent
}

// stopPreparing has statements sent from now on in the way that works on any connection.
func (b *Backend) stopPreparing(why error) {
	if b.prepares.Swap(false) {
		b.opts.Logger.Info("patchlog: the database is behind a pooler that does not keep prepared statements: the server plans each statement anew",
			"schema", b.opts.Schema, "error", why)
	}
}
