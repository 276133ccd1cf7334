package command

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// Erasing a user sets the user's shared values to null. The dry run announces this.
func TestEraseUserShared(t *testing.T) {
	t.Chdir(t.TempDir())
	s := testlog.Must(store.Open("patchlog.db", store.Options{}))(t)
	key := store.Key{App: "shop", User: "ada", Session: "1"}
	testlog.Must(s.Create(t.Context(), key, map[string]any{"user:n": "secret"}, store.CreateOptions{}))(t)
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

// matchLog is a log with a secret in a message, in tool results, in the state, and in the summary of a patch.
const matchLog = `{"patchlog":1,"initialState":{"first":"SECRET","other":"kept"}}
{"seq":1,"id":"e1","invocationId":"i1","author":"user","timestamp":"1970-01-01T00:00:01Z","content":{"role":"user","parts":[{"text":"it is SECRET"}]},"actions":{"stateDelta":{"a":"SECRET","n":1}}}
{"seq":2,"id":"e2","invocationId":"i1","author":"agent","timestamp":"1970-01-01T00:00:02Z","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"look","args":{"x":1}}}]}}
{"seq":3,"id":"e3","invocationId":"i1","author":"agent","timestamp":"1970-01-01T00:00:03Z","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"look","response":{"x":["SECRET"]}}}]},"actions":{"stateDelta":{"deep":{"x":["a SECRET"]},"user:u":"SECRET"}}}
{"seq":4,"id":"e4","invocationId":"i2","author":"agent","timestamp":"1970-01-01T00:00:04Z","actions":{"stateDelta":{"later":"SECRET"}}}
{"seq":5,"id":"e5","invocationId":"i2","author":"user","timestamp":"1970-01-01T00:00:05Z","content":{"role":"user","parts":[{"text":"unrelated"}]},"actions":{"stateDelta":{"k":"kept"}}}
{"seq":6,"id":"p1","patchType":"summarise","start":0,"count":1,"base":5,"timestamp":"1970-01-01T00:00:06Z","summaryEvent":{"id":"s1","author":"agent","timestamp":"1970-01-01T00:00:06Z","content":{"role":"user","parts":[{"text":"told of it"}]},"actions":{"stateDelta":{"sum":"SECRET"}}}}
{"seq":7,"id":"p2","patchType":"splice","start":3,"count":1,"base":6,"timestamp":"1970-01-01T00:00:07Z","replacement":[{"id":"r1","author":"agent","timestamp":"1970-01-01T00:00:07Z","customMetadata":{"note":"SECRET"}}]}
`

// The receipt of an erasure counts events, summaries and other contents of patches separately. It lists the
// first of each.
func TestEraseCounts(t *testing.T) {
	t.Chdir(t.TempDir())
	var log strings.Builder
	for i := range 23 {
		fmt.Fprintf(&log, `{"id":"e%d","author":"user","content":{"role":"user","parts":[{"text":"words"}]}}`+"\n", i)
	}
	must(t, log.String(), "import", "a/u/s", "-")
	must(t, "", "patch", "a/u/s", "0", "2", "--summary", "two")
	must(t, "", "pin", "a/u/s", "e5")
	got := must(t, "", "erase", "a/u/s", "--all", "--dry-run")
	for _, want := range []string{"a/u/s: 23 events, 1 summary and 2 other records would be erased; nothing is written\n", "record 20, id e19: ", "\n  and 6 more; --json lists all\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "id e20:") {
		t.Errorf("the list is not cut:\n%s", got)
	}
	if got := must(t, "", "erase", "a/u/s", "--all", "--yes"); !strings.HasPrefix(got, "a/u/s: 23 events, 1 summary and ") {
		t.Errorf("got\n%s", got)
	}
}

// After an erasure by text, no command shows the text. If the erasure keeps state values, it reports how many of them
// still contain the text, and the next erasure finds them.
func TestEraseMatch(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, matchLog, "import", "shop/ada/1", "-")
	must(t, "", "fork", "shop/ada/1", "shop/bob/1")
	keys := []string{"shop/ada/1", "shop/bob/1"}
	sh := newShell()
	erase := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := sh.try(t, "", append([]string{"erase", "shop/ada/1", "--match", "SECRET", "--yes"}, args...)...)
		if code != 0 {
			t.Fatalf("%q: exit code %d, %s", args, code, stderr)
		}
		return stdout
	}
	has := func(key string) (n int) {
		t.Helper()
		for _, show := range [][]string{{"export", key}, {"log", key}, {"stats", key}, {"audit", key}} {
			n += strings.Count(must(t, "", show...), "SECRET")
		}
		return n
	}
	says := func(got string, want ...string) {
		t.Helper()
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%q is missing in:\n%s", text, got)
			}
		}
	}
	const kept = "State values are kept: 5 matches remain. Without --values keep they become null."

	says(erase("--values", "keep", "--dry-run"), "4 events and 1 summary would be erased", kept)
	says(erase("--values", "keep"), "4 events and 1 summary erased", kept)
	says(erase("--values", "keep", "--dry-run"), kept)
	says(erase("--values", "keep"), "there is nothing else to erase", kept)
	says(erase("--values", "keep", "--json"), `"remainingMatches":5`)
	if has(keys[0]) == 0 || has(keys[1]) == 0 {
		t.Fatal("the state values were not kept")
	}
	says(erase("--dry-run"), "3 events and 1 summary would be erased", "initial state, key first: null")
	if got := erase(); strings.Contains(got, "are kept") {
		t.Errorf("null in place of state values, and:\n%s", got)
	}
	for _, key := range keys {
		if n := has(key); n != 0 {
			t.Errorf("%s shows the text %d times", key, n)
		}
		says(must(t, "", "stats", key), "kept")
	}
	if got := erase(); got != "shop/ada/1: there is nothing to erase\n" {
		t.Errorf("once more: %s", got)
	}
	says(must(t, "", "verify"), "")
}

func TestRetain(t *testing.T) {
	t.Chdir(t.TempDir())
	s := testlog.Must(store.Open("patchlog.db", store.Options{}))(t)
	at := time.Date(2024, 11, 1, 0, 0, 0, 0, time.UTC) // 62 days before the current time of the test
	for _, text := range []string{"shop/ada/1", "shop/ada/2", "other/ada/1"} {
		key := testlog.Must(store.ParseKey(text))(t)
		testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{Created: at}))(t)
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: "e1", Author: "user", Timestamp: at.Add(time.Hour), Content: patch.Text("user", "hello")}))(t)
		testlog.Must(s.AppendEvents(t.Context(), key, []*patch.Event{e}, store.AppendOptions{}))(t)
		if text == "shop/ada/2" {
			testlog.Must(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{patch.NewPin("e1").WithTimestamp(at)}, store.PatchOptions{}))(t)
		}
	}
	testlog.NoError(t, s.Close())
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"retain", "shop", "--delete-after", "63d", "--yes"}, "0 sessions deleted\n"},
		{[]string{"retain", "shop", "--delete-after", "62d", "--keep-pinned", "--dry-run"},
			"shop/ada/1: used 2024-11-01T01:00:00Z, 1 record; would be deleted\nshop/ada/2: used 2024-11-01T01:00:00Z, 2 records; kept: pinned\n1 session to be deleted, 1 kept\n"},
		{[]string{"retain", "--delete-after", "1488h", "--dry-run", "--json"},
			retainedLine("other/ada/1", 1, false) + retainedLine("shop/ada/1", 1, false) + retainedLine("shop/ada/2", 2, false)},
		{[]string{"sessions"}, "session      records  visible  tokens  visible tokens  last activity\n" +
			"other/ada/1        1        1       2               2  2024-11-01 01:00:00\n" +
			"shop/ada/1         1        1       2               2  2024-11-01 01:00:00\n" +
			"shop/ada/2         2        1       2               2  2024-11-01 01:00:00\n"},
		{[]string{"retain", "shop", "other", "--delete-after", "62d", "--keep-pinned", "--yes"},
			"other/ada/1: used 2024-11-01T01:00:00Z, 1 record; deleted\nshop/ada/1: used 2024-11-01T01:00:00Z, 1 record; deleted\nshop/ada/2: used 2024-11-01T01:00:00Z, 2 records; kept: pinned\n2 sessions deleted, 1 kept\n"},
		{[]string{"retain", "--delete-after", "62d", "--yes", "--json"},
			retainedLine("shop/ada/2", 2, true)},
		{[]string{"sessions"}, "no sessions\n"},
	} {
		if got := withoutCreation(must(t, "", c.args...)); got != c.want {
			t.Errorf("%q: got\n%s\nwant\n%s", c.args, got, c.want)
		}
	}
}

func retainedLine(key string, seq int, deleted bool) string {
	return fmt.Sprintf(`{"key":%q,"created":"2024-11-01T00:00:00Z","seq":%d,"visible":1,"visibleTokens":2,"tokens":2,"active":"2024-11-01T01:00:00Z","used":"2024-11-01T01:00:00Z","deleted":%t,"kept":"","erased":0}`+"\n", key, seq, deleted)
}

// withoutCreation removes creation ids, which differ from run to run.
func withoutCreation(text string) string {
	return regexp.MustCompile(`"creation":"[^"]*",`).ReplaceAllString(text, "")
}

// The command retain erases events that were hidden for long enough. The summaries of these events stay.
func TestRetainErases(t *testing.T) {
	t.Chdir(t.TempDir())
	s := testlog.Must(store.Open("patchlog.db", store.Options{}))(t)
	at := time.Date(2024, 11, 1, 0, 0, 0, 0, time.UTC) // 62 days before the current time of the test
	key := store.Key{App: "shop", User: "ada", Session: "1"}
	event := func(id, text string) *patch.Event {
		return testlog.Must(patch.NewEvent(patch.Fields{ID: id, Author: "user", Timestamp: at, Content: patch.Text("user", text)}))(t)
	}
	testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{Created: at}))(t)
	testlog.Must(s.AppendEvents(t.Context(), key, []*patch.Event{event("e1", "my secret"), event("e2", "thanks")}, store.AppendOptions{}))(t)
	testlog.Must(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{patch.NewSummarise(0, 1, event("s1", "something was said")).WithTimestamp(at)}, store.PatchOptions{AsOfNow: true}))(t)
	testlog.NoError(t, s.Close())
	sh := newShell()
	runs := func(want string, wantErr string, args ...string) {
		t.Helper()
		_, stdout, stderr := sh.try(t, "", args...)
		if withoutCreation(stdout) != want || !strings.Contains(stderr, wantErr) || wantErr == "" && stderr != "" {
			t.Errorf("%q: got\n%s%s\nwant\n%s%s", args, stdout, stderr, want, wantErr)
		}
	}
	runs("0 sessions deleted; 0 hidden events erased\n", "", "retain", "--erase-hidden-after", "63d", "--yes")
	runs("shop/ada/1: used 2024-11-01T00:00:00Z, 3 records; 1 hidden event would be erased\n0 sessions to be deleted; 1 hidden event to be erased\n", "",
		"retain", "--erase-hidden-after", "62d", "--dry-run")
	runs(`{"key":"shop/ada/1","created":"2024-11-01T00:00:00Z","seq":3,"visible":2,"visibleTokens":7,"tokens":5,"active":"2024-11-01T00:00:00Z","used":"2024-11-01T00:00:00Z","deleted":false,"kept":"","erased":1}`+"\n", "",
		"retain", "shop", "--erase-hidden-after", "62d", "--yes", "--json")
	runs("0 sessions deleted; 0 hidden events erased\n", "", "retain", "--erase-hidden-after", "62d", "--yes")
	runs("", "--dry-run shows what", "retain", "--erase-hidden-after", "62d")
	if got := must(t, "", "export", "shop/ada/1"); strings.Contains(got, "secret") || !strings.Contains(got, "something was said") || !strings.Contains(got, "thanks") {
		t.Errorf("it is now %s", got)
	}
}

// If an erasure was interrupted before it reached a fork, --resume finishes the erasure in the fork.
func TestEraseResume(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, matchLog, "import", "shop/ada/1", "-")
	must(t, "", "fork", "shop/ada/1", "shop/bob/1")
	b := testlog.Must(bolt.Open("patchlog.db", bolt.Options{}))(t)
	faulty := &storetest.Faulty{Backend: b}
	s := testlog.Must(store.New(faulty, store.Options{}))(t)
	faulty.Plan(storetest.Plan{Write: 5, FailNext: 1 << 20}) // fail from the first write in the fork on
	_, err := s.Erase(t.Context(), store.Key{App: "shop", User: "ada", Session: "1"}, store.EraseSelection{All: true}, store.EraseOptions{Values: patch.NullValues})
	testlog.ErrorIs(t, err, storetest.ErrInjected)
	faulty.Plan(storetest.Plan{})
	testlog.NoError(t, s.Close())
	if code, stdout, stderr := newShell().try(t, "", "verify"); code == 0 || !strings.Contains(stdout, "perhaps not in its forks and copies") {
		t.Errorf("verify: exit code %d, %s", code, stderr)
	}
	if got := must(t, "", "erase", "shop/ada/1", "--resume", "--yes"); !strings.Contains(got, "shop/bob/1: ") {
		t.Errorf("resumed: %s", got)
	}
	if got := must(t, "", "export", "shop/bob/1"); strings.Contains(got, "SECRET") {
		t.Errorf("the fork is %s", got)
	}
	must(t, "", "verify")
}
