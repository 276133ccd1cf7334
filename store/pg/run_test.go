package pg_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// If the outcome of the first attempt is unknown and a later attempt fails in any way, the call returns
// ErrUnknown.
func TestRepeatedWorkMayHaveTakenPlace(t *testing.T) {
	b := open(t, pgtest.New(t), pg.Options{})
	refused := &pgconn.PgError{Severity: "ERROR", Code: "23505"}
	for name, later := range map[string]func(stop func()) error{
		"refused":   func(func()) error { return refused },
		"cancelled": func(stop func()) error { stop(); return refused },
		"lost":      func(func()) error { return io.ErrUnexpectedEOF },
		"done":      func(func()) error { return nil },
	} {
		within, stop := context.WithCancel(ctx)
		tries := 0
		err := b.Repeat(within, func(context.Context, *pgx.Conn) error {
			if tries++; tries == 1 {
				return io.ErrUnexpectedEOF
			}
			return later(stop)
		})
		stop()
		if unknown := errors.Is(err, backend.ErrUnknown); unknown != (name != "done") || tries < 2 {
			t.Errorf("%s: after %d attempts %v", name, tries, err)
		}
		err = b.Repeat(ctx, func(context.Context, *pgx.Conn) error { return refused })
		if !errors.Is(err, refused) || errors.Is(err, backend.ErrUnknown) {
			t.Errorf("refused at once: %v", err)
		}
	}
}
