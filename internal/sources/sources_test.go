package sources

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// ReadEvents fails if its input exceeds the limits of a patch.
func TestReadEventsLimits(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"a line without an end":   {"x", "stdin:1: too large: the line is longer than"},
		"events without an end":   {`{"author":"user"}` + "\n", "stdin:10001: too large: a patch puts in at most 10000 events"},
		"as many as there can be": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var in io.Reader = repeated(c.line)
			if c.line == "" {
				in = strings.NewReader(strings.Repeat(`{"author":"user"}`+"\n", patch.MaxReplacements-1) + `{"author":"user"}`)
			}
			events, err := ReadEvents(t.Context(), "-", in)
			if c.want == "" && (err != nil || len(events) != patch.MaxReplacements) || c.want != "" && (!errors.Is(err, patch.ErrTooLarge) || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("%d events, %v; want the error %q", len(events), err, c.want)
			}
		})
	}
}

// repeated is a reader that repeats a text endlessly.
type repeated string

func (r repeated) Read(p []byte) (int, error) {
	n := 0
	for n == 0 || len(p)-n >= len(r) {
		n += copy(p[n:], r)
	}
	return n, nil
}

// The first argument is a key only if it is not the name of a source. Folders are expanded without the target
// database.
func TestInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	testlog.NoError(t, os.MkdirAll("folder", 0o755))
	for _, name := range []string{"folder/a.jsonl", "folder/target.db"} {
		testlog.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	for args, want := range map[string]string{
		"a/u/s folder/a.jsonl":        "a/u/s folder/a.jsonl",
		"folder":                      "// folder/a.jsonl",
		"folder/target.db":            "// folder/target.db",
		"folder/*.jsonl postgres://h": "// folder/a.jsonl postgres://h",
		"-":                           "// -",
		"a/u/s":                       "SOURCE is missing: a/u/s is a KEY, and no file",
		"a/u/s folder":                "a/u/s folder/a.jsonl",
		"a/u/s - -":                   "KEY goes with one file or database, and SOURCE is not one",
		"a/u -":                       "not a key",
	} {
		o := Opener{Target: filepath.Join("folder", "target.db"), ParseKey: func(text string) (store.Key, error) {
			key, err := store.ParseKey(text)
			if err != nil {
				err = errors.New("not a key")
			}
			return key, err
		}}
		inputs, err := o.Inputs(strings.Fields(args))
		got := o.Key.App + "/" + o.Key.User + "/" + o.Key.Session
		for _, in := range inputs {
			got += " " + in.Name
		}
		if err != nil {
			got = err.Error()
		}
		testlog.Equal(t, args, got, want)
	}
	o := Opener{Key: store.Key{App: "x"}, ParseKey: store.ParseKey}
	if _, err := o.Inputs([]string{"a/u/s", "-"}); err == nil || err.Error() != "--app and --user do not go with a KEY" {
		t.Errorf("a key beside --app: %v", err)
	}
}

// Changed returns a file that is new, whose size or time has changed, or that cannot be opened.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	file, none := filepath.Join(dir, "a"), filepath.Join(dir, "none")
	testlog.NoError(t, os.WriteFile(file, []byte("1"), 0o600))
	f := new(Opener).Follow([]string{dir, none})
	changed := func() (names []string) {
		for _, in := range f.Changed() {
			names = append(names, in.Name)
		}
		return names
	}
	testlog.Equal(t, "at first", changed(), []string{file, none})
	testlog.Equal(t, "unchanged", changed(), []string{none})
	testlog.NoError(t, os.WriteFile(file, []byte("12"), 0o600))
	testlog.Equal(t, "grown", changed(), []string{file, none})
	at := testlog.Must(os.Stat(file))(t).ModTime()
	for text, when := range map[string]time.Time{"123": at, "12": at, "21": at.Add(time.Hour)} {
		testlog.NoError(t, os.WriteFile(file, []byte("12"), 0o600))
		testlog.NoError(t, os.Chtimes(file, at, at))
		changed()
		testlog.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		testlog.NoError(t, os.Chtimes(file, when, when))
		want := []string{file, none}
		if text == "12" {
			want = want[1:]
		}
		testlog.Equal(t, text, changed(), want)
	}
	testlog.Equal(t, "files", f.Len(), 1)
}
