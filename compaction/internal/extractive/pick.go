package extractive

import (
	"container/heap"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// picker keeps the units that tell the most new words for their size: a word is worth the more the fewer units have
// it, and little once it is kept.
type picker struct {
	units map[string]int  // by word, how many units have it
	names map[string]bool // the words that are names or have digits
	kept  map[string]bool // the words of units that are kept, and of earlier summaries
}

func newPicker() *picker { return &picker{map[string]int{}, map[string]bool{}, map[string]bool{}} }

// count counts the words of units.
func (p *picker) count(units []*unit) {
	for _, u := range units {
		u.words = wordsIn(u.text)
		for _, w := range namesIn(u.text) {
			p.names[w] = true
		}
		for _, w := range u.words {
			p.units[w]++
		}
	}
}

func (p *picker) keep(u *unit) {
	u.keep = true
	for _, w := range u.words {
		p.kept[w] = true
	}
}

const (
	keptWorth  = 0.3 // of a word that is kept already
	limitWorth = 1.5 // of a sentence that says what is or is not to be
	nameWorth  = 0.5 // of a name or a number besides
	leastWorth = 0.6 // of what is more than a courtesy
)

// worth is what keeping the unit would tell.
func (p *picker) worth(u *unit) (worth float64) {
	limits := 1.0
	for _, w := range u.words {
		value := valueOf(w)
		if p.names[w] {
			value += nameWorth
		}
		value /= math.Sqrt(float64(max(p.units[w], 1)))
		if p.kept[w] {
			value *= keptWorth
		}
		if limitWords[w] {
			limits = limitWorth
		}
		worth += value
	}
	return worth * limits
}

// pick keeps of some units those that tell the most in a room, if they are worth it, and returns what they take.
func (p *picker) pick(units []*unit, room tokens.Size) (taken tokens.Size) {
	var best ranking
	for i, u := range units {
		if worth := p.worth(u); !u.keep && worth >= leastWorth {
			u.score = worth / float64(u.size())
			best = append(best, ranked{u, i})
		}
	}
	heap.Init(&best)
	for len(best) > 0 {
		u := best[0].unit
		worth := p.worth(u)
		score := worth / float64(u.size())
		switch {
		case worth < leastWorth || u.size() > room-taken:
			heap.Pop(&best)
		case score < u.score: // others have told a part of it
			u.score = score
			heap.Fix(&best, 0)
		default:
			heap.Pop(&best)
			p.keep(u)
			taken += u.size()
		}
	}
	return taken
}

// size is what a unit takes, with a gap.
func (u *unit) size() tokens.Size { return tokens.Of(u.text) + gapSize }

var gapSize = tokens.Of(gap)

// namesIn returns the words of a text that begin with a capital, other than the first one, or have a digit.
func namesIn(text string) (names []string) {
	for i, w := range strings.Fields(text) {
		r, _ := utf8.DecodeRuneInString(strings.TrimLeft(w, "\"'([*`"))
		if i > 0 && unicode.IsUpper(r) && len(w) > 2 || strings.ContainsFunc(w, unicode.IsDigit) {
			names = append(names, wordsIn(w)...)
		}
	}
	return names
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

// wordsIn returns the words of a text in lower case, each once: stretches of letters and digits, or, of scripts
// without blanks between words, each two characters that stand together.
func wordsIn(text string) (words []string) {
	known := make(map[string]bool)
	add := func(w string) {
		if w = strings.ToLower(w); !known[w] {
			known[w] = true
			words = append(words, w)
		}
	}
	start, before := -1, -1 // of a word, of a character of a script without blanks
	for i, r := range text {
		inside := unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
		if start >= 0 && (!inside || identifiers.IsUnspaced(r)) {
			add(text[start:i])
			start = -1
		}
		switch {
		case !inside:
			before = -1
		case identifiers.IsUnspaced(r):
			if before >= 0 {
				add(text[before : i+utf8.RuneLen(r)])
			}
			before = i
		case start < 0:
			start, before = i, -1
		}
	}
	if start >= 0 {
		add(text[start:])
	}
	return words
}

// valueOf is what a word is worth where it is told once. Short words are common ones in most languages, and so are
// syllables of Hiragana.
func valueOf(word string) float64 {
	if courtesies[word] {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(word)
	n := utf8.RuneCountInString(word)
	switch {
	case unicode.IsDigit(r):
		return 0.4
	case identifiers.IsUnspaced(r):
		last, _ := utf8.DecodeLastRuneInString(word)
		value := 0.8
		for _, r := range []rune{r, last} {
			if unicode.Is(unicode.Hiragana, r) {
				value -= 0.35
			}
		}
		return value
	case unicode.Is(unicode.Hangul, r):
		return min(1, 0.35*float64(n))
	}
	return min(1.2, float64(n-2)/6)
}

func wordSet(words string) map[string]bool {
	all := make(map[string]bool)
	for _, w := range strings.Fields(words) {
		all[w] = true
	}
	return all
}

// courtesies are words that tell nothing. A text of a language that has none here costs a little more.
var courtesies = wordSet(`
	hi hello hey please thanks thank you welcome sorry ok okay yes no great perfect good morning afternoon evening fine sure bye goodbye stop
	hallo guten tag danke bitte vielen dank schön gern gerne ja nein okay tschüss prima super wunderbar
	hola gracias buenos buenas días tardes por favor vale sí adiós bonjour merci beaucoup bonsoir oui non olá obrigado obrigada ciao grazie prego
	привет здравствуйте спасибо пожалуйста хорошо да нет отлично свидания добрый день
	안녕하세요 감사합니다 고마워요 고맙습니다 네 아니요 좋아요 알겠습니다
	你好 您好 谢谢 好的 再见 不客 客气 是的 请问 太好 早上 上好
	こん んに にち ちは あり りが がと とう うご ござ ざい いま ます お願 願い いし しま よろ ろし しく はい です`)

// limitWords are words of limits, preferences, decisions and corrections.
var limitWords = wordSet(`
	not never don dont doesn won can cannot must mustn should only always instead prefer rather want need keep avoid without except unless wrong decide decided
	nicht nie niemals kein keine nur immer statt lieber möchte muss soll sollte darf ohne falsch
	no nunca solo siempre prefiero quiero debe sin pas jamais seulement toujours veux dois sans não sempre mai
	не никогда только всегда нужно нельзя хочу лучше без
	않 말고 만 항상 절대
	不要 不能 不是 必须 必須 只要 总是 總是 想要 喜欢 不喜 讨厌 ない 必ず だけ`)
