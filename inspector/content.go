package inspector

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
)

// Limits for the contents of a page. Unless a comment says otherwise, they are in bytes of the page.
const (
	foldedAt   = 1_500   // minimum size of a text that is folded, in bytes of the text
	textBytes  = 200_000 // maximum for a text
	pageBytes  = 500_000 // maximum for all contents
	blockBytes = 400     // reserved for a block, besides its text
	markBytes  = 120     // reserved for a marked identifier
	classBytes = 40      // reserved for a coloured run
	lineBytes  = 40      // a text with more than n/lineBytes line breaks is folded like a text of more than n bytes
	nameRunes  = 200     // maximum number of runes of a name
)

// contentRenderer renders contents of events within a byte budget. The zero value has no budget and shows
// nothing. A contentRenderer is not safe for concurrent use.
type contentRenderer struct {
	BytesLeft int                           // approximate bytes of the page left
	Fold      int                           // minimum size of a text that is folded; 0 means foldedAt
	MaxText   int                           // approximate maximum for a text, in bytes of the page; 0 means textBytes
	Raw       func(seq uint64) template.URL // returns the URL of a raw record; nil means no links
	Marks     marks

	raw template.URL // URL of the current event's record
}

// eventContent is the content of an event, for the template "content".
type eventContent struct {
	Blocks []block
	State  []block      // keys and values of the state delta
	Notes  []block      // other fields, such as usage
	More   int          // number of parts, keys and notes not shown
	Raw    template.URL // URL of the raw record, or ""
}

// block is a text or JSON value on a page. Its texts are escaped for display.
type block struct {
	What  string       // kind of the content, such as "function call"; "" for a text
	Name  string       // name of the function or file
	Runs  []run        // the text
	Begin string       // start of the text, if the text is folded
	Plain bool         // the text is natural language, not code
	Lines []textLine   // the text as Markdown; replaces Runs
	Size  int          // size of the text in bytes
	Cut   bool         // the end of the text is not shown
	Raw   template.URL // URL of the raw record, or ""
}

// run is a part of a text. Mark is the mark of an identifier, the kind of a JSON token, or "".
type run struct{ Text, Mark string }

// textLine is one line of a Markdown text.
type textLine struct {
	Kind string // "heading"; "item" of a list; "sub", which continues an item; or "text"
	Runs []run
}

// markdownLines returns the text of a summary as lines of Markdown.
func (s *contentRenderer) markdownLines(e fold.Entry) (out []textLine) {
	for _, b := range s.event(e.Event, e.Seq).Blocks {
		out = append(out, markdown(b.Runs)...)
	}
	return slices.DeleteFunc(out, func(l textLine) bool { return len(l.Runs) == 1 && strings.TrimSpace(l.Runs[0].Text) == "" })
}

// markdown splits a text into lines of Markdown. Headings and items lose their markers. A short line that ends
// in a colon is also a heading. An indented line continues the item above it.
func markdown(runs []run) []textLine {
	lines := []textLine{{Kind: "text"}}
	for _, r := range runs {
		for n, piece := range strings.Split(r.Text, "\n") {
			if n > 0 {
				lines = append(lines, textLine{Kind: "text"})
			}
			line := &lines[len(lines)-1]
			if trimmed := strings.TrimLeft(piece, " "); len(line.Runs) == 0 && r.Mark == "" {
				if text := strings.TrimLeft(trimmed, "#"); text != trimmed && strings.HasPrefix(text, " ") {
					line.Kind, piece = "heading", text[1:]
				} else if strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "* ") {
					line.Kind, piece = "item", trimmed[2:]
				} else if strings.HasSuffix(piece, ":") && trimmed == piece && len(piece) < headingBytes {
					line.Kind, piece = "heading", strings.TrimSuffix(piece, ":")
				} else if strings.HasPrefix(piece, "  ") {
					line.Kind, piece = "sub", trimmed
				}
			}
			line.Runs = append(line.Runs, run{piece, r.Mark})
		}
	}
	return lines
}

// headingBytes limits the length of a line that is a heading because it ends in a colon.
const headingBytes = 40

// Marks of identifiers that a summary lost or invented.
const (
	markNotVisible    = "not-visible"
	markInOtherEvents = "in-other-events"
	markInvented      = "invented"
)

// Title explains the run's mark.
func (r run) Title() string {
	switch r.Mark {
	case markNotVisible:
		return "not visible: no visible event contains it"
	case markInOtherEvents:
		return "in other events: missing from the summary, but another visible event contains it"
	case markInvented:
		return "invented: no event contains it"
	}
	return ""
}

// marks maps identifiers to their marks. The zero value marks nothing.
type marks struct {
	set          *identifiers.Set
	byIdentifier map[string]string
}

func newMarks(byIdentifier map[string]string) marks {
	var ids []string
	for id := range byIdentifier {
		ids = append(ids, id)
	}
	return marks{identifiers.NewSet(ids), byIdentifier}
}

// split splits text into marked and unmarked runs. It finds the identifiers in words, which has the same byte
// offsets as text.
func (m marks) split(text, words string) []run {
	if len(m.byIdentifier) == 0 {
		return []run{{Text: text}}
	}
	var runs []run
	last := 0
	for from, to := range m.set.In(words) {
		if last < from {
			runs = append(runs, run{Text: text[last:from]})
		}
		runs = append(runs, run{text[from:to], m.byIdentifier[words[from:to]]})
		last = to
	}
	if last < len(text) {
		runs = append(runs, run{Text: text[last:]})
	}
	return runs
}

// event returns the content of e, which is an event of the record seq.
func (s *contentRenderer) event(e *patch.Event, seq uint64) eventContent {
	if s.Raw != nil {
		s.raw = s.Raw(seq)
	}
	out := eventContent{Raw: s.raw}
	parts := e.Parts()
	if !e.SaysSomething() {
		if c, ok := adkrecord.CompactionOf(e); ok {
			parts = c.CompactedContent.Parts()
		}
	}
	for _, p := range parts {
		if s.reserveBlock(&out) {
			out.Blocks = append(out.Blocks, s.part(p))
		}
	}
	for c := range e.Changes() {
		if s.reserveBlock(&out) {
			out.State = append(out.State, s.change(c))
		}
	}
	for c := range e.SharedChanges() {
		if s.reserveBlock(&out) {
			out.State = append(out.State, s.change(c))
		}
	}
	for _, note := range []struct{ field, what string }{
		{"errorCode", "error code"}, {"errorMessage", "error"}, {"usageMetadata", "usage"}, {"customMetadata", "metadata"},
	} {
		if text, ok := e.Field(note.field); ok && string(text) != "null" && string(text) != `""` && s.reserveBlock(&out) {
			out.Notes = append(out.Notes, s.json(note.what, "", string(text)))
		}
	}
	return out
}

// reserveBlock takes the bytes of one block from the budget. If too few are left, reserveBlock counts the block
// in out.More.
func (s *contentRenderer) reserveBlock(out *eventContent) bool {
	if s.BytesLeft < blockBytes {
		out.More++
		return false
	}
	s.BytesLeft -= blockBytes
	return true
}

func (s *contentRenderer) change(c patch.Change) block {
	return s.json("", present.PrintableUpTo(c.Key, nameRunes), c.Value.String())
}

func (s *contentRenderer) part(p patch.Part) block {
	what, name := p.Kind, present.Clip(p.Name, nameRunes)
	if p.Thought && p.Kind != patch.PartThought {
		what = "thought, " + what
	}
	switch p.Kind {
	case patch.PartText, patch.PartThought:
		if p.Kind == patch.PartText {
			what = ""
		}
		b := s.text(what, "", p.Text)
		b.Plain = true
		return b
	case patch.PartCall:
		return s.json(what, name, p.Args.String())
	case patch.PartResponse:
		return s.json(what, name, p.Response.String())
	case patch.PartCode, patch.PartCodeResult: // either Language or Outcome is set
		var code struct{ Language, Outcome string }
		_ = p.Value.Decode(&code)
		return s.text(what, present.Clip(code.Language+code.Outcome, nameRunes), p.Text)
	case patch.PartData:
		return block{What: what, Name: dataText(p)}
	case patch.PartFile:
		return s.text(what, strings.TrimLeft(name+", "+present.Clip(p.MIMEType, nameRunes), ", "), p.URI)
	case patch.PartEmpty:
		return s.json(what, "", p.JSON.String())
	default:
		return s.json(what, name, p.Value.String())
	}
}

// dataText describes inline data by name, type and size.
func dataText(p patch.Part) string {
	mimeType := present.Clip(p.MIMEType, nameRunes)
	if mimeType == "" {
		mimeType = "of no type"
	}
	text := fmt.Sprintf("%s, %s bytes", mimeType, present.Grouped(p.DataLen))
	if name := present.Clip(p.Name, nameRunes); name != "" {
		text = name + ", " + text
	}
	return text
}

func (s *contentRenderer) text(what, name, text string) block {
	end := runeBoundary(text, s.maxBytes())
	return s.block(what, name, text, s.Marks.split(text[:end], text[:end]), end)
}

// json returns a block with indented JSON. A text that is not JSON is shown unchanged.
func (s *contentRenderer) json(what, name, text string) block {
	shown, read := indentJSON(text, s.maxBytes())
	if len(s.Marks.byIdentifier) > 0 {
		return s.block(what, name, text, s.Marks.split(shown, maskEscapes(shown)), read)
	}
	return s.block(what, name, text, colourJSON(shown), read)
}

var jsonToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b`)

// coloursBytes is the maximum size of JSON that is coloured.
const coloursBytes = 20_000

// colourJSON splits JSON into runs. It marks keys, strings, numbers and literals.
func colourJSON(text string) (runs []run) {
	last := 0
	if len(text) > coloursBytes {
		return []run{{Text: text}}
	}
	for _, at := range jsonToken.FindAllStringSubmatchIndex(text, -1) {
		kind := "number"
		switch c := text[at[0]]; {
		case at[2] >= 0:
			kind = "key"
		case c == '"':
			kind = "string"
		case c == 't', c == 'f', c == 'n':
			kind = "word"
		}
		if at[0] > last {
			runs = append(runs, run{Text: text[last:at[0]]})
		}
		runs = append(runs, run{text[at[0]:at[1]], kind})
		last = at[1]
	}
	return append(runs, run{Text: text[last:]})
}

// block returns a block with the runs that fit the page. The runs contain the first end bytes of text.
func (s *contentRenderer) block(what, name, text string, runs []run, end int) block {
	b := block{What: what, Name: name, Size: len(text), Cut: end < len(text), Raw: s.raw}
	left := s.maxBytes()
	s.BytesLeft -= left
	for _, r := range runs {
		switch {
		case r.Title() != "":
			left -= markBytes
		case r.Mark != "":
			left -= classBytes
		}
		shown, cost, read := displayText(r.Text, left)
		left -= cost
		if shown != "" {
			b.Runs = append(b.Runs, run{shown, r.Mark})
		}
		if b.Cut = b.Cut || read < len(r.Text); read < len(r.Text) {
			break
		}
	}
	s.BytesLeft += left
	if fold := cmp.Or(s.Fold, foldedAt); len(text) > fold || strings.Count(text, "\n") > fold/lineBytes {
		b.Begin = present.PrintableUpTo(text[:runeBoundary(text, 4*nameRunes)], nameRunes)
	}
	return b
}

// maxBytes returns how many bytes of the page the next text may use.
func (s *contentRenderer) maxBytes() int {
	return max(0, min(s.BytesLeft, cmp.Or(s.MaxText, textBytes)))
}

// displayText returns the start of a text for display, the size of that start on the page, and how many bytes of the
// text it read. The size is at most limit bytes. displayText keeps line breaks, tabs and spaces, and escapes other
// invisible characters as [present.Printable] does.
func displayText(text string, limit int) (shown string, cost, read int) {
	var b strings.Builder
	for read < len(text) {
		r, size := utf8.DecodeRuneInString(text[read:])
		escaped := text[read : read+size]
		switch {
		case r == '\r' && strings.HasPrefix(text[read+size:], "\n"):
			escaped = ""
		default:
			escaped = present.EscapeUnless(func(r rune) bool { return r == '\n' || r == '\t' || unicode.IsGraphic(r) || present.IsDisplayed(r) }, escaped)
		}
		n := len(escaped)
		if strings.ContainsRune(`<>&"'+`, r) {
			n = len("&#34;")
		}
		if cost+n > limit {
			break
		}
		b.WriteString(escaped)
		cost += n
		read += size
	}
	return b.String(), cost, read
}

// runeBoundary returns the last rune boundary at or before byte at.
func runeBoundary(text string, at int) int {
	if at >= len(text) {
		return len(text)
	}
	for n := at; n > 0 && n > at-utf8.UTFMax; n-- {
		if utf8.RuneStart(text[n]) {
			return n
		}
	}
	return at
}

// maxIndentDepth limits the nesting of indented JSON. Deeper JSON would be mostly indentation.
const maxIndentDepth = 40

// indentJSON indents JSON. It reads at most limit bytes, and also returns how many bytes it read. It decodes escapes
// in strings, except escaped quotes, line breaks and control characters. It returns the text unchanged if the text
// is truncated, nested deeper than maxIndentDepth, or not JSON.
func indentJSON(text string, limit int) (out string, read int) {
	var b bytes.Buffer
	if read = runeBoundary(text, limit); read < len(text) || maxNesting(text) > maxIndentDepth || json.Indent(&b, []byte(text), "", "  ") != nil {
		return text[:read], read
	}
	return jsonEscape.ReplaceAllStringFunc(b.String(), func(escape string) string {
		var decoded string
		var encoded strings.Builder
		e := json.NewEncoder(&encoded)
		e.SetEscapeHTML(false)
		if json.Unmarshal([]byte(`"`+escape+`"`), &decoded) != nil || e.Encode(decoded) != nil {
			return escape
		}
		return strings.TrimSuffix(encoded.String(), "\"\n")[1:]
	}), read
}

// maxNesting returns an upper bound of the nesting depth. It is not exact, because it also counts brackets in
// strings.
func maxNesting(text string) (deepest int) {
	depth := 0
	for _, r := range text {
		switch r {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

var jsonEscape = regexp.MustCompile(`(\\u[0-9a-fA-F]{4})+|\\.|\\$`)

// maskEscapes replaces escapes in JSON by spaces of the same length, so offsets stay and an escape separates
// words.
func maskEscapes(text string) string {
	return jsonEscape.ReplaceAllStringFunc(text, func(escape string) string { return strings.Repeat(" ", len(escape)) })
}
