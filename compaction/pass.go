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

// pass is one running pass of a compaction.
type pass[K comparable] struct {
	c         *Compactor[K]
	key       K
	planner   *planner
	window    *Window
	history   history
	originals map[int]loggedEvent // key: visible index; value: the logged forms of the window's events whose results were cleared
	release   func()              // releases the claim
	start     time.Time

	skipSummarizer bool  // whether the summarizer failed and must not be called yet
	overLimit      bool  // whether the prompt is so large that the fallback may write the summary
	answerAccepted bool  // whether an answer of the summarizer was accepted
	summarizerErr  error // error of the summarizer that led to the fallback

	written Written
}

// planPass returns the next pass over a session, or nil if no pass is due.
func (c *Compactor[K]) planPass(ctx context.Context, key K, v fold.View, run Run) (*pass[K], error) {
	p := &pass[K]{c: c, key: key, release: func() {}, start: time.Now(), history: history{
		view: v, records: func(from uint64) recordSeq { return c.log.RawEvents(ctx, key, from) },
	}}
	if !run.Force {
		_, p.skipSummarizer = c.backoffStatus(key, v)
		run.Pinned = append(c.skippedIDs(key, v), run.Pinned...)
	}
	if c.opts.Run != nil {
		more := c.opts.Run(key, v)
		if run.Invocation == "" {
			run.Invocation = more.Invocation
		}
		run.Pinned = append(slices.Clone(run.Pinned), more.Pinned...)
	}
	p.planner = newPlanner(v, run)
	d := p.planner.plan(c.cfg)
	threshold := c.cfg.TokenThreshold
	if threshold == 0 {
		threshold = DefaultTokenThreshold
	}
	p.overLimit = d.PromptTokens >= threshold+threshold/5
	p.window = d.Window
	if p.window == nil || p.skipSummarizer && !p.overLimit {
		return nil, nil
	}
	// If the log has a patch of unknown type, it accepts no patches. This check comes before the summary, which may
	// cost money.
	if err := v.Check(patch.NewSplice(p.window.Start, p.window.Count), fold.CheckOptions{AllowOrphans: true}); err != nil {
		return nil, err
	}
	if c.opts.Claim != nil {
		done, ok := c.opts.Claim(ctx, key, v)
		if !ok {
			return nil, nil
		}
		p.release = done
	}
	w := p.window
	p.written = Written{PatchID: uuid.NewString(), Trigger: w.Trigger, Merged: w.Merge, TokensBefore: w.Tokens, EventsBefore: w.Count}
	for _, a := range w.EarlierSpans {
		p.written.EventsBefore += a.Count
	}
	return p, nil
}

// writer says what writes the summary of a group.
type writer int

const (
	bySummarizer writer = iota
	byQuote             // the text of the events is the summary, because it is short
	byFallback          // [Extractive] writes the summary
)

// groupRequest is the request for the summary of one group.
type groupRequest struct {
	Request
	group          Group
	overlap        []loggedEvent // earlier events that the summarizer sees for context
	source         *source       // texts whose identifiers the summary may contain
	keep           string        // text that must end the summary
	quote          string        // text of the events if it is short, otherwise ""
	quoteIsShorter bool          // whether the quote is shorter than the events

	writer  writer
	refusal error  // error about invented identifiers that the writer must correct in its second answer
	summary string // verified
	model   string // name of the model that wrote the summary
}

func (p *pass[K]) buildRequests(ctx context.Context) (requests []*groupRequest, err error) {
	s, w, cfg := p.planner, p.window, p.c.cfg
	if p.originals, err = p.history.originals(s, w); err != nil {
		return nil, err
	}
	for _, g := range w.Groups {
		r := &groupRequest{group: g}
		if !w.Merge && s.tokensAt(g.Indices) >= alwaysQuoteTokens {
			if r.overlap, err = p.history.overlap(g, cfg.OverlapSize); err != nil {
				return nil, err
			}
		}
		r.Request = Request{Events: p.loggedEvents(g), Merge: w.Merge, MaxTokens: s.maxAnswerTokens(w, g, cfg), Focus: s.run.Focus}
		if w.Merge {
			r.Raw, r.OtherSummaries, err = p.history.coveredEvents(g)
		} else {
			r.Before = append(s.summariesBefore(g), eventsOf(r.overlap)...)
		}
		if err == nil {
			err = r.buildPrompt(cfg)
		}
		if err != nil {
			return nil, err
		}
		if r.keep, err = p.prepare(ctx, p.loggedEvents(g)); err != nil {
			return nil, err
		}
		r.keep = r.reserveRoom(r.keep)
		r.source = newSource(r.Request)
		covered := p.representedTokens(g)
		if covered < mayQuoteTokens {
			if r.quote = quoteEvents(r.Request); patch.EstimateTextTokens(r.quote) > cfg.limits.SummaryTokens {
				r.quote = ""
			}
			r.quoteIsShorter = patch.EstimateTextTokens(r.quote+"\n"+r.keep) < s.tokensAt(g.Indices)
		}
		if r.quote != "" && covered < alwaysQuoteTokens {
			r.writer = byQuote
		}
		requests = append(requests, r)
	}
	return requests, nil
}

// summarise returns an answer from the current writer of the request.
func (p *pass[K]) summarise(ctx context.Context, r *groupRequest) (Response, error) {
	if r.writer == bySummarizer && p.skipSummarizer {
		r.writer = r.fallbackWriter()
	}
	summarizer, calls := p.c.cfg.Summarizer, &p.c.summarizerCalls
	switch r.writer {
	case byQuote:
		return Response{Text: r.quote}, nil
	case byFallback:
		summarizer, calls = p.c.cfg.fallback, &p.c.fallbackCalls
		p.written.UsedFallback = true
	}
	req := r.clone()
	if r.refusal != nil {
		req = req.withCorrection(r.refusal)
	}
	resp, err := await(ctx, p.c, calls, ErrSummarizerPanic, ErrSummarizerBusy, func(ctx context.Context) (Response, error) {
		return summarizer.Summarize(ctx, req)
	})
	p.written.Usage.add(resp.Usage)
	return resp, err
}

// fallbackWriter returns the writer that replaces the summarizer.
func (r *groupRequest) fallbackWriter() writer {
	if r.quote != "" && r.quoteIsShorter {
		return byQuote
	}
	return byFallback
}

// verifyAnswer checks an answer of the current writer. If the writer failed, the argument failure is the error that the
// writer returned. Otherwise failure is nil. verifyAnswer then accepts the answer as the summary of the group, selects
// the writer of the next answer, or returns the error that ends the pass.
func (p *pass[K]) verifyAnswer(ctx context.Context, r *groupRequest, resp Response, failure error) error {
	text, err := resp.Text, failure
	if err == nil && r.writer != byQuote {
		text, err = checkAnswer(resp, r.MaxTokens)
	}
	var compared identifiers.Comparison
	if err == nil {
		compared = r.source.compare(text)
	}
	if r.writer != byQuote && len(compared.Invented) > maxInvented {
		err = &inventionError{Count: len(compared.Invented), Names: truncateNames(compared.Invented)}
	}
	invents := countInvented(err) > 0
	switch {
	case err == nil:
		r.model = extractiveModel // also for quotes, because their text comes from the events
		if r.writer != byQuote {
			r.model = summaries.Clean(resp.Model)
			p.written.Model = r.model
		}
		p.answerAccepted = p.answerAccepted || r.writer == bySummarizer
		if r.writer == bySummarizer && r.model != extractiveModel {
			p.written.Invented += len(compared.Invented)
			if supplement := r.supplement(text); supplement != "" {
				text += "\n" + supplement
				compared = r.source.compare(text)
			}
		}
		p.written.addComparison(compared)
		if r.summary = text; r.keep != "" {
			r.summary += "\n" + r.keep
		}
		return nil
	case invents && r.refusal == nil:
		r.refusal = err
		return nil
	case r.refusal != nil && errors.Is(err, errDeclined):
		err, invents = r.refusal, true
	}
	switch {
	case r.writer == byFallback && p.summarizerErr != nil && errors.Is(err, errDeclined):
		err = p.summarizerErr
	case r.writer == byFallback && p.summarizerErr != nil:
		err = fmt.Errorf("%w; the fallback: %w", p.summarizerErr, err)
	case r.writer == byFallback:
	case r.quote != "" && (r.quoteIsShorter || !p.overLimit) && (errors.Is(err, errTooLong) || invents):
		r.writer = byQuote
		return nil
	case (p.overLimit || invents) && ctx.Err() == nil: // after an invention, the fallback writes at once
		p.summarizerErr, p.skipSummarizer = err, true // do not call the summarizer again in this pass
		r.writer, r.refusal = r.fallbackWriter(), nil
		return nil
	}
	return &SummarizerError{Trigger: p.window.Trigger, Start: p.window.Start, Count: p.window.Count, Err: err}
}

// draftPatches returns the summaries of the pass, and its patches in the order in which they must be applied.
func (p *pass[K]) draftPatches(requests []*groupRequest) (summaries []*patch.Event, patches []*patch.PatchEvent, err error) {
	w, written := p.window, &p.written
	if w.Trigger == ByClearing {
		if patches, err = p.planner.clearResults(w.results); err != nil {
			return nil, nil, err
		}
		for _, q := range patches {
			written.TokensAfter += q.NewEvents()[0].EstimatedTokens()
		}
		slices.Reverse(patches) // the patch of w.Span must come first, because it describes the pass
		written.EventsAfter = len(patches)
	} else {
		for _, r := range requests {
			e, err := p.summaryEvent(r)
			if err != nil {
				return nil, nil, fmt.Errorf("create a summary: %w", err)
			}
			summaries = append(summaries, e)
			written.TokensAfter += e.EstimatedTokens()
		}
		written.Level, written.EventsAfter = 1, len(summaries)
		for _, e := range summaries {
			written.Level = max(written.Level, LineageOf(e).Level)
		}
		patches = w.patches(summaries)
	}
	if written.TokensBefore > 0 {
		written.Ratio = float64(written.TokensAfter) / float64(written.TokensBefore)
	}
	written.Duration = time.Since(p.start)
	metadata, err := written.metadata()
	if err != nil {
		return nil, nil, fmt.Errorf("encode the metadata of the pass: %w", err)
	}
	if len(patches) > 1 { // all patches of a group are reverted together
		for i, q := range patches {
			patches[i] = q.WithGroup(written.PatchID)
		}
	}
	patches[0], err = patches[0].WithID(written.PatchID).WithCustomMetadata(metadata)
	return summaries, patches, err
}

// logPatches logs the patches of the pass if Approve accepts them. It returns the view after the patches.
func (p *pass[K]) logPatches(ctx context.Context, requests []*groupRequest) (fold.View, error) {
	v := p.planner.view
	summaries, patches, err := p.draftPatches(requests)
	if err == nil {
		err = p.approve(ctx, summaries, patches)
	}
	if err != nil {
		return v, err
	}
	// Waiting calls that the plan did not keep may be hidden.
	done, err := p.c.log.ApplyPatch(ctx, p.key, patches, fold.PatchOptions{On: v, AllowWaiting: true})
	if errors.Is(err, fold.ErrOrphanedCall) {
		// The plan separated no call from its responses, so the response must have been logged after the view was
		// read.
		if now, viewErr := p.c.log.View(ctx, p.key); viewErr == nil && now.Seq() > v.Seq() {
			err = fmt.Errorf("%w: %w", errLogGrown, err)
		}
	}
	return done.View, err
}
