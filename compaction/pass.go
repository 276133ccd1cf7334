package compaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// pass is one pass of compaction while it runs.
type pass[K comparable] struct {
	c       *Compactor[K]
	key     K
	shape   *shape
	window  *Window
	history history
	logged  map[int]logged // the window's events with cleared results in their logged form, by visible index
	done    func()         // releases the claim
	start   time.Time

	backsOff  bool  // the summarizer failed and must not be called yet
	overLimit bool  // the prompt is so large that the fallback may write the summary
	answered  bool  // an answer of the summarizer was accepted
	failure   error // the summarizer's error that led to the fallback

	about Written
}

// plan returns the next pass over a session, or nil if none is due.
func (c *Compactor[K]) plan(ctx context.Context, key K, v fold.View, run Run) (*pass[K], error) {
	p := &pass[K]{c: c, key: key, done: func() {}, start: time.Now(), history: history{
		view: v, records: func(from uint64) recordSeq { return c.log.RawEvents(ctx, key, from) },
	}}
	if !run.Force {
		_, p.backsOff = c.waits(key, v)
		run.Pinned = append(c.skipped(key, v), run.Pinned...)
	}
	if c.opts.Run != nil {
		more := c.opts.Run(key, v)
		if run.Invocation == "" {
			run.Invocation = more.Invocation
		}
		run.Pinned = append(slices.Clone(run.Pinned), more.Pinned...)
	}
	p.shape = newShape(v, run)
	d := p.shape.plan(c.cfg)
	threshold := c.cfg.TokenThreshold
	if threshold == 0 {
		threshold = DefaultTokenThreshold
	}
	p.overLimit = d.PromptTokens >= threshold+threshold/5
	p.window = d.Window
	if p.window == nil || p.backsOff && !p.overLimit {
		return nil, nil
	}
	// A log with a patch of unknown type accepts no patches. Check this before paying for a summary.
	if err := v.Check(patch.NewSplice(p.window.Start, p.window.Count), fold.CheckOptions{AllowOrphans: true}); err != nil {
		return nil, err
	}
	if c.opts.Claim != nil {
		done, ok := c.opts.Claim(ctx, key, v)
		if !ok {
			return nil, nil
		}
		p.done = done
	}
	w := p.window
	p.about = Written{PatchID: uuid.NewString(), Trigger: w.Trigger, Merged: w.Merge, TokensBefore: w.Tokens, EventsBefore: w.Count}
	for _, a := range w.EarlierSpans {
		p.about.EventsBefore += a.Count
	}
	return p, nil
}

// writer identifies what writes a group's summary.
type writer int

const (
	bySummarizer writer = iota
	byQuoting           // the events are short, so the summary is their text
	byFallback          // [Extractive] writes the summary
)

// groupRequest is the request for one group's summary.
type groupRequest struct {
	Request
	group   Group
	context []logged // events that are shown but not covered
	source  *source  // the texts whose identifiers the summary may use
	keep    string   // text that must end the summary
	quote   string   // the text of the events if it is short, or ""
	pays    bool     // the quote is shorter than the events

	by      writer
	refused error  // the refusal for invented identifiers that the writer must correct in its second answer
	summary string // verified
	model   string // the model that wrote the summary
}

func (p *pass[K]) request(ctx context.Context) (all []*groupRequest, err error) {
	s, w, cfg := p.shape, p.window, p.c.cfg
	if p.logged, err = p.history.originals(s, w); err != nil {
		return nil, err
	}
	for _, g := range w.Groups {
		r := &groupRequest{group: g}
		if !w.Merge && s.at(g.Indices) >= briefTokens {
			if r.context, err = p.history.shownAgain(g, cfg.OverlapSize); err != nil {
				return nil, err
			}
		}
		r.Request = Request{Events: p.events(g), Merge: w.Merge, MaxTokens: s.maxAnswer(w, g, cfg), Focus: s.run.Focus}
		if w.Merge {
			r.Raw, r.Told, err = p.history.covered(g)
		} else {
			r.Before = append(s.summariesBefore(g), eventsOf(r.context)...)
		}
		if err == nil {
			err = r.ask(cfg)
		}
		if err != nil {
			return nil, err
		}
		if r.keep, err = p.prepare(ctx, p.events(g)); err != nil {
			return nil, err
		}
		r.keep = r.reserve(r.keep)
		r.source = newSource(r.Request)
		covered := p.representedTokens(g)
		if covered < shortTokens {
			if r.quote = wordForWord(r.Request); patch.EstimateTextTokens(r.quote) > cfg.limits.Summary {
				r.quote = ""
			}
			r.pays = patch.EstimateTextTokens(r.quote+"\n"+r.keep) < s.at(g.Indices)
		}
		if r.quote != "" && covered < briefTokens {
			r.by = byQuoting
		}
		all = append(all, r)
	}
	return all, nil
}

// summarise asks the writer of the request for an answer.
func (p *pass[K]) summarise(ctx context.Context, r *groupRequest) (Response, error) {
	if r.by == bySummarizer && p.backsOff {
		r.by = r.instead()
	}
	by, calls := p.c.cfg.Summarizer, &p.c.summarizing
	switch r.by {
	case byQuoting:
		return Response{Text: r.quote}, nil
	case byFallback:
		by, calls = p.c.cfg.fallback, &p.c.fallingBack
		p.about.UsedFallback = true
	}
	req := r.own()
	if r.refused != nil {
		req = req.corrected(r.refused)
	}
	resp, err := await(ctx, p.c, calls, ErrSummarizerPanic, ErrSummarizerBusy, func(ctx context.Context) (Response, error) {
		return by.Summarize(ctx, req)
	})
	p.about.Usage.add(resp.Usage)
	return resp, err
}

// instead returns the writer that replaces the summarizer.
func (r *groupRequest) instead() writer {
	if r.quote != "" && r.pays {
		return byQuoting
	}
	return byFallback
}

// verify checks an answer. It accepts the answer as the group's summary, selects the writer of the next answer, or
// returns the error that ends the pass. The argument failure is the writer's error.
func (p *pass[K]) verify(ctx context.Context, r *groupRequest, resp Response, failure error) error {
	text, err := resp.Text, failure
	if err == nil && r.by != byQuoting {
		text, err = answer(resp, r.MaxTokens)
	}
	var compared identifiers.Comparison
	if err == nil {
		compared = r.source.compare(text)
	}
	if r.by != byQuoting && len(compared.Invented) > maxUnknown {
		err = &inventionError{Count: len(compared.Invented), Names: named(compared.Invented)}
	}
	invents := invented(err) > 0
	switch {
	case err == nil:
		r.model = extractiveModel // quotes come from the events too
		if r.by != byQuoting {
			r.model = summaries.Clean(resp.Model)
			p.about.Model = r.model
		}
		p.answered = p.answered || r.by == bySummarizer
		if r.by == bySummarizer && r.model != extractiveModel {
			p.about.Invented += len(compared.Invented)
			if also := r.also(text); also != "" {
				text += "\n" + also
				compared = r.source.compare(text)
			}
		}
		p.about.verified(compared)
		if r.summary = text; r.keep != "" {
			r.summary += "\n" + r.keep
		}
		return nil
	case invents && r.refused == nil:
		r.refused = err
		return nil
	case r.refused != nil && errors.Is(err, errDeclined):
		err, invents = r.refused, true
	}
	switch {
	case r.by == byFallback && p.failure != nil && errors.Is(err, errDeclined):
		err = p.failure
	case r.by == byFallback && p.failure != nil:
		err = fmt.Errorf("%w; the fallback: %w", p.failure, err)
	case r.by == byFallback:
	case r.quote != "" && (r.pays || !p.overLimit) && (errors.Is(err, errTooLong) || invents):
		r.by = byQuoting
		return nil
	case (p.overLimit || invents) && ctx.Err() == nil: // do not wait after an invention
		p.failure, p.backsOff = err, true // do not call the summarizer again in this pass
		r.by, r.refused = r.instead(), nil
		return nil
	}
	return &SummarizerError{Trigger: p.window.Trigger, Start: p.window.Start, Count: p.window.Count, Err: err}
}

// draft returns the pass's summaries, and its patches in the order in which they must be applied.
func (p *pass[K]) draft(requests []*groupRequest) (summaries []*patch.Event, patches []*patch.PatchEvent, err error) {
	w, out := p.window, &p.about
	if w.Trigger == ByClearing {
		if patches, err = p.shape.clear(w.results); err != nil {
			return nil, nil, err
		}
		for _, q := range patches {
			out.TokensAfter += q.NewEvents()[0].EstimatedTokens()
		}
		slices.Reverse(patches) // the patch of w.Span comes first and describes the pass
		out.EventsAfter = len(patches)
	} else {
		for _, r := range requests {
			e, err := p.summary(r)
			if err != nil {
				return nil, nil, fmt.Errorf("summary: %w", err)
			}
			summaries = append(summaries, e)
			out.TokensAfter += e.EstimatedTokens()
		}
		out.Level, out.EventsAfter = 1, len(summaries)
		for _, e := range summaries {
			out.Level = max(out.Level, LineageOf(e).Level)
		}
		patches = w.patches(summaries)
	}
	if out.TokensBefore > 0 {
		out.Ratio = float64(out.TokensAfter) / float64(out.TokensBefore)
	}
	out.Duration = time.Since(p.start)
	metadata, err := out.metadata()
	if err != nil {
		return nil, nil, fmt.Errorf("patch: %w", err)
	}
	if len(patches) > 1 { // in a group, reverting one patch reverts all
		for i, q := range patches {
			patches[i] = q.WithGroup(out.PatchID)
		}
	}
	patches[0], err = patches[0].WithID(out.PatchID).WithCustomMetadata(metadata)
	return summaries, patches, err
}

// patch logs the patches of the pass if Approve allows them. It returns the view after the patches.
func (p *pass[K]) patch(ctx context.Context, requests []*groupRequest) (fold.View, error) {
	v := p.shape.view
	summaries, patches, err := p.draft(requests)
	if err == nil {
		err = p.approve(ctx, summaries, patches)
	}
	if err != nil {
		return v, err
	}
	// The plan keeps the newest waiting calls. Older waiting calls may be hidden.
	done, err := p.c.log.ApplyPatch(ctx, p.key, patches, fold.PatchOptions{On: v, AllowWaiting: true})
	if errors.Is(err, fold.ErrOrphanedCall) {
		// A plan never separates a call from its response. So the response was logged after the view was read.
		if now, viewErr := p.c.log.View(ctx, p.key); viewErr == nil && now.Seq() > v.Seq() {
			err = fmt.Errorf("%w: %w", errGrown, err)
		}
	}
	return done.View, err
}
