package extractive

import (
	"container/heap"
	"math"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/internal/words"
)

// unit is a sentence, a line that is none, a call or a state. It is kept or left out as a whole.
type unit struct {
	text  string
	kind  string // of a state
	lined bool   // it begins a line
	keep  bool

	weight float64
	words  []string
	score  float64
}

// Weights of the words of a unit, by what it is.
const (
	askedWeight   = 2
	stateWeight   = 2
	didWeight     = 0.5
	latestWeight  = 0.7 // the agent's last message in one of the latest turns
	closingWeight = 0.45
	otherWeight   = 0.2
	limitWeight   = 1.5 // of a sentence that says what is or is not to be, besides
	keptWeight    = 0.3 // of a word that is kept already, besides

	leastWorth = 0.6 // less than one telling word
)

// choice keeps the units that tell the most for their size. A word tells the more the fewer units have it, and little
// once it is kept.
type choice struct {
	turns []*turn
	units map[string]int  // by word, how many units have it
	kept  map[string]bool // the words of units that are kept, and of earlier summaries
	names map[string]bool
	order []*unit // the kept ones, the least important last
	room  tokens.Size
}

// choose keeps what fits: what was asked first and last and said last, then what tells the most.
func choose(turns []*turn, before string, room tokens.Size) *choice {
	c := &choice{turns: turns, units: map[string]int{}, kept: map[string]bool{}, names: map[string]bool{}, room: room}
	for _, w := range words.In(before) {
		c.kept[w] = true
	}
	var rest []*unit
	for i, t := range turns {
		most, closing, did := closingRunes, closingWeight, didWeight*keptWeight
		if i >= len(turns)-latest || t.told {
			most, closing, did = askedRunes/2, latestWeight, didWeight
		}
		if !t.told {
			t.close(most, room/8)
		}
		for _, of := range []struct {
			units  []*unit
			weight float64
		}{
			{t.said[:min(t.last, len(t.said))], otherWeight}, {t.said[min(t.last, len(t.said)):], closing}, {t.asked, otherWeight}, {ends(t.asked, askedRunes), askedWeight}, {t.did, did}, {t.states, stateWeight},
		} {
			for _, u := range of.units {
				u.weight = of.weight
			}
		}
		for _, u := range slices.Concat(t.asked, t.did, t.states, t.said) {
			if u.text == "" || leads(u) && u.weight < askedWeight {
				continue
			}
			if i < len(turns)-1 && u.weight < askedWeight && strings.HasSuffix(u.text, "?") { // it was answered
				u.weight *= keptWeight
			}
			c.count(u)
			rest = append(rest, u)
		}
	}
	first := slices.IndexFunc(turns, func(t *turn) bool { return len(t.asked) > 0 })
	if n := len(turns); n > 0 {
		t := turns[n-1]
		for _, u := range slices.Backward(t.asked) { // a request stands at the end of what is pasted
			if u.size() > c.room*3/4 {
				break
			}
			if !isCourtesy(u) {
				c.keep(u)
			}
		}
		if first >= 0 && before == "" { // the task
			c.prefer(ends(turns[first].asked, askedRunes), room/4, room)
		}
		c.prefer(t.said[t.last:], room/4)
	}
	for _, t := range turns {
		if t.told {
			c.prefer(t.said, room/3)
		}
	}
	c.pick(rest)
	for _, t := range turns { // what little the user said may decide something
		for _, u := range ends(t.asked, askedRunes) {
			if !u.keep && u.size() <= c.room && !isCourtesy(u) && c.worth(u) > 0 {
				c.keep(u)
			}
		}
	}
	if len(c.order) == 0 && first >= 0 {
		c.cutBest(turns[first].asked)
	}
	if len(c.order) == 0 {
		c.cutBest(rest)
	}
	return c
}

// count counts the words of a unit.
func (c *choice) count(u *unit) {
	u.words = words.In(u.text)
	for _, w := range namesIn(u.text) {
		c.names[w] = true
	}
	for _, w := range u.words {
		c.units[w]++
	}
}

// worth is what keeping the unit would tell.
func (c *choice) worth(u *unit) (worth float64) {
	weight := u.weight
	for _, w := range u.words {
		value := valueOf(w)
		if c.names[w] && !words.IsCommon(w) {
			value = nameValue
		}
		if value /= math.Sqrt(float64(max(c.units[w], 1))); c.kept[w] && u.kind == "" {
			value *= keptWeight
		}
		worth += value
		if limitWords[w] {
			weight = u.weight * limitWeight
		}
	}
	return worth * weight
}

func (c *choice) keep(u *unit) {
	u.keep = true
	c.room -= u.size()
	c.order = append(c.order, u)
	for _, w := range u.words {
		c.kept[w] = true
	}
}

// prefer keeps, of some units, those that tell the most for their size in a part of the room, or in the next part if there
// are none.
func (c *choice) prefer(units []*unit, parts ...tokens.Size) {
	for _, most := range parts {
		kept, rest := len(c.order), max(c.room-most, 0)
		c.room -= rest
		c.pick(units)
		c.room += rest
		if len(c.order) > kept {
			return
		}
	}
}

// best returns the unit that tells the most, or nil.
func (c *choice) best(units []*unit) (best *unit) {
	most := -1.0
	for _, u := range units {
		if worth := c.worth(u); worth > most {
			best, most = u, worth
		}
	}
	return best
}

// pick keeps of some units those that tell the most for their size.
func (c *choice) pick(units []*unit) {
	var best ranking
	for i, u := range units {
		if worth := c.worth(u); !u.keep && worth >= leastWorth*u.weight {
			u.score = worth / float64(u.size())
			best = append(best, ranked{u, i})
		}
	}
	heap.Init(&best)
	for len(best) > 0 {
		u := best[0].unit
		worth := c.worth(u)
		score := worth / float64(u.size())
		switch {
		case worth < leastWorth*u.weight || u.size() > c.room:
			heap.Pop(&best)
		case score < u.score: // others have told a part of it
			u.score = score
			heap.Fix(&best, 0)
		default:
			heap.Pop(&best)
			c.keep(u)
		}
	}
}

// cutBest keeps the beginning of the unit that tells the most.
func (c *choice) cutBest(units []*unit) {
	if best := c.best(units); best != nil {
		if text := cut(best.text, c.room-gapSize); text != "" {
			best.text = text
			c.keep(best)
		}
	}
}

// size is what a unit takes, with a gap.
func (u *unit) size() tokens.Size { return tokens.Of(u.text) + gapSize }

var gapSize = tokens.Of(gap)

// ends returns the units of a text that stand within the first and the last half of some characters.
func ends(units []*unit, runes int) []*unit {
	from, to := endsOf(units, runes)
	return append(slices.Clone(units[:from]), units[to:]...)
}

func endsOf(units []*unit, runes int) (from, to int) {
	to = len(units)
	for left := runes / 2; from < to; from++ {
		if left -= len([]rune(units[from].text)); left < 0 && from > 0 {
			break
		}
	}
	for left := runes / 2; to > from; to-- {
		if left -= len([]rune(units[to-1].text)); left < 0 && to < len(units) {
			break
		}
	}
	for from > 0 && to > from && leads(units[from-1]) {
		from--
	}
	return from, to
}

// close makes one unit of each end of the agent's last message, and leaves out what is between: sentences of it alone
// are fragments.
func (t *turn) close(runes int, most tokens.Size) {
	t.last = min(t.last, len(t.said))
	message := t.said[t.last:]
	for ; ; runes /= 2 {
		from, to := endsOf(message, 2*runes)
		if head, tail := joinAll(message[:from]), joinAll(message[to:]); runes < closingRunes/4 || tokens.Of(head) <= most && tokens.Of(tail) <= most {
			t.said = append(slices.Clone(t.said[:t.last]), &unit{text: head, lined: true}, &unit{}, &unit{text: tail, lined: true})
			if from == to { // nothing is left out
				t.said = slices.Delete(t.said, t.last+1, t.last+2)
			}
			return
		}
	}
}

// joinAll joins all of some sentences.
func joinAll(units []*unit) string {
	for _, u := range units {
		u.keep = true
	}
	return join(units)
}

// isCourtesy reports whether a unit has no words but courtesies.
func isCourtesy(u *unit) bool {
	return len(u.words) > 0 && !slices.ContainsFunc(u.words, func(w string) bool { return !courtesies[w] })
}

// leads reports whether a unit only leads to the next one.
func leads(u *unit) bool { return strings.HasSuffix(strings.TrimRight(u.text, "*_ "), ":") }

// dropLast takes back the least important of what was kept.
func (c *choice) dropLast() bool {
	last := len(c.order) - 1
	if last < 0 {
		return false
	}
	c.order[last].keep = false
	c.order = c.order[:last]
	return true
}

// text writes the turns of which something is kept. Messages of which only the user's words are kept share a line.
func (c *choice) text() string {
	text, only := "", false
	for _, t := range c.turns {
		said := agentLabel
		if t.told {
			said = toldLabel
		}
		var lines []string
		for _, of := range [][2]string{{askedLabel, join(t.asked)}, {didLabel, list(t.did)}, {stateLabel, list(t.states)}, {said, join(t.said)}} {
			if of[1] != "" {
				lines = append(lines, of[0]+of[1])
			}
		}
		if len(lines) == 0 {
			continue
		}
		asked, alone := strings.CutPrefix(lines[0], askedLabel)
		switch alone = alone && len(lines) == 1; {
		case alone && only:
			text += apart + asked
		case text != "":
			text += "\n"
			fallthrough
		default:
			text += bullet + strings.Join(lines, "\n"+indent)
		}
		only = alone
	}
	return text
}

// join joins the sentences that are kept.
func join(units []*unit) string {
	var b strings.Builder
	skipped := false
	for _, u := range units {
		switch {
		case !u.keep:
			skipped = true
			continue
		case b.Len() == 0:
		case skipped:
			b.WriteString(gap)
		case u.lined && !strings.ContainsRune(".:;!?,", rune(b.String()[b.Len()-1])):
			b.WriteString("; ")
		default:
			b.WriteByte(' ')
		}
		skipped = false
		b.WriteString(u.text)
	}
	return b.String()
}

// list lists the calls or states that are kept, states of a kind together.
func list(units []*unit) string {
	text := ""
	for _, kind := range []string{"", changed, checked, failed} {
		begun := false
		for _, u := range units {
			switch {
			case !u.keep || u.kind != kind:
				continue
			case begun:
				text += ", "
			case text != "":
				text += "; "
			}
			if !begun && (kind == changed || kind == failed) {
				text += kind + " "
			}
			text += u.text
			begun = true
		}
	}
	return text
}

// ranking is a heap of units by their scores, the best first.
type ranking []ranked

type ranked struct {
	*unit
	order int
}

func (r ranking) Len() int { return len(r) }
func (r ranking) Less(i, j int) bool {
	return r[i].score > r[j].score || r[i].score == r[j].score && r[i].order < r[j].order
}
func (r ranking) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *ranking) Push(u any)   { *r = append(*r, u.(ranked)) }
func (r *ranking) Pop() any {
	last := len(*r) - 1
	u := (*r)[last]
	*r = (*r)[:last]
	return u
}
