package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var inFile = regexp.MustCompile("((?:`[A-Za-z.]+`(?:, )?)+) in `(fold/[a-z]+\\.go)`")

// Each function that CONTRIBUTING.md names for a rule of SEMANTICS.md is declared in the file that it names.
func TestSemanticsNamesFunctions(t *testing.T) {
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	names := declarations(t, "fold")
	checked := 0
	for _, m := range inFile.FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			name = strings.Trim(name, "`")
			if checked++; !slices.Contains(names[name], m[2]) {
				t.Errorf("%s does not declare %s", m[2], name)
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d functions were found", checked)
	}
}
