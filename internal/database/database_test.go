package database

import (
	"strings"
	"testing"
)

// A database name is accepted if it is a file name or a PostgreSQL URL. The error for any other name does not
// quote the name.
func TestDatabaseNames(t *testing.T) {
	for name, want := range map[string]string{
		"patchlog.db":                    "a file",
		"./postgres:x":                   "a file",
		`C:\patchlog.db`:                 "a file",
		"a:b.db":                         "a file",
		"postgres":                       "a file",
		"postgres:":                      "postgres://",
		"postgres://":                    "postgres://",
		"PostgreSQL://h/d":               "postgresql://h/d",
		"postgres://u:sec%2Fret@h/d?a=b": "postgres://u:sec%2Fret@h/d?a=b",
		"postgres://u@h1:1,h2:2/d":       "postgres://u@h1:1,h2:2/d",
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
		url, err := PostgresURL(name)
		got := "a file"
		switch {
		case err != nil:
			got = "refused"
			if strings.Contains(err.Error(), "cret") {
				t.Errorf("%q: the error has it: %v", name, err)
			}
		case url != "":
			got = url
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
		"see postgres://u:secret@h, for instance": false, // a URL within other text is allowed, for example in a summary
		"u:secret@h":                              false,
	} {
		if got := HasPassword(arg); got != want {
			t.Errorf("%q: %t", arg, got)
		}
	}
}

func TestSchemaInURL(t *testing.T) {
	for name, want := range map[string][2]string{
		"postgres://":                       {"", ""},
		"postgres://h/d":                    {"postgres://h/d", ""},
		"postgres://h/d?schema=agents":      {"postgres://h/d", "agents"},
		"postgres://h/d?a=1&schema=%41&b=2": {"postgres://h/d?a=1&b=2", "A"},
		"postgres://h/d?schema=%zz":         {"postgres://h/d?schema=%zz", ""},
	} {
		if dsn, schema := cutSchema(name); dsn != want[0] || schema != want[1] {
			t.Errorf("%q is %q and schema %q, want %q", name, dsn, schema, want)
		}
	}
}
