package command

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

// What is a URL, what goes to its engine, and what is refused; no error has any of it.
func TestDatabaseNames(t *testing.T) {
	engines := []Engine{{Schemes: []string{"postgres", "postgresql"}}}
	for name, want := range map[string]string{
		"patchlog.db":                    "a file",
		"./postgres:x":                   "a file",
		`C:\patchlog.db`:                 "a file",
		"a:b.db":                         "a file",
		"postgres":                       "a file",
		"postgres:":                      "postgres ",
		"postgres://":                    "postgres ",
		"PostgreSQL://h/d":               "postgresql h/d",
		"postgres://u:sec%2Fret@h/d?a=b": "postgres u:sec%2Fret@h/d?a=b",
		"postgres://u@h1:1,h2:2/d":       "postgres u@h1:1,h2:2/d",
		"postgres:secret":                "refused",
		"postgres://u:se/cret@h/d":       "refused",
		"postgres://u:se?cret@h/d":       "refused",
		"postgres://u:se#cret@h/d":       "refused",
		" postgres://u:secret@h/d":       "refused",
		"postgres://u:secret@h/d ":       "refused",
		"\"postgres://u:secret@h/d\"":    "refused",
		"postgre://u:secret@h/d":         "refused",
		"host=h password=secret":         "refused",
		"host=h PASSWORD = 'secret'":     "refused",
	} {
		scheme, rest, isURL, err := splitURL(name, engines)
		got := "a file"
		switch {
		case err != nil:
			got = "refused"
			if strings.Contains(err.Error(), "cret") {
				t.Errorf("%q: the error has it: %v", name, err)
			}
		case isURL:
			got = scheme + " " + rest
		}
		if got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
}

func TestPasswordsAreNoArguments(t *testing.T) {
	for arg, want := range map[string]bool{
		"postgres://u:secret@h/d":                 true,
		"POSTGRES://u:secret@h/d":                 true,
		"--db=postgresql://u:secret@h":            true,
		"-from=postgres://:secret@h":              true,
		"postgres://u%3Asecret@h":                 true,
		"postgres://u:se/cret@h":                  true,
		"postgres://u:se@cret@h":                  true,
		"postgres:u:secret@h":                     true,
		" postgres://u:secret@h":                  true,
		"postgres://h/d?password=secret":          true,
		"postgres://h/d?a=b&p%61ssword=secret":    true,
		"postgres://h/d?sslmode=b&PASSWORD=s":     true,
		"postgres://h/d?sslpassword=secret":       true,
		"postgres://u@h:5432/d?sslmode=require":   false,
		"postgres://u:@h":                         false,
		"postgres://h1:1,h2:2/d":                  false,
		"postgres://h/d?passfile=/etc/pgpass":     false,
		"see postgres://u:secret@h, for instance": false, // the text of a summary
		"u:secret@h":                              false,
	} {
		err := refusePasswords([]string{"sessions", "--db", arg})
		if (err != nil) != want {
			t.Errorf("%q: %v", arg, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error has it", arg)
		}
	}
}

// An engine is asked for the databases of its schemes, with what the command will do there.
func TestEngines(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	type asked struct {
		url      string
		use      Use
		readOnly bool
	}
	var got []asked
	none := errors.New("nothing here")
	engine := Engine{Schemes: []string{"far"}, Open: func(_ context.Context, url string, use Use, opts store.Options) (*store.Store, error) {
		got = append(got, asked{url, use, opts.ReadOnly})
		return nil, none
	}}
	for _, c := range []struct {
		args string
		want asked
	}{
		{"sessions --db far:", asked{"far://", Reading, true}},
		{"verify --db FAR://x", asked{"far://x", Reading, true}},
		{"state a/u/s", asked{"far://env", Reading, true}},
		{"patch splice a/u/s --start 0 --count 1 --dry-run", asked{"far://env", Reading, true}},
		{"patch splice a/u/s --start 0 --count 1", asked{"far://env", Writing, false}},
		{"delete a/u/s --yes", asked{"far://env", Writing, false}},
		{"import a/u/s -", asked{"far://env", Creating, false}},
		{"copy --from patchlog.db", asked{"far://env", Creating, false}},
		{"copy --from patchlog.db --dry-run", asked{"far://env", Reading, true}},
		{"copy --to other.db", asked{"far://env", Reading, true}},
	} {
		got = nil
		var out, errs bytes.Buffer
		env := func(name string) string { return map[string]string{"PATCHLOG_DB": "far://env"}[name] }
		code := Run(t.Context(), strings.Fields(c.args), strings.NewReader(twoEvents), &out, &errs, env, Options{Engines: []Engine{engine}})
		if code != exitFailed || len(got) != 1 || got[0] != c.want || !strings.Contains(errs.String(), none.Error()) {
			t.Errorf("%s: exit code %d, asked for %+v, want %+v: %s", c.args, code, got, c.want, errs.String())
		}
	}
}
