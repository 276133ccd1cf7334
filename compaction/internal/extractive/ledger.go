package extractive

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// ledger is facts, each once: values word for word, with what they name. Ledgers are
// united, and never summarised.
type ledger struct {
	entries map[entryID]*entry
	keys    map[place]int // in the order in which they come first
	clock   int
	counts  map[string]int // of errors
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
	favoured   bool // it comes before all others
	rank       int  // among those of its key: 0 is kept the longest
}

// factUse says whether a fact was used. Used facts are kept longer.
type factUse int

const (
	returned factUse = iota // only a tool has returned it
	used                    // the user or the agent has said it, or a call has it
)

// calledKey is the key of the functions that were called.
const calledKey = "called"

func newLedger() *ledger {
	return &ledger{entries: make(map[entryID]*entry), keys: make(map[place]int), counts: make(map[string]int)}
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

// size is what the facts take that are not told before, those that may be met by chance up to a
// limit.
func (l *ledger) size(limit tokens.Size, before map[string]bool) tokens.Size {
	var n [2]tokens.Size
	keys := make(map[string]bool)
	for _, e := range l.all() {
		if before[bare(e.value)] {
			continue
		}
		n[e.form] += tokens.Of(e.value) + perFact
		if !keys[e.key] {
			keys[e.key] = true
			n[e.form] += tokens.Of(e.key) + perKey
		}
	}
	return n[unique] + min(n[common], limit)
}

// What a fact, and a line of facts, takes besides its value and key.
var perFact, perKey = tokens.Of(", "), tokens.Of("\n" + bullet + ": ")

// isUsed reports whether the user, the agent or a call has used a value.
func (l *ledger) isUsed(value string) bool {
	e := l.entries[entryID{"", bare(value)}]
	return e != nil && e.use == used
}

// addRow adds the facts of a row, so that they survive if the row is dropped.
func (l *ledger) addRow(cells, header string) {
	names := strings.Split(header, cellMark)
	for i, cell := range strings.Split(cells, cellMark) {
		if len(names) > i && names[i] != cell && formOf(cell) == unique {
			l.add(fact{key: names[i], value: cell, form: unique, named: true}, returned)
		}
	}
}

// favour lets the facts of the first message come before all others.
func (l *ledger) favour(asked []*line) {
	for _, first := range asked[:min(1, len(asked))] {
		for _, u := range first.units {
			for _, f := range findFacts(u.text) {
				if e := l.entries[idOf(f)]; e != nil {
					e.favoured = true
				}
			}
		}
	}
}

// write writes the facts that fit into the room, except those in told, which stand elsewhere in
// the summary, and in before, which stand in earlier summaries. It adds to told.
func (l *ledger) write(told, before map[string]bool, aim, room tokens.Size) string {
	kept := make(map[*entry]bool)
	lines := make(map[place]bool)
	left := room
	for _, e := range l.ranked() {
		if room < leastLedger && !e.favoured {
			break
		}
		if told[bare(e.value)] || before[bare(e.value)] {
			continue
		}
		at, section := e.place(), place{heading: e.place().heading}
		n := tokens.Of(quoted(e.value)) + perFact
		if !lines[at] {
			n += tokens.Of(quoted(e.key)) + perKey
			if !lines[section] {
				n += tokens.Of("\n" + section.heading)
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

// tell notes that a value is told.
func tell(told map[string]bool, value string) {
	if len(value) <= 4*maxFact {
		told[bare(value)] = true
	}
}

// leastLedger is the room from which on there are other facts than those of the first message.
const leastLedger = 8 * tokens.Token

// laterRank is how many facts of a key that are used go before one that is not.
const laterRank = 16

// ranked returns the facts in the order in which they are kept: first those that are hardly
// met by chance, of each key the newest, then the second of each, and so on; unused facts later.
func (l *ledger) ranked() []*entry {
	all := l.all()
	ranks := make(map[place]int)
	for _, e := range slices.Backward(all) {
		e.rank = ranks[e.place()]
		ranks[e.place()]++
		if e.use == returned {
			e.rank = laterRank + 2*e.rank
		}
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
