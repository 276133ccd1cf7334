package extractive

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/tokens"
	"github.com/patchlog-dev/patchlog/internal/words"
)

// unit is a sentence, another line, a call or a state. A summary keeps or omits it as a whole.
type unit struct {
	text  string
	kind  string // kind of a state, or before
	lined bool   // the unit begins a line
	keep  bool

	weight float64
	words  []string
	order  int // position among the units to choose from
	score  float64
}

// choice selects the units with the highest worth for their size. The fewer units contain a word, the more the word is
// worth. It is worth little if a kept unit contains it.
type choice struct {
	turns []*turn
	units map[string]int     // word → number of units that contain it
	value map[string]float64 // by word
	kept  map[string]bool    // words of the kept units and of earlier summaries
	order []*unit            // the kept units, the least important last
	room  tokens.Size
}

// choose selects units up to a size: the last request, the task, the agent's last message, and then the units with the
// highest worth.
func choose(turns []*turn, before string, room tokens.Size) *choice {
	c := &choice{turns: turns, units: map[string]int{}, value: map[string]float64{}, kept: words.Set(strings.Join(words.In(before), " ")), room: room}
	var rest []*unit
	for i, t := range turns {
		t.weigh(i >= len(turns)-latest || t.told, room/8)
		for _, u := range slices.Concat(t.asked, t.did, t.states, t.said) {
			if u.text == "" || leads(u) && u.weight < 1 {
				continue
			}
			if i < len(turns)-1 && u.weight < 1 && strings.HasSuffix(u.text, "?") { // the question was answered
				u.weight *= step
			}
			u.order = len(rest)
			c.count(u)
			rest = append(rest, u)
		}
	}
	first := slices.IndexFunc(turns, func(t *turn) bool { return len(t.asked) > 0 })
	if n := len(turns); n > 0 {
		t := turns[n-1]
		for _, u := range slices.Backward(t.asked) { // in a pasted message, the request is at the end
			if u.size() > c.room*3/4 {
				break
			}
			if !isCourtesy(u) {
				c.keep(u)
			}
		}
		if first >= 0 && before == "" { // the task
			if task := ends(turns[first].asked, askedRunes); !c.pick(task, room/4) {
				c.pick(task, room)
			}
		}
		c.pick(t.said[t.last:], room/4)
	}
	for _, t := range turns {
		if t.told {
			c.pick(t.said, room/3)
		}
	}
	c.pick(rest, room)
	for _, t := range turns { // a short message of the user may contain a decision
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

// weigh sets the weights of a turn's units. It joins each end of the agent's last message to one unit of at most the
// given size, because single sentences of a message are fragments.
func (t *turn) weigh(isLatest bool, most tokens.Size) {
	closing, runes := step*step, int(step*askedRunes)
	if isLatest {
		closing, runes = step, askedRunes/2
	}
	weigh := func(weight float64, units []*unit) {
		for _, u := range units {
			u.weight = weight
		}
	}
	t.last = min(t.last, len(t.said))
	message := t.said[t.last:]
	for ; !t.told; runes /= 2 {
		from, to := endsOf(message, 2*runes)
		head, tail := joinAll(message[:from]), joinAll(message[to:])
		if runes >= leastEnd && max(tokens.Of(head), tokens.Of(tail)) > most {
			continue
		}
		t.said = append(slices.Clone(t.said[:t.last]), &unit{text: head, lined: true}, &unit{}, &unit{text: tail, lined: true})
		if from == to { // nothing is left out
			t.said = slices.Delete(t.said, t.last+1, t.last+2)
		}
		break
	}
	weigh(step*step, t.said[:t.last])
	weigh(closing, t.said[t.last:])
	if isLatest && !t.told { // in a long turn, the last messages show how to continue
		weigh(closing, t.said[max(0, t.last-latest):t.last])
	}
	weigh(step*step, t.asked)
	weigh(1, ends(t.asked, askedRunes))
	weigh(closing, t.did)
	for _, u := range t.did {
		if u.kind == before {
			u.weight *= step
		}
	}
	for i, u := range t.states {
		if u.weight = 1; i < len(t.states)-lastFew {
			u.weight = closing
		}
	}
}

// leastEnd is the number of runes below which an end of a long message is not shortened further, even if the unit is
// too large.
const leastEnd = 75

// count counts the words of a unit and sets their values.
func (c *choice) count(u *unit) {
	u.words = words.In(u.text)
	for _, w := range u.words {
		c.units[w]++
		if _, known := c.value[w]; !known {
			c.value[w] = valueOf(w)
		}
	}
	for _, w := range namesIn(u.text) {
		if !words.IsCommon(w) {
			c.value[w] = emphasis
		}
	}
}

// worth returns the worth of a unit in addition to the kept units.
func (c *choice) worth(u *unit) (worth float64) {
	weight := u.weight
	for _, w := range u.words {
		value := c.value[w] / math.Sqrt(float64(max(c.units[w], 1)))
		if c.kept[w] && !u.isState() {
			value *= step
		}
		worth += value
		if limitWords[w] {
			weight = u.weight * emphasis
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

// pick keeps the units with the highest ratio of worth to size. Their total size is at most the argument most. pick
// reports whether it kept any unit.
func (c *choice) pick(units []*unit, most tokens.Size) bool {
	least := max(c.room-most, 0)
	before := len(c.order)
	tells := func(worth float64, u *unit) bool { return worth >= 2*step*u.weight || u.isState() && worth > 0 } // at least the worth of one informative word
	var best ranking
	for _, u := range units {
		if worth := c.worth(u); !u.keep && tells(worth, u) {
			u.score = worth / float64(u.size())
			best = append(best, u)
		}
	}
	heap.Init(&best)
	for len(best) > 0 {
		u := best[0]
		worth := c.worth(u)
		score := worth / float64(u.size())
		switch {
		case tells(worth, u) && u.size() <= c.room-least && score < u.score: // its worth has fallen, because kept units contain some of its words
			u.score = score
			heap.Fix(&best, 0)
			continue
		case tells(worth, u) && u.size() <= c.room-least:
			c.keep(u)
		}
		heap.Pop(&best)
	}
	return len(c.order) > before
}

// cutBest keeps the beginning of the unit with the highest worth.
func (c *choice) cutBest(units []*unit) {
	if len(units) == 0 {
		return
	}
	best := slices.MaxFunc(units, func(a, b *unit) int { return cmp.Compare(c.worth(a), c.worth(b)) })
	if text := cut(best.text, c.room-gapSize); text != "" {
		best.text = text
		c.keep(best)
	}
}

func (u *unit) isState() bool { return u.kind != "" && u.kind != before }

// size returns the size of a unit with a gap.
func (u *unit) size() tokens.Size { return tokens.Of(u.text) + gapSize }

var gapSize = tokens.Of(gap)

// ends returns the units at the beginning and the end of a text, each with half of the given number of runes.
func ends(units []*unit, runes int) []*unit {
	from, to := endsOf(units, runes)
	return append(slices.Clone(units[:from]), units[to:]...)
}

func endsOf(units []*unit, runes int) (from, to int) {
	size := func(i int) int { return utf8.RuneCountInString(units[i].text) }
	to = len(units)
	for left := runes / 2; from < to && (from == 0 || size(from) <= left); from++ {
		left -= size(from)
	}
	for left := runes / 2; to > from && (to == len(units) || size(to-1) <= left); to-- {
		left -= size(to - 1)
	}
	for from > 0 && to > from && leads(units[from-1]) {
		from--
	}
	return from, to
}

// joinAll keeps and joins all sentences.
func joinAll(units []*unit) string {
	for _, u := range units {
		u.keep = true
	}
	return join(units)
}

// isCourtesy reports whether a unit consists only of courtesies.
func isCourtesy(u *unit) bool {
	return len(u.words) > 0 && !slices.ContainsFunc(u.words, func(w string) bool { return !courtesies[w] })
}

// leads reports whether a unit only introduces the next one.
func leads(u *unit) bool { return strings.HasSuffix(strings.TrimRight(u.text, "*_ "), ":") }

// text writes the turns with kept units. Adjacent turns with only the user's words share a line.
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

// join joins the kept sentences.
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

// list lists the kept calls or states, grouped by kind.
func list(units []*unit) string {
	var all []string
	for _, kind := range []string{"", before, changed, checked, failed} {
		var of []string
		for _, u := range units {
			if u.keep && u.kind == kind {
				of = append(of, u.text)
			}
		}
		text := strings.Join(of, ", ")
		if text != "" && kind != "" && kind != checked {
			text = kind + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}

// ranking is a heap of units, the highest score first.
type ranking []*unit

func (r ranking) Len() int { return len(r) }
func (r ranking) Less(i, j int) bool {
	return r[i].score > r[j].score || r[i].score == r[j].score && r[i].order < r[j].order
}
func (r ranking) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *ranking) Push(u any)   { *r = append(*r, u.(*unit)) }
func (r *ranking) Pop() any {
	last := len(*r) - 1
	u := (*r)[last]
	*r = (*r)[:last]
	return u
}

// valueOf returns the value of a word. A common word has no value, and a short word has less.
func valueOf(word string) float64 {
	if words.IsCommon(word) || courtesies[word] {
		return 0
	}
	return min(1, float64(len(word)-1)/5)
}

// namesIn returns the words of a text that have a digit, or begin with a capital and are not the first word.
func namesIn(text string) (names []string) {
	for i, w := range strings.Fields(text) {
		r, _ := utf8.DecodeRuneInString(strings.TrimLeft(w, "\"'([*`"))
		if i > 0 && unicode.IsUpper(r) && len(w) > 2 || strings.ContainsFunc(w, unicode.IsDigit) {
			names = append(names, words.In(w)...)
		}
	}
	return names
}

// courtesies are words without information. A sentence that consists only of courtesies is left out.
var courtesies = words.Set(`
	understood problem sounds noted hi hello hey please thanks thank you welcome sorry ok okay yes no great perfect good morning afternoon evening fine sure bye goodbye stop
	hallo guten tag danke bitte vielen dank schön gern gerne ja nein okay tschüss prima super wunderbar
	hola gracias buenos buenas días tardes por favor vale sí adiós bonjour merci beaucoup bonsoir oui non olá obrigado obrigada ciao grazie prego
	привет здравствуйте спасибо пожалуйста хорошо да нет отлично свидания добрый день
	안녕하세요 감사합니다 고마워요 고맙습니다 네 아니요 좋아요 알겠습니다
	你好 您好 谢谢 好的 再见 不客 客气 是的 请问 太好 早上 上好
	こん んに にち ちは あり りが がと とう うご ござ ざい いま ます お願 願い いし しま よろ ろし しく はい です`)

// limitWords are words of limits, preferences, decisions and corrections.
var limitWords = words.Set(`
	not never don dont doesn won can cannot must mustn should only always instead prefer rather want need keep avoid without except unless wrong decide decided
	nicht nie niemals kein keine nur immer statt lieber möchte muss soll sollte darf ohne falsch
	no nunca solo siempre prefiero quiero debe sin pas jamais seulement toujours veux dois sans não sempre mai
	не никогда только всегда нужно нельзя хочу лучше без
	않 말고 만 항상 절대
	不要 不能 不是 必须 必須 只要 总是 總是 想要 喜欢 不喜 讨厌 ない 必ず だけ`)
