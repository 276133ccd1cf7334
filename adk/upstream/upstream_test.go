package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The required version of ADK has the function that the hook replaces, and the tests that differences.txt
// names.
func TestHookAndListMatchADK(t *testing.T) {
	dir, err := goCommand(t.Context(), ".", "list", "-m", "-f", "{{.Dir}}", adkModule)
	noError(t, err)
	source := strings.TrimSpace(string(dir))
	text, err := os.ReadFile(filepath.Join(source, "session", "service.go"))
	noError(t, err)
	text, err = addHook(text)
	noError(t, err)
	if !strings.Contains(string(text), "return Substitute()") {
		t.Error("the hook is missing")
	}
	if _, err := addHook([]byte("package session")); err == nil {
		t.Error("addHook returned no error for a source without InMemoryService")
	}
	list, err := parseDifferences(strings.NewReader(differencesText))
	noError(t, err)
	if len(list) == 0 {
		t.Error("the list is empty")
	}
	for _, d := range list {
		top, _, _ := strings.Cut(d.name, "/")
		found, err := filepath.Glob(filepath.Join(source, short(d.pkg), "*_test.go"))
		noError(t, err)
		if !slices.ContainsFunc(found, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "func "+top+"(")
		}) {
			t.Errorf("ADK has no test %s", d.test)
		}
	}
}

const sample = `not JSON
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Test":"A","Output":"one\n"}
{"Action":"output","Package":"p","Test":"A","Output":"two\n"}
{"Action":"run","Package":"p","Test":"A/b"}
{"Action":"pass","Package":"p","Test":"A/b"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"run","Package":"p","Test":"C"}
{"Action":"fail","Package":"p"}
{"ImportPath":"q [q.test]","Action":"build-output","Output":"undefined: x\n"}
{"Action":"fail","Package":"q","FailedBuild":"q [q.test]"}
{"Action":"skip","Package":"r","Test":"D"}`

func TestParse(t *testing.T) {
	r, err := parse(strings.NewReader(sample), io.Discard)
	noError(t, err)
	want := map[test]outcome{
		{"p", ""}: failed, {"p", "A"}: failed, {"p", "A/b"}: passed, {"p", "C"}: "", {"q", ""}: failed, {"r", "D"}: skipped,
	}
	if !maps.Equal(r.outcomes, want) {
		t.Errorf("outcomes %v", r.outcomes)
	}
	if r.output[test{"p", "A"}] != "one\ntwo\n" || r.output[test{"q", ""}] != "undefined: x\n" {
		t.Errorf("said %q", r.output)
	}
	if !r.buildFailed["q"] || r.buildFailed["p"] {
		t.Errorf("not built: %v", r.buildFailed)
	}
}

func TestDiffering(t *testing.T) {
	for _, row := range []struct{ name, theirs, ours, want string }{
		{"the same", "A=pass B=fail", "A=pass B=fail", ""},
		{"a subtest and its parents", "=pass A=pass A/b=pass A/c=pass", "=fail A=fail A/b=fail A/c=pass", "p A/b"},
		{"only the parent test", "=pass A=pass A/b=pass", "=fail A=fail A/b=pass", "p A"},
		{"a subtest of a subtest", "A=pass A/b=pass A/b/c=pass", "A=fail A/b=fail A/b/c=fail", "p A/b/c"},
		{"a failed test passes", "=fail A=fail", "=pass A=pass", "p A"},
		{"a skipped test", "A=pass", "A=skip", "p A"},
		{"the process ended", "=pass A=pass B=pass", "=fail A=", "p A, p B"},
		{"a test that only ran with ours", "=pass", "=pass A=pass", "p A"},
		{"only the package", "=pass A=pass", "=fail A=pass", "p"},
	} {
		var names []string
		for _, d := range differing(outcomes(row.theirs), outcomes(row.ours)) {
			names = append(names, d.String())
		}
		if got := strings.Join(names, ", "); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// outcomes returns results of tests of package p. The argument has the form "name=outcome ...".
func outcomes(words string) results {
	r := results{outcomes: map[test]outcome{}}
	for _, w := range strings.Fields(words) {
		name, o, _ := strings.Cut(w, "=")
		r.outcomes[test{"p", name}] = outcome(o)
	}
	return r
}

const list = `# what this is
It is so
and so.
    a A/b
    a B bolt

Otherwise.
    b/c C compact sometimes
`

func TestParseDifferences(t *testing.T) {
	got, err := parseDifferences(strings.NewReader(list))
	noError(t, err)
	var words []string
	for _, d := range got {
		words = append(words, fmt.Sprintf("%s|%s|%v|%v", d.test, d.reason, slices.Sorted(maps.Keys(d.modes)), d.sometimes))
	}
	want := "a A/b|It is so and so.|[]|false\na B|It is so and so.|[bolt]|false\nb/c C|Otherwise.|[compact]|true"
	if strings.Join(words, "\n") != want {
		t.Errorf("got\n%s", strings.Join(words, "\n"))
	}
	packages := []string{adkModule + "/a", adkModule + "/b/c"}
	for mode, n := range map[string]int{"memory": 1, "bolt": 2, "compact": 2} {
		if e := expected(got, mode, packages); len(e) != n {
			t.Errorf("%s: %v", mode, e)
		}
	}
	if e := expected(got, "memory", packages[1:]); len(e) != 0 {
		t.Errorf("of a package that was not run: %v", e)
	}
	for _, bad := range []string{"    a A\n", "why\n    a\n", "why\n    a A seldom\n"} {
		if _, err := parseDifferences(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestVerdict(t *testing.T) {
	a, b := test{"p", "A"}, test{"p", "B"}
	for _, row := range []struct {
		name  string
		found []test
		want  map[test]difference
		says  string
	}{
		{"nothing", nil, nil, ""},
		{"as listed", []test{a}, map[test]difference{a: {}}, ""},
		{"not listed", []test{a, b}, map[test]difference{a: {}}, "p B differs, but is not in differences.txt; add it with its reason, or fix the difference"},
		{"no longer a difference", nil, map[test]difference{a: {}}, "p A is in differences.txt, but does not differ; remove it"},
		{"chance", nil, map[test]difference{a: {sometimes: true}}, ""},
		{"no test", nil, map[test]difference{{"p", "Z"}: {sometimes: true}}, "p Z is in differences.txt, but no such test ran; remove it"},
	} {
		ran := outcomes("A=pass B=pass")
		err := verdict(row.found, row.want, ran, ran)
		if says := fmt.Sprint(err); err == nil && row.says != "" || err != nil && says != row.says {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	unbuilt := results{buildFailed: map[string]bool{"p": true}, output: map[test]string{{"p", ""}: "undefined: x"}}
	if err := verdict(nil, nil, unbuilt, results{}); err == nil || !strings.Contains(err.Error(), "undefined: x") {
		t.Errorf("with a package that cannot be built: %v", err)
	}
}

func TestSelectPackages(t *testing.T) {
	all := []string{adkModule + "/runner", adkModule + "/server/adkrest"}
	got, err := selectPackages(all, []string{"./server/adkrest"})
	if err != nil || !slices.Equal(got, all[1:]) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := selectPackages(all, nil); err != nil || !slices.Equal(got, all) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := selectPackages(all, []string{"genai"}); err == nil {
		t.Error("an unknown package was accepted")
	}
}
