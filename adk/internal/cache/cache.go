// Package cache keeps recently used values.
package cache

import "sync"

// Cache keeps values in two generations. When the young generation is full, it becomes the old one, and the entries of
// the previous old one that were not used since are dropped. It is safe for use by any number of goroutines.
type Cache[K comparable, V any] struct {
	Limit int // of a generation, in the unit of Put's size; 0 means 4096, and below 0 nothing is cached

	mu         sync.Mutex
	size       int // of the young generation
	young, old map[K]sized[V]
}

type sized[V any] struct {
	value V
	size  int
}

// Get returns the value of a key.
func (c *Cache[K, V]) Get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.young[key]
	if !ok {
		if s, ok = c.old[key]; ok {
			c.putLocked(key, s)
		}
	}
	return s.value, ok
}

// Put caches a value. A value larger than a generation becomes a generation of its own.
func (c *Cache[K, V]) Put(key K, v V, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(key, sized[V]{v, size})
}

func (c *Cache[K, V]) putLocked(key K, s sized[V]) {
	limit := c.Limit
	if limit == 0 {
		limit = 4096
	}
	c.size -= c.young[key].size
	delete(c.young, key)
	if limit < 0 {
		return
	}
	if c.young == nil || c.size+s.size > limit {
		c.old, c.young, c.size = c.young, map[K]sized[V]{}, 0
	}
	c.size += s.size
	c.young[key] = s
}

// Remove drops the value of a key.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size -= c.young[key].size
	delete(c.young, key)
	delete(c.old, key)
}

// Len returns the number of cached values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old)
}
