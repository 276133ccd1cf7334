package compaction_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// pass is one pass of compaction: the view before and after it, and what its summarizer
// was asked.
type pass struct {
	m             *machine
	before, after fold.View
	asked         map[string]compaction.Request // by answer
}

func (p pass) judge() {
	p.state()
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

// The state is the same right before and after.
func (p pass) state() {
	if was, is := values(p.before), values(p.after); !maps.EqualFunc(was, is, patch.Value.Equal) {
		p.fail("state was %v, is %v", was, is)
	}
}

// partners gives the events that respond to each call, by the call's event and part.
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

// A call that is still visible has the responses that it had; of one that went, all
// responses went.
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

// Pending calls stay, and so do all but the oldest of those that nobody answers.
func (p pass) openCalls() {
	left := eventIDs(p.after)
	pending, dead, either, _ := openCalls(p.before, p.m.run)
	for _, i := range pending {
		if _, visible := left[p.before.At(i).ID()]; !visible {
			p.fail("the open call in %s was hidden", p.before.At(i).ID())
		}
	}
	stay := 0
	for _, i := range slices.Backward(dead) {
		later := 0
		for _, j := range either {
			if j > i {
				later++
			}
		}
		switch _, visible := left[p.before.At(i).ID()]; {
		case visible:
			stay++
		case stay+later < p.m.cfg.MaxOpenCalls:
			p.fail("the unanswered call in %s was hidden, only %d later ones stay", p.before.At(i).ID(), stay)
		}
	}
}

// openCalls returns the events, once for each call, of calls that must stay whatever
// there is, and of those of which only so many stay. Either are of the former: calls in
// an event that names no invocation, which may count as the newest's or not. Asking are
// answered requests to the user, each with the call that it is about and that has not
// returned since: it stays as long as the call does.
func openCalls(v fold.View, run compaction.Run) (pending, dead, either []int, asking [][2]int) {
	owner := owners(v)
	newest, named := "", v.Skeleton().Invocation
	for i := range v.Len() {
		if !v.IsSummary(i) {
			newest = owner[i]
		}
	}
	calls := v.Calls()
	waits := make([]string, len(calls)) // "", "pending" or "dead"
	for i, c := range calls {
		asks := strings.HasPrefix(c.Name, "adk_request_")
		long := asks || c.ID != "" && v.At(c.Index).IsLongRunning(c.ID)
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
				waits[j] = "pending"
			} else if calls[j].Responses == nil || slices.Max(calls[j].Responses) < c.Responses[answer] {
				asking = append(asking, [2]int{c.Index, calls[j].Index})
				if waits[j] == "" {
					waits[j] = "dead"
				}
			}
			break
		}
	}
	for i, c := range calls {
		over := owner[c.Index] != newest && (owner[c.Index] != run.Invocation || run.Invocation == "")
		switch {
		case waits[i] == "pending", waits[i] == "dead" && !over:
			pending = append(pending, c.Index)
		case waits[i] == "dead" && nearestNamed(v, c.Index) == named:
			pending = append(pending, c.Index)
			either = append(either, c.Index)
		case waits[i] == "dead":
			dead = append(dead, c.Index)
		}
	}
	return pending, dead, either, asking
}

// nearestNamed returns the invocation that the event names or else the nearest before it
// that names one, as the check of patches does.
func nearestNamed(v fold.View, i int) string {
	for ; i >= 0; i-- {
		if id := v.At(i).InvocationID(); id != "" {
			return id
		}
	}
	return ""
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

// owners names each visible event's invocation: its own, else that of the event before
// it, but for the user, with whom one begins. Summaries have none.
func owners(v fold.View) []string {
	owner := make([]string, v.Len())
	current := ""
	for i, e := range v.Events() {
		switch {
		case v.IsSummary(i):
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

// What went was shown to a summarizer, but for what a transcript says nothing of; what
// was shown to be covered went. No request mixes branches, nor summaries and raw events.
func (p pass) covered() {
	left, shown := eventIDs(p.after), map[string]bool{}
	for _, r := range p.asked {
		for _, e := range r.Events {
			if shown[e.ID()] {
				p.fail("%s was summarised twice", e.ID())
			}
			shown[e.ID()] = true
			if _, visible := left[e.ID()]; visible {
				p.fail("%s was summarised and is still visible", e.ID())
			}
			if groupName(e) != groupName(r.Events[0]) {
				p.fail("one text of %s and %s", e.ID(), r.Events[0].ID())
			}
			if at, _ := p.before.Find(e.ID()); p.before.IsSummary(at) != r.Merge {
				p.fail("%s was summarised with Merge %v", e.ID(), r.Merge)
			}
		}
		limit := p.m.cfg.MaxInputTokens
		tokens := patch.EstimateTextTokens(compaction.Transcript(r.Events, 0))
		for _, e := range r.Events {
			named := fmt.Sprintf("(%s)", e.ID())
			if !r.Merge && (limit == 0 || tokens <= limit) && compaction.Transcript([]*patch.Event{e}, 0) != "" && !strings.Contains(r.Prompt, named) && hasText(e, named) {
				p.fail("%s is covered by a window of %d tokens, and not in the prompt:\n%s", e.ID(), tokens, r.Prompt)
			}
		}
	}
	for i, e := range p.before.Events() {
		if _, visible := left[e.ID()]; !visible && !shown[e.ID()] && (compaction.Transcript([]*patch.Event{e}, 0) != "" || p.before.IsSummary(i)) {
			p.fail("%s was covered and not shown", e.ID())
		}
	}
}

func hasText(e *patch.Event, text string) bool {
	content, _ := e.Field("content")
	return strings.Contains(string(content), text)
}

// Each request has its summary, of its branch; nothing else came.
func (p pass) summaries() {
	was := eventIDs(p.before)
	came := 0
	for i, e := range p.after.Events() {
		if _, there := was[e.ID()]; there {
			continue
		}
		r, asked := p.asked[firstText(e)]
		if !asked || !p.after.IsSummary(i) {
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

// The live question and pinned events stay.
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
		if owner[i] == run.Invocation && e.Author() == "user" && e.HasContent() && responses == 0 {
			question = i
		}
	}
	return question
}

// No function call comes first or directly after a summary of role model where it did
// not before; a new summary has role user where the next event with content is the
// model's.
func (p pass) roles() {
	bare := func(v fold.View, i int) bool {
		return i == 0 || v.IsSummary(i-1) && v.At(i-1).Role() == "model"
	}
	was := eventIDs(p.before)
	for _, c := range p.after.Calls() {
		i, there := was[p.after.At(c.Index).ID()]
		if bare(p.after, c.Index) && !(there && bare(p.before, i)) {
			p.fail("the call in %s stands first or after a summary of role model", p.after.At(c.Index).ID())
		}
	}
	next := ""
	for i := p.after.Len() - 1; i >= 0; i-- {
		e := p.after.At(i)
		if _, there := was[e.ID()]; !there && next == "model" && e.Role() != "user" {
			p.fail("summary %d has role %s before a turn of the model", i, e.Role())
		}
		if e.HasContent() {
			next = e.Role()
		}
	}
}

// The same view gives the same decision.
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
