// Package cache provides a bounded cache of recently used values.
package cache

import "sync"

// Cache is a map with two generations. New entries go to the young generation. When it is full, it becomes the old
// generation, and the previous old generation is dropped. Reading an entry of the old generation moves it to the
// young generation. Cache is safe for concurrent use.
type Cache[K comparable, V any] struct {
	Limit int // maximum size of a generation, in the unit of Put's argument size; 0 means 4096, and a negative Limit disables the cache

	mu         sync.Mutex
	size       int // size of the young generation
	young, old map[K]sized[V]
}

type sized[V any] struct {
	value V
	size  int
}

// Get returns the value of a key. If there is none, ok is false.
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

// Put stores a value. A value larger than Limit is stored in a generation of its own.
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

// Remove removes a key and its value.
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
