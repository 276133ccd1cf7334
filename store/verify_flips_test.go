package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store"
)

// Whatever bit of a page's beginning flips, where pages say what they hold: Verify ends,
// does not bring the process down, and finds what can no longer be read.
func TestVerifyFlippedBits(t *testing.T) {
	flips := 200
	if testing.Short() {
		flips = 50
	}
	path := filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s}
	e.create(map[string]any{"tenant": "t1"})
	for i := range 12 {
		e.append(says(fmt.Sprint("a", i, "-"), 10)...)
	}
	e.isHealthy(store.VerifyOptions{})
	e.no(s.Close())
	used, pageSize := int64(0), int64(0)
	makeBolt(t, path, func(tx *bbolt.Tx) error {
		used, pageSize = tx.Size(), int64(tx.DB().Info().PageSize)
		return nil
	})
	data, err := os.ReadFile(path)
	e.no(err)
	data = data[:used]
	rnd := rand.New(rand.NewPCG(5, 6))
	found := 0
	for range flips {
		at, bit := rnd.Int64N(used/pageSize)*pageSize+rnd.Int64N(64), byte(1)<<rnd.IntN(8)
		data[at] ^= bit
		e.no(os.WriteFile(path, data, 0o600))
		data[at] ^= bit
		s, err := store.Open(path, store.Options{LockTimeout: 200 * time.Millisecond})
		if err != nil {
			found++
			continue
		}
		start, problems := time.Now(), 0
		for _, err := range s.Verify(ctx, store.VerifyOptions{}) {
			problems++
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("with bit %#x of byte %d flipped: %v", bit, at, err)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("with bit %#x of byte %d flipped it took %v", bit, at, took)
		}
		if problems > 0 {
			found++
		}
		n := 0
		for _, err := range s.RawEvents(ctx, key, 1) {
			if err == nil {
				n++
			}
		}
		if n < 120 && problems == 0 && !olderMeta(at, pageSize) {
			t.Errorf("with bit %#x of byte %d flipped only %d records can be read, and nothing is found", bit, at, n)
		}
		_ = s.Close()
	}
	if found == 0 {
		t.Error("no flip was found; the test tests nothing")
	}
	t.Logf("of %d flips %d were found", flips, found)
}

// olderMeta reports whether a byte is of one of the two pages that say which state of
// the file is the newest: if one of them cannot be read, the state before is shown, which
// is sound.
func olderMeta(at, pageSize int64) bool { return at < 2*pageSize }
