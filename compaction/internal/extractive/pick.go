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

// unit is a piece of a line that is kept or left out as a whole.
type unit struct {
	kind     unitKind
	text     string // without its label
	keep     bool
	side     int  // 0 if the user said it
	answered bool // it is a question of the agent's

	order int
	words []string
	score float64 // with what was kept when it was made
}

type unitKind int

const (
	saidUnit unitKind = iota // a sentence or a clause
	callUnit
	errorUnit
)

// size is what a unit takes in a line.
func (u *unit) size() tokens.Size { return tokens.Of(u.text) + perUnit }

// least is what a unit must be worth: courtesies and phrases are not.
func (u *unit) least() float64 {
	if u.side == 1 && u.kind == saidUnit {
		return 0.3
	}
	return 0.12
}

// perUnit is what separates a unit from others.
const perUnit = 2 * tokens.Token

// picker keeps the units that tell the most new words for their size: a word is worth the more
// the fewer units have it, and little once it is kept.
type picker struct {
	units map[string][2]int // by word: how many units have it of what the user said, and of what happened
	kept  map[string]bool   // the words of units that are kept, and of summaries before
}

func newPicker() *picker { return &picker{make(map[string][2]int), make(map[string]bool)} }

// count counts the words of units that may be kept or may not: what the user said, and what happened.
func (p *picker) count(asked, told []*unit) {
	for side, units := range [][]*unit{asked, told} {
		for i, u := range units {
			u.order, u.side = i, side
			u.words = wordsIn(u.text)
			for _, w := range u.words {
				n := p.units[w]
				n[side]++
				p.units[w] = n
			}
		}
	}
}

// keep keeps a unit.
func (p *picker) keep(u *unit) {
	u.keep = true
	p.know(u.words)
}

func (p *picker) know(words []string) {
	for _, w := range words {
		p.kept[w] = true
	}
}

// Scores.
const (
	keptAlready   = 0.3 // of a word that is kept
	answeredWorth = 0.3 // of a question of the agent's, which the user has answered
)

// worth is what keeping the unit would tell.
func (p *picker) worth(u *unit) (worth float64) {
	for _, w := range u.words {
		value := valueOf(w) / math.Sqrt(float64(p.units[w][u.side]))
		if p.kept[w] {
			value *= keptAlready
		}
		worth += value
	}
	if u.answered {
		worth *= answeredWorth
	}
	return worth
}

// pick keeps of some units those that tell the most in a room, if they are worth it, and returns
// what they take.
func (p *picker) pick(units []*unit, room tokens.Size) (taken tokens.Size) {
	var best ranking
	for _, u := range units {
		if worth := p.worth(u); !u.keep && worth >= u.least() {
			u.score = worth / float64(u.size())
			best = append(best, u)
		}
	}
	heap.Init(&best)
	for len(best) > 0 {
		u := best[0]
		worth := p.worth(u)
		score := worth / float64(u.size())
		switch {
		case worth < u.least() || u.size() > room-taken:
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

// ranking is a heap of units by their scores, the best first.
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

// wordsIn returns the words of a text in lower case, each once: stretches of letters and digits,
// or, of scripts without blanks between words, each two characters that stand together.
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

// valueOf is what a word is worth where it is told once. Short words are common ones in most
// languages, and so are syllables of Hiragana.
func valueOf(word string) float64 {
	if courtesies[word] {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(word)
	n := utf8.RuneCountInString(word)
	switch {
	case hasDigit(word) && n >= leastFact: // a fact of its own
		return 0.1
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

// courtesies are words that tell nothing. A text of a language that has none here costs a little
// more.
var courtesies = func() map[string]bool {
	all := make(map[string]bool)
	for _, w := range strings.Fields(`
		hi hello hey please thanks thank you welcome sorry ok okay yes no great perfect good morning afternoon evening fine sure bye goodbye stop
		hallo guten tag danke bitte vielen dank schön gern gerne ja nein okay tschüss prima super wunderbar
		hola gracias buenos buenas días tardes por favor vale sí adiós bonjour merci beaucoup bonsoir oui non olá obrigado obrigada ciao grazie prego
		привет здравствуйте спасибо пожалуйста хорошо да нет отлично свидания добрый день
		안녕하세요 감사합니다 고마워요 고맙습니다 네 아니요 좋아요 알겠습니다
		你好 您好 谢谢 好的 再见 不客 客气 是的 请问 太好 早上 上好
		こん んに にち ちは あり りが がと とう うご ござ ざい いま ます お願 願い いし しま よろ ろし しく はい です`) {
		all[w] = true
	}
	return all
}()
