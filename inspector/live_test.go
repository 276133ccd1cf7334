package inspector_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/store"
)

var liveKey = store.Key{App: "shop", User: "ada", Session: "1"}

// following is a page that follows a session.
type following struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

// followed opens the stream of a session from a record on. lastID is what a browser says that
// connects again.
func followed(t *testing.T, server *httptest.Server, after uint64, creation, lastID string) *following {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(leave)
	q := url.Values{"key": {liveKey.String()}, "after": {fmt.Sprint(after)}, "creation": {creation}}
	r := testlog.Must(http.NewRequestWithContext(ctx, "GET", server.URL+"/live?"+q.Encode(), nil))(t)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	answer := testlog.Must(http.DefaultClient.Do(r))(t)
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %v", answer.StatusCode, answer.Header)
	}
	return &following{t, bufio.NewScanner(answer.Body), leave}
}

// next returns the next event's name and data, or "" at the end.
func (f *following) next() (name, data string) {
	f.t.Helper()
	for f.lines.Scan() {
		line := f.lines.Text()
		if text, ok := strings.CutPrefix(line, "event: "); ok {
			name = text
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			return name, text
		}
	}
	return "", ""
}

// until reads on until the log is said to have grown to a record, and fails if it is said to have
// shrunk, or stayed.
func (f *following) until(last uint64) {
	f.t.Helper()
	for at := uint64(0); at < last; {
		name, data := f.next()
		var seq uint64
		if fmt.Sscan(data, &seq); name != "records" || seq <= at || seq > last {
			f.t.Fatalf("after record %d comes %s %s, and the log ends at %d", at, name, data, last)
		}
		at = seq
	}
}

func serveLive(t *testing.T, opts inspector.Options) (*store.Store, *httptest.Server, store.Info) {
	t.Helper()
	s := teststore.Memory(t, store.Options{})
	testlog.Must(s.Create(t.Context(), liveKey, nil))(t)
	info := testlog.Must(s.Info(t.Context(), liveKey))(t)
	server := httptest.NewServer(newInspector(t, s, opts))
	t.Cleanup(server.Close)
	return s, server, info
}

func appended(t *testing.T, s *store.Store, n int) {
	t.Helper()
	for range n {
		saySomething(t, s, liveKey, "hello")
	}
}

func TestLive(t *testing.T) {
	s, server, info := serveLive(t, inspector.Options{})
	page := followed(t, server, 0, info.Creation, "")
	appended(t, s, 1)
	page.until(1)
	appended(t, s, 500)
	page.until(501)

	// Who connects again says where it was, and is told what came since at once.
	late := followed(t, server, 0, info.Creation, "400")
	if name, data := late.next(); name != "records" || data != "501" {
		t.Errorf("told is %s %s", name, data)
	}
	// Who has it all is told of nothing before something comes.
	whole := followed(t, server, 501, info.Creation, "")
	appended(t, s, 1)
	if name, data := whole.next(); name != "records" || data != "502" {
		t.Errorf("told is %s %s", name, data)
	}
	page.until(502)

	testlog.NoError(t, s.Delete(t.Context(), liveKey))
	for _, p := range []*following{page, late, whole} {
		name, _ := p.next()
		for name == "records" {
			name, _ = p.next()
		}
		if name != "gone" {
			t.Errorf("of the deleted session is told %q", name)
		}
		if name, _ := p.next(); name != "" {
			t.Errorf("behind the end comes %q", name)
		}
	}
	testlog.Must(s.Create(t.Context(), liveKey, nil))(t)
	if name, _ := followed(t, server, 502, info.Creation, "").next(); name != "gone" {
		t.Errorf("of a session that was created again is told %q", name)
	}
}

// However fast a session grows, a page is told of it a few times a second.
func TestLiveIsPaced(t *testing.T) {
	s, server, info := serveLive(t, inspector.Options{})
	page := followed(t, server, 0, info.Creation, "")
	appended(t, s, 1)
	page.until(1)
	begun := time.Now()
	appended(t, s, 2_000)
	told := 0
	for at := ""; at != "2001"; told++ {
		_, at = page.next()
	}
	if most := int(time.Since(begun)/(250*time.Millisecond)) + 2; told > most {
		t.Errorf("told %d times in %v", told, time.Since(begun))
	}
}

// Who may no longer read a session is told nothing more of it.
func TestLiveEndsWithAccess(t *testing.T) {
	var may atomic.Bool
	may.Store(true)
	s, server, info := serveLive(t, inspector.Options{Authorize: func(*http.Request, store.Key, inspector.Access) bool { return may.Load() }})
	page := followed(t, server, 0, info.Creation, "")
	appended(t, s, 1)
	page.until(1)
	may.Store(false)
	appended(t, s, 1)
	if name, data := page.next(); name != "" {
		t.Errorf("told is %s %s", name, data)
	}
}

// A server that ends is not kept by the pages that follow, nor is a store.
func TestLiveEndsWithTheStore(t *testing.T) {
	s, server, info := serveLive(t, inspector.Options{})
	page := followed(t, server, 0, info.Creation, "")
	appended(t, s, 1)
	page.until(1)
	testlog.NoError(t, s.Close())
	if name, data := page.next(); name != "" {
		t.Errorf("told is %s %s", name, data)
	}
}
