package extractive

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/words"
)

// nameValue is what a name, or a word with a digit, is worth.
const nameValue = 1.3

// valueOf is what a word is worth where it is told once: nothing if it is common, and less if it is short.
func valueOf(word string) float64 {
	if words.IsCommon(word) || courtesies[word] {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(word)
	n := utf8.RuneCountInString(word)
	switch {
	case words.IsUnspaced(r):
		last, _ := utf8.DecodeLastRuneInString(word)
		value := 0.5
		for _, r := range []rune{r, last} {
			if unicode.Is(unicode.Hiragana, r) {
				value -= 0.22
			}
		}
		return value
	case unicode.Is(unicode.Hangul, r):
		return min(1, 0.35*float64(n))
	}
	return min(1, float64(n-1)/5)
}

// namesIn returns the words of a text that begin with a capital, other than the first one, or have a digit.
func namesIn(text string) (names []string) {
	for i, w := range strings.Fields(text) {
		r, _ := utf8.DecodeRuneInString(strings.TrimLeft(w, "\"'([*`"))
		if i > 0 && unicode.IsUpper(r) && len(w) > 2 || strings.ContainsFunc(w, unicode.IsDigit) {
			names = append(names, words.In(w)...)
		}
	}
	return names
}

// courtesies are words that tell nothing. A sentence of nothing else is left out.
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
