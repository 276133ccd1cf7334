package store_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var eraseSelection = store.EraseSelection{Match: "secret"}

// eraseUntilKilled erases what the test has put into a file.
func eraseUntilKilled(path string) error {
	s, err := store.Open(path, store.Options{LockTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	if _, err = s.Erase(ctx, key, eraseSelection, store.EraseOptions{ID: "receipt"}); err != nil {
		return err
	}
	return s.Close()
}

// A process that is killed while it erases leaves a whole log, which says that the erasing is
// not finished, or not begun; once more finishes it, with one receipt.
func TestKilledErasing(t *testing.T) {
	const events = 1200
	fork := key
	fork.Session = "fork"
	path := filepath.Join(t.TempDir(), "log.db")
	open := func() *store.Store {
		t.Helper()
		s := openStore(t, path, store.Options{LockTimeout: 5 * time.Second})
		return s
	}
	s := open()
	var all []*patch.Event
	for i := range events {
		text := "secret "
		if i%60 == 59 {
			text = "kept "
		}
		all = append(all, said(t, fmt.Sprint("e", i), fmt.Sprint(text, i)))
	}
	createWith(t, s, key, all...)
	summaries := 0
	summarise := func(n, count int) {
		for i := range n {
			p := patch.NewSummarise(i, count, said(t, fmt.Sprint("s", summaries), "secret"))
			must(t)(s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, p))
			summaries++
		}
	}
	summarise(events/60, 60)
	summarise(events/300, 5)
	must(t)(s.Fork(ctx, key, fork, store.ForkOptions{}))
	no(t, s.Close())
	killed := 0
	for most := 20 * time.Millisecond; ; most += most / 2 {
		cmd := child(t, "erase", path)
		no(t, cmd.Start())
		kill := time.AfterFunc(rand.N(most), func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		s := open()
		left := 0
		for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
			no(t, err)
			if r, err := s.Receipts(ctx, p.Key); err != nil || len(r) != 1 || r[0].Seq != p.Seq {
				t.Errorf("after %d kills: %v", killed, p)
			}
			left++
		}
		if err == nil && left > 0 {
			t.Errorf("erased, and %d erasings are not finished", left)
		}
		for _, k := range []store.Key{key, fork} {
			if r, receiptsErr := s.Receipts(ctx, k); receiptsErr != nil || len(r) > 1 || err == nil && len(r) != 1 {
				t.Errorf("after %d kills %s has the receipts %v, %v", killed, k, r, receiptsErr)
			}
			v, viewErr := s.View(ctx, k)
			if viewErr != nil || err == nil && (v.Len() != events || v.Seq() != uint64(events+2*summaries+1)) {
				t.Errorf("erased, and %s has %d visible events of %d records, %v", k, v.Len(), v.Seq(), viewErr)
			}
			if got := has(t, s, k, "secret"); err == nil && len(got) > 0 {
				t.Errorf("erased, and %s has %d records with it", k, len(got))
			}
		}
		if closeErr := s.Close(); closeErr != nil {
			t.Fatal(closeErr)
		}
		if err == nil {
			break
		}
		killed++
	}
	t.Logf("killed %d times", killed)
}
