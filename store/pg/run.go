package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// ErrNoAnswer: the server did not answer within [Options.StatementTimeout].
var ErrNoAnswer = errors.New("no answer from the server in time")

// errUnreplicated: the server gave up waiting for a synchronous standby.
var errUnreplicated = errors.New("the commit is on this server, but its wait for a synchronous standby was cancelled: a failover may lose it")

// unreplicatedKey marks a connection, in its own data, whose server gave up waiting for a
// synchronous standby.
const unreplicatedKey = "patchlog.unreplicated"

// onNotice marks the connection if a notice says that its commit is on this server only.
func onNotice(c *pgconn.PgConn, n *pgconn.Notice) {
	if isUnreplicated(n) {
		c.CustomData()[unreplicatedKey] = true
	}
}

// isUnreplicated reports whether a notice says that the server gave up waiting for a
// synchronous standby. The server sends it with the answer to a commit that otherwise
// succeeded, after pg_cancel_backend or a cancel request. Its text and severity depend on
// lc_messages; the SQLSTATE and the name of the server's function do not. If a server does not
// send that name, each notice of the class counts: a false alarm costs one more commit.
func isUnreplicated(n *pgconn.Notice) bool {
	warns := n.SeverityUnlocalized == "WARNING" || n.SeverityUnlocalized == ""
	return warns && (n.Code == "01000" || strings.HasPrefix(n.Code, "57P")) && (n.Routine == "SyncRepWaitForLSN" || n.Routine == "")
}

// effect is what it means that an attempt may have been made.
type effect int

const (
	reads   effect = iota // nothing: it can be made again
	repeats               // it can be made again, but if none is answered it may have taken place
	writes                // it must not be made again
)

// How often an attempt is made.
const (
	conflictTries = 200 // that lost against other transactions
	failureTries  = 4   // that met no server, or lost it
)

// SQLSTATEs that are told apart.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	completionUnknown    = "40003"
	readOnlyTransaction  = "25006"
	uniqueViolation      = "23505"
)

// enter begins a call. A call that has begun ends with leave, and Close waits for it.
func (b *Backend) enter(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.calls.Add(1)
	return nil
}

func (b *Backend) leave() { b.calls.Done() }

// call is a whole call with one piece of work.
func (b *Backend) call(ctx context.Context, e effect, work func(ctx context.Context, c *pgx.Conn) error) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.leave()
	return b.attempt(ctx, e, work)
}

// attempt does work on a connection, and again as long as that is of use. work makes one
// transaction, returns the errors of the driver as they are, and nil for every outcome that
// is an answer.
func (b *Backend) attempt(ctx context.Context, e effect, work func(ctx context.Context, c *pgx.Conn) error) error {
	open := false // whether one that is not known to have failed came before
	ends := func(err error) error {
		if open && e == repeats {
			return &backend.UnknownError{Cause: err}
		}
		return err
	}
	for n := 1; ; n++ {
		sent, late, err := b.once(ctx, work)
		if err == nil {
			return nil
		}
		tries := failureTries
		switch v := judge(sent, err); {
		case v == refused:
			return ends(err)
		case v == conflict:
			tries = conflictTries
		case v == unprepared:
			b.stopPreparing(err)
			n--
			continue
		case v == moved:
			b.pool.Reset()
		case v == unknown && (e == writes || late || ctx.Err() != nil || n >= tries):
			err = why(ctx, late, err)
			if e == reads {
				return err
			}
			return &backend.UnknownError{Cause: err}
		case v == unknown:
			open = true
		}
		if n >= tries || late || ctx.Err() != nil {
			return ends(why(ctx, late, err))
		}
		pause := time.Millisecond << min(n, 6)
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return ends(ctx.Err())
		}
	}
}

// attemptWaiting is attempt for work that waits for a session's row as long as another
// transaction has it. Only some of the connections are for such work: sessions that are held
// up hold up no others.
func (b *Backend) attemptWaiting(ctx context.Context, e effect, work func(ctx context.Context, c *pgx.Conn) error) error {
	late := time.NewTimer(b.opts.StatementTimeout)
	defer late.Stop()
	select {
	case b.waiters <- struct{}{}:
		defer func() { <-b.waiters }()
		return b.attempt(ctx, e, work)
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return fmt.Errorf("%w: %d calls wait for sessions that other transactions have locked", ErrNoAnswer, cap(b.waiters))
	}
}

// why is the error of an attempt that is not followed by another. The context's is part of
// it if the context has ended.
func why(ctx context.Context, late bool, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	case late: // which is not the context's doing
		return fmt.Errorf("%w: %v", ErrNoAnswer, err)
	}
	return err
}

// once makes one attempt. sent reports whether it got as far as a connection, and late
// whether it took too long.
func (b *Backend) once(ctx context.Context, work func(ctx context.Context, c *pgx.Conn) error) (sent, late bool, err error) {
	waiting, stop := context.WithTimeout(ctx, b.opts.StatementTimeout)
	defer stop()
	c, err := b.pool.Acquire(waiting)
	if err != nil {
		return false, waiting.Err() != nil, err
	}
	defer func() {
		// The driver takes up to 15 seconds to say goodbye on a connection that it gave up.
		// Nobody is to wait for that: neither for its place nor for the pool's end.
		if c.Conn().IsClosed() {
			c.Hijack()
		} else {
			c.Release()
		}
	}()
	working, stop := context.WithTimeout(ctx, b.opts.StatementTimeout)
	defer stop()
	marks := c.Conn().PgConn().CustomData()
	delete(marks, unreplicatedKey)
	if err = work(working, c.Conn()); err == nil && marks[unreplicatedKey] != nil {
		err = errUnreplicated // which leaves the outcome unknown
	}
	return true, err != nil && working.Err() != nil, err
}

// verdict is what an error says about its attempt.
type verdict int

const (
	refused    verdict = iota // the server says that it did nothing, and would again
	conflict                  // it did nothing, since another transaction was in the way
	moved                     // it did nothing, since the server does not take writes any more
	unprepared                // it did nothing, and has to be sent in another way
	failed                    // it did not reach the server
	unknown                   // nobody says whether it took place
)

func judge(sent bool, err error) verdict {
	var server *pgconn.PgError
	// The driver says of a connection that ended while it waited for the answer to a simple query,
	// such as a COMMIT, that it was closed before, and that it is safe to retry. It is not.
	safe := pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed)
	switch {
	case !sent || safe:
		return failed
	case isUnprepared(err):
		return unprepared
	case isOutdated(err):
		return failed
	case !errors.As(err, &server):
		if unsent(err) {
			return failed
		}
		return unknown
	case server.Code == serializationFailure || server.Code == deadlockDetected:
		return conflict
	case server.Code == readOnlyTransaction:
		return moved
	// A server that shuts down while a commit waits for its standby, or a pooler whose
	// server is gone, answers with an error though the commit took place.
	case server.Severity != "ERROR" && server.SeverityUnlocalized != "ERROR",
		server.Code == completionUnknown, strings.HasPrefix(server.Code, "08"), strings.HasPrefix(server.Code, "57P"):
		if unsent(err) {
			return failed
		}
		return unknown
	}
	return refused
}

// secondOf sends two statements in one transaction and one round trip, and scans what the
// second one returns.
func secondOf(ctx context.Context, c *pgx.Conn, batch *pgx.Batch, scan func(pgx.Rows) error) error {
	results := c.SendBatch(ctx, batch)
	_, err := results.Exec()
	if err == nil {
		var rows pgx.Rows
		if rows, err = results.Query(); err == nil {
			err = scan(rows)
		}
	}
	return first(err, results.Close())
}

// violates reports whether the error is that of a row that is there already, and of which
// table.
func violates(err error) (table, constraint string, ok bool) {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == uniqueViolation {
		return server.TableName, server.ConstraintName, true
	}
	return "", "", false
}
