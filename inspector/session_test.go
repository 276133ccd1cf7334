package inspector

import (
	"errors"
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// The figures are those of the view that is shown, also if the session grows while its page is made.
func TestStatsAreOfTheViewShown(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	testlog.Must(s.Create(t.Context(), key, nil))(t)
	say := func() {
		t.Helper()
		e, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", "hello")})
		if err == nil {
			_, err = s.AppendEvents(t.Context(), key, store.AppendOptions{}, e)
		}
		testlog.NoError(t, err)
	}
	say()
	i := testlog.Must(New(s, Options{}))(t)
	line := testlog.Must(i.timeline(t.Context(), key))(t)
	session, _, err := i.sessionAt(t.Context(), key, 1, 1)
	testlog.NoError(t, err)
	say()
	// A record that has come since is not there yet, for the page that is being made.
	if _, _, err := i.sessionAt(t.Context(), key, 2, 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a record beyond the timeline: %v", err)
	}
	got := map[string]string{}
	for _, r := range line.stats(session) {
		got[r.Name] = r.Text
	}
	if got["Records"] != "1" || got["Visible events"] != "1" || got["Tokens, about"] != fmt.Sprintf("%d of %[1]d visible (100 %%)", line.at(1).Raw) {
		t.Errorf("the figures are %v", got)
	}
}
