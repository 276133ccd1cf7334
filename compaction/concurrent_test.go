package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// contextRecorder is a slow summarizer. Each answer identifies its request, and shown has the events of each request.
type contextRecorder struct {
	mu    sync.Mutex
	shown map[string][]string // event ids by answer
	slow  time.Duration       // maximum delay
}

func (s *contextRecorder) Summarize(_ context.Context, r compaction.Request) (compaction.Response, error) {
	s.mu.Lock()
	if s.shown == nil {
		s.shown = map[string][]string{}
	}
	text := fmt.Sprintf("s%d", len(s.shown))
	for _, e := range r.Events {
		s.shown[text] = append(s.shown[text], e.ID())
	}
	s.mu.Unlock()
	if s.slow > 0 {
		time.Sleep(rand.N(s.slow))
	}
	return says(text), nil
}

// judgeLog compares every patch of the compactor in the raw log with the request to the summarizer that it came from.
// It returns the number of these patches.
func judgeLog(t *testing.T, st *store.Store, k store.Key, by *contextRecorder) (patches int) {
	t.Helper()
	v := fold.New("", nil)
	for r, err := range st.RawEvents(context.Background(), k, 1) {
		testlog.NoError(t, err)
		next := testlog.Must(v.Apply(r))(t)
		if r.Patch != nil && r.Patch.Author() == "compaction" {
			patches++
			var gone, shown []string
			covered := map[string]*patch.Event{}
			for i := r.Patch.Start(); i < r.Patch.Start()+r.Patch.Count(); i++ {
				gone = append(gone, v.At(i).ID())
				covered[v.At(i).ID()] = v.At(i)
			}
			for _, s := range r.Patch.NewEvents() {
				// If the summary of a large window is short, the compactor appends a part that begins with "Also:".
				text, _, _ := strings.Cut(testlog.FirstText(s), "\nAlso:")
				if saw, asked := by.shown[text]; asked {
					shown = append(shown, saw...)
					continue
				}
				for _, id := range gone { // a summary without a request must quote the events
					if strings.Contains(text, strings.TrimSpace(testlog.FirstText(covered[id]))) {
						shown = append(shown, id)
					}
				}
			}
			if !slices.Equal(gone, shown) {
				t.Errorf("record %d hides %v, its summary saw %v", r.Seq, gone, shown)
			}
		}
		v = next
	}
	if v.SkippedCount() > 0 {
		t.Errorf("%d patches do not apply", v.SkippedCount())
	}
	return patches
}

// Several goroutines append to one session, patch it by hand and compact it. They stop after summaries, conflicts and
// patches by hand have all occurred.
func TestConcurrentOnOneSession(t *testing.T) {
	rounds := 2000
	if testing.Short() {
		rounds = 400
	}
	s := newSession(t, "")
	by := &contextRecorder{slow: 200 * time.Microsecond}
	cfg := every(3, 1, by)
	cfg.Limits().Summaries = 3
	compactors := []*compaction.Compactor[store.Key]{s.compactor(cfg), s.compactor(cfg)}

	var appended, byHand atomic.Int64
	var others, appenders sync.WaitGroup
	stop := make(chan struct{})
	loop := func(f func()) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	counted := func() (wrote, conflicts uint64) {
		for _, c := range compactors {
			wrote, conflicts = wrote+c.Stats()[compaction.Wrote], conflicts+c.Stats()[compaction.Conflict]
		}
		return wrote, conflicts
	}
	atStake := func() bool {
		wrote, conflicts := counted()
		return wrote > 0 && conflicts > 0 && byHand.Load() > 0
	}
	for range 2 {
		appenders.Go(func() {
			for i := range 10 * rounds {
				if i >= rounds/2 {
					if atStake() {
						return
					}
					time.Sleep(time.Millisecond)
				}
				n := appended.Add(1)
				e := testlog.EventOf(t, event{
					"id": fmt.Sprintf("e%d", n), "author": "user", "invocationId": fmt.Sprintf("inv%d", n/2),
					"content": textOf("user", strings.Repeat("abc ", 10)),
				})
				if _, err := s.store.AppendEvents(t.Context(), key, []*patch.Event{e}, store.AppendOptions{}); err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	loop(func() {
		v := s.view()
		if v.Len() < 4 {
			return
		}
		p := patch.NewSplice(rand.N(v.Len()-1), 1).WithState(patch.Keep)
		switch _, err := s.store.ApplyPatch(t.Context(), key, []*patch.PatchEvent{p}, store.PatchOptions{On: v}); {
		case err == nil:
			byHand.Add(1)
		case !errors.Is(err, store.ErrConflict):
			t.Errorf("patch: %v", err)
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	})
	for _, c := range compactors {
		loop(func() {
			if _, err := c.MaybeCompact(t.Context(), key); err != nil {
				t.Errorf("MaybeCompact: %v", err)
			}
		})
	}
	appenders.Wait()
	close(stop)
	others.Wait()

	wrote, conflicts := counted()
	patches := judgeLog(t, s.store, key, by)
	if uint64(patches) != wrote {
		t.Errorf("%d patches are logged, %d are said to be", patches, wrote)
	}
	if records := int64(s.view().Seq()); records != appended.Load()+byHand.Load()+int64(patches) {
		t.Errorf("%d records for %d events, %d patches by hand, and %d of compaction", records, appended.Load(), byHand.Load(), patches)
	}
	if !atStake() {
		t.Errorf("%d summaries, %d conflicts, %d patches by hand: nothing was at stake", wrote, conflicts, byHand.Load())
	}
	t.Logf("%d summaries, %d conflicts, %d patches by hand", wrote, conflicts, byHand.Load())
}
