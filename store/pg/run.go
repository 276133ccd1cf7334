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

// ErrNoAnswer reports that the server did not answer within [Options.StatementTimeout].
var ErrNoAnswer = errors.New("no answer from the server in time")

// errUnreplicated reports that the server stopped waiting for a synchronous standby.
var errUnreplicated = errors.New("the commit is on this server, but its wait for a synchronous standby was cancelled: a failover may lose it")

// unreplicatedKey is a key in a connection's custom data. onNotice sets it if the server has stopped waiting for a
// synchronous standby.
const unreplicatedKey = "patchlog.unreplicated"

// onNotice sets unreplicatedKey if the notice reports that a commit was not replicated.
func onNotice(c *pgconn.PgConn, n *pgconn.Notice) {
	if isUnreplicated(n) {
		c.CustomData()[unreplicatedKey] = true
	}
}

// isUnreplicated reports whether a notice means that the server stopped waiting for a synchronous standby. After
// pg_cancel_backend or a cancel request, the server sends this notice with the answer to an otherwise successful
// commit. The text and the severity of the notice depend on lc_messages, but the SQLSTATE and the name of the
// server's function are constant. If the notice lacks the function's name, the SQLSTATE alone decides. A false
// positive costs one additional commit.
func isUnreplicated(n *pgconn.Notice) bool {
	warns := n.SeverityUnlocalized == "WARNING" || n.SeverityUnlocalized == ""
	return warns && (n.Code == "01000" || strings.HasPrefix(n.Code, "57P")) && (n.Routine == "SyncRepWaitForLSN" || n.Routine == "")
}

// effect tells whether an attempt with an unknown outcome may be repeated.
type effect int

const (
	reads   effect = iota // the work writes nothing and may be repeated
	repeats               // the work is idempotent and may be repeated; if all repetitions fail, the outcome is unknown
	writes                // the work must not be repeated
)

// Limits on the number of attempts
const (
	conflictTries = 200 // after conflicts between transactions
	failureTries  = 4   // after connection failures
)

// SQLSTATE codes
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	completionUnknown    = "40003"
	readOnlyTransaction  = "25006"
	uniqueViolation      = "23505"
)

// enter registers a call that uses the pool. The caller must call b.calls.Done when it no longer uses the pool.
// enter fails if the backend is closed or ctx has ended.
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

// attempt runs work on a connection, and repeats it after conflicts and connection failures. The function work executes
// one transaction and returns the driver's errors unchanged. If the transaction changes nothing, for example because a
// token is outdated, work returns nil and reports this result through a variable of attempt's caller.
func (b *Backend) attempt(ctx context.Context, e effect, work func(ctx context.Context, c *pgx.Conn) error) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.calls.Done()
	open := false // whether the outcome of an earlier attempt is unknown
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

// attemptWaiting is like attempt, for work that may wait for a row lock. Such work uses at most half of the
// connections, so that locked sessions do not block calls for other sessions.
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

// why returns the error to report for the last attempt. If the context has ended, the error matches the context's
// error. Otherwise the error matches ErrNoAnswer if late is set.
func why(ctx context.Context, late bool, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	case late:
		return fmt.Errorf("%w: %v", ErrNoAnswer, err)
	}
	return err
}

// once makes one attempt. sent reports whether the attempt got a connection. late reports whether it exceeded
// StatementTimeout.
func (b *Backend) once(ctx context.Context, work func(ctx context.Context, c *pgx.Conn) error) (sent, late bool, err error) {
	waiting, stop := context.WithTimeout(ctx, b.opts.StatementTimeout)
	defer stop()
	c, err := b.pool.Acquire(waiting)
	if err != nil {
		return false, waiting.Err() != nil, err
	}
	defer func() {
		// The driver takes up to 15 seconds to close a broken connection. A hijacked connection does not count towards
		// the pool's limit, and closing the pool does not wait for it.
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
		err = errUnreplicated // the commit succeeded, but a failover may lose it
	}
	return true, err != nil && working.Err() != nil, err
}

// verdict is the class of an attempt's error.
type verdict int

const (
	refused    verdict = iota // not committed, and another attempt would fail too
	conflict                  // not committed, because of a concurrent transaction
	moved                     // not committed, because the server has become read-only
	unprepared                // not committed, because the prepared statement is missing
	failed                    // not executed by the server
	unknown                   // possibly committed
)

func judge(sent bool, err error) verdict {
	var server *pgconn.PgError
	// If a connection ends while the driver waits for the answer to a simple query, such as a COMMIT, the driver
	// returns ErrConnClosed. SafeToRetry then reports true although the server may have executed the COMMIT.
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
	// These errors do not tell whether the transaction was committed. The server may have shut down while a commit
	// waited for its standby, or a pooler may have lost its server connection.
	case server.Severity != "ERROR" && server.SeverityUnlocalized != "ERROR",
		server.Code == completionUnknown, strings.HasPrefix(server.Code, "08"), strings.HasPrefix(server.Code, "57P"):
		if unsent(err) {
			return failed
		}
		return unknown
	}
	return refused
}

// violates reports whether the error is a unique violation, and returns the table and the constraint.
func violates(err error) (table, constraint string, ok bool) {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == uniqueViolation {
		return server.TableName, server.ConstraintName, true
	}
	return "", "", false
}
