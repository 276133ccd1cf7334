package command_test

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/cmd/patchlog/command/commandtest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestScripts runs the scripts in testdata, on files.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no scripts (%v)", err)
	}
	commandtest.Run(t, commandtest.Params{Files: files, Update: *update})
}
