package inspector

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// The first page of a session with 50 MB of texts adds at most 32 MiB to the heap. The second page allocates at
// most 32 MiB.
func TestLongSessionMemory(t *testing.T) {
	testlog.SkipUnderRace(t)
	if testing.Short() {
		t.Skip("it writes 100,000 events")
	}
	s, path := teststore.File(t, store.Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
	text := strings.Repeat("word ", 100)
	for range 20 {
		var events []*patch.Event
		for n := range 5_000 {
			events = append(events, testlog.Text("", fmt.Sprint(n/10), "user", text))
		}
		testlog.Must(s.AppendEvents(t.Context(), key, events, store.AppendOptions{}))(t)
		hide := patch.NewSplice(0, 4_990)
		testlog.Must(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{hide}, store.PatchOptions{AsOfNow: true}))(t)
	}
	testlog.NoError(t, s.Close())
	s = testlog.Must(store.Open(path, store.Options{}))(t)
	defer s.Close()
	i := testlog.Must(New(s, Options{}))(t)
	heap := func() (kept, allocated uint64) {
		runtime.GC()
		runtime.GC() // frees the pools' memory
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, m.TotalAlloc
	}
	page := func() {
		t.Helper()
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/session?key=a/u/s", nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "of 100000 events") {
			t.Fatalf("status %d: %.300s", w.Code, w.Body)
		}
	}
	before, _ := heap()
	page()
	kept, start := heap()
	page()
	_, end := heap()
	if kept > before+32<<20 || end-start > 32<<20 {
		t.Errorf("kept %d bytes, and the next page allocated %d", int64(kept)-int64(before), end-start)
	}
	runtime.KeepAlive(i)
}
