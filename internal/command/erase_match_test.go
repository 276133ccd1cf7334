package command

import (
	"bytes"
	"strings"
	"testing"
)

// matchLog has a secret in what a user said, in tool results, in the state, and in a summary that a patch put in.
const matchLog = `{"patchlog":1,"initialState":{"first":"SECRET","other":"kept"}}
{"seq":1,"id":"e1","invocationId":"i1","author":"user","timestamp":"1970-01-01T00:00:01Z","content":{"role":"user","parts":[{"text":"it is SECRET"}]},"actions":{"stateDelta":{"a":"SECRET","n":1}}}
{"seq":2,"id":"e2","invocationId":"i1","author":"agent","timestamp":"1970-01-01T00:00:02Z","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"look","args":{"x":1}}}]}}
{"seq":3,"id":"e3","invocationId":"i1","author":"agent","timestamp":"1970-01-01T00:00:03Z","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"look","response":{"x":["SECRET"]}}}]},"actions":{"stateDelta":{"deep":{"x":["a SECRET"]},"user:u":"SECRET"}}}
{"seq":4,"id":"e4","invocationId":"i2","author":"agent","timestamp":"1970-01-01T00:00:04Z","actions":{"stateDelta":{"later":"SECRET"}}}
{"seq":5,"id":"e5","invocationId":"i2","author":"user","timestamp":"1970-01-01T00:00:05Z","content":{"role":"user","parts":[{"text":"unrelated"}]},"actions":{"stateDelta":{"k":"kept"}}}
{"seq":6,"id":"p1","patchType":"summarise","start":0,"count":1,"base":5,"timestamp":"1970-01-01T00:00:06Z","summaryEvent":{"id":"s1","author":"agent","timestamp":"1970-01-01T00:00:06Z","content":{"role":"user","parts":[{"text":"told of it"}]},"actions":{"stateDelta":{"sum":"SECRET"}}}}
{"seq":7,"id":"p2","patchType":"splice","start":3,"count":1,"base":6,"timestamp":"1970-01-01T00:00:07Z","replacement":[{"id":"r1","author":"agent","timestamp":"1970-01-01T00:00:07Z","customMetadata":{"note":"SECRET"}}]}
`

// After an erase by text with null in place of state values nothing that the command shows has the text. An erase
// that keeps state values says how many events still have it, and does not hide them from the next one.
func TestEraseMatch(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, matchLog, "import", "shop/ada/1", "-")
	must(t, "", "fork", "shop/ada/1", "shop/bob/1")
	keys := []string{"shop/ada/1", "shop/bob/1"}
	sh := newShell()
	erase := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := sh.app("", &stdout, &stderr).run(t.Context(), append([]string{"erase", "shop/ada/1", "--match", "SECRET", "--yes"}, args...)); code != 0 {
			t.Fatalf("%q: exit code %d, %s", args, code, stderr.String())
		}
		return stdout.String()
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
	const kept = "State values are kept: 4 events and 1 key of the initial state still match. --values null erases them."

	says(erase("--dry-run"), "5 events would be erased", kept)
	says(erase(), "5 events erased", kept)
	says(erase("--dry-run"), kept)
	says(erase(), "there is nothing else to erase", kept)
	says(erase("--json"), `"kept":{"events":4,"initial":["first"]}`)
	if has(keys[0]) == 0 || has(keys[1]) == 0 {
		t.Fatal("the state values were not kept")
	}
	says(erase("--values", "null", "--dry-run"), "4 events would be erased", "initial state, key first: null")
	if got := erase("--values", "null"); strings.Contains(got, "are kept") {
		t.Errorf("null in place of state values, and:\n%s", got)
	}
	for _, key := range keys {
		if n := has(key); n != 0 {
			t.Errorf("%s shows the text %d times", key, n)
		}
		says(must(t, "", "stats", key), "kept")
	}
	if got := erase("--values", "null"); got != "shop/ada/1: there is nothing to erase\n" {
		t.Errorf("once more: %s", got)
	}
	says(must(t, "", "verify"), "")
}
