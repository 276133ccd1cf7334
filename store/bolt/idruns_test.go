package bolt_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
)

func idOf(seq uint64) string { return fmt.Sprint("id ", seq) }

// Ids are found in logs of any length, also after reopening the file and after a vacuum. The first look-up in a long
// log reads few rows.
func TestIDsOfLongLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b, path := openWithSession(t)
	testlog.NoError(t, b.Append(ctx, "s", backend.Batch{Creation: "c", Create: true, Next: 7}))
	last := uint64(0)
	grow := func(n int) {
		t.Helper()
		batch := backend.Batch{Creation: "c", ExpectedLast: last, ExpectedToken: 7, Next: 7, RequireFreeIDs: rng.IntN(2) == 0}
		for range n {
			last++
			batch.Records = append(batch.Records, backend.Record{Seq: last, IDs: []string{idOf(last)}, Data: []byte("x")})
		}
		testlog.NoError(t, b.Append(ctx, "s", batch))
	}
	check := func(what string) {
		t.Helper()
		seqsToFind := []uint64{1, last, last + 1, last + 99999}
		for range 200 {
			seqsToFind = append(seqsToFind, 1+rng.Uint64N(last))
		}
		var ids []string
		for _, seq := range seqsToFind {
			ids = append(ids, idOf(seq))
		}
		seqs := testlog.Must(b.Lookup(ctx, "s", "c", ids))(t)
		for i, seq := range seqsToFind {
			if want := seq; seqs[i] != want && (seq <= last || seqs[i] != 0) {
				t.Fatalf("%s: %d records: Lookup of %q: %d", what, last, ids[i], seqs[i])
			}
		}
		one := backend.Record{Seq: last + 1, IDs: []string{ids[10]}, Data: []byte("x")}
		err := b.Append(ctx, "s", backend.Batch{Creation: "c", ExpectedLast: last, ExpectedToken: 7, Next: 7, RequireFreeIDs: true, Records: []backend.Record{one}})
		testlog.ErrorIs(t, err, backend.ErrTaken, what)
	}
	for _, n := range []int{1, 510, 1, 1, 511, 512, 513, 1024, 3000, 20_000, 2, 40_000} {
		grow(n)
		check("in use")
		testlog.NoError(t, b.Close())
		b = open(t, path)
		grow(1)
		if rows := b.IDRowsRead(); rows > 600 {
			t.Errorf("the first append to a log of %d records reads the ids of %d rows", last, rows)
		}
		check("opened anew")
	}
	testlog.NoError(t, b.Check(ctx))
	testlog.NoError(t, b.Vacuum(ctx, func([]byte) uint32 { return 0 }))
	check("after a vacuum")
	grow(5000)
	check("after a vacuum")
	testlog.NoError(t, b.InTx(func(tx *bbolt.Tx) {
		if s := tx.Bucket([]byte("ids")).Stats(); os.Getpagesize() == 4096 && s.LeafInuse*10 < s.LeafAlloc*9 {
			t.Errorf("the rows of ids fill %d of %d bytes of their pages", s.LeafInuse, s.LeafAlloc)
		}
	}))
	closeAndCheck(t, b, path)
}
