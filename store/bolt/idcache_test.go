package bolt_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// The backend reads the rows of a session only once, even if the session has more ids than the cache may contain and
// another session is used in between. Later appends read no rows. An id that the session already has is refused. If
// several such sessions are used, the cache is reduced.
func TestAppendToManyIDsReadsRowsOnce(t *testing.T) {
	defer bolt.SetMaxCachedIDs(64)()
	const n = 200
	b, path := openWithSession(t)
	appendOne := func(name string, after uint64, id string) error {
		r := backend.Record{Seq: after + 1, IDs: []string{id}, Data: []byte("x")}
		head := testlog.Must(backend.FetchHead(ctx, b, name))(t)
		return b.Append(ctx, name, backend.Batch{Creation: "c", ExpectedLast: after, ExpectedToken: head.Token, Next: 7, Records: []backend.Record{r}, RequireFreeIDs: true})
	}
	read := func(what string, want int64) {
		t.Helper()
		if rows := b.IDRowsRead(); rows != want {
			t.Errorf("%s: the ids of %d rows were read, want %d", what, rows, want)
		}
	}
	create := func(name string) {
		testlog.NoError(t, b.Append(ctx, name, backend.Batch{Creation: "c", Create: true, Records: []backend.Record{record(1)}}))
	}
	fill := func(name string) {
		for after := range uint64(n - 1) {
			testlog.NoError(t, appendOne(name, after+1, fmt.Sprint("own ", after+2)))
		}
	}
	fill("a")
	testlog.NoError(t, b.Close())
	b = open(t, path)
	testlog.NoError(t, appendOne("a", n, "first"))
	read("the first append", n)
	create("small")
	for after := uint64(n + 1); after < n+20; after++ {
		testlog.NoError(t, appendOne("a", after, fmt.Sprint("own ", after+1)))
		testlog.NoError(t, appendOne("small", after-n, fmt.Sprint("own ", after+1)))
	}
	read("20 appends", n)
	for _, id := range []string{"own 2", "own 100", "first", "own 220"} {
		testlog.ErrorIs(t, appendOne("a", n+20, id), backend.ErrTaken, id)
	}
	seqs, err := b.Lookup(ctx, "a", "c", []string{"own 2", "none", "first", "own 220"})
	if want := []uint64{2, 0, n + 1, n + 20}; err != nil || !slices.Equal(seqs, want) {
		t.Errorf("Lookup: %v, %v, want %v", seqs, err, want)
	}
	create("large")
	fill("large")
	testlog.NoError(t, appendOne("a", n+20, "last"))
	read("an append after those to another large session", n+n+20)
	closeAndCheck(t, b, path)
}
