package inspector

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/inspector/figures"
	"github.com/patchlog-dev/patchlog/patch"
)

// content is a text of several lines, in characters that show.
type content struct {
	What string // what it is, such as "function call find"
	Text string
	Cut  int // bytes that are left out behind it
}

// contentsOf are the contents of an event as texts, of each so many bytes at most.
func contentsOf(e *patch.Event, most int) []content {
	var out []content
	add := func(what, text string) { out = append(out, contentOf(what, text, most)) }
	for _, p := range e.Content().Parts() {
		what := p.Kind().String()
		if name := p.Name(); name != "" {
			what += " " + name
		}
		switch p.Kind() {
		case patch.PartText, patch.PartThought, patch.PartCode, patch.PartCodeResult:
			add(what, p.Text())
		case patch.PartCall:
			add(what, string(p.Args()))
		case patch.PartResponse:
			add(what, string(p.Response()))
		case patch.PartData:
			add(what, fmt.Sprintf("%s, %s bytes", p.MIMEType(), figures.Grouped(p.DataLen())))
		case patch.PartFile:
			add(what, p.URI())
		default:
			add(what, string(p.JSON()))
		}
	}
	for c := range e.Changes() {
		add("sets "+c.Key, c.Value.String())
	}
	for c := range e.SharedChanges() {
		add("sets "+c.Key, c.Value.String())
	}
	return out
}

func contentOf(what, text string, most int) content {
	end := min(len(text), most)
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return content{clip(what, rowRunes), plainLines(text[:end]), len(text) - end}
}

// plainLines is a text in characters that show. Lines stay lines, and tabs and blanks stay; what
// else is not printable becomes an escape, as in [figures.Printable].
func plainLines(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch bad := r == utf8.RuneError && size == 1; {
		case !bad && (unicode.IsPrint(r) || r == '\n' || r == '\t' || unicode.Is(unicode.Zs, r)):
			b.WriteRune(r)
		default:
			b.WriteString(figures.Printable(text[:size]))
		}
		text = text[size:]
	}
	return b.String()
}
