package recorded_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/patch"
)

// The set in the repository is small. Every source in it has a licence and a line in the README.
func TestSmallSetIsComplete(t *testing.T) {
	set := recorded.Sets(t)[0]
	if set.Large {
		t.Fatal("the first set is not the repository's own")
	}
	readme := read(t, filepath.Join(set.Dir, "README.md"))
	size, events := len(readme), 0
	var sources []string
	for _, file := range set.Files {
		text := read(t, file)
		size += len(text)
		events += bytes.Count(text, []byte("\n"))
		source := filepath.Base(filepath.Dir(file))
		if !slices.Contains(sources, source) {
			sources = append(sources, source)
			licence := read(t, filepath.Join(filepath.Dir(file), "LICENSE"))
			size += len(licence)
			if !bytes.Contains(licence, []byte("Permission is hereby granted")) && !bytes.Contains(licence, []byte("Apache License")) {
				t.Errorf("%s: LICENSE is neither MIT's nor Apache's", source)
			}
		}
		if name := strings.TrimSuffix(filepath.Base(file), ".jsonl"); !bytes.Contains(readme, []byte(name+"`")) {
			t.Errorf("README.md does not say where %s/%s is from", source, name)
		}
	}
	if want := []string{"adk", "mini-swe-agent", "pi", "swe-agent", "tau-bench", "tau2-domains"}; !slices.Equal(sources, want) {
		t.Errorf("sources are %q, want %q", sources, want)
	}
	if len(set.Files) != 14 || events != 360 {
		t.Errorf("%d sessions of %d events, README.md says 14 of 360", len(set.Files), events)
	}
	if size > 300<<10 {
		t.Errorf("the set takes %d bytes, want at most 300 KiB", size)
	}
}

// A short run samples the large corpus, and uses the whole small set.
func TestSample(t *testing.T) {
	files := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	if got := (recorded.Set{Files: files}).Sample(t, 4); !slices.Equal(got, files) {
		t.Errorf("of the small set: %q", got)
	}
	want := files
	if testing.Short() {
		want = []string{"a", "e", "i"}
	}
	if got := (recorded.Set{Files: files, Large: true}).Sample(t, 4); !slices.Equal(got, want) {
		t.Errorf("of the large set: %q, want %q", got, want)
	}
}

// Log returns the requested number of events with unique ids. The repetitions have the same words and different
// numbers.
func TestLog(t *testing.T) {
	const events = 360 // number of events in the set
	log := recorded.Log(t, 2*events+1)
	ids := map[string]bool{}
	for i, r := range log {
		if r.Seq != uint64(i+1) {
			t.Fatalf("record %d has seq %d", i, r.Seq)
		}
		ids[r.Event.ID()] = true
	}
	if len(log) != 2*events+1 || len(ids) != len(log) {
		t.Errorf("%d events with %d ids, want %d", len(log), len(ids), 2*events+1)
	}
	digits := regexp.MustCompile(`[1-9]`)
	changed := 0
	for i := range events {
		one, other := content(t, log[i]), content(t, log[i+events])
		if digits.ReplaceAllString(one, "1") != digits.ReplaceAllString(other, "1") {
			t.Errorf("event %d is %s, and its repetition is %s", i, one, other)
		}
		if one != other {
			changed++
		}
	}
	if changed < events/2 {
		t.Errorf("%d of %d events have other numbers when they come again", changed, events)
	}
}

func content(t *testing.T, r patch.Record) string {
	t.Helper()
	text, _ := r.Event.Field("content")
	return string(text)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
