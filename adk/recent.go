package adk

import "github.com/patchlog-dev/patchlog/store"

// recent is what is known of sessions. It forgets sessions of which nothing new came while so
// many others were kept. Whoever has it locks it.
type recent[V any] struct{ young, old map[store.Key]V }

const recentKept = 4096

func (r *recent[V]) find(key store.Key) (v V, ok bool) {
	if v, ok = r.young[key]; !ok {
		v, ok = r.old[key]
	}
	return v, ok
}

func (r *recent[V]) keep(key store.Key, v V) {
	if len(r.young) >= recentKept {
		r.old, r.young = r.young, nil
	}
	if r.young == nil {
		r.young = map[store.Key]V{}
	}
	r.young[key] = v
}

func (r *recent[V]) forget(key store.Key) {
	delete(r.young, key)
	delete(r.old, key)
}
