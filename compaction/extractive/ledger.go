package extractive

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// ledger is facts, each once: values word for word, with what they name. Ledgers are
// united, and never summarised.
type ledger struct {
	entries map[entryID]*entry
	keys    map[place]int // in the order in which they come first
	clock   int
}

// entryID tells facts apart: by the value, if that is of a form that is hardly met by chance,
// and else by what it names too.
type entryID struct{ key, value string }

// entry is a fact in a ledger.
type entry struct {
	key, value string
	use        factUse
	form       factForm
	named      bool // the key is that of a value in JSON
	last       int  // when it was met last
	times      int  // in how many places it was met
	favoured   bool // it comes before all others
	rank       int  // among those of its key: 0 is kept the longest
}

// factUse says who has used a fact. Those that are used more are kept longer.
type factUse int

const (
	returned factUse = iota // a tool has returned it, and nobody has used it since
	used                    // the user or the agent has said it, or a call has it
)

// Headings of a summary. What stands before the first is told in sentences.
const (
	keptHeading  = "Keep in mind:"
	toldHeading  = "What happened:"
	openHeading  = "Open:"
	usedHeading  = "Facts:"
	otherHeading = "Returned:"
)

// calledKey is the key of the functions that were called.
const calledKey = "called"

func newLedger() *ledger {
	return &ledger{entries: make(map[entryID]*entry), keys: make(map[place]int)}
}

func idOf(f fact) entryID {
	if f.form == unique {
		return entryID{"", bare(f.value)}
	}
	return entryID{f.key, f.value}
}

// add takes in a fact that is met after all that are there.
func (l *ledger) add(f fact, use factUse) {
	id := idOf(f)
	l.clock++
	e := l.entries[id]
	if e == nil {
		e = &entry{key: f.key, value: f.value, form: f.form, named: f.named}
		l.entries[id] = e
	}
	if f.named || !e.named {
		e.key, e.value, e.named = f.key, f.value, f.named
	}
	e.use = max(e.use, use)
	e.last = l.clock
	e.times++
	if _, known := l.keys[e.place()]; !known {
		l.keys[e.place()] = len(l.keys)
	}
}

func (l *ledger) addAll(facts []fact, use factUse) {
	for _, f := range facts {
		l.add(f, use)
	}
}

// commonPart is the part of the aim that facts get which may be met by chance.
const commonPart = 3

// width is how many runes the facts take, those that may be met by chance up to a limit.
func (l *ledger) width(limit int) int {
	var n [2]int
	for _, e := range l.entries {
		n[e.form] += utf8.RuneCountInString(e.value) + 2
	}
	return n[unique] + min(n[common], limit)
}

// calledWidth is how many runes the names of functions take, up to a limit.
func (l *ledger) calledWidth(limit int) int {
	n := 0
	for _, e := range l.entries {
		if e.key == calledKey {
			n += utf8.RuneCountInString(e.value) + 2
		}
	}
	if n > 0 {
		n += len(usedHeading) + len(bullet) + len(calledKey) + 2
	}
	return min(n, limit)
}

// favour lets the facts of the first request come before all others.
func (l *ledger) favour(lines []*line) {
	if len(lines) == 0 || len(lines[0].details) == 0 {
		return
	}
	if p, ok := lines[0].details[0].body.(*passage); ok && lines[0].asked {
		for _, f := range findFacts(p.text) {
			if e := l.entries[idOf(f)]; e != nil {
				e.favoured = true
			}
		}
	}
}

// write writes the facts in at most room runes, but those that are told elsewhere, and
// of those that nobody has used also those that were told before. It adds to told.
func (l *ledger) write(told, before map[string]bool, aim, room int) string {
	kept := make(map[*entry]bool)
	lines := make(map[place]bool)
	left := room
	for _, e := range l.ranked() {
		if room < leastLedger && !e.favoured {
			break
		}
		if told[bare(e.value)] || (e.use == returned || e.key == calledKey) && before[bare(e.value)] {
			continue
		}
		at, section := e.place(), place{heading: e.place().heading}
		n := utf8.RuneCountInString(quoted(e.value)) + 2
		if !lines[at] {
			n += utf8.RuneCountInString(quoted(e.key)) + 3
			if !lines[section] {
				n += len(section.heading) + 1
			}
		}
		// What may be met by chance is not worth much room.
		if n > left || e.order() == byChance && n > left-room+aim/commonPart {
			continue
		}
		left -= n
		tell(told, e.value)
		kept[e], lines[at], lines[section] = true, true, true
	}
	return l.text(kept)
}

// tell says that a value is told, and with a path the ends of it.
func tell(told map[string]bool, value string) {
	if len(value) > 4*maxFact {
		return
	}
	value = bare(value)
	told[value] = true
	if !isPath(value) {
		return
	}
	for i, r := range value {
		if r == '/' {
			told[value[:i]], told[value[i:]], told[value[i+1:]], told["."+value[i:]] = true, true, true, true
		}
	}
}

// leastLedger is the room from which on there are other facts than those of the first request,
// in runes.
const leastLedger = 32

// laterRank is how many facts of a key that are used go before one that is not.
const laterRank = 16

// ranked returns the facts in the order in which they are kept: first those that are hardly
// met by chance, of each key the newest, then the second of each, and so on; what is met in
// several places sooner, and what nobody has used later.
func (l *ledger) ranked() []*entry {
	all := l.all()
	ranks := make(map[place]int)
	for _, e := range slices.Backward(all) {
		e.rank = ranks[e.place()]
		ranks[e.place()]++
		if e.use == returned {
			e.rank = laterRank + 2*e.rank
		}
		e.rank /= e.times
		if e.favoured {
			e.rank = -1
		}
	}
	slices.SortStableFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a.rank, b.rank), cmp.Compare(b.last, a.last))
	})
	return all
}

// order is what ranks facts before all else.
func (e *entry) order() int {
	switch {
	case e.favoured:
		return 0
	case e.key == calledKey:
		return 1
	case e.form == unique:
		return 2
	}
	return byChance
}

// byChance is the order of facts that may be met by chance.
const byChance = 3

// all returns the facts in the order in which they were met last.
func (l *ledger) all() []*entry {
	all := make([]*entry, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.last, b.last) })
	return all
}

// place is where a fact stands: under which heading and key.
type place struct{ heading, key string }

func (e *entry) place() place {
	if e.use == used {
		return place{usedHeading, e.key}
	}
	return place{otherHeading, e.key}
}

// text writes facts: a line for each key, in the order in which keys were met first and
// values last.
func (l *ledger) text(kept map[*entry]bool) string {
	var b strings.Builder
	for _, heading := range []string{usedHeading, otherHeading} {
		byKey := make(map[string][]string)
		var keys []string
		for _, e := range l.all() {
			if kept[e] && e.place().heading == heading {
				if byKey[e.key] == nil {
					keys = append(keys, e.key)
				}
				byKey[e.key] = append(byKey[e.key], quoted(e.value))
			}
		}
		if len(keys) == 0 {
			continue
		}
		slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(l.keys[place{heading, a}], l.keys[place{heading, b}]) })
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(heading)
		for _, key := range keys {
			b.WriteString("\n" + bullet)
			if key == "" {
				b.WriteString(strings.Join(byKey[key], "\n"+bullet))
				continue
			}
			b.WriteString(quoted(key) + ": " + strings.Join(byKey[key], ", "))
		}
	}
	return b.String()
}

// quoted is a key or a value as it stands in a ledger: as it is, if it can be told from
// what stands around it.
func quoted(s string) string {
	if s != "" && !strings.ContainsAny(s, "\"\n") && !strings.Contains(s, ", ") && !strings.Contains(s, ": ") && !strings.HasSuffix(s, ",") && !strings.HasSuffix(s, ":") {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return s // a string can be written
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// parse takes in a line of a ledger, without its bullet.
func (l *ledger) parse(line string, use factUse) {
	key, rest, ok := unquoted(line, ": ")
	if !ok {
		value, _, _ := unquoted(line, "\n")
		l.add(fact{value: value, form: common}, use)
		return
	}
	for rest != "" {
		var value string
		value, rest, _ = unquoted(rest, ", ")
		if value != "" {
			l.add(fact{key: key, value: value, form: formOf(value), named: !isGroup(key)}, use)
		}
	}
}

// unquoted takes a key or a value from the beginning of a text, up to a separator.
func unquoted(text, separator string) (value, rest string, found bool) {
	if strings.HasPrefix(text, `"`) {
		dec := json.NewDecoder(strings.NewReader(text))
		if dec.Decode(&value) == nil {
			after := text[dec.InputOffset():]
			if rest, found = strings.CutPrefix(after, separator); found || after == "" {
				return value, rest, found
			}
		}
	}
	return strings.Cut(text, separator)
}
