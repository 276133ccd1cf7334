package adk_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgtest.Options{NoSync: true})) }

// postgres is a backend that two stores share, as two processes would. They take turns.
func postgres(t *testing.T) opener {
	open := newSchema(t)
	var stores [2]*store.Store
	turn := 0
	return func(t *testing.T) *store.Store {
		turn = 1 - turn
		if stores[turn] == nil {
			stores[turn] = opened(t)(open())
		}
		return stores[turn]
	}
}

var schemasMade atomic.Int64

// newSchema is a storage on the server that all tests share.
func newSchema(t *testing.T) storage {
	t.Helper()
	dsn := pgtest.Common(t).DSN("postgres") + " synchronous_commit=off"
	schema := fmt.Sprint("test", schemasMade.Add(1))
	return func() (*store.Store, error) {
		return pg.Open(t.Context(), dsn, store.Options{}, pg.Options{Schema: schema})
	}
}
