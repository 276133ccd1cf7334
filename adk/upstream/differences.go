package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// differing returns the tests whose outcomes differ, in sorted order. If a test differs because a subtest differs,
// it returns only the subtest.
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

type difference struct {
	test
	reason    string
	modes     map[string]bool // modes in which the difference occurs; empty means all modes
	sometimes bool
}

// parseDifferences reads a list of differences. A line that is not indented is part of a reason. The indented lines
// below a reason name the tests that differ for this reason. Each indented line contains a package, a test, and
// optional words. A word is a mode, or "sometimes" if the difference does not occur in every run. Lines that start
// with # are comments.
func parseDifferences(in io.Reader) (list []difference, err error) {
	reason, inReason := "", false
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || line[0] == '#':
		case line[0] != ' ' && inReason:
			reason += " " + line
		case line[0] != ' ':
			reason, inReason = line, true
		case reason == "" || len(fields) < 2:
			return nil, fmt.Errorf("differences.txt, line %d: %q is not a package and a test below a reason", n, line)
		default:
			inReason = false
			d := difference{test: test{adkModule + "/" + fields[0], fields[1]}, reason: reason, modes: map[string]bool{}}
			for _, word := range fields[2:] {
				switch {
				case word == "sometimes":
					d.sometimes = true
				case slices.Contains(modes, word):
					d.modes[word] = true
				default:
					return nil, fmt.Errorf("differences.txt, line %d: %q is not one of %q", n, word, append([]string{"sometimes"}, modes...))
				}
			}
			list = append(list, d)
		}
	}
	return list, lines.Err()
}

// expected returns the listed differences that apply to a mode and to the given packages.
func expected(list []difference, mode string, packages []string) map[test]difference {
	out := map[test]difference{}
	for _, d := range list {
		if (len(d.modes) == 0 || d.modes[mode]) && slices.Contains(packages, d.pkg) {
			out[d.test] = d
		}
	}
	return out
}
