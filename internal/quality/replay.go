package quality

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/price"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// Figures are measurements of one or more sessions under a policy. All counts are sums over the sessions.
type Figures struct {
	Sessions int `json:"sessions"`
	Turns    int `json:"turns"` // number of turns of the model

	// Needed is the number of identifiers in the arguments of recorded calls that occur in an earlier event. Seen is
	// the number of needed identifiers that were visible when the call was made.
	Needed int `json:"needed"`
	Seen   int `json:"seen"`

	// Reached is the number of needed, hidden identifiers that one search finds. The search is over hidden events. Its
	// query has the name of the function and the names and values of its arguments, and it returns at most 2,000
	// tokens. ReachedBlind is the number that the search finds if the query lacks the hidden identifiers, because an
	// agent may not have them.
	Reached      int `json:"reached"`
	ReachedBlind int `json:"reachedBlind"`

	RawTokens     int `json:"rawTokens"`     // tokens of the raw log, summed over all turns
	VisibleTokens int `json:"visibleTokens"` // tokens of the visible log, summed over all turns

	// Breaks is the number of turns whose visible log does not begin with the previous turn's visible log.
	Breaks int `json:"breaks"`

	CachedTokens  int `json:"cachedTokens"`  // tokens at the beginning of a prompt that the prompt of the turn before also has
	FreshTokens   int `json:"freshTokens"`   // all other tokens of prompts
	ReadTokens    int `json:"readTokens"`    // tokens that summarizers read
	WrittenTokens int `json:"writtenTokens"` // tokens that summarizers wrote
	Passes        int `json:"passes"`        // number of patches and groups of patches that the policy logged

	Summaries   int `json:"summaries"`
	Identifiers int `json:"identifiers"` // number of identifiers in the covered events
	Lost        int `json:"lost"`        // number of identifiers in the covered events that no summary of the pass contains
	Invented    int `json:"invented"`    // number of identifiers in summaries that no covered event contains

	// Numbers of probes at the end of each session. The evidence of a probe is the text that states the fact.
	//
	//	ProbesVisible    the answer occurs in the visible log
	//	ProbesInContext  the answer occurs on a visible line that shares words with the evidence
	//	ProbesFound      the answer is not visible, and a search for the question finds the evidence among ten hits
	//	ProbesElsewhere  another event also contains the answer, so the answer may be visible by chance
	Probes          int `json:"probes"`
	ProbesVisible   int `json:"probesVisible"`
	ProbesInContext int `json:"probesInContext"`
	ProbesFound     int `json:"probesFound"`
	ProbesElsewhere int `json:"probesElsewhere"`

	// Related is the number of related pairs in tool results. A pair is an id and another short value of the same
	// object. At the end of each session, BothVisible is the number of these pairs in the visible log. OnOneLine is the
	// number of these pairs on one line of the visible log.
	Related     int `json:"related"`
	BothVisible int `json:"bothVisible"`
	OnOneLine   int `json:"onOneLine"`

	EndRaw     int `json:"endRaw"`     // tokens of the raw logs at the end of the sessions
	EndVisible int `json:"endVisible"` // tokens of the visible logs at the end of the sessions
}

// Add adds the figures of o to f.
func (f *Figures) Add(o Figures) {
	sum, more := reflect.ValueOf(f).Elem(), reflect.ValueOf(o)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// SeenShare returns Seen / Needed, or 1 if Needed is 0.
func (f Figures) SeenShare() float64 { return share(f.Seen, f.Needed) }

// InReachShare returns the fraction of needed identifiers that were seen or reached, or 1 if Needed is 0.
func (f Figures) InReachShare() float64 { return share(f.Seen+f.Reached, f.Needed) }

// InReachBlindShare is like [Figures.InReachShare] with ReachedBlind.
func (f Figures) InReachBlindShare() float64 { return share(f.Seen+f.ReachedBlind, f.Needed) }

// VisibleShare returns VisibleTokens / RawTokens.
func (f Figures) VisibleShare() float64 { return share(f.VisibleTokens, f.RawTokens) }

// Cost returns the cost of prompts and summaries. The unit is the cost of one token that a summarizer reads. See
// package price.
func (f Figures) Cost() float64 {
	return price.Cached*float64(f.CachedTokens) + price.Fresh*float64(f.FreshTokens) +
		price.Read*float64(f.ReadTokens) + price.Written*float64(f.WrittenTokens)
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 1
	}
	return float64(part) / float64(whole)
}

// Recording is a recorded session that can be replayed. It is immutable.
type Recording struct {
	events         []*patch.Event // without usage metadata
	calls          [][]call       // by event: its calls that need identifiers
	endsInvocation []bool         // by event: whether an invocation ends with the event
}

// Record prepares a session for replay. It removes the measured sizes of prompts from the events, because they were
// measured without a policy.
func Record(events []*patch.Event) (Recording, error) {
	var r Recording
	var raw strings.Builder
	for i, e := range events {
		e, err := withoutUsage(e)
		if err != nil {
			return Recording{}, fmt.Errorf("event %d (id %q): %w", i, e.ID(), err)
		}
		var calls []call
		if isTurn(e) {
			for _, part := range e.Parts() {
				if c, needs := callOf(part, raw.String()); needs {
					calls = append(calls, c)
				}
			}
		}
		raw.WriteString(identifiers.Text(e))
		r.events, r.calls = append(r.events, e), append(r.calls, calls)
		r.endsInvocation = append(r.endsInvocation, i+1 == len(events) || events[i+1].InvocationID() != e.InvocationID())
	}
	return r, nil
}

// Invocations returns the number of invocations in the session.
func (r Recording) Invocations() int {
	seen := map[string]bool{}
	for _, e := range r.events {
		seen[e.InvocationID()] = true
	}
	return len(seen)
}

// Tokens returns the estimated tokens of all events.
func (r Recording) Tokens() (n int) {
	for _, e := range r.events {
		n += e.EstimatedTokens()
	}
	return n
}

// Replay replays a recorded session under a policy, event by event, and measures it. It asks the probes at the end.
// If the summaries are the same, a session and a policy always give the same figures.
func (rec Recording) Replay(ctx context.Context, p Policy, probes ...Probe) (Figures, error) {
	l := newLog()
	r := replay{log: l, finder: recall.NewFinder(l, 0), figures: Figures{Sessions: 1}, texts: map[*patch.Event]string{}, replacedTexts: map[string]string{}}
	run, err := p.start(r.log, &r.figures)
	if err != nil {
		return Figures{}, err
	}
	r.log.onPatches = r.measurePatches
	for i, e := range rec.events {
		if isTurn(e) {
			if err := run(ctx, beforeTurn, e.InvocationID()); err != nil {
				return Figures{}, err
			}
			if err := r.measureTurn(ctx, rec.calls[i]); err != nil {
				return Figures{}, err
			}
		}
		if err := r.log.add(patch.Record{Event: e}); err != nil {
			return Figures{}, err
		}
		r.rawTokens += e.EstimatedTokens()
		if rec.endsInvocation[i] {
			if err := run(ctx, afterInvocation, ""); err != nil {
				return Figures{}, err
			}
		}
	}
	r.figures.EndRaw = r.rawTokens
	for _, e := range r.log.view().Events() {
		r.figures.EndVisible += e.EstimatedTokens()
	}
	r.measureRelations(rec.events)
	return r.figures, r.measureProbes(ctx, rec.events, probes)
}

// replay is the state of a replay.
type replay struct {
	log           *log
	finder        *recall.Finder[string]
	figures       Figures
	rawTokens     int
	prompt        []nodeID // nodes of the prompt of the turn before
	texts         map[*patch.Event]string
	replacedTexts map[string]string // key: id of an inserted event; value: the text of the events that it replaces
}

type nodeID struct {
	seq uint64
	id  string
}

// isTurn reports whether a model wrote the event.
func isTurn(e *patch.Event) bool { return e.Author() != "user" && e.Role() == "model" }

// measureTurn measures a turn of the model and its calls.
func (r *replay) measureTurn(ctx context.Context, calls []call) error {
	f := &r.figures
	f.Turns++
	f.RawTokens += r.rawTokens
	var prompt []nodeID
	var visible strings.Builder
	isCached := true
	for i, v := range r.log.view().Entries() {
		id := nodeID{v.Seq, v.Event.ID()}
		tokens := v.Event.EstimatedTokens()
		isCached = isCached && i < len(r.prompt) && r.prompt[i] == id
		if isCached {
			f.CachedTokens += tokens
		} else {
			f.FreshTokens += tokens
		}
		f.VisibleTokens += tokens
		prompt = append(prompt, id)
		if len(calls) > 0 {
			visible.WriteString(r.text(v.Event))
		}
	}
	if len(prompt) < len(r.prompt) || !slices.Equal(prompt[:len(r.prompt)], r.prompt) {
		f.Breaks++
	}
	r.prompt = prompt
	for _, c := range calls {
		hidden := slices.DeleteFunc(slices.Clone(c.needed), func(id string) bool { return identifiers.Occurs(visible.String(), id) })
		f.Needed += len(c.needed)
		f.Seen += len(c.needed) - len(hidden)
		if len(hidden) == 0 {
			continue
		}
		if err := r.measureReach(ctx, c, hidden); err != nil {
			return err
		}
	}
	return nil
}

// text returns the text of an event. It caches the text, because most events are visible at many turns.
func (r *replay) text(e *patch.Event) string {
	text, known := r.texts[e]
	if !known {
		text = identifiers.Text(e)
		r.texts[e] = text
	}
	return text
}

// measurePatches measures the patches that a policy logged.
func (r *replay) measurePatches(before fold.View, patches []*patch.PatchEvent) {
	f := &r.figures
	f.Passes++
	var covered, summaryText strings.Builder
	var summaries []*patch.Event
	view := before
	for _, p := range patches {
		var replaced strings.Builder
		if records.IsIndexed(p) {
			for i := p.Start(); i < p.Start()+p.Count(); i++ {
				of := view.At(i)
				if text, ok := r.replacedTexts[of.ID()]; ok {
					replaced.WriteString(text)
				} else {
					replaced.WriteString(r.text(of))
				}
			}
		}
		covered.WriteString(replaced.String())
		for _, e := range p.NewEvents() {
			r.replacedTexts[e.ID()] = replaced.String() // summaries get a different text below
			if p.Type() == patch.Summarise || e.IsSummary() {
				summaries = append(summaries, e)
				summaryText.WriteString(identifiers.Text(e))
			}
		}
		next, err := view.Apply(patch.Record{Seq: view.Seq() + 1, Patch: p})
		if err != nil {
			return // cannot happen, because the patch was logged
		}
		view = next
	}
	if len(summaries) == 0 {
		return
	}
	f.Summaries += len(summaries)
	for _, s := range summaries {
		r.replacedTexts[s.ID()] = covered.String()
	}
	for _, id := range identifiers.Find(covered.String()) {
		f.Identifiers++
		if !identifiers.Occurs(summaryText.String(), id) {
			f.Lost++
		}
	}
	for _, id := range identifiers.Find(summaryText.String()) {
		if !identifiers.Occurs(covered.String(), id) {
			f.Invented++
		}
	}
}

func withoutUsage(e *patch.Event) (*patch.Event, error) {
	if _, measured := e.Field("usageMetadata"); !measured {
		return e, nil
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	delete(fields, "usageMetadata")
	if text, err = json.Marshal(fields); err != nil {
		return nil, err
	}
	return patch.ParseEvent(text)
}

// countingSummarizer is a summarizer that adds its estimated token usage to figures.
type countingSummarizer struct {
	compaction.Summarizer
	figures *Figures
}

// Price returns the prices of the wrapped summarizer.
func (c countingSummarizer) Price() (read, written float64) {
	if p, ok := c.Summarizer.(compaction.PricedSummarizer); ok {
		return p.Price()
	}
	return 0, 0
}

// Summarize implements compaction.Summarizer.
func (c countingSummarizer) Summarize(ctx context.Context, req compaction.Request) (compaction.Response, error) {
	resp, err := c.Summarizer.Summarize(ctx, req)
	if !isOffline(c.Summarizer) {
		c.figures.ReadTokens += patch.EstimateTextTokens(req.Instructions + req.Prompt)
		c.figures.WrittenTokens += patch.EstimateTextTokens(resp.Text)
	}
	return resp, err
}
