package store_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/store"
)

// Real sessions come back as they came, line by line.
func TestCorpusComesBack(t *testing.T) {
	for _, set := range recorded.Sets(t) {
		if set.Large && len(set.Files) != 91 {
			t.Errorf("%d sessions, want 91", len(set.Files))
		}
		t.Run(set.Name, func(t *testing.T) { comeBack(t, set.Sample(t, 9)) })
	}
}

func comeBack(t *testing.T, files []string) {
	t.Helper()
	onEach(t, func(e *env) {
		for _, file := range files {
			text := readFile(e, file)
			k := store.Key{App: "corpus", User: filepath.Base(filepath.Dir(file)), Session: filepath.Base(file)}
			e.must(e.store.Import(ctx, k, bytes.NewReader(text), store.ImportOptions{Name: file}))
			var out bytes.Buffer
			e.no(e.store.Export(ctx, k, &out, store.ExportOptions{}))
			e.sameLines(file, text, out.Bytes())
			// And again, elsewhere.
			imported, err := e.store.Import(ctx, k, bytes.NewReader(text), store.ImportOptions{Name: file})
			e.no(err)
			if imported.Added != 0 {
				e.Errorf("%s: importing again added %d", file, imported.Added)
			}
		}
	})
}

func (e *env) sameLines(file string, came, gave []byte) {
	e.Helper()
	want, got := jsonLines(e, came), jsonLines(e, gave)
	if len(got) != len(want)+1 {
		e.Errorf("%s: %d lines, want %d and a header", file, len(got), len(want))
		return
	}
	for i, line := range want {
		back := got[i+1]
		if seq := back["seq"]; seq != json.Number(strconv.Itoa(i+1)) {
			e.Errorf("%s:%d: seq %v", file, i+1, seq)
		}
		delete(back, "seq")
		for _, l := range []map[string]any{line, back} {
			at, err := time.Parse(time.RFC3339Nano, l["timestamp"].(string))
			e.no(err)
			l["timestamp"] = at.UTC().String()
		}
		if !reflect.DeepEqual(back, line) {
			e.Errorf("%s:%d: came\n%v\nand went\n%v", file, i+1, line, back)
			return
		}
	}
}

// jsonLines reads lines with their number literals.
func jsonLines(e *env, text []byte) (out []map[string]any) {
	e.Helper()
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, len(text)+1)
	for s.Scan() {
		d := json.NewDecoder(bytes.NewReader(s.Bytes()))
		d.UseNumber()
		var line map[string]any
		e.no(d.Decode(&line))
		out = append(out, line)
	}
	e.no(s.Err())
	return slices.Clip(out)
}
