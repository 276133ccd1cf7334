package compaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// pass is a running pass of compaction.
type pass[K comparable] struct {
	c       *Compactor[K]
	key     K
	visible *visible
	window  *Window
	history history
	done    func() // releases the claim
	start   time.Time

	backsOff bool  // the summarizer has failed, and is not to be called yet
	past     bool  // the prompt is so large that the fallback may write the summary
	asked    bool  // the summarizer has given an answer that is used
	failure  error // of the summarizer, for which the fallback was asked

	about Written
}

// plan finds the next window of a session, or returns nil if nothing is to be done.
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
	p.visible = newVisible(v, run)
	d := p.visible.plan(c.cfg)
	threshold := c.cfg.TokenThreshold
	if threshold == 0 {
		threshold = DefaultTokenThreshold
	}
	p.past = d.PromptTokens >= threshold+threshold/5
	p.window = d.Window
	if p.window == nil || p.backsOff && !p.past {
		return nil, nil
	}
	// Whatever the summary will be, a log with a patch of unknown type takes no patches.
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
	p.about = Written{PatchID: c.opts.NewID(), Trigger: w.Trigger, Merged: w.Merge, TokensBefore: w.Tokens, EventsBefore: w.Count}
	for _, a := range w.Also {
		p.about.EventsBefore += a.Count
	}
	return p, nil
}

// groupRequest is the request for the summary of one group of a window.
type groupRequest struct {
	Request
	group   Group
	again   []logged // shown, but not covered
	covered int      // tokens that the summary stands for
	keep    string   // what must stand in it
}

// request returns the requests for the groups of the window.
func (p *pass[K]) request(ctx context.Context) ([]groupRequest, error) {
	s, w := p.visible, p.window
	if err := p.history.originals(s, w); err != nil {
		return nil, err
	}
	var all []groupRequest
	for _, g := range w.Groups {
		r := groupRequest{group: g, covered: s.toTell(g)}
		if !w.Merge && tokensAt(s.view, g.Indices) >= briefTokens {
			var err error
			if r.again, err = p.history.shownAgain(g, p.c.cfg.OverlapSize); err != nil {
				return nil, err
			}
		}
		var err error
		if r.Request, err = s.request(w, g, eventsOf(r.again), p.c.cfg); err != nil {
			return nil, err
		}
		if r.keep, err = p.prepare(ctx, s.events(g)); err != nil {
			return nil, err
		}
		r.keep = r.reserve(r.keep)
		all = append(all, r)
	}
	return all, nil
}

// summarise returns the text of the summary of a group: the summarizer's verified answer, or the
// text of the events if these are too short to be condensed.
func (p *pass[K]) summarise(ctx context.Context, r *groupRequest) (string, error) {
	own := ""
	if r.covered < shortTokens {
		own = wordForWord(r.Request)
		if patch.EstimateTextTokens(own) > p.c.cfg.MaxSummaryTokens {
			own = ""
		}
	}
	against := newSource(r.Request)
	text := own
	if own == "" || r.covered >= briefTokens {
		var err error
		if text, err = p.answer(ctx, r.Request, against, own); err != nil {
			return "", &SummarizerError{Trigger: p.window.Trigger, Start: p.window.Start, Count: p.window.Count, Err: err}
		}
	}
	p.about.verified(against.compare(text))
	if r.keep != "" {
		text += "\n" + r.keep
	}
	return text, nil
}

// answer returns the summarizer's verified answer to a request; or own, the text of the events, if
// it is not empty and the answer is too long or invents; or the answer of the fallback, if that may be called.
func (p *pass[K]) answer(ctx context.Context, r Request, against *source, own string) (text string, err error) {
	against.prepare()
	c := p.c
	if !p.backsOff {
		text, err = p.ask(ctx, c.cfg.Summarizer, &c.summarizing, r, against)
		switch {
		case err == nil:
			p.asked = true
			return text, nil
		case own != "" && (errors.Is(err, errTooLong) || invented(err) > 0):
			return own, nil
		case !p.past || ctx.Err() != nil:
			return "", err
		}
		p.failure, p.backsOff = err, true // it is not asked again in this pass
	}
	if own != "" {
		return own, nil
	}
	p.about.FellBack = true
	text, err = p.ask(ctx, c.cfg.Fallback, &c.fallingBack, r, against)
	switch {
	case err == nil || p.failure == nil:
	case errors.Is(err, errDeclined):
		err = p.failure
	default:
		err = fmt.Errorf("%w; the fallback: %w", p.failure, err)
	}
	return text, err
}

// ask calls a summarizer and verifies its answer. It calls again, once, if the answer invents.
func (p *pass[K]) ask(ctx context.Context, by Summarizer, given *pending, r Request, against *source) (string, error) {
	for refused := error(nil); ; {
		resp, err := await(ctx, p.c, given, ErrSummarizerPanic, ErrSummarizerBusy, func(ctx context.Context) (Response, error) {
			return by.Summarize(ctx, r.own())
		})
		p.about.Usage.add(resp.Usage)
		if err != nil {
			return "", err
		}
		text, err := verify(resp, r.MaxTokens, against)
		switch {
		case err == nil:
			p.about.Model = summaries.Clean(resp.Model)
			return text, nil
		case refused != nil && errors.Is(err, errDeclined):
			return "", refused
		case refused != nil || invented(err) == 0:
			return "", err
		}
		refused, r = err, r.corrected(err)
	}
}

// patch returns the patches of the pass, in the order in which they apply, and the summaries
// in them.
func (p *pass[K]) patch(requests []groupRequest, texts []string) (summaries []*patch.Event, patches []*patch.PatchEvent, err error) {
	s, w, out := p.visible, p.window, &p.about
	if w.Trigger == ByClearing {
		if patches, err = s.clear(w.results, p.c.opts.NewID); err != nil {
			return nil, nil, err
		}
		for _, q := range patches {
			out.TokensAfter += q.NewEvents()[0].EstimatedTokens()
		}
		slices.Reverse(patches) // the patch of w.Span comes first and describes the pass, as for other triggers
		out.EventsAfter = len(patches)
	} else {
		for i, r := range requests {
			e, err := s.summary(w, r.group, r.again, texts[i], p.c.cfg, p.c.opts.NewID)
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
	out.Took = time.Since(p.start)
	metadata, err := out.metadata()
	if err != nil {
		return nil, nil, fmt.Errorf("patch: %w", err)
	}
	if len(patches) > 1 { // they are one: none is taken back without the others
		for i, q := range patches {
			patches[i] = q.WithGroup(out.PatchID)
		}
	}
	patches[0], err = patches[0].WithID(out.PatchID).WithCustomMetadata(metadata)
	return summaries, patches, err
}

// log logs the patches, if they are approved.
func (p *pass[K]) log(ctx context.Context, summaries []*patch.Event, patches []*patch.PatchEvent) (fold.View, error) {
	v := p.visible.view
	if err := p.approve(ctx, summaries, patches); err != nil {
		return v, err
	}
	// What waits for the user's side may go: planning has let the newest stay.
	next, err := p.c.log.ApplyOn(ctx, p.key, v, fold.CheckOptions{HideWaiting: true}, patches...)
	if errors.Is(err, fold.ErrOrphanedCall) {
		// Planning splits no call, unless it was answered meanwhile: then the log is to be
		// looked at again.
		if now, viewErr := p.c.log.View(ctx, p.key); viewErr == nil && now.Seq() > v.Seq() {
			err = fmt.Errorf("%w: %w", errGrown, err)
		}
	}
	return next, err
}
