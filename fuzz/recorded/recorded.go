// Package recorded finds the recorded sessions that tests read: the small set that the
// repository carries, and the large corpus where it lies beside the repository. Of the small set
// it makes a log of any length.
package recorded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Where the sets lie, seen from the root of the repository.
const (
	small = "fuzz/testdata/sessions"
	large = "../shared/corpus"
)

// Set is recorded sessions that lie in one folder, with a folder for each source.
type Set struct {
	Name  string   // names a subtest
	Dir   string   // the folder
	Files []string // one for each session, in the order of their paths
	Large bool     // whether this is the large corpus, of which figures are known
}

// Sets returns the set that the repository carries and, where it is there, the large
// corpus. The test fails if the first is not found, and logs it if the second is not.
func Sets(tb testing.TB) []Set {
	tb.Helper()
	root := rootOf(tb)
	sets := []Set{read(tb, Set{Name: "small", Dir: filepath.Join(root, small)})}
	corpus := Set{Name: "corpus", Dir: filepath.Join(root, large), Large: true}
	if _, err := os.Stat(corpus.Dir); errors.Is(err, fs.ErrNotExist) {
		tb.Logf("left out: the large corpus, which is not at %s", corpus.Dir)
		return sets
	}
	return append(sets, read(tb, corpus))
}

// Sample returns the files of a set. Of the large corpus a short run gets every n-th
// alone, and a line in its log that says so.
func (s Set) Sample(tb testing.TB, n int) []string {
	tb.Helper()
	if !s.Large || !testing.Short() {
		return s.Files
	}
	var some []string
	for i := 0; i < len(s.Files); i += n {
		some = append(some, s.Files[i])
	}
	tb.Logf("left out, for the run is short: %d of %d sessions of %s", len(s.Files)-len(some), len(s.Files), s.Dir)
	return some
}

func read(tb testing.TB, s Set) Set {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "*", "*.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	if len(files) == 0 {
		tb.Fatalf("%s has no recorded session", s.Dir)
	}
	s.Files = files
	return s
}

// rootOf returns the root of the repository, above the folder in which a test runs.
func rootOf(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, small)); err == nil {
			root, err := filepath.Rel(dir, at)
			if err != nil {
				tb.Fatal(err)
			}
			return root
		}
		if at == filepath.Dir(at) {
			tb.Fatalf("no folder above %s has the recorded sessions in %s; run the tests in a clone of the repository", dir, small)
		}
	}
}
