package bolt_test

import (
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// If a session is cached, the number and the length of the rows that a call reads do not depend on the length of the
// log, the initial state, the last record, the shared values or the number of sessions.
func TestRowsRead(t *testing.T) {
	const prefix = "app\x00\x01"
	type sizes struct{ log, meta, last, shared, others int }
	small := sizes{10, 10, 10, 1, 1}
	measure := func(t *testing.T, size sizes) map[string][2]int {
		b, _ := openWithSession(t)
		defer b.Close()
		last := uint64(0)
		create := backend.Batch{Creation: "c", Create: true, Next: 7, Meta: make([]byte, size.meta)}
		for i := range size.shared {
			create.Shared = append(create.Shared, backend.Value{Name: fmt.Sprint(prefix, "app:", i), Data: []byte("x")})
		}
		testlog.NoError(t, b.Append(ctx, "s", create))
		add := func(n, bytes int) error {
			batch := backend.Batch{Creation: "c", ExpectedLast: last, ExpectedToken: 7, Next: 7, RequireFreeIDs: true}
			for range n {
				last++
				batch.Records = append(batch.Records, backend.Record{Seq: last, IDs: []string{idOf(last)}, Data: make([]byte, bytes)})
			}
			return b.Append(ctx, "s", batch)
		}
		for i := range size.others {
			testlog.NoError(t, b.Append(ctx, fmt.Sprint("t", i), backend.Batch{Creation: "o", Create: true, Records: []backend.Record{record(1)}}))
		}
		testlog.NoError(t, add(size.log, 10))
		testlog.NoError(t, add(1, size.last))
		fetched := testlog.Must(b.Fetch(ctx, backend.Query{Session: "s", Creation: "c", After: last, Shared: []string{prefix}}))(t)
		out := map[string][2]int{}
		count := func(what string, call func() error) {
			var cost [2]int
			defer bolt.OnRow(func(bytes int) { cost[0]++; cost[1] += bytes })()
			testlog.NoError(t, call())
			out[what] = cost
		}
		count("Fetch", func() error {
			second, err := b.Fetch(ctx, backend.Query{Session: "s", Creation: "c", After: last, Shared: []string{prefix}, KnownVersions: fetched.Versions})
			testlog.Equal(t, "values", len(second.Shared[0]), 0)
			return err
		})
		count("Fetch without meta", func() error { return testlog.ErrorOf(b.Fetch(ctx, backend.Query{Session: "s", NoMeta: true})) })
		count("Append", func() error { return add(1, 10) })
		count("Lookup", func() error { return testlog.ErrorOf(b.Lookup(ctx, "s", "c", []string{idOf(1)})) })
		count("Delete", func() error { return b.Delete(ctx, "t0", "o", nil) })
		return out
	}
	want := measure(t, small)
	for what, size := range map[string]sizes{
		"log": {3000, 10, 10, 1, 1}, "initial state": {10, 1 << 20, 10, 1, 1}, "last record": {10, 10, 1 << 20, 1, 1},
		"shared values": {10, 10, 10, 500, 1}, "other sessions": {10, 10, 10, 1, 500},
	} {
		for call, got := range measure(t, size) {
			if got != want[call] {
				t.Errorf("%s with a large %s reads %d rows of %d bytes, and else %d of %d", call, what, got[0], got[1], want[call][0], want[call][1])
			}
		}
	}
	if fetch := want["Fetch"]; fetch[0] != 2 { // Fetch reads the head and the version of the scope
		t.Errorf("a Fetch of what has not changed reads %d rows", fetch[0])
	}
}
