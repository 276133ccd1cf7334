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

// Figures are what a session, or several, were worth under a policy. All counts are sums.
type Figures struct {
	Sessions int `json:"sessions"`
	Turns    int `json:"turns"` // of the model

	// Needed are identifiers in the arguments of recorded calls that stood in an earlier
	// event; Seen are those that stood in the visible log when the call was made.
	Needed int `json:"needed"`
	Seen   int `json:"seen"`

	// Reached are hidden ones that one look-up for the call finds: a search of
	// hidden events with the name of the function and the names and values of the
	// arguments, which returns at most 2,000 tokens. ReachedBlind are those that it finds
	// without the hidden identifiers in the query, since an agent may not know them.
	Reached      int `json:"reached"`
	ReachedBlind int `json:"reachedBlind"`

	RawTokens     int `json:"rawTokens"`     // of the log, at each turn
	VisibleTokens int `json:"visibleTokens"` // of the visible log, at each turn

	// Breaks are turns whose visible log does not begin with that of the turn before.
	Breaks int `json:"breaks"`

	CachedTokens  int `json:"cachedTokens"`  // of prompts, in the prefix that the turn before has too
	FreshTokens   int `json:"freshTokens"`   // of prompts, others
	ReadTokens    int `json:"readTokens"`    // by summarizers
	WrittenTokens int `json:"writtenTokens"` // by summarizers
	Passes        int `json:"passes"`        // patches or groups that the policy logged

	Summaries   int `json:"summaries"`
	Identifiers int `json:"identifiers"` // identifiers of the covered events
	Lost        int `json:"lost"`        // those that no summary of the pass has
	Invented    int `json:"invented"`    // identifiers in summaries that none of the events has

	// At the sessions' ends: Probes ask for facts told in words, of which ProbesVisible have their
	// answer in the visible log, ProbesInContext on a line that shares words with the evidence; ProbesFound are
	// others whose evidence a search for the question returns among ten hits. ProbesElsewhere are those
	// whose answer is in another event too, so that it may be visible by chance.
	Probes          int `json:"probes"`
	ProbesVisible   int `json:"probesVisible"`
	ProbesInContext int `json:"probesInContext"`
	ProbesFound     int `json:"probesFound"`
	ProbesElsewhere int `json:"probesElsewhere"`

	// At the sessions' ends: Related are pairs of an id and another short value of the same
	// object in a tool's result, of which BothVisible and OnOneLine stand in the visible log.
	Related     int `json:"related"`
	BothVisible int `json:"bothVisible"`
	OnOneLine   int `json:"onOneLine"`

	EndRaw     int `json:"endRaw"`     // tokens of the logs at their ends
	EndVisible int `json:"endVisible"` // tokens of the visible logs then
}

// Add adds the figures of other sessions.
func (f *Figures) Add(o Figures) {
	sum, more := reflect.ValueOf(f).Elem(), reflect.ValueOf(o)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// SeenShare is the share of needed identifiers that were seen; 1 if none was needed.
func (f Figures) SeenShare() float64 { return share(f.Seen, f.Needed) }

// InReachShare is the share of needed identifiers that were seen or reached; 1 if none was needed.
func (f Figures) InReachShare() float64 { return share(f.Seen+f.Reached, f.Needed) }

// InReachBlindShare is the share of needed identifiers that were seen or reached blind; 1 if none
// was needed.
func (f Figures) InReachBlindShare() float64 { return share(f.Seen+f.ReachedBlind, f.Needed) }

// VisibleShare is the part of the raw tokens that was visible.
func (f Figures) VisibleShare() float64 { return share(f.VisibleTokens, f.RawTokens) }

// Cost is what prompts and summaries cost, in units of a token that a
// summarizer reads; see package price.
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

// Recording is a recorded session that can be replayed. It is never changed.
type Recording struct {
	events []*patch.Event // without usage metadata
	calls  [][]call       // by event: those in it that need identifiers
	ends   []bool         // by event: an invocation ends with it
}

// Record takes a session for replaying it. Measured prompts are left out of the events, since
// they were measured without a policy.
func Record(events []*patch.Event) (Recording, error) {
	var r Recording
	var raw strings.Builder
	for i, e := range events {
		e, err := unmeasured(e)
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
		r.ends = append(r.ends, i+1 == len(events) || events[i+1].InvocationID() != e.InvocationID())
	}
	return r, nil
}

// Invocations returns how many invocations the session has.
func (r Recording) Invocations() int {
	seen := map[string]bool{}
	for _, e := range r.events {
		seen[e.InvocationID()] = true
	}
	return len(seen)
}

// Tokens returns how many tokens the events take, as estimated.
func (r Recording) Tokens() (n int) {
	for _, e := range r.events {
		n += e.EstimatedTokens()
	}
	return n
}

// Replay plays a recorded session under a policy, event by event, and measures it, with probes
// at its end. The same session and policy give the same figures, unless the summarizer differs.
func (rec Recording) Replay(ctx context.Context, p Policy, probes ...Probe) (Figures, error) {
	l := newLog()
	r := replay{log: l, finder: recall.NewFinder(l, 0), figures: Figures{Sessions: 1}, texts: map[*patch.Event]string{}, stands: map[string]string{}}
	run, err := p.start(r.log, &r.figures)
	if err != nil {
		return Figures{}, err
	}
	r.log.written = r.wrote
	for i, e := range rec.events {
		if isTurn(e) {
			if err := run(ctx, beforeTurn, e.InvocationID()); err != nil {
				return Figures{}, err
			}
			if err := r.turn(ctx, rec.calls[i]); err != nil {
				return Figures{}, err
			}
		}
		if err := r.log.add(patch.Record{Event: e}); err != nil {
			return Figures{}, err
		}
		r.rawTokens += e.EstimatedTokens()
		if rec.ends[i] {
			if err := run(ctx, afterInvocation, ""); err != nil {
				return Figures{}, err
			}
		}
	}
	r.figures.EndRaw = r.rawTokens
	for _, e := range r.log.view().Events() {
		r.figures.EndVisible += e.EstimatedTokens()
	}
	r.related(rec.events)
	return r.figures, r.probed(ctx, rec.events, probes)
}

// replay is a running replay.
type replay struct {
	log       *log
	finder    *recall.Finder[string]
	figures   Figures
	rawTokens int
	prompt    []nodeID // of the turn before
	texts     map[*patch.Event]string
	stands    map[string]string // by the id of an inserted event, the text of the events that it replaces
}

// nodeID identifies a visible event.
type nodeID struct {
	seq uint64
	id  string
}

// isTurn reports whether a model has answered with the event.
func isTurn(e *patch.Event) bool { return e.Author() != "user" && e.Role() == "model" }

// turn measures a turn of the model with the calls in it that need identifiers.
func (r *replay) turn(ctx context.Context, calls []call) error {
	f := &r.figures
	f.Turns++
	f.RawTokens += r.rawTokens
	var prompt []nodeID
	var visible strings.Builder
	same := true
	for i, v := range r.log.view().Entries() {
		id := nodeID{v.Seq, v.Event.ID()}
		tokens := v.Event.EstimatedTokens()
		same = same && i < len(r.prompt) && r.prompt[i] == id
		if same {
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
		if err := r.reach(ctx, c, hidden); err != nil {
			return err
		}
	}
	return nil
}

// text returns the text of an event. Most events are visible at many turns.
func (r *replay) text(e *patch.Event) string {
	text, known := r.texts[e]
	if !known {
		text = identifiers.Text(e)
		r.texts[e] = text
	}
	return text
}

// wrote measures the patches that a policy has logged.
func (r *replay) wrote(before fold.View, patches []*patch.PatchEvent) {
	f := &r.figures
	f.Passes++
	var covered, told strings.Builder
	var summaries []*patch.Event
	now := before
	for _, p := range patches {
		var said strings.Builder
		if records.IsIndexed(p) {
			for i := p.Start(); i < p.Start()+p.Count(); i++ {
				of := now.At(i)
				if text, ok := r.stands[of.ID()]; ok {
					said.WriteString(text)
				} else {
					said.WriteString(r.text(of))
				}
			}
		}
		covered.WriteString(said.String())
		for _, e := range p.NewEvents() {
			r.stands[e.ID()] = said.String() // of a summary, more is known below
			if p.Type() == patch.Summarise || e.IsSummary() {
				summaries = append(summaries, e)
				told.WriteString(identifiers.Text(e))
			}
		}
		next, err := now.Apply(patch.Record{Seq: now.Seq() + 1, Patch: p})
		if err != nil {
			return // it was logged, so it applies
		}
		now = next
	}
	if len(summaries) == 0 {
		return
	}
	f.Summaries += len(summaries)
	for _, s := range summaries {
		r.stands[s.ID()] = covered.String()
	}
	for _, id := range identifiers.Find(covered.String()) {
		f.Identifiers++
		if !identifiers.Occurs(told.String(), id) {
			f.Lost++
		}
	}
	for _, id := range identifiers.Find(told.String()) {
		if !identifiers.Occurs(covered.String(), id) {
			f.Invented++
		}
	}
}

// unmeasured returns an event without its usage metadata.
func unmeasured(e *patch.Event) (*patch.Event, error) {
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

// counted is a summarizer whose reading and writing is counted, as estimated.
type counted struct {
	compaction.Summarizer
	figures *Figures
}

// Price is the price of the summarizer.
func (c counted) Price() (read, written float64) {
	if p, ok := c.Summarizer.(compaction.PricedSummarizer); ok {
		return p.Price()
	}
	return 0, 0
}

// Summarize implements compaction.Summarizer.
func (c counted) Summarize(ctx context.Context, req compaction.Request) (compaction.Response, error) {
	resp, err := c.Summarizer.Summarize(ctx, req)
	if !isOffline(c.Summarizer) {
		c.figures.ReadTokens += patch.EstimateTextTokens(req.Instructions + req.Prompt)
		c.figures.WrittenTokens += patch.EstimateTextTokens(resp.Text)
	}
	return resp, err
}
