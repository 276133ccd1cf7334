package migrate_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

var updateTable = flag.Bool("update-table", false, "write the table of formats to docs/OPERATIONS.md")

// The table of formats in OPERATIONS.md equals the table generated from Formats.
func TestFormatTable(t *testing.T) {
	const file, head = "../../docs/OPERATIONS.md", "| format | versions tried | kept | not kept |\n|---|---|---|---|\n"
	table := head
	for _, f := range migrate.Formats() {
		if f.Name == "" || f.Title == "" || f.Versions == "" || f.Kept == "" || f.Omitted == "" {
			t.Errorf("%+v does not say all", f)
		}
		table += strings.ReplaceAll(fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.Name, f.Versions, f.Kept, f.Omitted), "*", `\*`)
	}
	text := string(testlog.Must(os.ReadFile(file))(t))
	if *updateTable {
		text = regexp.MustCompile(`(?m)^(TABLE|\| format \|.*\n(\|.*\n)+)`).ReplaceAllLiteralString(text, table)
		testlog.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	if !strings.Contains(text, table+"\n") {
		t.Errorf("%s lacks the table of formats; run: go test ./store/migrate -run TestFormatTable -update-table", file)
	}
}
