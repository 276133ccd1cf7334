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

// Counted formats a number of things: "1 event", "2 events", "2 summaries", "2 patches". The number has no
// commas; see [Grouped].
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

// Grouped formats a size in bytes or tokens with commas between thousands. Do not use it for numbers that a
// person may type into a command, such as seqs, indices and counts.
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

// Percent formats a ratio in percent without decimals. A positive ratio below 1 % is "under 1 %".
func Percent(ratio float64) string {
	if 0 < ratio && ratio < 0.01 {
		return "under 1 %"
	}
	return fmt.Sprintf("%.0f %%", 100*ratio)
}

// IndexRange formats the indices of n adjacent things, n ≥ 1: "7" or "7 to 9".
func IndexRange(start, n int) string {
	if n == 1 {
		return strconv.Itoa(start)
	}
	return fmt.Sprintf("%d to %d", start, start+n-1)
}

// RemainingMatchesText says how many matches an erasure leaves in state values.
func RemainingMatchesText(n int) string {
	verb := "remain"
	if n == 1 {
		verb = "remains"
	}
	return fmt.Sprintf("State values are kept: %s %s.", Counted(n, "match"), verb)
}

// Printable returns the text as one line of visible characters. White space becomes one space, and is removed
// at the ends. An unprintable character becomes an escape such as \u001b, and a byte that is not UTF-8 becomes
// an escape such as \xff. The result can neither control a terminal nor change the direction of the text around
// it.
func Printable(text string) string {
	return PrintableUpTo(text, len(text))
}

// PrintableUpTo is like [Printable], but reads only a part of the text. The argument most is the number of runes
// to read. The result may have more runes because of escapes.
func PrintableUpTo(text string, most int) string {
	var b strings.Builder
	inSpace := true // removes leading white space
	n := 0
	for i, r := range text {
		if n >= most {
			break
		}
		n++
		if '\t' <= r && r <= '\r' || unicode.Is(unicode.Zs, r) {
			if !inSpace {
				b.WriteByte(' ')
			}
			inSpace = true
			continue
		}
		writeRune(&b, IsDisplayed(r), r, text[i:])
		inSpace = false
	}
	return strings.TrimSuffix(b.String(), " ")
}

// IsDisplayed reports whether a character is displayed unescaped. These are printable characters, joiners of letters
// and emoji, and direction marks for one adjacent letter. Controls that change the direction of a whole stretch
// of text are escaped.
func IsDisplayed(r rune) bool {
	switch r {
	case '\u200c', '\u200d', '\u200e', '\u200f', '\u061c': // ZWNJ, ZWJ, and direction marks
		return true
	}
	return unicode.IsPrint(r)
}

// Clip is [PrintableUpTo], with an ellipsis if the text was truncated.
func Clip(text string, most int) string {
	short := PrintableUpTo(text, most)
	if utf8.RuneCountInString(text[:min(len(text), utf8.UTFMax*(most+1))]) > most {
		short += " …"
	}
	return short
}

// writeRune writes r, the first rune of the argument text. It writes an escape instead if the argument shown is false or
// r is a byte that is not UTF-8.
func writeRune(b *strings.Builder, shown bool, r rune, text string) {
	if shown && !isBadByte(r, text) {
		b.WriteRune(r)
	} else {
		b.WriteString(escape(r, text))
	}
}

// EscapeUnless returns the text with escapes such as \u001b and \xff. It escapes each character for which the
// function shown returns false, and each byte that is not UTF-8.
func EscapeUnless(shown func(r rune) bool, text string) string {
	var b strings.Builder
	for i, r := range text {
		writeRune(&b, shown(r), r, text[i:])
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

// isBadByte reports whether r, decoded from the start of text, is a byte that is not UTF-8.
func isBadByte(r rune, text string) bool {
	return r == utf8.RuneError && !strings.HasPrefix(text, string(r))
}

// ShortID returns a printable id for a column. A long id becomes a prefix, which commands accept in place of
// the id.
func ShortID(id string) string {
	const short, long = 8, 16
	if runes := []rune(id); len(runes) > long {
		id = string(runes[:short])
	}
	return Printable(id)
}

var uuidForm = regexp.MustCompile(`\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

// ShortIDs shortens the UUIDs in a text as [ShortID] does.
func ShortIDs(text string) string { return uuidForm.ReplaceAllString(text, "$1") }

// Piece is a part of a text, marked or not.
type Piece struct {
	Text string // printable
	Mark bool
}

// Pieces splits a text of one line into marked and unmarked pieces. The marks are ascending byte ranges of the
// text. Spaces are kept.
func Pieces(text string, marks [][2]int) []Piece {
	var pieces []Piece
	at := 0
	add := func(end int, mark bool) {
		if end > at {
			pieces = append(pieces, Piece{EscapeUnless(IsDisplayed, text[at:end]), mark})
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

// Limits of the description of an event: runes of a text or document, and parts.
const (
	maxDescribedRunes = 400
	maxDescribedParts = 32
)

// Describe returns the content of an event in one printable line: its texts, calls and results. If the event
// has no content, the line has its state delta. Long texts are truncated, and only the first 32 parts are
// included.
func Describe(e *patch.Event) string {
	var texts []string
	add := func(kind, text string) {
		if len(texts) < maxDescribedParts {
			texts = append(texts, strings.TrimSpace(kind+Clip(text, maxDescribedRunes)))
		} else if len(texts) == maxDescribedParts {
			texts = append(texts, "…")
		}
	}
	for _, p := range e.Parts() {
		switch p.Kind {
		case patch.PartCall:
			add("call "+PrintableUpTo(p.Name, maxDescribedRunes)+" ", p.Args.String())
		case patch.PartResponse:
			add("result "+PrintableUpTo(p.Name, maxDescribedRunes)+" ", p.Response.String())
		case patch.PartThought:
			add("(thought) ", p.Text)
		case patch.PartText:
			add("", p.Text)
		case patch.PartData:
			add("(inline data)", "")
		case patch.PartFile:
			add("(file) ", p.Value.String())
		case patch.PartCode:
			add("(code) ", p.Value.String())
		case patch.PartCodeResult:
			add("(code result) ", p.Value.String())
		default:
			add("(other part)", "")
		}
	}
	if c, ok := adkrecord.CompactionOf(e); ok && len(texts) == 0 {
		for _, p := range c.CompactedContent.Parts() {
			add("(compaction record) ", p.Text)
		}
	}
	if len(texts) == 0 {
		for c := range e.Changes() {
			add("sets "+PrintableUpTo(c.Key, maxDescribedRunes)+" = ", c.Value.String())
		}
		for c := range e.SharedChanges() {
			add("sets "+PrintableUpTo(c.Key, maxDescribedRunes)+" = ", c.Value.String())
		}
	}
	if len(texts) == 0 {
		return "(no content)"
	}
	return strings.Join(texts, "; ")
}

// EntryText is [Describe] for a visible event. A prefix says whether the event is a summary or pinned.
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

// ValueText returns a state value in one printable line. A long value is truncated.
func ValueText(v patch.Value) string { return Clip(v.String(), maxDescribedRunes) }

// Kind is the kind of a record or of a visible event.
type Kind string

// The kinds of records and visible events.
const (
	User     Kind = "user"     // written by the user
	Model    Kind = "model"    // written by any other author
	Call     Kind = "call"     // calls a tool, and may have other content
	Response Kind = "response" // has the result of a call, and may have other content
	Summary  Kind = "summary"  // represents other events
	Patch    Kind = "patch"    // not an event
)

// KindOf returns the kind of a visible event. A summary is always [Summary]. If an event has calls and
// responses, the last part decides.
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

// KindOfRecord is [KindOf] for a record, which must have an event or a patch.
func KindOfRecord(r patch.Record) Kind {
	if r.Patch != nil {
		return Patch
	}
	return KindOf(fold.Entry{Event: r.Event, Summary: r.Event.IsSummary()})
}

// Line is an event as JSON.
type Line struct {
	Index  *int         `json:"index,omitzero"` // nil for an event of a history, which has no index
	Seq    uint64       `json:"seq,omitzero"`   // seq of the event's record; 0 is omitted
	Event  *patch.Event `json:"event"`
	Pinned bool         `json:"pinned,omitzero"`
}
