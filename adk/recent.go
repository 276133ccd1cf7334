package adk

// recent is a cache in two generations: when the young one is full it becomes the old one, whose
// entries are dropped unless they were used meanwhile. Its user guards it.
type recent[K comparable, V any] struct {
	limit      int // of a generation, in the unit of keep's size; 0 means 4096
	size       int // of the young generation
	young, old map[K]sized[V]
}

type sized[V any] struct {
	value V
	size  int
}

func (r *recent[K, V]) find(key K) (v V, ok bool) {
	s, ok := r.young[key]
	if !ok {
		if s, ok = r.old[key]; ok {
			r.keep(key, s.value, s.size)
		}
	}
	return s.value, ok
}

// keep keeps a value that is not larger than a generation.
func (r *recent[K, V]) keep(key K, v V, size int) {
	limit := r.limit
	if limit == 0 {
		limit = 4096
	}
	r.size -= r.young[key].size
	delete(r.young, key)
	if size > limit {
		return
	}
	if r.young == nil || r.size+size > limit {
		r.old, r.young, r.size = r.young, map[K]sized[V]{}, 0
	}
	r.size += size
	r.young[key] = sized[V]{v, size}
}

func (r *recent[K, V]) forget(key K) {
	r.size -= r.young[key].size
	delete(r.young, key)
	delete(r.old, key)
}
