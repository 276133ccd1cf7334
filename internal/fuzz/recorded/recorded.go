// Package recorded finds the recorded sessions that tests read. They are the small set in the repository, and a
// large corpus if it is next to the repository. The package also makes logs of any length from the small set.
package recorded

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Directories of the sets, relative to the root of the repository.
const (
	smallDir = "fuzz/testdata/sessions"
	largeDir = "../shared/corpus"
)

// Set is a set of recorded sessions in one directory. Each source has a subdirectory.
type Set struct {
	Name  string   // name of a subtest
	Dir   string   // directory of the set
	Files []string // one file per session, sorted by path
	Large bool     // whether the set is the large corpus, for which tests expect certain figures
}

// Sets returns the set in the repository and, if it is present, the large corpus. If the set in the repository
// is missing, the test fails. If the large corpus is missing, Sets logs a note.
func Sets(tb testing.TB) []Set {
	tb.Helper()
	root := rootOf(tb)
	sets := []Set{read(tb, Set{Name: "small", Dir: filepath.Join(root, smallDir)})}
	corpus := Set{Name: "corpus", Dir: filepath.Join(root, largeDir), Large: true}
	if _, err := os.Stat(corpus.Dir); errors.Is(err, fs.ErrNotExist) {
		tb.Logf("left out: the large corpus, which is not at %s", corpus.Dir)
		return sets
	}
	return append(sets, read(tb, corpus))
}

// Sample returns the files of a set. If the run is short and the set is the large corpus, Sample returns only every
// n-th file, and logs that.
func (s Set) Sample(tb testing.TB, n int) []string {
	tb.Helper()
	if !s.Large || !testing.Short() {
		return s.Files
	}
	var sample []string
	for i := 0; i < len(s.Files); i += n {
		sample = append(sample, s.Files[i])
	}
	tb.Logf("left out, for the run is short: %d of %d sessions of %s", len(s.Files)-len(sample), len(s.Files), s.Dir)
	return sample
}

func read(tb testing.TB, s Set) Set {
	tb.Helper()
	s.Files, _ = filepath.Glob(filepath.Join(s.Dir, "*", "*.jsonl"))
	if len(s.Files) == 0 {
		tb.Fatalf("%s has no recorded session", s.Dir)
	}
	return s
}

// rootOf returns the root of the repository, which contains the working directory of the test.
func rootOf(tb testing.TB) string {
	tb.Helper()
	for root := "."; ; root = filepath.Join(root, "..") {
		if _, err := os.Stat(filepath.Join(root, smallDir)); err == nil {
			return root
		}
		if at, err := filepath.Abs(root); err != nil || at == filepath.Dir(at) {
			tb.Fatalf("no folder above the test's has the recorded sessions in %s; run the tests in a clone of the repository", smallDir)
		}
	}
}

// Log returns a log of n events with seqs from 1. It repeats the events of the set in the repository. Each
// repetition has its own ids and other digits in its contents. So the words are the same in each repetition, and the
// identifiers differ. Log is deterministic.
func Log(tb testing.TB, n int) []patch.Record {
	tb.Helper()
	events := eventsOf(tb, Sets(tb)[0])
	records := make([]patch.Record, n)
	for i := range records {
		text := otherDigits([]byte(events[i%len(events)].String()), i/len(events))
		text = append([]byte(fmt.Sprintf(`{"id":"%d-`, i)), bytes.TrimPrefix(text, []byte(`{"id":"`))...)
		e, err := patch.ParseEvent(text)
		if err != nil {
			tb.Fatal(err)
		}
		records[i] = patch.Record{Seq: uint64(i + 1), Event: e}
	}
	return records
}

// eventsOf returns the events of a set, in the order of its files.
func eventsOf(tb testing.TB, s Set) (events []*patch.Event) {
	tb.Helper()
	for _, file := range s.Files {
		text, err := os.ReadFile(file)
		records, _, readErr := records.ReadAll(patch.NewDecoder(bytes.NewReader(text), file))
		if err := errors.Join(err, readErr); err != nil {
			tb.Fatal(err)
		}
		for _, r := range records {
			events = append(events, r.Event)
		}
	}
	return events
}

// otherDigits changes the digits of each number in the content of an event. The new digits depend on round. Zeros
// stay zeros, and no digit becomes a zero, so no number gets a leading zero.
func otherDigits(text []byte, round int) []byte {
	shift, escape := round, 0
	for at := bytes.Index(text, []byte(`"content":`)); at >= 0 && at < len(text); at++ {
		switch c := text[at]; {
		case c == 'u' && text[at-1] == '\\':
			escape = 4
		case escape > 0:
			escape--
		case c >= '1' && c <= '9':
			text[at] = '1' + (c-'1'+byte(shift%9))%9
			shift /= 9
		case c != '0':
			shift = round
		}
	}
	return text
}
