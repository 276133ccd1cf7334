package cache_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/adk/internal/cache"
)

// The cache keeps recently used values, even a value larger than the limit. A disabled cache stores nothing.
func TestCache(t *testing.T) {
	c := cache.Cache[string, int]{Limit: 10}
	has := func(key string, want bool) {
		t.Helper()
		if v, ok := c.Get(key); ok != want || ok && v != len(key) {
			t.Errorf("%q: %d, %v", key, v, ok)
		}
	}
	put := func(key string, size int) { c.Put(key, len(key), size) }
	put("a", 6)
	put("bb", 6)
	has("a", true) // reading the value moves it to the young generation
	put("ccc", 6)
	put("dddd", 6)
	has("bb", false)
	has("dddd", true)
	put("large", 1000)
	has("large", true)
	put("large", 2000)
	has("large", true)
	put("a", 6)
	has("large", true)
	c.Remove("large")
	has("large", false)
	if n := c.Len(); n == 0 || n > 4 {
		t.Errorf("the cache has %d values", n)
	}
	c = cache.Cache[string, int]{Limit: -1}
	put("a", 0)
	has("a", false)
}
