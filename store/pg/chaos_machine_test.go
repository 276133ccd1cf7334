package pg_test

import (
	"flag"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/fuzz/machine"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// checks sets the number of random inputs with which a property is tested. A flag can set another number:
//
//	go test -run TestMachine -rapid.checks=2000 -timeout=2h
func checks(t *testing.T, n, short int) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if given {
		return
	}
	if testing.Short() {
		n = short
	}
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	t.Cleanup(func() { _ = f.Value.Set(before) })
	testlog.NoError(t, f.Value.Set(fmt.Sprint(n)))
}

// Two or three stores on one schema, a store on bbolt and the reference model execute the same random operations.
// All answers and intermediate states must equal the model's.
func TestMachine(t *testing.T) {
	t.Parallel()
	for _, peers := range []int{2, 3} {
		t.Run(fmt.Sprint(peers, " peers"), func(t *testing.T) {
			checks(t, 6, 2)
			dsn := pgtest.New(t)
			machine.Check(t, func(t *rapid.T) []backend.Backend {
				var all []backend.Backend
				for range peers {
					b := testlog.Must(pg.OpenBackend(ctx, dsn, patient(pg.Options{MaxConns: 4})))(t)
					all = append(all, b)
				}
				return all
			})
		})
	}
}
