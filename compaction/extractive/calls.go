package extractive

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// callList is the function calls of an invocation, those of one function together. Cut
// short, it loses arguments first and names last.
type callList struct {
	groups []*callGroup
	byName map[string]*callGroup
}

type callGroup struct {
	name  string
	count int
	args  []string
	known map[string]bool // the args
	text  *passage        // of the args; made when it is needed
}

// Bounds on what is kept of calls and results.
const (
	maxNameWidth  = 128 // of a function's name
	maxNamesWidth = 96  // of the names that a list shows at least
	maxValueWidth = 160 // of one argument
	maxGroupArgs  = 200 // different arguments of one function
	maxLeaves     = 64  // values of one call
	maxCount      = 999 // calls of one function
)

func (l *callList) add(name, args string) {
	if l.byName == nil {
		l.byName = make(map[string]*callGroup)
	}
	g := l.byName[name]
	if g == nil {
		g = &callGroup{name: name, known: make(map[string]bool)}
		l.byName[name] = g
		l.groups = append(l.groups, g)
	}
	g.count++
	g.text = nil
	if args != "" && !g.known[args] && len(g.args) < maxGroupArgs {
		g.known[args] = true
		g.args = append(g.args, args)
	}
}

// times is what stands behind the name of a function called more than once.
func (g *callGroup) times() string {
	if g.count == 1 {
		return ""
	}
	return " ×" + counted(g.count)
}

// counted is a number of times. It is never so long that it would pass for a fact.
func counted(n int) string {
	if n > maxCount {
		return fmt.Sprintf("%d+", maxCount)
	}
	return fmt.Sprint(n)
}

func (g *callGroup) passage() *passage {
	if g.text == nil {
		g.text = newPassage(strings.Join(g.args, "; "))
	}
	return g.text
}

// bare is the width of the group without arguments.
func (g *callGroup) bare() int {
	return utf8.RuneCountInString(g.name) + utf8.RuneCountInString(g.times())
}

// names is the width of the list without arguments.
func (l *callList) names() int {
	n := 2 * max(0, len(l.groups)-1)
	for _, g := range l.groups {
		n += g.bare()
	}
	return n
}

func (l *callList) width() int {
	n := l.names()
	for _, g := range l.groups {
		if len(g.args) > 0 {
			n += 2 + g.passage().width()
		}
	}
	return n
}

// cut returns the list in at most width runes: all names if there is room, and then
// arguments, the same for each function.
func (l *callList) cut(width int) string {
	shown, room := l.groups, width
	for i, g := range l.groups {
		n := g.bare()
		if i > 0 {
			n += 2
		}
		rest := 0
		if i < len(l.groups)-1 {
			rest = 3 // for an ellipsis in place of the next
		}
		if n+rest > room {
			shown = l.groups[:i]
			break
		}
		room -= n
	}
	if len(shown) == 0 {
		return ""
	}
	var b strings.Builder
	if len(shown) < len(l.groups) {
		room = 0
	}
	for i, g := range shown {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(g.name)
		if len(g.args) > 0 {
			width := room/(len(shown)-i) - 2
			if args := g.passage().cut(width); args != "" && (width >= minPassage || width >= g.passage().width()) {
				b.WriteString("(" + args + ")")
				room -= utf8.RuneCountInString(args) + 2
			}
		}
		b.WriteString(g.times())
	}
	if len(shown) < len(l.groups) {
		b.WriteString(", …")
	}
	return b.String()
}
