package inspector

import (
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// After an erasing a log is read once more, and not each time that somebody looks.
func TestErasedIsReadOnce(t *testing.T) {
	s, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := store.Key{App: "a", User: "u", Session: "s"}
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	e, err := patch.NewEvent(patch.Fields{ID: "e", Author: "user", Content: patch.Text("user", "hello")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendEvents(t.Context(), key, store.AppendOptions{}, e); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Erase(t.Context(), key, store.EraseSelection{All: true}, store.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	i, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var first *step
	for range 2 {
		line, err := i.timeline(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && first != &line.steps[0] {
			t.Error("it was read again")
		}
		first = &line.steps[0]
	}
}
