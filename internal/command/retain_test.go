package command

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestRetain(t *testing.T) {
	t.Chdir(t.TempDir())
	s := testlog.Must(store.Open("patchlog.db", store.Options{}))(t)
	at := time.Date(2024, 11, 1, 0, 0, 0, 0, time.UTC) // 62 days before the test's clock
	for _, text := range []string{"shop/ada/1", "shop/ada/2", "other/ada/1"} {
		key := testlog.Must(store.ParseKey(text))(t)
		testlog.Must(s.CreateAt(t.Context(), key, nil, at))(t)
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: "e1", Author: "user", Timestamp: at.Add(time.Hour), Content: patch.Text("user", "hello")}))(t)
		testlog.Must(s.AppendEvents(t.Context(), key, store.AppendOptions{}, e))(t)
		if text == "shop/ada/2" {
			testlog.Must(s.ApplyPatch(t.Context(), key, store.PatchOptions{}, patch.NewPin("e1").WithTimestamp(at)))(t)
		}
	}
	testlog.NoError(t, s.Close())
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
		{[]string{"sessions"}, "session      records  visible  tokens  visible tokens  last activity\n" +
			"other/ada/1        1        1       2               2  2024-11-01 01:00:00\n" +
			"shop/ada/1         1        1       2               2  2024-11-01 01:00:00\n" +
			"shop/ada/2         2        1       2               2  2024-11-01 01:00:00\n"},
		{[]string{"retain", "shop", "other", "--delete-after", "62d", "--keep-pinned", "--yes"},
			"other/ada/1: used 2024-11-01T01:00:00Z, 1 record; deleted\nshop/ada/1: used 2024-11-01T01:00:00Z, 1 record; deleted\nshop/ada/2: used 2024-11-01T01:00:00Z, 2 records; kept: pinned\n2 sessions deleted, 1 kept\n"},
		{[]string{"retain", "--delete-after", "62d", "--yes", "--json"},
			`{"key":"shop/ada/2","seq":2,"created":"2024-11-01T00:00:00Z","used":"2024-11-01T01:00:00Z","deleted":true}` + "\n"},
		{[]string{"sessions"}, "no sessions\n"},
	} {
		if got := must(t, "", c.args...); got != c.want {
			t.Errorf("%q: got\n%s\nwant\n%s", c.args, got, c.want)
		}
	}
}

// What was hidden for long is erased, by who may, and what stands for it stays.
func TestRetainErases(t *testing.T) {
	t.Chdir(t.TempDir())
	s := testlog.Must(store.Open("patchlog.db", store.Options{}))(t)
	at := time.Date(2024, 11, 1, 0, 0, 0, 0, time.UTC) // 62 days before the test's clock
	key := store.Key{App: "shop", User: "ada", Session: "1"}
	event := func(id, text string) *patch.Event {
		return testlog.Must(patch.NewEvent(patch.Fields{ID: id, Author: "user", Timestamp: at, Content: patch.Text("user", text)}))(t)
	}
	testlog.Must(s.CreateAt(t.Context(), key, nil, at))(t)
	testlog.Must(s.AppendEvents(t.Context(), key, store.AppendOptions{}, event("e1", "my secret"), event("e2", "thanks")))(t)
	testlog.Must(s.ApplyPatch(t.Context(), key, store.PatchOptions{AsOfNow: true}, patch.NewSummarise(0, 1, event("s1", "something was said")).WithTimestamp(at)))(t)
	testlog.NoError(t, s.Close())
	sh := newShell()
	runs := func(want string, wantErr string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		sh.app("", &stdout, &stderr).run(t.Context(), args)
		if stdout.String() != want || !strings.Contains(stderr.String(), wantErr) || wantErr == "" && stderr.Len() > 0 {
			t.Errorf("%q: got\n%s%s\nwant\n%s%s", args, stdout.String(), stderr.String(), want, wantErr)
		}
	}
	runs("0 sessions deleted, 0 kept; 0 hidden events erased\n", "", "retain", "--erase-hidden-after", "63d", "--yes")
	runs("shop/ada/1: used 2024-11-01T00:00:00Z, 3 records; 1 hidden event would be erased\n0 sessions to be deleted, 0 kept; 1 hidden event to be erased\n", "",
		"retain", "--erase-hidden-after", "62d", "--dry-run")
	runs(`{"key":"shop/ada/1","seq":3,"created":"2024-11-01T00:00:00Z","used":"2024-11-01T00:00:00Z","deleted":false,"erased":1}`+"\n", "",
		"retain", "shop", "--erase-hidden-after", "62d", "--yes", "--json")
	runs("0 sessions deleted, 0 kept; 0 hidden events erased\n", "", "retain", "--erase-hidden-after", "62d", "--yes")
	runs("", "--dry-run shows what", "retain", "--erase-hidden-after", "62d")
	if got := must(t, "", "export", "shop/ada/1"); strings.Contains(got, "secret") || !strings.Contains(got, "something was said") || !strings.Contains(got, "thanks") {
		t.Errorf("it is now %s", got)
	}
}
