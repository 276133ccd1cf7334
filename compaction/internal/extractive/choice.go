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

// unit is a sentence, another line, a call or a state. A summary contains either all of a unit or nothing of it.
type unit struct {
	text       string
	kind       string // kind of a state, or earlierCalls
	startsLine bool   // whether the unit begins a line
	kept       bool

	weight float64
	words  []string
	order  int // position among the candidates
	score  float64
}

// choice selects the units with the highest worth per size. A word is worth more if fewer units contain it. It is
// worth little if a kept unit already contains it.
type choice struct {
	turns      []*turn
	unitCounts map[string]int     // number of units that contain a word
	wordValues map[string]float64 // value of each word
	keptWords  map[string]bool    // words of the kept units and of earlier summaries
	keptUnits  []*unit            // the kept units, the least important last
	budget     tokens.Size
}

// choose selects units up to a size. It selects the last request first, then the task, the agent's last message, and
// the units with the highest worth.
func choose(turns []*turn, earlier string, room tokens.Size) *choice {
	c := &choice{turns: turns, unitCounts: map[string]int{}, wordValues: map[string]float64{}, keptWords: words.Set(strings.Join(words.In(earlier), " ")), budget: room}
	var candidates []*unit
	for i, t := range turns {
		t.setWeights(i >= len(turns)-latestTurns || t.isOtherSummary, room/8)
		for _, u := range slices.Concat(t.userUnits, t.callUnits, t.states, t.agentUnits) {
			if u.text == "" || isLeadIn(u) && u.weight < 1 {
				continue
			}
			if i < len(turns)-1 && u.weight < 1 && strings.HasSuffix(u.text, "?") { // the user's question was answered in a later turn
				u.weight *= levelFactor
			}
			u.order = len(candidates)
			c.countWords(u)
			candidates = append(candidates, u)
		}
	}
	taskTurn := slices.IndexFunc(turns, func(t *turn) bool { return len(t.userUnits) > 0 })
	if n := len(turns); n > 0 {
		t := turns[n-1]
		for _, u := range slices.Backward(t.userUnits) { // in a pasted message, the request is at the end
			if u.size() > c.budget*3/4 {
				break
			}
			if !isCourtesy(u) {
				c.keep(u)
			}
		}
		if taskTurn >= 0 && earlier == "" { // the task is in the first turn with a user message
			if task := endUnits(turns[taskTurn].userUnits, maxMessageRunes); !c.keepBest(task, room/4) {
				c.keepBest(task, room)
			}
		}
		c.keepBest(t.agentUnits[t.lastMessage:], room/4)
	}
	for _, t := range turns {
		if t.isOtherSummary {
			c.keepBest(t.agentUnits, room/3)
		}
	}
	c.keepBest(candidates, room)
	for _, t := range turns { // a short message of the user may contain a decision
		for _, u := range endUnits(t.userUnits, maxMessageRunes) {
			if !u.kept && u.size() <= c.budget && !isCourtesy(u) && c.worth(u) > 0 {
				c.keep(u)
			}
		}
	}
	if len(c.keptUnits) == 0 && taskTurn >= 0 {
		c.keepCutBest(turns[taskTurn].userUnits)
	}
	if len(c.keptUnits) == 0 {
		c.keepCutBest(candidates)
	}
	return c
}

// setWeights sets the weights of the units of a turn. It joins each end of the agent's last message to one unit of at
// most maxSize, because single sentences of a message are fragments.
func (t *turn) setWeights(isLatest bool, maxSize tokens.Size) {
	closingWeight, runes := levelFactor*levelFactor, int(levelFactor*maxMessageRunes)
	if isLatest {
		closingWeight, runes = levelFactor, maxMessageRunes/2
	}
	setWeight := func(weight float64, units []*unit) {
		for _, u := range units {
			u.weight = weight
		}
	}
	t.lastMessage = min(t.lastMessage, len(t.agentUnits))
	message := t.agentUnits[t.lastMessage:]
	for ; !t.isOtherSummary; runes /= 2 {
		from, to := endRanges(message, 2*runes)
		head, tail := keepAndJoin(message[:from]), keepAndJoin(message[to:])
		if runes >= minEndRunes && max(tokens.Of(head), tokens.Of(tail)) > maxSize {
			continue
		}
		t.agentUnits = append(slices.Clone(t.agentUnits[:t.lastMessage]), &unit{text: head, startsLine: true}, &unit{}, &unit{text: tail, startsLine: true})
		if from == to { // the two ends cover the whole message
			t.agentUnits = slices.Delete(t.agentUnits, t.lastMessage+1, t.lastMessage+2)
		}
		break
	}
	setWeight(levelFactor*levelFactor, t.agentUnits[:t.lastMessage])
	setWeight(closingWeight, t.agentUnits[t.lastMessage:])
	if isLatest && !t.isOtherSummary { // the last messages of a long turn show how to continue
		setWeight(closingWeight, t.agentUnits[max(0, t.lastMessage-latestTurns):t.lastMessage])
	}
	setWeight(levelFactor*levelFactor, t.userUnits)
	setWeight(1, endUnits(t.userUnits, maxMessageRunes))
	setWeight(closingWeight, t.callUnits)
	for _, u := range t.callUnits {
		if u.kind == earlierCalls {
			u.weight *= levelFactor
		}
	}
	for i, u := range t.states {
		if u.weight = 1; i < len(t.states)-maxLatestItems {
			u.weight = closingWeight
		}
	}
}

// minEndRunes is a number of runes. An end of a long message is not shortened further below this length, even if the
// unit is too large.
const minEndRunes = 75

// countWords counts the words of a unit and sets their values.
func (c *choice) countWords(u *unit) {
	u.words = words.In(u.text)
	for _, w := range u.words {
		c.unitCounts[w]++
		if _, known := c.wordValues[w]; !known {
			c.wordValues[w] = valueOf(w)
		}
	}
	for _, w := range namesIn(u.text) {
		if !words.IsCommon(w) {
			c.wordValues[w] = emphasis
		}
	}
}

// worth returns how much a unit would add to the kept units.
func (c *choice) worth(u *unit) (worth float64) {
	weight := u.weight
	for _, w := range u.words {
		value := c.wordValues[w] / math.Sqrt(float64(max(c.unitCounts[w], 1)))
		if c.keptWords[w] && !u.isState() {
			value *= levelFactor
		}
		worth += value
		if limitWords[w] {
			weight = u.weight * emphasis
		}
	}
	return worth * weight
}

func (c *choice) keep(u *unit) {
	u.kept = true
	c.budget -= u.size()
	c.keptUnits = append(c.keptUnits, u)
	for _, w := range u.words {
		c.keptWords[w] = true
	}
}

// keepBest keeps the units with the highest ratio of worth to size, up to a total size of maxSize. It reports whether
// it kept any unit.
func (c *choice) keepBest(units []*unit, maxSize tokens.Size) bool {
	minBudget := max(c.budget-maxSize, 0)
	before := len(c.keptUnits)
	isInformative := func(worth float64, u *unit) bool { return worth >= 2*levelFactor*u.weight || u.isState() && worth > 0 } // the unit has at least the worth of one informative word
	var best unitHeap
	for _, u := range units {
		if worth := c.worth(u); !u.kept && isInformative(worth, u) {
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
		case isInformative(worth, u) && u.size() <= c.budget-minBudget && score < u.score: // the worth has fallen, because kept units contain some of the unit's words
			u.score = score
			heap.Fix(&best, 0)
			continue
		case isInformative(worth, u) && u.size() <= c.budget-minBudget:
			c.keep(u)
		}
		heap.Pop(&best)
	}
	return len(c.keptUnits) > before
}

// keepCutBest keeps the unit with the highest worth, shortened to fit the budget.
func (c *choice) keepCutBest(units []*unit) {
	if len(units) == 0 {
		return
	}
	best := slices.MaxFunc(units, func(a, b *unit) int { return cmp.Compare(c.worth(a), c.worth(b)) })
	if text := truncate(best.text, c.budget-gapSize); text != "" {
		best.text = text
		c.keep(best)
	}
}

func (u *unit) isState() bool { return u.kind != "" && u.kind != earlierCalls }

// size returns the size of a unit and of the gap that may follow.
func (u *unit) size() tokens.Size { return tokens.Of(u.text) + gapSize }

var gapSize = tokens.Of(gap)

// endUnits returns the units at the beginning and at the end of a text. Each end has half of the given number of
// runes.
func endUnits(units []*unit, runes int) []*unit {
	from, to := endRanges(units, runes)
	return append(slices.Clone(units[:from]), units[to:]...)
}

func endRanges(units []*unit, runes int) (from, to int) {
	size := func(i int) int { return utf8.RuneCountInString(units[i].text) }
	to = len(units)
	for room := runes / 2; from < to && (from == 0 || size(from) <= room); from++ {
		room -= size(from)
	}
	for room := runes / 2; to > from && (to == len(units) || size(to-1) <= room); to-- {
		room -= size(to - 1)
	}
	for from > 0 && to > from && isLeadIn(units[from-1]) {
		from--
	}
	return from, to
}

// keepAndJoin marks all of the units as kept and returns their joined text.
func keepAndJoin(units []*unit) string {
	for _, u := range units {
		u.kept = true
	}
	return joinKept(units)
}

// isCourtesy reports whether a unit has only words of courtesy.
func isCourtesy(u *unit) bool {
	return len(u.words) > 0 && !slices.ContainsFunc(u.words, func(w string) bool { return !courtesies[w] })
}

// isLeadIn reports whether a unit only introduces the next one.
func isLeadIn(u *unit) bool { return strings.HasSuffix(strings.TrimRight(u.text, "*_ "), ":") }

// text returns the text of the turns with kept units. Adjacent turns that have only the user's words share a line.
func (c *choice) text() string {
	text, lastIsRequest := "", false
	for _, t := range c.turns {
		label := agentLabel
		if t.isOtherSummary {
			label = otherSummaryLabel
		}
		var lines []string
		for _, of := range [][2]string{{userLabel, joinKept(t.userUnits)}, {callsLabel, listKept(t.callUnits)}, {stateLabel, listKept(t.states)}, {label, joinKept(t.agentUnits)}} {
			if of[1] != "" {
				lines = append(lines, of[0]+of[1])
			}
		}
		if len(lines) == 0 {
			continue
		}
		asked, isRequest := strings.CutPrefix(lines[0], userLabel)
		switch isRequest = isRequest && len(lines) == 1; {
		case isRequest && lastIsRequest:
			text += messageSeparator + asked
		case text != "":
			text += "\n"
			fallthrough
		default:
			text += bullet + strings.Join(lines, "\n"+indent)
		}
		lastIsRequest = isRequest
	}
	return text
}

// joinKept returns the joined text of the kept sentences.
func joinKept(units []*unit) string {
	var b strings.Builder
	skipped := false
	for _, u := range units {
		switch {
		case !u.kept:
			skipped = true
			continue
		case b.Len() == 0:
		case skipped:
			b.WriteString(gap)
		case u.startsLine && !strings.ContainsRune(".:;!?,", rune(b.String()[b.Len()-1])):
			b.WriteString("; ")
		default:
			b.WriteByte(' ')
		}
		skipped = false
		b.WriteString(u.text)
	}
	return b.String()
}

// listKept returns a list of the kept calls or states, grouped by kind.
func listKept(units []*unit) string {
	var all []string
	for _, kind := range []string{"", earlierCalls, changed, checked, failed} {
		var texts []string
		for _, u := range units {
			if u.kept && u.kind == kind {
				texts = append(texts, u.text)
			}
		}
		text := strings.Join(texts, ", ")
		if text != "" && kind != "" && kind != checked {
			text = kind + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}

// unitHeap is a heap of units, the highest score first.
type unitHeap []*unit

func (r unitHeap) Len() int { return len(r) }
func (r unitHeap) Less(i, j int) bool {
	return r[i].score > r[j].score || r[i].score == r[j].score && r[i].order < r[j].order
}
func (r unitHeap) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *unitHeap) Push(u any)   { *r = append(*r, u.(*unit)) }
func (r *unitHeap) Pop() any {
	last := len(*r) - 1
	u := (*r)[last]
	*r = (*r)[:last]
	return u
}

// valueOf returns the value of a word. A common word has the value 0, and a short word has a lower value than others.
func valueOf(word string) float64 {
	if words.IsCommon(word) || courtesies[word] {
		return 0
	}
	return min(1, float64(len(word)-1)/5)
}

// namesIn returns the words of a text that have a digit, and the words after the first that begin with a capital
// letter.
func namesIn(text string) (names []string) {
	for i, w := range strings.Fields(text) {
		r, _ := utf8.DecodeRuneInString(strings.TrimLeft(w, "\"'([*`"))
		if i > 0 && unicode.IsUpper(r) && len(w) > 2 || strings.ContainsFunc(w, unicode.IsDigit) {
			names = append(names, words.In(w)...)
		}
	}
	return names
}

// courtesies are words that carry no information. A sentence that has only such words is left out.
var courtesies = words.Set(`
	understood problem sounds noted hi hello hey please thanks thank you welcome sorry ok okay yes no great perfect good morning afternoon evening fine sure bye goodbye stop
	hallo guten tag danke bitte vielen dank schön gern gerne ja nein okay tschüss prima super wunderbar
	hola gracias buenos buenas días tardes por favor vale sí adiós bonjour merci beaucoup bonsoir oui non olá obrigado obrigada ciao grazie prego
	привет здравствуйте спасибо пожалуйста хорошо да нет отлично свидания добрый день
	안녕하세요 감사합니다 고마워요 고맙습니다 네 아니요 좋아요 알겠습니다
	你好 您好 谢谢 好的 再见 不客 客气 是的 请问 太好 早上 上好
	こん んに にち ちは あり りが がと とう うご ござ ざい いま ます お願 願い いし しま よろ ろし しく はい です`)

// limitWords are words that express limits, preferences, decisions or corrections.
var limitWords = words.Set(`
	not never don dont doesn won can cannot must mustn should only always instead prefer rather want need keep avoid without except unless wrong decide decided
	nicht nie niemals kein keine nur immer statt lieber möchte muss soll sollte darf ohne falsch
	no nunca solo siempre prefiero quiero debe sin pas jamais seulement toujours veux dois sans não sempre mai
	не никогда только всегда нужно нельзя хочу лучше без
	않 말고 만 항상 절대
	不要 不能 不是 必须 必須 只要 总是 總是 想要 喜欢 不喜 讨厌 ない 必ず だけ`)
