package inspector

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// BenchmarkListing makes the page of 100,000 sessions, of three records each: how=cold reads the
// list first; by=figures has read all logs before, how=measure reads them, in requests of two
// seconds. how=list is [store.Store.List] alone.
func BenchmarkListing(b *testing.B) {
	const sessions = 100_000
	backends := map[string]func() (backend.Backend, error){
		"memory": func() (backend.Backend, error) { return &memory.Backend{}, nil },
		"bolt": func() (backend.Backend, error) {
			return bolt.Open(filepath.Join(b.TempDir(), "x.db"), bolt.Options{NoSync: true})
		},
	}
	for _, name := range []string{"memory", "bolt"} {
		b.Run("store="+name, func(b *testing.B) {
			back, err := backends[name]()
			if err != nil {
				b.Fatal(err)
			}
			e := listingOf(b, back, Options{CacheBytes: 64 << 20})
			for n := range sessions {
				key := store.Key{App: fmt.Sprint("app", n%5), User: fmt.Sprintf("user-%d", n%1000), Session: fmt.Sprintf("5c0d1f3e-%08d", n)}
				text := says("a", "user", "hello, what is it like?") + "\n" + says("b", "agent", strings.Repeat("word ", n%50)) + "\n" + passLine("p", 0, 1, n%60)
				if _, err := e.store.Import(b.Context(), key, strings.NewReader(text), store.ImportOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			b.Run("how=list", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					n := 0
					for _, err := range e.store.List(b.Context(), store.ListOptions{}) {
						if n++; err != nil {
							b.Fatal(err)
						}
					}
					if n != sessions {
						b.Fatal(n)
					}
				}
			})
			get := func(b *testing.B, how, address string, before func()) {
				b.Run(how, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						before()
						e.get(address, http.StatusOK)
					}
				})
			}
			old := func() { e.inspector.listing.list = nil }
			forgotten := func() { e.inspector.listing = newListing(64 << 20) }
			get(b, "how=cold/by=key", "./", forgotten)
			get(b, "how=list-anew/by=key", "./", old)
			get(b, "how=warm/by=key", "./", func() {})
			get(b, "how=warm/by=created", "./?sort=-created", func() {})
			get(b, "how=warm/by=search", "./?q=user-7+0001", func() {})
			get(b, "how=cold/by=figures", "./?sort=-visible", forgotten)
			b.Run("how=measure", func(b *testing.B) {
				for b.Loop() {
					forgotten()
					requests := 1
					for ; strings.Contains(e.get("./?sort=-visible&wait=2", http.StatusOK), "Go on measuring"); requests++ {
					}
					b.ReportMetric(float64(requests), "requests/op")
					b.ReportMetric(float64(e.inspector.listing.bytes)/(1<<20), "MiB-kept")
				}
			})
			get(b, "how=warm/by=figures", "./?sort=-visible", func() {})
		})
	}
}
