// Command dictionary makes the dictionary that records are compressed with, from the recorded
// sessions that the repository carries and a page of general text, and measures what dictionaries
// made so are worth for sessions that they were not made from. The dictionary that is in use
// never changes, since what it compressed is read with it: another one would stand beside it
// (docs/FORMAT.md).
//
//	go run ./bench/dictionary           # what it is worth
//	go run ./bench/dictionary -o FILE   # another one
//
// Run it in the root of the repository.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

const (
	small  = "fuzz/testdata/sessions"
	corpus = "../shared/corpus"
	plain  = 5  // bytes before a record's body
	packed = 13 // the same of one that is compressed, with its frame's header
)

func main() {
	out := flag.String("o", "", "write the dictionary into `FILE`")
	size := flag.Int("size", 32<<10, "how many `BYTES` it has, at most 65536")
	flag.Parse()
	if err := run(os.Stdout, *out, *size); err != nil {
		fmt.Fprintln(os.Stderr, "dictionary:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, out string, size int) error {
	known := map[string]bool{}
	sessions, err := read(small, known, false)
	if err != nil {
		return err
	}
	if out != "" {
		return os.WriteFile(out, train(size, sessions), 0o644)
	}
	fmt.Fprintf(w, "Compressed bodies, as a share of the events' JSON.\n\nEach family of %s, with a dictionary made from the others:\n", small)
	apart := func(family string) compress {
		return by(train(size, slices.DeleteFunc(slices.Clone(sessions), func(s session) bool { return s.family == family })))
	}
	if err := shares(w, sessions, apart); err != nil {
		return err
	}
	others, err := read(corpus, known, true)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(w, "\nThe large corpus is not at %s.\n", corpus)
		return err
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nThe large corpus without the events that are in the small set, with the dictionary in use:")
	if err := shares(w, others, func(string) compress { return inUse }); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nThe same without a dictionary:")
	return shares(w, others, func(string) compress { return by(nil) })
}

// read reads the sessions that lie in the folders of a directory. Events with ids that are known
// are left out, if so asked; else their ids are noted.
func read(dir string, known map[string]bool, leaveOut bool) ([]session, error) {
	var sessions []session
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".jsonl" {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		records, _, err := records.ReadAll(patch.NewDecoder(f, name))
		if err != nil {
			return err
		}
		s := session{family: filepath.Base(filepath.Dir(name))}
		for i, r := range records {
			if leaveOut && known[r.ID()] {
				continue
			}
			known[r.ID()] = true
			r.Seq = uint64(i + 1)
			form, err := patch.AppendRecord(nil, r)
			if err != nil {
				return err
			}
			s.bodies = append(s.bodies, form[plain:])
			s.forms = append(s.forms, form)
			s.json += len(r.Event.String()) + 1
		}
		sessions = append(sessions, s)
		return nil
	})
	return sessions, err
}

// compress returns how many bytes a record takes whose plain form is given.
type compress func(form []byte) int

// by compresses with a dictionary of its own or none, else as a store does.
func by(dictionary []byte) compress {
	encode := s2.Encode
	if d := s2.MakeDict(dictionary, nil); d != nil {
		encode = d.Encode
	}
	return func(form []byte) int { return min(packed+len(encode(nil, form[plain:])), len(form)) }
}

// inUse compresses as a store does.
func inUse(form []byte) int { return len(recordform.Compress(form)) }

// shares writes a line for each family, and one for all.
func shares(w io.Writer, sessions []session, of func(family string) compress) error {
	families := map[string][]session{}
	for _, s := range sessions {
		families[s.family] = append(families[s.family], s)
	}
	size, json := 0, 0
	for _, family := range slices.Sorted(maps.Keys(families)) {
		c := of(family)
		n, text := 0, 0
		for _, s := range families[family] {
			for _, form := range s.forms {
				n += c(form)
			}
			text += s.json
		}
		if text > 0 {
			fmt.Fprintf(w, "%-16s %.3f\n", family, float64(n)/float64(text))
		}
		size, json = size+n, json+text
	}
	fmt.Fprintf(w, "%-16s %.3f\n", "all", float64(size)/float64(json))
	return nil
}
