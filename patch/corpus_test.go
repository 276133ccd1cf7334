package patch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

const (
	corpusSessions = 91
	corpusEvents   = 6400
)

// forEachSet runs a test on each set of recorded sessions. The argument events is the expected number of
// events, or 0 if it is unknown.
func forEachSet(t *testing.T, run func(t *testing.T, files []string, events int)) {
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
	text := testlog.Must(os.ReadFile(file))(t)
	return text
}

func TestCorpusRoundTrip(t *testing.T) {
	forEachSet(t, func(t *testing.T, files []string, want int) {
		events := 0
		for _, file := range files {
			for line := range bytes.Lines(readFile(t, file)) {
				checkRoundTrip(t, file, line)
				events++
			}
		}
		if events != want && want > 0 {
			t.Errorf("%d events, want %d", events, want)
		}
	})
}

func checkRoundTrip(t *testing.T, file string, line []byte) {
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

// checkDerived compares the results of the event's accessors with its JSON.
func checkDerived(t *testing.T, file string, line []byte, e *patch.Event) {
	t.Helper()
	var want struct {
		Content *struct {
			Role  string
			Parts []struct{ FunctionCall, FunctionResponse *struct{ ID, Name string } }
		}
		Actions struct{ StateDelta map[string]any }
	}
	testlog.NoError(t, json.Unmarshal(line, &want))
	var parts []patch.FunctionPart
	if c := want.Content; c != nil {
		if e.Role() != c.Role || e.SaysSomething() != (len(c.Parts) > 0) {
			t.Fatalf("%s: role %q, content %v: %s", file, e.Role(), e.SaysSomething(), line)
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
	forEachSet(t, func(t *testing.T, files []string, _ int) {
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
	for i, rec := range records {
		rec.Seq = uint64(i + 1)
		testlog.NoError(t, patch.WriteRecord(&out, rec))
	}
	d = patch.NewDecoder(&out, file)
	for i, rec := range records {
		back := testlog.Must(d.Next())(t)
		if back.Seq != uint64(i+1) || !patch.Same(rec, back) {
			t.Fatalf("%s: record %d came back as %s", file, i+1, marshal(t, back))
		}
	}
	if _, err := d.Next(); err != io.EOF {
		t.Fatalf("after the last record: %v", err)
	}
}

// canonical returns JSON with sorted keys. Number literals do not change. The top-level time becomes an
// instant, without its time zone. The function shares no code with package patch.
func canonical(t testing.TB, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("%.200s is not one JSON value: %v", text, err)
	}
	if object, ok := v.(map[string]any); ok {
		if text, ok := object["timestamp"].(string); ok {
			at := testlog.Must(time.Parse(time.RFC3339Nano, text))(t)
			object["timestamp"] = fmt.Sprintf("instant %d.%09d", at.Unix(), at.Nanosecond())
		}
	}
	var b bytes.Buffer
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for _, k := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(b, "%q:", k)
			writeCanonical(b, v[k])
			b.WriteByte(',')
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for _, e := range v {
			writeCanonical(b, e)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case string:
		fmt.Fprintf(b, "%q", v)
	default: // nil, bool or json.Number
		fmt.Fprint(b, v)
	}
}
