package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/quality"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// setFolders are the folders of the sets of sessions, relative to the root of the repository. Each has one folder per
// source.
var setFolders = []struct{ name, dir string }{
	{"the sessions that the repository carries", "fuzz/testdata/sessions"},
	{"the large corpus", "../shared/corpus"},
}

// set is a set of recorded sessions, grouped by family.
type set struct {
	name     string
	families []family
}

// family is a group of sessions with the same source and form.
type family struct {
	name     string
	sessions []session
}

// session is a session with probes, which are asked at its end.
type session struct {
	quality.Recording
	probes []quality.Probe
}

// manyInvocations is the smallest number of invocations of a long session.
const manyInvocations = 10

func sessionForm(r session) string {
	switch n := r.Invocations(); {
	case n >= manyInvocations:
		return "long"
	case n == 1:
		return "one task"
	}
	return "short"
}

// readSets reads the sets that exist, and then the dialogues. The first set must exist.
func readSets(root string) (sets []set, err error) {
	probes := recordedProbes()
	for i, p := range setFolders {
		dir := filepath.Join(root, p.dir)
		if _, err := os.Stat(dir); i > 0 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s, err := readSet(p.name, dir, probes)
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	s, err := dialogues()
	return append(sets, s), err
}

func readSet(name, dir string, probes map[string][]quality.Probe) (set, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.jsonl"))
	if err != nil {
		return set{}, err
	}
	if len(files) == 0 {
		return set{}, fmt.Errorf("%s has no recorded session; run it at the root of the repository", dir)
	}
	s := set{name: name}
	for _, file := range files {
		rec, err := read(file)
		if err != nil {
			return set{}, err
		}
		source := filepath.Base(filepath.Dir(file))
		if of := probes[source+"/"+strings.TrimSuffix(filepath.Base(file), ".jsonl")]; of != nil {
			rec.probes = of
		}
		name := source + ", " + sessionForm(rec)
		i := slices.IndexFunc(s.families, func(f family) bool { return f.name == name })
		if i < 0 {
			i = len(s.families)
			s.families = append(s.families, family{name: name})
		}
		s.families[i].sessions = append(s.families[i].sessions, rec)
	}
	return s, nil
}

func read(file string) (session, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return session{}, err
	}
	records, _, err := records.ReadAll(patch.NewDecoder(bytes.NewReader(text), file))
	if err != nil {
		return session{}, err
	}
	var events []*patch.Event
	for _, r := range records {
		if r.Event != nil {
			events = append(events, r.Event)
		}
	}
	rec, err := quality.Record(events)
	if err != nil {
		return session{}, fmt.Errorf("%s: %w", file, err)
	}
	return session{rec, wishesOf(events)}, nil
}
