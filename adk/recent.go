package adk

// recent is what is known of sessions, or of their invocations. It forgets those of which nothing
// new came while so many others were kept. Whoever has it locks it.
type recent[K comparable, V any] struct{ young, old map[K]V }

const recentKept = 4096

func (r *recent[K, V]) find(key K) (v V, ok bool) {
	if v, ok = r.young[key]; !ok {
		v, ok = r.old[key]
	}
	return v, ok
}

func (r *recent[K, V]) keep(key K, v V) {
	if len(r.young) >= recentKept {
		r.old, r.young = r.young, nil
	}
	if r.young == nil {
		r.young = map[K]V{}
	}
	r.young[key] = v
}

func (r *recent[K, V]) forget(key K) {
	delete(r.young, key)
	delete(r.old, key)
}
