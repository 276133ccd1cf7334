package compaction_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// pass is one pass of a compaction: the view before it, the view after it, and its requests to the summarizer.
type pass struct {
	m             *machine
	before, after fold.View
	asked         map[string]compaction.Request // requests by their answers
}

func (p pass) judge() {
	p.state()
	if p.before.Len() == p.after.Len() && len(p.asked) == 0 && p.clears() {
		p.cleared()
		p.m.noteCleared(p.before, p.after)
		p.plan()
		return
	}
	p.pairs()
	p.openCalls()
	p.covered()
	p.summaries()
	p.kept()
	p.roles()
	p.plan()
}

func (p pass) fail(format string, args ...any) {
	p.m.t.Helper()
	p.m.t.Fatalf("%s\nbefore %s\nafter  %s", fmt.Sprintf(format, args...), words(p.before), words(p.after))
}

// state checks that the pass left the state unchanged.
func (p pass) state() {
	if was, is := values(p.before), values(p.after); !maps.EqualFunc(was, is, patch.Value.Equal) {
		p.fail("state was %v, is %v", was, is)
	}
}

// partners lists the responses to each call. The key is the id of the call's event and the index of the part.
func partners(v fold.View) map[string]string {
	out := map[string]string{}
	for _, c := range v.Calls() {
		var responses []string
		for _, r := range c.Responses {
			responses = append(responses, v.At(r).ID())
		}
		out[fmt.Sprintf("%s.%d", v.At(c.Index).ID(), c.Part)] = strings.Join(responses, ",")
	}
	return out
}

// pairs checks that a visible call keeps its responses, and that all responses to a hidden call are hidden.
func (p pass) pairs() {
	was, is, left := partners(p.before), partners(p.after), eventIDs(p.after)
	for call, responses := range was {
		if now, visible := is[call]; visible {
			if now != responses {
				p.fail("call %s had the responses %q, has %q", call, responses, now)
			}
			continue
		}
		for r := range strings.SplitSeq(responses, ",") {
			if _, visible := left[r]; visible {
				p.fail("call %s went, its response %s did not", call, r)
			}
		}
	}
}

// openCalls checks that pending calls stay visible, and the newest of the other open calls.
func (p pass) openCalls() {
	left := eventIDs(p.after)
	pending, waiting, dead, either, _ := openCalls(p.before, p.m.run)
	for _, i := range pending {
		if _, visible := left[p.before.At(i).ID()]; !visible {
			p.fail("the open call in %s was hidden", p.before.At(i).ID())
		}
	}
	p.newestStay("unanswered", dead, either, p.m.cfg.Limits().OpenCalls)
	p.newestStay("waiting", waiting, nil, p.m.cfg.Limits().WaitingCalls)
}

// newestStay checks that the newest of calls stay visible, up to limit. For each call, the later calls in either may
// count toward the limit.
func (p pass) newestStay(kind string, calls, either []int, limit int) {
	left, stay := eventIDs(p.after), 0
	for _, i := range slices.Backward(calls) {
		later := 0
		for _, j := range either {
			if j > i {
				later++
			}
		}
		switch _, visible := left[p.before.At(i).ID()]; {
		case visible:
			stay++
		case stay+later < limit:
			p.fail("the %s call in %s was hidden, only %d later ones stay", kind, p.before.At(i).ID(), stay)
		}
	}
}

// openCalls classifies open calls by the indices of their events, with one entry per call:
//
//	pending  calls that must stay in any case
//	waiting  calls that wait for the user; only the newest must stay
//	dead     calls that nothing will answer; only the newest must stay
//	either   pending calls in events without invocation id, which may also count as dead
//	asking   pairs of events; if the second stays, the first must stay too. A pair is an answered request and the
//	         call that it is about, which has not returned since, or a call and an unanswered request about it
func openCalls(v fold.View, run compaction.Run) (pending, waiting, dead, either []int, asking [][2]int) {
	owner := owners(v)
	newest := ""
	for i := range v.Len() {
		if !v.Entry(i).Summary {
			newest = owner[i]
		}
	}
	calls := v.Calls()
	waits := make([]string, len(calls)) // "", "pending", "dead" or "asked about"
	concerns := map[int]int{}           // call that an unanswered request is about
	over := func(c fold.Call) bool {
		return owner[c.Index] != newest && (owner[c.Index] != run.Invocation || run.Invocation == "")
	}
	for i, c := range calls {
		asks := strings.HasPrefix(c.Name, "adk_request_")
		long := asks || c.ID != "" && records.IsLongRunning(v.At(c.Index), c.ID)
		answer := slices.IndexFunc(c.Responses, func(r int) bool { return v.At(r).Author() == "user" })
		switch {
		case long && answer < 0:
			waits[i] = "pending"
		case !long && len(c.Responses) == 0:
			waits[i] = "dead"
		}
		if !asks {
			continue
		}
		for j := i - 1; j >= 0; j-- {
			if calls[j].ID == "" || calls[j].ID != asksAbout(v.At(c.Index), c.Part) {
				continue
			}
			if answer < 0 {
				asking = append(asking, [2]int{calls[j].Index, c.Index})
				concerns[i] = j
				if waits[j] == "dead" {
					waits[j] = "asked about"
				}
			} else if calls[j].Responses == nil || slices.Max(calls[j].Responses) < c.Responses[answer] {
				asking = append(asking, [2]int{c.Index, calls[j].Index})
				if waits[j] == "" || waits[j] == "asked about" {
					waits[j] = "dead"
				}
			}
			break
		}
	}
	for i, c := range calls {
		about, concerned := concerns[i]
		switch {
		case waits[i] == "" || waits[i] == "asked about":
		case !over(c), c.InNewestInvocation, concerned && (!over(calls[about]) || calls[about].InNewestInvocation):
			pending = append(pending, c.Index)
			if over(c) && waits[i] == "dead" {
				either = append(either, c.Index)
			}
		case waits[i] == "pending":
			waiting = append(waiting, c.Index)
		default:
			dead = append(dead, c.Index)
		}
	}
	return pending, waiting, dead, either, asking
}

func asksAbout(e *patch.Event, part int) string {
	var content struct {
		Parts []struct {
			FunctionCall struct {
				Args struct {
					OriginalFunctionCall struct{ ID string }
				}
			}
		}
	}
	text, _ := e.Field("content")
	if json.Unmarshal(text, &content) != nil {
		return ""
	}
	return content.Parts[part].FunctionCall.Args.OriginalFunctionCall.ID
}

// owners returns the invocation of each visible event, or "" for a summary. An event without invocation id belongs to
// the invocation of the event before it, but a user message without id begins a new invocation.
func owners(v fold.View) []string {
	owner := make([]string, v.Len())
	current := ""
	for i, e := range v.Events() {
		switch {
		case v.Entry(i).Summary:
			current = ""
			continue
		case e.InvocationID() != "":
			current = e.InvocationID()
		case e.Author() == "user" || current == "":
			current = fmt.Sprintf("without id, from %d", i)
		}
		owner[i] = current
	}
	return owner
}

// speaks returns 1 if visible event i is raw and has content, and 0 otherwise.
func speaks(v fold.View, i int) int {
	if v.Entry(i).Summary || !v.At(i).SaysSomething() {
		return 0
	}
	return 1
}

// retained returns the events of the newest invocations, which must stay visible.
func retained(v fold.View, cfg compaction.Config, byTokens bool) (all []int) {
	owner, newest := owners(v), map[string]bool{}
	tokens, most, question := 0, cfg.Limits().RetainedTokens, -1
	if byTokens {
		most = min(most, cfg.TokenThreshold/2)
	}
	for i := v.Len() - 1; i >= 0; i-- {
		if speaks(v, i) == 1 && len(newest) < cfg.RetainInvocations {
			newest[owner[i]] = true
		}
	}
	for i, e := range v.Events() {
		if v.Entry(i).Summary || !newest[owner[i]] {
			continue
		}
		all = append(all, i)
		tokens += e.EstimatedTokens()
		responses := 0
		for part := range e.FunctionParts() {
			if part.Response {
				responses++
			}
		}
		if e.Author() == "user" && e.SaysSomething() && responses == 0 {
			question = i
		}
	}
	if tokens <= most {
		return all
	}
	last := v.Len()
	for last > 0 && v.At(last-1).EstimatedTokens() <= most {
		last--
		most -= v.At(last).EstimatedTokens()
	}
	return slices.DeleteFunc(all, func(i int) bool { return i < last && i != question })
}

// covered checks that the pass hides exactly the events that a summarizer was asked to summarise. Events without text
// in a transcript may be hidden too. It also checks that no request mixes branches, or summaries with raw events.
func (p pass) covered() {
	left, shown, at := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, e := range p.after.Events() {
		left[p.original(e)] = true
	}
	for i, e := range p.before.Events() {
		at[p.original(e)] = i
	}
	for _, r := range p.asked {
		for _, e := range r.Events {
			if shown[e.ID()] {
				p.fail("%s was summarised twice", e.ID())
			}
			shown[e.ID()] = true
			if left[e.ID()] {
				p.fail("%s was summarised and is still visible", e.ID())
			}
			if groupName(e) != groupName(r.Events[0]) {
				p.fail("one text of %s and %s", e.ID(), r.Events[0].ID())
			}
			if i, there := at[e.ID()]; !there || p.before.Entry(i).Summary != r.Merge {
				p.fail("%s was summarised with Merge %v", e.ID(), r.Merge)
			}
		}
		for _, e := range r.Before {
			if groupName(e) != groupName(r.Events[0]) {
				p.fail("%s was shown for a text of %s", e.ID(), r.Events[0].ID())
			}
		}
		covered := 0
		for _, e := range r.Events {
			covered += e.EstimatedTokens()
		}
		if covered < 32 {
			p.fail("a summarizer was asked for a summary of %d tokens", covered)
		}
		limit := p.m.cfg.Limits().InputTokens
		tokens := patch.EstimateTextTokens(transcript.Of(r.Events, 0))
		for _, e := range r.Events {
			named := fmt.Sprintf("(%s)", e.ID())
			if !r.Merge && (limit == 0 || tokens <= limit) && transcript.Of([]*patch.Event{e}, 0) != "" && !strings.Contains(r.Prompt, named) && hasText(e, named) {
				p.fail("%s is covered by a window of %d tokens, and not in the prompt:\n%s", e.ID(), tokens, r.Prompt)
			}
		}
	}
	for i, e := range p.before.Events() {
		if id := p.original(e); !left[id] && !shown[id] && !p.saidWordForWord(e) && (transcript.Of([]*patch.Event{e}, 0) != "" || p.before.Entry(i).Summary) {
			p.fail("%s was covered and not shown", e.ID())
		}
	}
}

// saidWordForWord reports whether a new summary quotes the event and was made without a call of a summarizer.
func (p pass) saidWordForWord(e *patch.Event) bool {
	was := eventIDs(p.before)
	for _, s := range p.after.Events() {
		if _, there := was[s.ID()]; !there && groupName(s) == groupName(e) && p.isWordForWord(answerOf(s), groupName(s)) {
			return true
		}
	}
	return false
}

// isWordForWord reports whether text quotes all hidden events of a group and was made without a call of a summarizer.
// Only short events may be quoted.
func (p pass) isWordForWord(text, group string) bool {
	if _, asked := p.asked[text]; asked {
		return false
	}
	left, tokens := eventIDs(p.after), 0
	for i, e := range p.before.Events() {
		if _, visible := left[e.ID()]; visible || groupName(e) != group {
			continue
		}
		tokens += p.m.logged(p.original(e), e).EstimatedTokens()
		said := testlog.FirstText(e)
		if !p.before.Entry(i).Summary {
			said = transcript.Of([]*patch.Event{p.m.logged(p.original(e), e)}, 0)
		}
		for line := range strings.Lines(said) {
			// Whether a line ends with "(never answered)" depends on other events.
			if !strings.Contains(text, strings.TrimSpace(strings.ReplaceAll(line, " (never answered)", ""))) {
				return false
			}
		}
	}
	return tokens < 32 || tokens < 128 && p.m.sum.failFrom > 0 // below 128 tokens only if the summarizer was called and failed
}

func hasText(e *patch.Event, text string) bool {
	content, _ := e.Field("content")
	return strings.Contains(string(content), text)
}

// answerOf returns the text of a summary without the facts that the compactor appended to the model's answer.
func answerOf(summary *patch.Event) string {
	text, _, _ := strings.Cut(testlog.FirstText(summary), "\nAlso:\n")
	return text
}

// summaries checks that each request led to one summary in its branch, and that the pass inserted no other event.
func (p pass) summaries() {
	was := eventIDs(p.before)
	came := 0
	for i, e := range p.after.Events() {
		if _, there := was[e.ID()]; there {
			continue
		}
		text := answerOf(e)
		r, asked := p.asked[text]
		if !asked && p.after.Entry(i).Summary && p.isWordForWord(text, groupName(e)) {
			continue
		}
		if !asked || !p.after.Entry(i).Summary {
			p.fail("%s came, which nobody wrote", e.ID())
		}
		if groupName(e) != groupName(r.Events[0]) {
			p.fail("the summary of %s stands in %s", groupName(r.Events[0]), groupName(e))
		}
		came++
	}
	if came != len(p.asked) {
		p.fail("%d summaries for %d requests", came, len(p.asked))
	}
}

// kept checks that the pinned events and the question of the running invocation stay visible.
func (p pass) kept() {
	left := eventIDs(p.after)
	must := slices.Clone(p.m.run.Pinned)
	if q := liveQuestion(p.before, p.m.run); q >= 0 {
		must = append(must, p.before.At(q).ID())
	}
	for _, id := range must {
		_, was := p.before.Find(id)
		if _, is := left[id]; was && !is {
			p.fail("%s had to stay", id)
		}
	}
}

func liveQuestion(v fold.View, run compaction.Run) int {
	if run.Invocation == "" {
		return -1
	}
	owner, question := owners(v), -1
	for i, e := range v.Events() {
		responses := 0
		for part := range e.FunctionParts() {
			if part.Response {
				responses++
			}
		}
		if owner[i] == run.Invocation && e.Author() == "user" && e.SaysSomething() && responses == 0 {
			question = i
		}
	}
	return question
}

// roles checks that new summaries have role user. It also checks that the pass moves no function call to the first
// position, or directly after a summary of role model. Only users write summaries of role model.
func (p pass) roles() {
	bare := func(v fold.View, i int) bool {
		return i == 0 || v.Entry(i-1).Summary && v.At(i-1).Role() == "model"
	}
	was := eventIDs(p.before)
	for _, c := range p.after.Calls() {
		i, there := was[p.after.At(c.Index).ID()]
		if bare(p.after, c.Index) && !(there && bare(p.before, i)) {
			p.fail("the call in %s stands first or after a summary of role model", p.after.At(c.Index).ID())
		}
	}
	for i, e := range p.after.Events() {
		if _, there := was[e.ID()]; !there && e.Role() != "user" {
			p.fail("summary %d has role %s", i, e.Role())
		}
	}
}

// plan checks that Plan is deterministic.
func (p pass) plan() {
	one, err := compaction.Plan(p.before, p.m.cfg, p.m.run)
	two, _ := compaction.Plan(p.before, p.m.cfg, p.m.run)
	if err != nil || one.Window == nil || fmt.Sprintf("%+v", *one.Window) != fmt.Sprintf("%+v", *two.Window) || one.Reason != two.Reason {
		p.fail("planned %+v, then %+v (%v)", one, two, err)
	}
	if p.after.Seq() == p.before.Seq() {
		p.fail("nothing was written")
	}
}

// judgeEnd checks the length of the visible log when no pass is due.
func judgeEnd(t *rapid.T, v fold.View, cfg compaction.Config, run compaction.Run) {
	d, err := compaction.Plan(v, cfg, run)
	if err != nil || d.Window != nil {
		t.Fatalf("something is left to do: %+v, %v", d, err)
	}
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\n%s\n%+v\n%+v: %s", fmt.Sprintf(format, args...), words(v), cfg, run, d.Reason)
	}
	// With the interval trigger, the events that could be covered belong to fewer invocations than the interval.
	if cfg.CompactionInterval > 0 && !strings.Contains(d.Reason, "pay") { // a pass that does not pay is not due
		waiting := map[string]bool{}
		owner := owners(v)
		for _, i := range coverable(v, cfg, run, false) {
			waiting[owner[i]] = true
		}
		if len(waiting) >= cfg.CompactionInterval {
			fail("interval %d, but there are %v", cfg.CompactionInterval, sortedIDs(waiting))
		}
	}
	// Among adjacent summaries, a branch has fewer than K of each level. The number of levels is logarithmic in the
	// number of windows.
	chains := summaryChains(v, run)
	for _, c := range chains {
		levels, windows := 1, 0
		for _, i := range c {
			windows = max(windows, compaction.LineageOf(v.At(i)).Windows)
		}
		for ; windows >= cfg.Limits().Summaries; windows /= cfg.Limits().Summaries {
			levels++
		}
		if len(c) > (cfg.Limits().Summaries-1)*levels {
			fail("%d summaries side by side", len(c))
		}
	}
	// With the token trigger, no pass is due if the prompt is under the threshold. Otherwise, neither a summary of
	// the events nor a merge of two summaries would save enough.
	if cfg.TokenThreshold == 0 || strings.Contains(d.Reason, "pay") {
		return
	}
	if size, _ := compaction.PromptTokens(v); size >= cfg.TokenThreshold {
		tokens := 0
		for _, i := range coverable(v, cfg, run, true) {
			tokens += v.At(i).EstimatedTokens()
		}
		least := 16
		if tokens*least >= cfg.TokenThreshold {
			fail("the prompt takes %d tokens, and %d could be covered, of %v", size, tokens, coverable(v, cfg, run, true))
		}
		for _, c := range chains {
			if n := len(c); n > 1 {
				saved := v.At(c[n-1]).EstimatedTokens() + v.At(c[n-2]).EstimatedTokens()
				switch { // a short text can be shortened only a little
				case saved < 32:
					saved = 0
				case saved < 256:
					saved -= saved * 3 / 4
				default:
					saved /= 2
				}
				if size-saved < cfg.TokenThreshold || saved*least >= cfg.TokenThreshold {
					fail("the prompt takes %d tokens, and merging two summaries would save %d", size, saved)
				}
			}
		}
	}
}

// coverable returns the events that the contract allows a pass to cover. It does not use the code that it checks.
func coverable(v fold.View, cfg compaction.Config, run compaction.Run, byTokens bool) []int {
	stays := make([]bool, v.Len())
	pending, waiting, dead, _, asking := openCalls(v, run)
	newest := append(dead[max(0, len(dead)-cfg.Limits().OpenCalls):], waiting[max(0, len(waiting)-cfg.Limits().WaitingCalls):]...)
	for _, i := range append(pending, newest...) {
		stays[i] = true
	}
	if q := liveQuestion(v, run); q >= 0 {
		stays[q] = true
	}
	owner, raw := owners(v), 0
	for _, i := range retained(v, cfg, byTokens) {
		stays[i] = true
	}
	for i := v.Len() - 1; i >= 0; i-- {
		if !v.Entry(i).Summary && v.At(i).SaysSomething() {
			raw++
		}
		if v.Entry(i).Summary || slices.Contains(run.Pinned, v.At(i).ID()) || byTokens && raw-speaks(v, i) < cfg.EventRetentionSize ||
			!byTokens && run.Invocation != "" && owner[i] == run.Invocation {
			stays[i] = true
		}
	}
	calls := v.Calls()
	for changed := true; changed; {
		changed = false
		for _, a := range asking {
			changed = changed || stays[a[1]] && !stays[a[0]]
			stays[a[0]] = stays[a[0]] || stays[a[1]]
		}
		for _, c := range calls {
			tied := append(c.Responses, c.Index)
			if any := slices.ContainsFunc(tied, func(i int) bool { return stays[i] }); !any {
				continue
			}
			for _, i := range tied {
				changed = changed || !stays[i]
				stays[i] = true
			}
		}
		changed = changed || keepAround(v, stays)
	}
	var out []int
	for i, s := range stays {
		// An event without text in a transcript is not counted. It may have to stay so that no call becomes the first
		// event.
		if !s && transcript.Of([]*patch.Event{v.At(i)}, 0) != "" {
			out = append(out, i)
		}
	}
	return out
}

// keepAround marks further events as staying. If a call stays, an event before the call stays too if it is tied to an
// event after the call. Otherwise the call could become the first event, or follow a summary of role model.
func keepAround(v fold.View, stays []bool) (changed bool) {
	last := lastOfTied(v)
	for _, c := range v.Calls() {
		for i := range c.Index {
			if stays[c.Index] && !stays[i] && last[i] > c.Index {
				stays[i], changed = true, true
			}
		}
	}
	return changed
}

// lastOfTied returns for each event the last event that is tied to it by calls and responses.
func lastOfTied(v fold.View) []int {
	last := make([]int, v.Len())
	for i := range last {
		last[i] = i
	}
	calls := v.Calls()
	for changed := true; changed; {
		changed = false
		for _, c := range calls {
			greatest := last[c.Index]
			for _, r := range c.Responses {
				greatest = max(greatest, last[r])
			}
			for _, i := range append(c.Responses, c.Index) {
				changed = changed || last[i] < greatest
				last[i] = greatest
			}
		}
	}
	return last
}

// summaryChains returns the indices of adjacent summaries, one slice per branch and stretch.
func summaryChains(v fold.View, run compaction.Run) [][]int {
	var chains [][]int
	current := map[string]int{}
	for i, e := range v.Events() {
		if !v.Entry(i).Summary || slices.Contains(run.Pinned, e.ID()) {
			clear(current)
			continue
		}
		at, known := current[groupName(e)]
		if !known {
			at = len(chains)
			current[groupName(e)] = at
			chains = append(chains, nil)
		}
		chains[at] = append(chains[at], i)
	}
	return chains
}

// clears reports whether the pass is a clearing of tool results.
func (p pass) clears() bool {
	d, err := compaction.Plan(p.before, p.m.cfg, p.m.run)
	return err == nil && d.Window != nil && d.Window.Trigger == compaction.ByClearing
}

// cleared checks that a clearing changes only results, and neither the newest results nor the user's responses. All
// calls and responses keep their positions.
func (p pass) cleared() {
	if !slices.EqualFunc(p.before.Calls(), p.after.Calls(), func(a, b fold.Call) bool {
		return a.ID == b.ID && a.Name == b.Name && a.Index == b.Index && a.Part == b.Part && slices.Equal(a.Responses, b.Responses)
	}) {
		p.fail("the calls were %v, are %v", p.before.Calls(), p.after.Calls())
	}
	changed := 0
	for i, was := range p.before.Events() {
		is := p.after.At(i)
		if was.ID() == is.ID() {
			continue
		}
		changed++
		if p.before.Entry(i).Summary || p.after.Entry(i).Summary || was.Author() == "user" || p.before.IsPinned(i) {
			p.fail("%s was to be left", was.ID())
		}
		if was.Author() != is.Author() || was.InvocationID() != is.InvocationID() || groupName(was) != groupName(is) || !was.Timestamp().Equal(is.Timestamp()) {
			p.fail("%s became %s", was, is)
		}
		before, after := partsOf(was), partsOf(is)
		if len(before) != len(after) {
			p.fail("%s has %d parts, had %d", is.ID(), len(after), len(before))
		}
		for j := range before {
			if !bytes.Equal(before[j], after[j]) && !bytes.Contains(after[j], []byte(compaction.ClearedResult)) {
				p.fail("part %d of %s was %s, is %s", j, was.ID(), before[j], after[j])
			}
		}
	}
	if changed == 0 {
		p.fail("nothing was cleared")
	}
	left := p.m.cfg.Limits().ToolResults // number of the newest results that must still stay
	for i := p.before.Len() - 1; i >= 0 && left > 0; i-- {
		n := 0
		for f := range p.before.At(i).FunctionParts() {
			if f.Response {
				n++
			}
		}
		if n > 0 && n <= left && p.before.At(i).ID() != p.after.At(i).ID() && !unpairedFrom(p.before, i) {
			p.fail("one of the last results was cleared, in %s", p.before.At(i).ID())
		}
		left -= n
	}
}

// unpairedFrom reports whether any response in event i has no call. The results of such an event are not cleared.
func unpairedFrom(v fold.View, i int) bool {
	paired := map[int]int{}
	for _, c := range v.Calls() {
		for _, r := range c.Responses {
			paired[r]++
		}
	}
	for j := i; j < v.Len(); j++ {
		n := 0
		for f := range v.At(j).FunctionParts() {
			if f.Response {
				n++
			}
		}
		if n > paired[j] {
			return true
		}
	}
	return false
}

func partsOf(e *patch.Event) []json.RawMessage {
	var content struct{ Parts []json.RawMessage }
	text, _ := e.Field("content")
	_ = json.Unmarshal(text, &content)
	return content.Parts
}

// original returns the id of the original if e is a cleared copy, and the id of e otherwise.
func (p pass) original(e *patch.Event) string {
	id := e.ID()
	for {
		of, cleared := p.m.cleared[id]
		if !cleared {
			return id
		}
		id = of
	}
}

// logged returns the event with the given id in its logged form. If the log has no event with this id, it returns the
// argument or.
func (m *machine) logged(id string, or *patch.Event) *patch.Event {
	for _, e := range m.events {
		if e.ID() == id {
			return e
		}
	}
	return or
}

// noteCleared records the id of the original for each event whose results were cleared.
func (m *machine) noteCleared(before, after fold.View) {
	for i, e := range after.Events() {
		if was := before.At(i); was.ID() != e.ID() {
			m.cleared[e.ID()] = was.ID()
		}
	}
}
