package sessionfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

func FuzzPi(f *testing.F)         { fuzzFormat(f, sessionfile.Pi) }
func FuzzClaudeCode(f *testing.F) { fuzzFormat(f, sessionfile.ClaudeCode) }
func FuzzCodex(f *testing.F)      { fuzzFormat(f, sessionfile.Codex) }

// fuzzFormat: whatever stands behind a head, no line is lost, every patch applies, and the
// same records come again.
func fuzzFormat(f *testing.F, format sessionfile.Format) {
	for _, file := range files(f) {
		if file.format != format || len(file.data) > 20_000 {
			continue
		}
		f.Add(file.data)
		for lines := range slices.Chunk(bytes.SplitAfter(file.data, []byte("\n")), 3) {
			f.Add(bytes.Join(lines, nil))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkFuzz(t, format, append([]byte(heads[format]), data...))
	})
}

func checkFuzz(t *testing.T, format sessionfile.Format, data []byte) {
	records, d, err := tryRead(format, data)
	again, _, err2 := tryRead(format, data)
	if fmt.Sprint(err) != fmt.Sprint(err2) || len(records) != len(again) {
		t.Fatal(err, err2)
	}
	sameRecords(t, records, again)
	if err != nil {
		if !errors.Is(err, patch.ErrInvalid) && !errors.Is(err, patch.ErrTooLarge) {
			t.Fatal(err)
		}
		return
	}
	view(t, records)
	sameLines(t, data, records)
	if d.Report().Lines != len(linesOf(data)) {
		t.Fatalf("%d lines, reported are %d", len(linesOf(data)), d.Report().Lines)
	}
	ids := map[string]bool{}
	for _, r := range records {
		for id := range r.IDs() {
			if id == "" || ids[id] {
				t.Fatalf("id %q is there twice", id)
			}
			ids[id] = true
		}
	}
}
