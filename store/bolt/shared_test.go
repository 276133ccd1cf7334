package bolt_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

func shared(t *testing.T, b *bolt.Backend) map[string]string {
	t.Helper()
	values := testlog.Must(backend.SharedOf(ctx, b, "app/"))(t)
	out := map[string]string{}
	for i, v := range values {
		testlog.NoError(t, v.Err)
		out[v.Name] = string(v.Data)
		clear(values[i].Data) // they are the caller's own
	}
	return out
}

// Whoever reads shared values finds at least those that were acknowledged before.
func TestSharedAfterAWrite(t *testing.T) {
	b, path := openWith(t)
	defer func() { closeAndCheck(t, b, path) }()
	var wg sync.WaitGroup
	done := make(chan struct{})
	read := func() (n uint64) {
		values, err := backend.SharedOf(ctx, b, "app/")
		testlog.WantNil(t, err)
		for _, v := range values {
			n = binary.BigEndian.Uint64(v.Data)
		}
		return n
	}
	for range 4 {
		wg.Go(func() {
			last := uint64(0)
			for {
				select {
				case <-done:
					return
				default:
				}
				n := read()
				if n < last {
					t.Errorf("%d after %d", n, last)
				}
				last = n
			}
		})
	}
	for i := range uint64(500) {
		write := batch(i + 1)
		write.Shared = []backend.Value{{Name: "app/n", Data: binary.BigEndian.AppendUint64(nil, i)}}
		testlog.NoError(t, b.Append(ctx, "a", write))
		if n := read(); n != i {
			t.Fatalf("%d, want %d", n, i)
		}
	}
	close(done)
	wg.Wait()
}

// After a commit of which the outcome is unknown, what is stored is read.
func TestSharedAfterAFailedCommit(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			b, path := openWith(t)
			want := map[string]string{}
			check := func() {
				t.Helper()
				for range 2 {
					if got := shared(t, b); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%v, want %v", got, want)
					}
				}
			}
			write := func(after uint64, value string) error {
				batch := batch(after)
				batch.Shared = []backend.Value{{Name: "app/k", Data: []byte(value)}, {Name: "other", Data: []byte(value)}}
				return b.Append(ctx, "a", batch)
			}
			check()
			testlog.NoError(t, write(1, "one"))
			want["app/k"] = "one"
			check()
			b.SetCommit(func(tx *bbolt.Tx) error {
				check()
				return way.commit(tx)
			})
			if err := write(2, "two"); !errors.Is(err, backend.ErrUnknown) {
				t.Fatal(err)
			}
			b.SetCommit(nil)
			if way.landed {
				want["app/k"] = "two"
			}
			check()
			closeAndCheck(t, b, path)
			testlog.Is(t, testlog.ErrorOf(backend.SharedOf(ctx, b, "app/")), backend.ErrClosed, "after Close")
		})
	}
}
