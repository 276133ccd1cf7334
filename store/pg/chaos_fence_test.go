package pg_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/fuzz/linear"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// If a connection is lost while an append waits in the server, the server executes the append later. The store must
// still report the append's correct result.
func TestFenceWhileServerWaits(t *testing.T) { cutWhileServerWaits(t, "", 0) }

// Without a fence, the store reports that the append wrote nothing, and the reference model detects the wrong
// result.
func TestFenceControl(t *testing.T) { cutWhileServerWaits(t, "unfenced", 1) }

func cutWhileServerWaits(t *testing.T, flawed string, wanted int) {
	dsn := pgtest.New(t)
	p, through := newProxy(t, dsn)
	p.uncancelled = true
	b := testlog.Must(pg.OpenBackend(ctx, through, patient(pg.Options{})))(t)
	mine := testlog.Must(store.New(flaw(b, flawed), store.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	defer mine.Close()
	other := testlog.Must(pg.Open(ctx, dsn, store.Options{}, patient(pg.Options{})))(t)
	defer other.Close()
	began := time.Now()
	var history linear.History
	see := func(s *store.Store, c ops.Op) {
		c.App, c.Session = chaosName, "s"
		from := time.Since(began).Nanoseconds()
		r := (&ops.Local{Store: s}).Call(c)
		history = append(history, linear.Call{Op: c, Reply: r, From: from, To: time.Since(began).Nanoseconds()})
		t.Log(history[len(history)-1])
	}
	see(mine, ops.Op{Kind: ops.Create})
	see(mine, ops.Op{Kind: ops.Append, IDs: []string{"a"}})

	release := holdBy(t, dsn, "SELECT num FROM patchlog.sessions FOR UPDATE")
	done := make(chan struct{})
	go func() {
		defer close(done)
		see(mine, ops.Op{Kind: ops.Append, IDs: []string{"x"}})
	}()
	waitFor(t, dsn, waitingForLock)
	p.cut()
	if flawed == "" {
		waitFor(t, dsn, strings.Replace(waitingForLock, "count(*)", "count(*) / 2", 1)) // the fence's transaction waits too
	} else {
		<-done // the call returns, because its backend has no fence
	}
	release()
	<-done
	waitFor(t, dsn, noneWaits)
	see(other, ops.Op{Kind: ops.Get})
	if violations := history.Judge(linear.Options{Faults: true}); len(violations) != wanted {
		t.Errorf("%d violations, want %d: %v", len(violations), wanted, violations)
	}
}
