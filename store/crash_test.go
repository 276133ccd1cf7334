package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// appendAndRetry writes a log, trying again whatever fails, and then reads it. It says
// how often a call failed.
func appendAndRetry(path string) error {
	failures := 0
	again := func(call func() error, fine ...error) error {
		for try := 0; ; try++ {
			err := call()
			for _, f := range fine {
				if errors.Is(err, f) && try > 0 {
					err = nil
				}
			}
			if err == nil {
				return nil
			}
			if failures++; try == 4 {
				return err
			}
		}
	}
	var s *store.Store
	open := func() (err error) {
		s, err = store.Open(path, store.Options{})
		return err
	}
	other := store.Key{App: "a", User: "u", Session: "other"}
	err := errors.Join(
		again(open),
		again(func() error { _, err := s.Create(ctx, key, nil); return err }, store.ErrExists),
		again(func() error { _, err := s.Create(ctx, other, nil); return err }, store.ErrExists),
	)
	if err != nil {
		return err
	}
	want := ""
	for i := range 4 {
		id := fmt.Sprint("e", i)
		want += id + " "
		if err := again(func() error {
			_, err := s.AppendEvents(ctx, key, store.AppendOptions{}, say(id))
			return err
		}); err != nil {
			return err
		}
	}
	err = errors.Join(
		again(func() error {
			_, err := s.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 1).WithID("p"))
			return err
		}),
		again(func() error { return s.Delete(ctx, other) }, store.ErrNotFound),
		again(s.Close, store.ErrClosed),
		again(open),
	)
	if err != nil {
		return err
	}
	got := ""
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return err
		}
		got += r.ID() + " "
	}
	if got != want+"p " {
		return fmt.Errorf("records %s, want %sp", got, want)
	}
	if _, err := s.Get(ctx, other); !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("the deleted session: %v", err)
	}
	fmt.Println(failures)
	return s.Close()
}

// Each sync of a file's life fails once: whatever was tried again is there once.
func TestFailingSyncs(t *testing.T) {
	strace := needStrace(t)
	failed := 0
	for n := 1; n <= 18; n++ {
		path := filepath.Join(t.TempDir(), "log.db")
		cmd := tracedChild(t, "retry", path, strace, "-f", "-o", os.DevNull, "-e", "trace=fdatasync",
			"-e", fmt.Sprintf("inject=fdatasync:error=EIO:when=%d", n))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("with sync %d failing: %v\n%s", n, err, out)
		}
		if !strings.HasPrefix(string(out), "0\n") {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no call failed; the test tests nothing")
	}
	t.Logf("calls failed in %d runs", failed)
}
