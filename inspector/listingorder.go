package inspector

import (
	"cmp"
	"slices"
	"time"
)

// candidate is a session that a page may show, with its figures as far as they are known.
type candidate struct {
	*listed
	*measured
}

// sound reports whether the figures of a session are known.
func (c candidate) sound() bool {
	return c.listed.problem == "" && c.measured != nil && c.measured.problem == ""
}

// wrong says what is wrong with a session, as far as it is known.
func (c candidate) wrong() string {
	if c.listed.problem == "" && c.measured != nil {
		return c.measured.problem
	}
	return c.listed.problem
}

// settled reports whether reading the log would tell nothing new.
func (c candidate) settled() bool { return c.listed.problem != "" || c.measured != nil }

func settledOf(sessions []candidate) int {
	n := 0
	for _, s := range sessions {
		if s.settled() {
			n++
		}
	}
	return n
}

// column is one that the list can be sorted by.
type column struct {
	name, title, hint string
	number            bool
	falls             bool // the largest come first, unless asked for otherwise
	measured          bool // it needs figures
	compare           func(a, b candidate) int
}

// columns are those of the page, in order. The first is the order of the list.
var columns = []column{
	{name: "key", title: "Session", compare: func(a, b candidate) int { return 0 }},
	{name: "created", title: "Created", falls: true, compare: func(a, b candidate) int { return a.Created.Compare(b.Created) }},
	{name: "records", title: "Records", number: true, falls: true, compare: func(a, b candidate) int { return cmp.Compare(a.Seq, b.Seq) }},
	{name: "events", title: "Visible events", number: true, falls: true, measured: true, compare: by(func(m *measured) int64 { return int64(m.events) })},
	{name: "raw", title: "Tokens logged", hint: "about; of all events ever logged", number: true, falls: true, measured: true, compare: by(func(m *measured) int64 { return int64(m.tokens.Raw) })},
	{name: "visible", title: "Tokens visible", hint: "about; of what a model sees", number: true, falls: true, measured: true, compare: by(func(m *measured) int64 { return int64(m.tokens.Visible) })},
	{name: "compaction", title: "Last compaction", falls: true, measured: true, compare: func(a, b candidate) int { return passTime(a.measured).Compare(passTime(b.measured)) }},
	{name: "skipped", title: "Skipped patches", number: true, falls: true, measured: true, compare: by(func(m *measured) int64 { return int64(m.skipped) })},
	{name: "problems", title: "Problems", falls: true, measured: true, compare: func(a, b candidate) int { return cmp.Compare(a.wrong(), b.wrong()) }},
}

func by(figure func(*measured) int64) func(a, b candidate) int {
	return func(a, b candidate) int { return cmp.Compare(figure(a.measured), figure(b.measured)) }
}

// passTime is when the last compaction was; the zero time if there was none.
func passTime(m *measured) time.Time {
	if m.pass == nil {
		return time.Time{}
	}
	return m.pass.time
}

// sorted reports whether the column can say where a session belongs.
func (c column) sorted(s candidate) bool {
	switch {
	case c.name == "problems":
		return s.settled()
	case c.measured:
		return s.sound()
	case c.name == "key":
		return true
	}
	return s.listed.problem == ""
}

// sort puts sessions in the order of a column. Those of which it says nothing come last. Of
// equals, the order stays.
func (c column) sort(sessions []candidate, descending bool) {
	slices.SortStableFunc(sessions, func(a, b candidate) int {
		switch x, y := c.sorted(a), c.sorted(b); {
		case !x || !y:
			return cmp.Compare(rank(y), rank(x))
		case descending:
			return c.compare(b, a)
		}
		return c.compare(a, b)
	})
}

func rank(known bool) int {
	if known {
		return 1
	}
	return 0
}
