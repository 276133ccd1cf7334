package inspector

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// After an erasing a log is read once more, and not each time that somebody looks.
func TestErasedIsReadOnce(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	testlog.Must(s.Create(t.Context(), key, nil))(t)
	e := testlog.Must(patch.NewEvent(patch.Fields{ID: "e", Author: "user", Content: patch.Text("user", "hello")}))(t)
	testlog.Must(s.AppendEvents(t.Context(), key, store.AppendOptions{}, e))(t)
	testlog.Must(s.Erase(t.Context(), key, store.EraseSelection{All: true}, store.EraseOptions{}))(t)
	i := testlog.Must(New(s, Options{}))(t)
	var first *step
	for range 2 {
		line := testlog.Must(i.timeline(t.Context(), key))(t)
		if first != nil && first != &line.steps[0] {
			t.Error("it was read again")
		}
		first = &line.steps[0]
	}
}
