package main

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/quality"
	"github.com/patchlog-dev/patchlog/patch"
)

// Each ??.txt is a dialogue in one language, written for this project. A line "? question | answer | …" asks for a fact
// that the preceding user message states. Any of the answers counts. recorded.txt has probes of recorded sessions.
// There, the text after @ is a part of the message that states the fact. The probes at odd positions are used to tune
// constants, the others to report.
//
//go:embed probes
var probeFiles embed.FS

// probeHalf selects which probes are asked: those for tuning, those for reporting, or all.
type probeHalf string

const (
	all    probeHalf = "all"
	choose probeHalf = "choose"
	report probeHalf = "report"
)

func (h probeHalf) of(probes []quality.Probe) (some []quality.Probe) {
	for i, p := range probes {
		if h == all || (h == choose) == (i%2 == 0) {
			some = append(some, p)
		}
	}
	return some
}

// dialogues returns the embedded dialogues. Each language is a family.
func dialogues() (s set, err error) {
	s.name = "dialogues in six languages"
	names, err := fs.Glob(probeFiles, "probes/??.txt")
	if err != nil {
		return s, err
	}
	for _, name := range names {
		text, err := probeFiles.ReadFile(name)
		if err != nil {
			return s, err
		}
		r, err := parseDialogue(string(text))
		if err != nil {
			return s, fmt.Errorf("%s: %w", name, err)
		}
		s.families = append(s.families, family{strings.TrimSuffix(strings.TrimPrefix(name, "probes/"), ".txt"), []session{r}})
	}
	return s, nil
}

// parseDialogue parses a dialogue with probes.
func parseDialogue(text string) (s session, err error) {
	var events []*patch.Event
	userText, invocation := "", 0
	begin := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		author, text, _ := strings.Cut(line, ": ")
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '?':
			s.probes = append(s.probes, parseProbe(line, userText))
			continue
		case author == "user":
			userText = text
			invocation++
		}
		role := "model"
		if author == "user" {
			role = author
		}
		e, err := patch.NewEvent(patch.Fields{
			ID: fmt.Sprintf("e%d", len(events)+1), InvocationID: fmt.Sprintf("i%d", invocation), Author: author,
			Timestamp: begin.Add(time.Duration(len(events)) * time.Minute), Content: patch.Text(role, text),
		})
		if err != nil {
			return s, err
		}
		events = append(events, e)
	}
	s.Recording, err = quality.Record(events)
	return s, err
}

func parseProbe(line, evidence string) quality.Probe {
	fields := strings.Split(strings.TrimPrefix(line, "?"), " | ")
	for i, f := range fields {
		fields[i] = strings.TrimSpace(f)
	}
	return quality.Probe{Question: fields[0], Answers: fields[1:], Evidence: evidence}
}

// recordedProbes returns the embedded probes of recorded sessions, by "source/name".
func recordedProbes() map[string][]quality.Probe {
	text, err := probeFiles.ReadFile("probes/recorded.txt")
	if err != nil {
		panic(err) // cannot fail, because the file is embedded
	}
	of := map[string][]quality.Probe{}
	name, evidence := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "session: "):
			name = strings.TrimPrefix(line, "session: ")
		case strings.HasPrefix(line, "@ "):
			evidence = strings.TrimPrefix(line, "@ ")
		case strings.HasPrefix(line, "?"):
			of[name] = append(of[name], parseProbe(line, evidence))
		}
	}
	return of
}

// wishes are phrases that begin a wish of a recorded user. The probe asks for the end of the sentence.
var wishes = []string{"i'd like", "i would like", "i want", "i'd prefer", "i prefer", "don't", "do not", "i need", "please use", "instead", "only", "necesito", "quiero", "prefiero"}

// wishesOf returns a probe for each sentence in which the user states a wish.
func wishesOf(events []*patch.Event) (probes []quality.Probe) {
	var sentences []string
	for _, e := range events {
		for _, part := range e.Parts() {
			if e.Author() != "user" || part.Kind != patch.PartText {
				continue
			}
			for _, s := range strings.FieldsFunc(part.Text, func(r rune) bool { return strings.ContainsRune(".!?\n", r) }) {
				s = strings.TrimSpace(s)
				words := strings.Fields(s)
				has := func(w string) bool { return strings.Contains(strings.ToLower(s), w) }
				if len(words) < 7 || !slices.ContainsFunc(wishes, has) || slices.Contains(sentences, s) {
					continue
				}
				sentences = append(sentences, s)
				n := len(words)
				probes = append(probes, quality.Probe{
					Question: strings.Join(words[:n-3], " "), Answers: []string{strings.Trim(strings.Join(words[n-3:], " "), `.,;:!?"'`)}, Evidence: s,
				})
			}
		}
	}
	return probes
}
