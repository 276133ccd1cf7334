// Package linear checks that stores are linearizable. A history is linearizable if there is an order of the clients'
// operations that explains all replies. In this order, each operation takes effect between its start and its end.
// [Check] checks a store on a backend. A [Load] generates the operations, and [History.Judge] searches for the
// order. The following command runs 1,048,000 operations on bbolt and as many in memory. If the package is
// ./store/pg instead, the command runs them on PostgreSQL.
//
//	go test ./internal/fuzz/linear -run 'TestLinearizable$' -timeout 0 -rounds 250 -v
package linear

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/fuzz/long"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Check runs 64 goroutines that call stores, and checks the history of their calls. Each round calls the function
// open for backends that share their sessions. The stores close the backends. A round has 4,192 calls. In every
// other round, all goroutines use the same few sessions at a time. Check runs the number of rounds given by the
// flags of package long, or else few rounds.
func Check(t *testing.T, few int, open func(round int) []backend.Backend) {
	t.Helper()
	for r := range long.Rounds(t, few) {
		var callers []ops.Caller
		for i, b := range open(r.N) {
			callers = append(callers, newLocal(t, b, i, []int64{0, 1 << 16, -1}[r.N/4%3]))
		}
		l := &Load{Callers: callers, Clients: 64, Apps: 8, Calls: 64, Forks: true, Leases: true,
			Name: fmt.Sprint(r.N), Seed: r.Random.Uint64(), OneAppAtATime: r.N%2 == 1}
		l.Run()
		h := l.End(callers[0])
		for _, e := range h {
			r.Count("calls", 1)
			if e.Outcome == ops.Done {
				r.Count(string(e.Kind), 1)
			}
		}
		for _, violation := range h.Judge(Options{}) {
			t.Error(violation)
		}
		testlog.Must(ops.Audit(context.Background(), callers[0].(*ops.Local).Store))(t)
		for _, c := range callers {
			testlog.NoError(t, c.(*ops.Local).Store.Close())
		}
	}
}

// newLocal opens a store on a backend. Several stores may share the sessions of the backend.
func newLocal(t testing.TB, b backend.Backend, owner int, cacheBytes int64) *ops.Local {
	t.Helper()
	s := testlog.Must(store.New(b, store.Options{Logger: slog.New(slog.DiscardHandler), Snapshots: snapshot.Policy{Every: 16}, CacheBytes: cacheBytes}))(t)
	t.Cleanup(func() { _ = s.Close() })
	return &ops.Local{Store: s, Owner: owner}
}
