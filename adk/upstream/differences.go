package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// differing returns the tests whose outcomes differ, in order. Of one that fails because a
// part of it does, only the part is named.
func differing(theirs, ours results) []test {
	all := maps.Clone(theirs.outcomes)
	maps.Copy(all, ours.outcomes)
	differ := map[test]bool{}
	for t := range all {
		if theirs.outcomes[t] != ours.outcomes[t] {
			differ[t] = true
		}
	}
	for t := range maps.Clone(differ) {
		if t.name == "" {
			continue
		}
		for i, c := range t.name {
			if c == '/' {
				delete(differ, test{t.pkg, t.name[:i]})
			}
		}
		delete(differ, test{t.pkg, ""})
	}
	return slices.SortedFunc(maps.Keys(differ), compareTests)
}

func compareTests(a, b test) int { return strings.Compare(a.String(), b.String()) }

// difference is one that is known, and has its reason.
type difference struct {
	test
	reason  string
	only    map[string]bool // conditions under which it is there; none: always
	atTimes bool
}

// parseDifferences reads a list. What stands at the margin is a reason; the indented lines
// below it are the tests that differ for it: the package, the test, and conditions, of which
// the words are the names of modes and atTimes. A line of # says something to the reader.
func parseDifferences(in io.Reader) (list []difference, err error) {
	reason, again := "", false
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || line[0] == '#':
		case line[0] != ' ' && again:
			reason += " " + line
		case line[0] != ' ':
			reason, again = line, true
		case reason == "" || len(fields) < 2:
			return nil, fmt.Errorf("differences, line %d: %q is not a package and a test, below a reason", n, line)
		default:
			again = false
			d := difference{test: test{adkModule + "/" + fields[0], fields[1]}, reason: reason, only: map[string]bool{}}
			for _, word := range fields[2:] {
				switch {
				case word == "sometimes":
					d.atTimes = true
				case slices.Contains(modes, word):
					d.only[word] = true
				default:
					return nil, fmt.Errorf("differences, line %d: %q is none of %q", n, word, append([]string{"sometimes"}, modes...))
				}
			}
			list = append(list, d)
		}
	}
	return list, lines.Err()
}

// expected returns the differences that a list says of a mode, for the packages that were
// run.
func expected(list []difference, mode string, packages []string) map[test]difference {
	out := map[test]difference{}
	for _, d := range list {
		if (len(d.only) == 0 || d.only[mode]) && slices.Contains(packages, d.pkg) {
			out[d.test] = d
		}
	}
	return out
}
