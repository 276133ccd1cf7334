package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkAppendInspected appends to a session of 1,000 events in a bbolt file, unsynced, while no page of the
// inspector follows it, or ten do. Like the inspector's script, a page requests the session again when the
// log has grown, at most once a second.
func BenchmarkAppendInspected(b *testing.B) {
	for _, pages := range []int{0, 10} {
		b.Run(fmt.Sprintf("pages=%d", pages), func(b *testing.B) {
			s := openStore(b, store.Options{Durability: store.Relaxed})
			key := sessionKey(1)
			if _, err := s.Create(b.Context(), key, nil); err != nil {
				b.Fatal(err)
			}
			for _, r := range recorded.Log(b, 1_000) {
				if _, err := s.AppendEvents(b.Context(), key, store.AppendOptions{}, r.Event); err != nil {
					b.Fatal(err)
				}
			}
			i, err := inspector.New(s, inspector.Options{})
			if err != nil {
				b.Fatal(err)
			}
			server := httptest.NewServer(i)
			defer server.Close()
			ctx, leave := context.WithCancel(b.Context())
			info, err := s.Info(ctx, key)
			if err != nil {
				b.Fatal(err)
			}
			var open, ended sync.WaitGroup
			for range pages {
				open.Add(1)
				ended.Go(func() { follow(ctx, server.URL, key, info, open.Done) })
			}
			open.Wait()
			for b.Loop() {
				if _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, eventOf(1_000)); err != nil {
					b.Fatal(err)
				}
			}
			leave()
			ended.Wait()
		})
	}
}

// follow does what an open page does, until ctx ends.
func follow(ctx context.Context, base string, key store.Key, info store.Info, open func()) {
	get := func(path string, params url.Values) *http.Response {
		r, err := http.NewRequestWithContext(ctx, "GET", base+"/"+path+"?"+params.Encode(), nil)
		if err != nil {
			return nil
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil
		}
		return answer
	}
	session := url.Values{"key": {key.String()}}
	live := get("live", url.Values{"key": {key.String()}, "after": {fmt.Sprint(info.Seq)}, "creation": {info.Creation}})
	open()
	if live == nil {
		return
	}
	defer live.Body.Close()
	for lines := bufio.NewScanner(live.Body); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "event: records") {
			continue
		}
		page := get("session", session)
		if page == nil {
			return
		}
		io.Copy(io.Discard, page.Body)
		page.Body.Close()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}
