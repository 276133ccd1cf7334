package extractive

import (
	"cmp"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// plan decides what of each turn is told.
type plan struct {
	turns  []*turn
	first  bool // nothing stands before: the first message is the task
	picker *picker
	did    map[*turn]string // the lines that are kept
	state  map[*turn]string
	order  []func() // takes back what was kept, the least important last
}

// fill keeps what fits, the most important first.
func (p *plan) fill(room tokens.Size) {
	p.picker, p.did, p.state = newPicker(), map[*turn]string{}, map[*turn]string{}
	var asked, said []*unit
	for _, t := range p.turns {
		asked = append(asked, t.asked...)
		for _, u := range t.said {
			if !leads(u) {
				said = append(said, u)
			}
		}
	}
	p.picker.count(slices.Concat(asked, said))
	// take keeps units whole, or those that say the most.
	take := func(units []*unit, most tokens.Size) {
		if most = min(most, room); wholeSize(units) <= most {
			room -= p.take(units, most)
		} else {
			room -= p.pick(units, most)
		}
	}
	whole := room
	// The user's words get the part of the room that they have of what was said, but half at least.
	theirs := max(whole/2, min(whole*4/5, whole*sizeOf(asked)/max(sizeOf(asked)+sizeOf(said), 1)))
	// The task, and what was asked and said last.
	if p.first {
		if i := slices.IndexFunc(p.turns, func(t *turn) bool { return len(t.asked) > 0 }); i >= 0 {
			task := ends(p.turns[i].asked, askedRunes)
			if take(task, whole/2); len(p.order) == 0 {
				room -= p.cutBest(task, whole*2/3, 0)
			}
		}
	}
	for _, t := range p.turns {
		if t.told {
			take(ends(t.said, askedRunes), whole/3)
		}
	}
	newest := slices.Clone(p.turns)
	slices.Reverse(newest)
	for _, t := range newest[:min(1, len(newest))] {
		if n := len(t.asked); n > 0 { // a request stands at the end of what is pasted
			take(t.asked[n-1:], whole/2)
		}
		take(ends(t.asked, askedRunes), whole*2/3)
		share := min(room, whole/4)
		had := share
		p.close(t, 2*closingRunes, &share)
		room -= had - share
	}
	// The user's words, whole if there is room, or else the sentences that say the most.
	var words []*unit
	for _, t := range p.turns {
		words = append(words, ends(t.asked, askedRunes)...)
	}
	take(words, theirs)
	p.lines(newest, &room, p.state, (*turn).stateLine)
	share := min(room, whole/3)
	for _, t := range newest[:min(latest, len(newest))] {
		had := share
		p.close(t, askedRunes, &share)
		room -= had - share
	}
	p.lines(newest, &room, p.did, (*turn).didLine)
	for _, t := range newest {
		p.close(t, 2*closingRunes, &room)
	}
	room -= p.pick(said, room)
	p.pick(asked, room)
	if len(p.order) == 0 {
		p.cutBest(slices.Concat(asked, said), room, -1)
	}
}

// cutBest keeps the beginning of the unit that says the most, if that is more than least.
func (p *plan) cutBest(units []*unit, room tokens.Size, least float64) tokens.Size {
	if len(units) == 0 {
		return 0
	}
	best := slices.MaxFunc(units, func(a, b *unit) int { return cmp.Compare(p.picker.worth(a), p.picker.worth(b)) })
	text := cut(best.text, room-gapSize)
	if text == "" || p.picker.worth(best) <= least {
		return 0
	}
	best.text = text
	p.keep(best)
	return best.size()
}

// wholeSize is what the units take that are not kept yet.
func wholeSize(units []*unit) (n tokens.Size) {
	for _, u := range units {
		if !u.keep {
			n += u.size()
		}
	}
	return n
}

func sizeOf(units []*unit) (n tokens.Size) {
	for _, u := range units {
		n += tokens.Of(u.text)
	}
	return n
}

// lines keeps a line of each turn, as far as there is room.
func (p *plan) lines(turns []*turn, room *tokens.Size, kept map[*turn]string, line func(*turn) string) {
	for _, t := range turns {
		text := line(t)
		if n := tokens.Of("\n" + indent + text); text != "" && n <= *room {
			*room -= n
			kept[t] = text
			p.order = append(p.order, func() { delete(kept, t) })
		}
	}
}

// close keeps both ends of the agent's last message of a turn, or half or a quarter as much.
func (p *plan) close(t *turn, runes int, room *tokens.Size) {
	for range 3 {
		units := ends(t.said[min(t.last, len(t.said)):], runes)
		if wholeSize(units) <= *room {
			*room -= p.take(units, *room)
			return
		}
		runes /= 2
	}
}

// take keeps units, except courtesies, as far as there is room.
func (p *plan) take(units []*unit, room tokens.Size) (taken tokens.Size) {
	for _, u := range units {
		if n := u.size(); !u.keep && p.picker.worth(u) > 0 && n <= room-taken {
			taken += n
			p.keep(u)
		}
	}
	return taken
}

func (p *plan) keep(u *unit) {
	p.picker.keep(u)
	p.order = append(p.order, func() { u.keep = false })
}

func (p *plan) pick(units []*unit, room tokens.Size) tokens.Size {
	was := map[*unit]bool{}
	for _, u := range units {
		was[u] = u.keep
	}
	n := p.picker.pick(units, room)
	for _, u := range units {
		if u.keep && !was[u] {
			p.order = append(p.order, func() { u.keep = false })
		}
	}
	return n
}

// ends returns the units of a text that stand within the first and the last half of some characters.
func ends(units []*unit, runes int) (both []*unit) {
	from, to := 0, len(units)
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
	return append(slices.Clone(units[:from]), units[to:]...)
}

// leads reports whether a unit only leads to the next one.
func leads(u *unit) bool { return strings.HasSuffix(strings.TrimRight(u.text, "*_ "), ":") }

// dropLast takes back the least important of what was kept.
func (p *plan) dropLast() bool {
	if len(p.order) == 0 {
		return false
	}
	last := len(p.order) - 1
	p.order[last]()
	p.order = p.order[:last]
	return true
}

// text writes the turns of which something is kept. Messages of which only the user's words are kept share a line.
func (p *plan) text() string {
	text, only := "", false
	for _, t := range p.turns {
		var lines []string
		for _, of := range [][2]string{{askedLabel, join(t.asked)}, {"", p.did[t]}, {"", p.state[t]}, {t.label(), join(t.said)}} {
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

func (t *turn) label() string {
	if t.told {
		return toldLabel
	}
	return agentLabel
}

// join joins the units that are kept.
func join(units []*unit) string {
	var b strings.Builder
	skipped := false
	for _, u := range units {
		switch {
		case !u.keep:
			skipped = skipped || u.text != ""
			continue
		case b.Len() == 0:
		case skipped:
			b.WriteString(gap)
		case u.lined && strings.ContainsFunc(b.String()[b.Len()-1:], func(r rune) bool { return r != '.' && r != ':' && r != ';' && r != '!' && r != '?' && r != ',' }):
			b.WriteString("; ")
		default:
			b.WriteByte(' ')
		}
		skipped = false
		b.WriteString(u.text)
	}
	return b.String()
}
