package present

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Counted returns a number of things, such as "1 event" and "2 events", "2 summaries" and
// "2 patches". The number has no commas: see [Grouped].
func Counted[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		thing = stem + "ie"
	} else if strings.HasSuffix(thing, "ch") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Grouped returns a size, in bytes or tokens, with commas between thousands. What a person
// may type back, seqs, indices and counts, is written as it is typed, not by this.
func Grouped[N int | int64 | uint64](n N) string {
	digits := fmt.Sprint(n)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Percent returns a ratio in percent, without decimals. What is not nothing does not show as
// nothing: it is "under 1 %".
func Percent(ratio float64) string {
	if 0 < ratio && ratio < 0.01 {
		return "under 1 %"
	}
	return fmt.Sprintf("%.0f %%", 100*ratio)
}

// IndexRange returns the indices of n things in a row, of which the first has the index start:
// "7", or "7 to 9". n is 1 or more.
func IndexRange(start, n int) string {
	if n == 1 {
		return strconv.Itoa(start)
	}
	return fmt.Sprintf("%d to %d", start, start+n-1)
}

// RemainingMatches says how many of the selected state values an erase keeps, in a sentence.
func RemainingMatches(n int) string {
	verb := "remain"
	if n == 1 {
		verb = "remains"
	}
	return fmt.Sprintf("State values are kept: %s %s.", Counted(n, "match"), verb)
}

// Printable returns the text as one line of characters that show: a run of white space
// becomes one blank, and none at either end; an unprintable character becomes an escape such as
// \u001b, and a byte that is not UTF-8 one such as \xff. So it can neither drive
// a terminal nor turn the direction of what is around it.
func Printable(text string) string {
	return PrintableUpTo(text, len(text))
}

// PrintableUpTo is [Printable] for the first runes of the text, at least most of them. What it
// returns may be longer, since an escape is.
func PrintableUpTo(text string, most int) string {
	var b strings.Builder
	blank := true // leading white space goes
	n := 0
	for i, r := range text {
		if n >= most {
			break
		}
		n++
		if '\t' <= r && r <= '\r' || unicode.Is(unicode.Zs, r) {
			if !blank {
				b.WriteByte(' ')
			}
			blank = true
			continue
		}
		write(&b, Shows(r), r, text[i:])
		blank = false
	}
	return strings.TrimSuffix(b.String(), " ")
}

// Shows reports whether a character of a text may show as it is: those that print, and those that join letters and emoji or
// say the direction of a letter beside them. What turns the direction of all that follows does not.
func Shows(r rune) bool {
	switch r {
	case '\u200c', '\u200d', '\u200e', '\u200f', '\u061c': // ZWNJ, ZWJ, and the marks of direction
		return true
	}
	return unicode.IsPrint(r)
}

// Clip is [PrintableUpTo] with a mark at the end if the text goes on.
func Clip(text string, most int) string {
	short := PrintableUpTo(text, most)
	if utf8.RuneCountInString(text[:min(len(text), utf8.UTFMax*(most+1))]) > most {
		short += " …"
	}
	return short
}

// write writes r, decoded from the start of text, as it is if it may show, or as an escape.
func write(b *strings.Builder, shown bool, r rune, text string) {
	if shown && !isBadByte(r, text) {
		b.WriteRune(r)
	} else {
		b.WriteString(escape(r, text))
	}
}

// EscapeUnless returns a text with an escape for each character that is not to be shown as it is, and for each byte
// that is not UTF-8: such as \u001b and \xff.
func EscapeUnless(shown func(r rune) bool, text string) string {
	var b strings.Builder
	for i, r := range text {
		write(&b, shown(r), r, text[i:])
	}
	return b.String()
}

func escape(r rune, text string) string {
	switch {
	case isBadByte(r, text):
		return fmt.Sprintf(`\x%02x`, text[0])
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// isBadByte reports whether r, decoded from the start of text, stands for a byte that is not UTF-8.
func isBadByte(r rune, text string) bool {
	return r == utf8.RuneError && !strings.HasPrefix(text, string(r))
}

// ShortID returns an id as a column shows it: printable, and of a long one the beginning, which names the event as well.
func ShortID(id string) string {
	const short, long = 8, 16
	if runes := []rune(id); len(runes) > long {
		id = string(runes[:short])
	}
	return Printable(id)
}

var uuidForm = regexp.MustCompile(`\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

// ShortIDs is [ShortID] for the UUIDs in a text.
func ShortIDs(text string) string { return uuidForm.ReplaceAllString(text, "$1") }

// Piece is a stretch of a text, of which all is marked or nothing.
type Piece struct {
	Text string // printable
	Mark bool
}

// Pieces returns a text of one line as pieces: those that are marked, and those between. Marks say where they begin and
// end, in bytes, ascending and within the text. Blanks stay.
func Pieces(text string, marks [][2]int) []Piece {
	var pieces []Piece
	at := 0
	add := func(end int, mark bool) {
		if end > at {
			pieces = append(pieces, Piece{EscapeUnless(Shows, text[at:end]), mark})
			at = end
		}
	}
	for _, m := range marks {
		add(m[0], false)
		add(m[1], true)
	}
	add(len(text), false)
	return pieces
}

// The runes of a text or a document, and the parts of an event, that are read to describe it in a
// line: more than a line has room for.
const (
	describedRunes = 400
	describedParts = 32
)

// Describe says in one printable line what is in an event: its texts, calls and results, or,
// where it has no content, what it sets in the state. Long texts are not told to their ends, nor
// what comes after the first 32 parts.
func Describe(e *patch.Event) string {
	var said []string
	say := func(kind, text string) {
		if len(said) < describedParts {
			said = append(said, strings.TrimSpace(kind+Clip(text, describedRunes)))
		} else if len(said) == describedParts {
			said = append(said, "…")
		}
	}
	for _, p := range e.Parts() {
		switch p.Kind {
		case patch.PartCall:
			say("call "+PrintableUpTo(p.Name, describedRunes)+" ", p.Args.String())
		case patch.PartResponse:
			say("result "+PrintableUpTo(p.Name, describedRunes)+" ", p.Response.String())
		case patch.PartThought:
			say("(thought) ", p.Text)
		case patch.PartText:
			say("", p.Text)
		case patch.PartData:
			say("(inline data)", "")
		case patch.PartFile:
			say("(file) ", p.Value.String())
		case patch.PartCode:
			say("(code) ", p.Value.String())
		case patch.PartCodeResult:
			say("(code result) ", p.Value.String())
		default:
			say("(other part)", "")
		}
	}
	if c, ok := adkrecord.CompactionOf(e); ok && len(said) == 0 {
		for _, p := range c.CompactedContent.Parts() {
			say("(compaction record) ", p.Text)
		}
	}
	if len(said) == 0 {
		for c := range e.Changes() {
			say("sets "+PrintableUpTo(c.Key, describedRunes)+" = ", c.Value.String())
		}
		for c := range e.SharedChanges() {
			say("sets "+PrintableUpTo(c.Key, describedRunes)+" = ", c.Value.String())
		}
	}
	if len(said) == 0 {
		return "(no content)"
	}
	return strings.Join(said, "; ")
}

// EntryText is [Describe] for an event of a visible log. Before the text stands what the view
// knows of it: that it is a summary, that it is pinned.
func EntryText(entry fold.Entry) string {
	text := Describe(entry.Event)
	if entry.Summary {
		text = "summary: " + text
	}
	if entry.Pinned {
		text = "pinned: " + text
	}
	return text
}

// ValueText returns a value of the state in one printable line. A long one is not told to its
// end.
func ValueText(v patch.Value) string { return Clip(v.String(), describedRunes) }

// Kind is what sort of entry something is.
type Kind string

// The kinds of entries.
const (
	User     Kind = "user"     // said by the user
	Model    Kind = "model"    // said by anybody else
	Call     Kind = "call"     // calls a tool, whatever else it says
	Response Kind = "response" // has the result of a call, whatever else it says
	Summary  Kind = "summary"  // stands for others
	Patch    Kind = "patch"    // is no event
)

// KindOf returns what kind of entry a visible event is, one of all but [Patch]. A summary is
// that first of all. Of calls and responses in one event, the last counts.
func KindOf(entry fold.Entry) Kind {
	if entry.Summary {
		return Summary
	}
	kind := Model
	if entry.Event.Author() == "user" {
		kind = User
	}
	for p := range entry.Event.FunctionParts() {
		kind = Call
		if p.Response {
			kind = Response
		}
	}
	return kind
}

// KindOfRecord is [KindOf] for a record of the log. It has an event or a patch.
func KindOfRecord(r patch.Record) Kind {
	if r.Patch != nil {
		return Patch
	}
	return KindOf(fold.Entry{Event: r.Event, Summary: r.Event.IsSummary()})
}

// Line is an event of the visible log as JSON.
type Line struct {
	Index  *int         `json:"index,omitzero"` // nil if it has none, as in a history
	Seq    uint64       `json:"seq,omitzero"`   // of the record that brought it; 0 is left out
	Event  *patch.Event `json:"event"`
	Pinned bool         `json:"pinned,omitzero"`
}
