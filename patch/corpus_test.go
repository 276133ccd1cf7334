package patch_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

const (
	corpusSessions = 91
	corpusEvents   = 6400
)

// onRecorded runs a test on each set of recorded sessions, with the events that each must
// have, or 0 where that is not known.
func onRecorded(t *testing.T, run func(t *testing.T, files []string, events int)) {
	t.Helper()
	for _, set := range recorded.Sets(t) {
		t.Run(set.Name, func(t *testing.T) {
			events := 0
			if set.Large {
				if len(set.Files) != corpusSessions {
					t.Fatalf("%d sessions in the corpus, want %d", len(set.Files), corpusSessions)
				}
				if !testing.Short() {
					events = corpusEvents
				}
			}
			run(t, set.Sample(t, 8), events)
		})
	}
}

func readFile(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestCorpusComesBackAsItCame(t *testing.T) {
	onRecorded(t, func(t *testing.T, files []string, want int) {
		events := 0
		for _, file := range files {
			for line := range bytes.Lines(readFile(t, file)) {
				comesBack(t, file, line)
				events++
			}
		}
		if events != want && want > 0 {
			t.Errorf("%d events, want %d", events, want)
		}
	})
}

func comesBack(t *testing.T, file string, line []byte) {
	t.Helper()
	rec := parse(t, string(line))
	want := canonical(t, string(line))
	if got := canonical(t, marshal(t, rec)); got != want {
		t.Fatalf("%s: the line\n%s\ncame back as\n%s", file, want, got)
	}
	back := stored(t, rec)
	if got, want := marshal(t, back), marshal(t, rec); got != want {
		t.Fatalf("%s: stored, the record is\n%s, was\n%s", file, got, want)
	}
	if !patch.Same(back, rec) || !patch.Same(rec, back) {
		t.Fatalf("%s: a stored record is not the same as offered: %s", file, want)
	}
	if got := len(marshal(t, rec)); got != rec.Size() {
		t.Fatalf("%s: Size is %d, the JSON has %d bytes", file, rec.Size(), got)
	}
	checkDerived(t, file, line, rec.Event)
}

// checkDerived compares what an event says of itself with what its JSON says.
func checkDerived(t *testing.T, file string, line []byte, e *patch.Event) {
	t.Helper()
	var want struct {
		Content *struct {
			Role  string
			Parts []struct{ FunctionCall, FunctionResponse *struct{ ID, Name string } }
		}
		Actions struct{ StateDelta map[string]any }
	}
	if err := json.Unmarshal(line, &want); err != nil {
		t.Fatal(err)
	}
	var parts []patch.FunctionPart
	if c := want.Content; c != nil {
		if e.Role() != c.Role || e.HasContent() != (len(c.Parts) > 0) {
			t.Fatalf("%s: role %q, content %v: %s", file, e.Role(), e.HasContent(), line)
		}
		for i, p := range c.Parts {
			if f := p.FunctionCall; f != nil {
				parts = append(parts, patch.FunctionPart{Index: i, ID: f.ID, Name: f.Name})
			}
			if f := p.FunctionResponse; f != nil {
				parts = append(parts, patch.FunctionPart{Index: i, Response: true, ID: f.ID, Name: f.Name})
			}
		}
	}
	var got []patch.FunctionPart
	for p := range e.FunctionParts() {
		got = append(got, p)
	}
	wantEqual(t, file+": function parts", got, parts)
	if n := len(e.StateDelta()); n != len(want.Actions.StateDelta) || records.HasDelta(e) != (n > 0) {
		t.Fatalf("%s: %d changes of state, HasDelta %v: %s", file, n, records.HasDelta(e), line)
	}
}

func TestCorpusReadAsText(t *testing.T) {
	onRecorded(t, func(t *testing.T, files []string, _ int) {
		for _, file := range files {
			readAsText(t, file)
		}
	})
}

func readAsText(t *testing.T, file string) {
	t.Helper()
	text := readFile(t, file)
	d := patch.NewDecoder(bytes.NewReader(text), file)
	records, _, err := records.ReadAll(d)
	if err != nil {
		t.Fatal(err)
	}
	if want := bytes.Count(text, []byte("\n")); len(records) != want || d.Line != want {
		t.Fatalf("%s: %d records, last line %d, want %d", file, len(records), d.Line, want)
	}
	var out bytes.Buffer
	enc := patch.NewEncoder(&out)
	for i, rec := range records {
		rec.Seq = uint64(i + 1)
		if err := enc.Record(rec); err != nil {
			t.Fatal(err)
		}
	}
	d = patch.NewDecoder(&out, file)
	for i, rec := range records {
		back, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		if back.Seq != uint64(i+1) || !patch.Same(rec, back) {
			t.Fatalf("%s: record %d came back as %s", file, i+1, marshal(t, back))
		}
	}
	if _, err := d.Next(); err != io.EOF {
		t.Fatalf("after the last record: %v", err)
	}
}
