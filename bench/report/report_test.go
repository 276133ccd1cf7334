package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const printed = `goos: linux
BenchmarkSort/n=10/how=ours-2   	 100	   1500 ns/op	   2.5 MiB-heap
BenchmarkSort/n=10/how=ours-2   	 100	   1300 ns/op	   3.5 MiB-heap
BenchmarkSort/n=10/how=ours-2   	 100	   9000 ns/op	   9.5 MiB-heap
BenchmarkSort/n=100/how=ours-2  	 100	  21000 ns/op
BenchmarkSort/n=100/how=plain-2 	 100	  14000 ns/op
PASS
`

func TestRender(t *testing.T) {
	var ran []string
	dir := t.TempDir()
	r := reporter{folder: dir, bench: func(dir string, args []string) (io.Reader, error) {
		ran = append(ran, dir+" "+strings.Join(args, " "))
		return strings.NewReader(printed), nil
	}}
	var out bytes.Buffer
	err := r.render(&out, `{{run "bench" "Sort" "-benchtime" "1x"}} {{time "Sort/n=10/how=ours"}} {{metric "Sort/n=10/how=ours" "MiB-heap"}} `+
		`{{ratio "Sort/n=100/how=ours" "Sort/n=100/how=plain"}} {{plot "a.svg" "Title" "n" "go test" (series "ours" "Sort/n=%d/how=ours")}}`)
	if err != nil {
		t.Fatal(err)
	}
	const want = "`go test -run '^$' -bench 'Sort' -benchtime 1x ./bench` 1.5 µs 3.5 1.5 × ![Title](a.svg)"
	if out.String() != want {
		t.Errorf("rendered\n%s\nwant\n%s", &out, want)
	}
	if len(ran) != 1 || ran[0] != ". -bench Sort ./bench -benchtime 1x" {
		t.Errorf("ran %q", ran)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "a.svg"))
	if err != nil || strings.Count(string(svg), "<circle") != 2 {
		t.Errorf("%v\n%s", err, svg)
	}
}

// The report fails if the template names a figure that no benchmark has reported.
func TestMissing(t *testing.T) {
	for _, text := range []string{`{{time "Sort/n=1"}}`, `{{metric "Sort" "B"}}`, `{{ratio "a" "b"}}`, `{{plot "a.svg" "" "" "" (series "x" "Sort/n=%d")}}`, `{{run "bench" "Sort"}}`} {
		r := reporter{folder: t.TempDir(), bench: func(string, []string) (io.Reader, error) { return nil, os.ErrNotExist }}
		if err := r.render(io.Discard, text); err == nil {
			t.Errorf("%s is rendered", text)
		}
	}
}

func TestFigures(t *testing.T) {
	for ns, want := range map[float64]string{3: "3 ns", 12.4: "12 ns", 3333: "3.3 µs", 4.56e6: "4.6 ms", 2.1e9: "2.1 s", 45e9: "45 s"} {
		if got := duration(ns); got != want {
			t.Errorf("%v ns is %s, want %s", ns, got, want)
		}
	}
	if got := figure(1234567); got != "1,234,600" {
		t.Error(got)
	}
}

// The benchmarks that the document names exist. The test does not check the names of sub-benchmarks.
func TestDocumentNamesBenchmarks(t *testing.T) {
	var source strings.Builder
	for _, pattern := range []string{"../*_test.go", "../peers/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
	}
	names := regexp.MustCompile(`(?:time|metric|ratio|series "[^"]*") "(\w+)/`).FindAllStringSubmatch(document, -1)
	if len(names) < 50 {
		t.Fatalf("%d names were found", len(names))
	}
	for _, m := range names {
		if !strings.Contains(source.String(), "func Benchmark"+m[1]+"(") {
			t.Errorf("there is no Benchmark%s", m[1])
		}
	}
}
