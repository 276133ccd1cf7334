package quality

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/words"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// Probe is a question about a fact that a session contains.
type Probe struct {
	Question string
	Answers  []string // spellings of the answer; any of them counts
	Evidence string   // part of the text that states the fact
}

// measureProbes measures at the end of a session which facts are visible, and which facts a search finds.
func (r *replay) measureProbes(ctx context.Context, raw []*patch.Event, probes []Probe) error {
	lines := visibleLines(r.log)
	for _, p := range probes {
		r.figures.Probes++
		evidence := ""
		for _, e := range raw {
			text := r.text(e)
			if evidence == "" && strings.Contains(text, p.Evidence) {
				evidence = text
			} else if containsAnswer(text, p.Answers) {
				r.figures.ProbesElsewhere++
				break
			}
		}
		answerLines := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !containsAnswer(line, p.Answers) })
		if slices.ContainsFunc(answerLines, func(line string) bool { return sharesWords(line, evidence, p.Answers) }) {
			r.figures.ProbesInContext++
		}
		if len(answerLines) > 0 {
			r.figures.ProbesVisible++
			continue
		}
		hits, err := r.finder.Search(ctx, "", recall.Search{Query: p.Question, Hidden: true, Represented: true, Limit: 10})
		if err != nil {
			return err
		}
		if slices.ContainsFunc(hits, func(h recall.Hit[string]) bool { return strings.Contains(r.text(h.Event), p.Evidence) }) {
			r.figures.ProbesFound++
		}
	}
	return nil
}

// visibleLines returns the lines of the visible log in lower case. A tool result is a single line.
func visibleLines(l *log) (lines []string) {
	for _, e := range l.view().Events() {
		for _, part := range e.Parts() {
			text := part.Text
			if part.Kind == patch.PartResponse || part.Kind == patch.PartCall { // one of Response and Args is empty
				text = strings.ReplaceAll(identifiers.Values(records.JSON(part.Response))+identifiers.Values(records.JSON(part.Args)), "\n", " ; ")
			}
			lines = slices.AppendSeq(lines, strings.Lines(strings.ToLower(text)))
		}
	}
	return lines
}

// containsAnswer reports whether a text contains one of the answers. Case does not matter.
func containsAnswer(text string, answers []string) bool {
	text = strings.ToLower(text)
	for _, a := range answers {
		a = strings.ToLower(a)
		if identifiers.Occurs(text, a) || strings.ContainsFunc(a, func(r rune) bool { return r > unicode.MaxLatin1 }) && strings.Contains(text, a) {
			return true
		}
	}
	return false
}

// A visible line counts as stating a fact if it shares at least minSharedWords words with the evidence. The words of
// the answer do not count as shared.
const minSharedWords = 2

func sharesWords(line, evidence string, answers []string) bool {
	shared := wordsOf(evidence)
	for _, a := range answers {
		for w := range wordsOf(a) {
			delete(shared, w)
		}
	}
	n := 0
	for w := range wordsOf(line) {
		if shared[w] {
			n++
		}
	}
	return n >= min(minSharedWords, len(shared))
}

// wordsOf returns the words of a text that are long enough to be compared. They have at least three characters, or
// two in scripts whose characters take three bytes.
func wordsOf(text string) map[string]bool {
	all := map[string]bool{}
	for _, w := range words.In(text) {
		if utf8.RuneCountInString(w) > 2 || len(w) >= 6 {
			all[w] = true
		}
	}
	return all
}

// maxValueRunes is the maximum length of a value in a relation, in characters.
const maxValueRunes = 32

// relation is a pair of an id and another value in an object that a tool returned. The field name is the name of the
// value.
type relation struct{ id, name, value string }

// relations returns the relations in the tool results of events. If several relations have the same id and name, it
// returns only the last.
func relations(events []*patch.Event) (all []relation) {
	last := map[[2]string]int{}
	for _, e := range events {
		for _, part := range e.Parts() {
			if part.Kind != patch.PartResponse {
				continue
			}
			for _, r := range relationsIn(records.JSON(part.Response)) {
				at, known := last[[2]string{r.id, r.name}]
				if !known {
					at = len(all)
					last[[2]string{r.id, r.name}] = at
					all = append(all, r)
				}
				all[at] = r
			}
		}
	}
	return all
}

// relationsIn returns the relations in the objects of a JSON text.
func relationsIn(data []byte) (all []relation) {
	for _, value := range jsonvalue.Elements(data) {
		all = append(all, relationsIn(value)...)
	}
	var id string
	var values []relation
	for name, value := range jsonvalue.Members(data) {
		kind := jsonvalue.KindOf(value)
		if kind == jsonvalue.Object || kind == jsonvalue.Array {
			all = append(all, relationsIn(value)...)
		}
		if kind != jsonvalue.String && kind != jsonvalue.Number {
			continue
		}
		text := strings.TrimSuffix(identifiers.Values(value), "\n")
		if ids := identifiers.Find(text); id == "" && kind == jsonvalue.String && len(ids) == 1 && ids[0] == text {
			id = text
		} else if n := utf8.RuneCountInString(text); n > 0 && n <= maxValueRunes && !strings.Contains(text, "\n") {
			values = append(values, relation{name: name, value: text})
		}
	}
	for _, v := range values {
		if id != "" {
			v.id = id
			all = append(all, v)
		}
	}
	return all
}

// measureRelations measures at the end of a session which relations are visible, and which of them are on a single
// line.
func (r *replay) measureRelations(raw []*patch.Event) {
	lines := visibleLines(r.log)
	all := strings.Join(lines, "\n")
	byID := map[string][]string{}
	for _, rel := range relations(raw) {
		r.figures.Related++
		id, value := strings.ToLower(rel.id), strings.ToLower(rel.value)
		if !identifiers.Occurs(all, id) || !identifiers.Occurs(all, value) {
			continue
		}
		r.figures.BothVisible++
		if byID[id] == nil {
			byID[id] = []string{}
			for _, line := range lines {
				if identifiers.Occurs(line, id) {
					byID[id] = append(byID[id], line)
				}
			}
		}
		for _, line := range byID[id] {
			if identifiers.Occurs(line, value) {
				r.figures.OnOneLine++
				break
			}
		}
	}
}
