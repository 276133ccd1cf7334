package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// appendUntilKilled appends from several goroutines, and says of each event that it will
// try it and that it was acknowledged.
func appendUntilKilled(path string) error {
	s, err := store.Open(path, store.Options{LockTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	if _, err := s.Create(ctx, key, nil); err != nil && !errors.Is(err, store.ErrExists) {
		return err
	}
	var mu sync.Mutex // lines whole
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(line)
	}
	together(4, func(i int) {
		for k := 0; err == nil; k++ {
			id := fmt.Sprint(os.Getpid(), "-", i, "-", k)
			say("try " + id)
			_, appendErr := s.AppendEvents(ctx, key, store.AppendOptions{}, crashEvents(id)...)
			if appendErr != nil {
				say("error " + appendErr.Error())
				return
			}
			say("ack " + id)
		}
	})
	return err
}

// crashEvents are what one try appends: two events, so that half of it would show.
func crashEvents(id string) []*patch.Event {
	return []*patch.Event{event(`{"id":"%s","content":{"parts":[{"text":"%0300d"}]}}`, id, len(id)), event(`{"id":"%s-b"}`, id)}
}

// A process that is killed has lost nothing that it acknowledged, and whoever tries
// again what it did not lands it once.
func TestKilled(t *testing.T) {
	const kills = 10
	path := filepath.Join(t.TempDir(), "log.db")
	tried, acknowledged := []string{}, map[string]bool{}
	acks := 0
	for range kills {
		cmd := child(t, "append", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		first, err := lines.ReadString('\n') // it is at work
		time.AfterFunc(time.Duration(rand.IntN(50))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		for line := first; err == nil; line, err = lines.ReadString('\n') {
			word, id, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			switch word {
			case "try":
				tried = append(tried, id)
			case "ack":
				acknowledged[id] = true
				acks++
			default:
				t.Errorf("the process says %q", line)
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		checkAfterKill(t, path, tried, acknowledged)
	}
	if acks == 0 {
		t.Error("nothing was acknowledged; the test tests nothing")
	}
	t.Logf("%d tries, %d acknowledged", len(tried), acks)
}

func checkAfterKill(t *testing.T, path string, tried []string, acknowledged map[string]bool) {
	t.Helper()
	s, err := store.Open(path, store.Options{LockTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s}
	there := map[string]int{}
	for _, r := range e.records(key) {
		there[r.ID()]++
	}
	for _, id := range tried {
		switch a, b := there[id], there[id+"-b"]; {
		case acknowledged[id] && a == 0:
			t.Errorf("%s was acknowledged and is lost", id)
		case a != b || a > 1:
			t.Errorf("%s is there %d times, its second event %d times", id, a, b)
		}
		if _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, crashEvents(id)...); err != nil {
			t.Errorf("retry of %s: %v", id, err)
		}
		acknowledged[id] = true // now
	}
	if n := len(e.records(key)); n != 2*len(tried) {
		t.Errorf("%d records after all retries, want %d", n, 2*len(tried))
	}
	e.no(s.Close())
	b := openBoltAt(t, path)
	if err := check(b); err != nil {
		t.Errorf("the file is damaged: %v", err)
	}
	e.no(b.Close())
}

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
