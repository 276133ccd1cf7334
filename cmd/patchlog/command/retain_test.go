package command

import (
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestRetain(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := store.Open("patchlog.db", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2024, 11, 1, 0, 0, 0, 0, time.UTC) // 62 days before the test's clock
	for _, text := range []string{"shop/ada/1", "shop/ada/2", "other/ada/1"} {
		key, err := store.ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateAt(t.Context(), key, nil, at); err != nil {
			t.Fatal(err)
		}
		e, err := patch.NewEvent(patch.Fields{ID: "e1", Author: "user", Timestamp: at.Add(time.Hour), Content: patch.Text("user", "hello")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AppendEvents(t.Context(), key, store.AppendOptions{}, e); err != nil {
			t.Fatal(err)
		}
		if text == "shop/ada/2" {
			if _, err := s.ApplyPatch(t.Context(), key, store.PatchOptions{}, patch.NewPin("e1").WithTimestamp(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"retain", "shop", "--delete-after", "63d", "--yes"}, "0 sessions deleted, 0 kept\n"},
		{[]string{"retain", "shop", "--delete-after", "62d", "--keep-pinned", "--dry-run"},
			"shop/ada/1: used 2024-11-01T01:00:00Z, 1 record; would be deleted\nshop/ada/2: used 2024-11-01T01:00:00Z, 2 records; kept: pinned\n1 session to be deleted, 1 kept\n"},
		{[]string{"retain", "--delete-after", "1488h", "--dry-run", "--json"},
			`{"key":"other/ada/1","seq":1,"created":"2024-11-01T00:00:00Z","used":"2024-11-01T01:00:00Z","deleted":false}` + "\n" +
				`{"key":"shop/ada/1","seq":1,"created":"2024-11-01T00:00:00Z","used":"2024-11-01T01:00:00Z","deleted":false}` + "\n" +
				`{"key":"shop/ada/2","seq":2,"created":"2024-11-01T00:00:00Z","used":"2024-11-01T01:00:00Z","deleted":false}` + "\n"},
		{[]string{"sessions"}, "session      records  created\n" +
			"other/ada/1        1  2024-11-01T00:00:00Z\nshop/ada/1         1  2024-11-01T00:00:00Z\nshop/ada/2         2  2024-11-01T00:00:00Z\n"},
		{[]string{"retain", "shop", "other", "--delete-after", "62d", "--keep-pinned", "--yes", "--limit", "2"},
			"other/ada/1: used 2024-11-01T01:00:00Z, 1 record; deleted\nshop/ada/1: used 2024-11-01T01:00:00Z, 1 record; deleted\n2 sessions deleted, 0 kept\n"},
		{[]string{"retain", "--delete-after", "62d", "--yes", "--json"},
			`{"key":"shop/ada/2","seq":2,"created":"2024-11-01T00:00:00Z","used":"2024-11-01T01:00:00Z","deleted":true}` + "\n"},
		{[]string{"sessions"}, "no sessions\n"},
	} {
		if got := must(t, "", c.args...); got != c.want {
			t.Errorf("%q: got\n%s\nwant\n%s", c.args, got, c.want)
		}
	}
}
