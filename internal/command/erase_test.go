package command

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

// What a user's sessions share is null when all of the user goes, and the plan says so.
func TestEraseUserShared(t *testing.T) {
	t.Chdir(t.TempDir())
	s := testlog.Must(store.Open("patchlog.db", store.Options{}))(t)
	key := store.Key{App: "shop", User: "ada", Session: "1"}
	testlog.Must(s.Create(t.Context(), key, map[string]any{"user:n": "secret"}))(t)
	testlog.NoError(t, s.Close())
	if got := must(t, "", "erase", "--user", "shop/ada", "--dry-run"); !strings.Contains(got, "shared state, key user:n: null\n") {
		t.Errorf("planned: %s", got)
	}
	if got := must(t, "", "erase", "--user", "shop/ada", "--json", "--yes"); !strings.Contains(got, `"shared":["user:n"]`) {
		t.Errorf("erased: %s", got)
	}
	if got := must(t, "", "erase", "--user", "shop/ada", "--dry-run"); got != "shop/ada: there is nothing to erase\n" {
		t.Errorf("again: %s", got)
	}
}
