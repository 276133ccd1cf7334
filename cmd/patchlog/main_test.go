package main

import (
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/cmd/patchlog/command"
	"github.com/patchlog-dev/patchlog/cmd/patchlog/command/commandtest"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgtest.Options{NoSync: true})) }

// scripts is where those are that every build runs.
const scripts = "command/testdata"

// onFiles are the scripts that are about files as databases.
var onFiles = []string{"usage.txt", "backup.txt", "salvage.txt"}

// urlOf returns a connection string as a URL.
func urlOf(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return "postgres://" + config.User + "@/" + config.Database + "?sslmode=disable&port=5432&host=" + url.QueryEscape(config.Host)
}

// TestScripts runs the scripts of the command, each on a PostgreSQL database of its own, and
// then those that need one.
func TestScripts(t *testing.T) {
	newDatabase := func(t *testing.T) string { return urlOf(t, pgtest.New(t)) }
	all, err := filepath.Glob(scripts + "/*.txt")
	if err != nil || len(all) == 0 {
		t.Fatalf("there are no scripts (%v)", err)
	}
	all = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(onFiles, filepath.Base(name)) })
	own, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(own) == 0 {
		t.Fatalf("there are no scripts (%v)", err)
	}
	// What the other build expects is not written anew here.
	commandtest.Run(t, commandtest.Params{Files: all, Engines: []command.Engine{engine}, Database: newDatabase})
	commandtest.Run(t, commandtest.Params{Files: own, Update: *update, Engines: []command.Engine{engine}, Database: newDatabase})
}
