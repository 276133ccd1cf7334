package compaction_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
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
	pending, waiting, dead, either, _ := openCalls(p.before, p.m.run)
	for _, i := range pending {
		if _, visible := left[p.before.At(i).ID()]; !visible {
			p.fail("the open call in %s was hidden", p.before.At(i).ID())
		}
	}
	p.newestStay("unanswered", dead, either, p.m.cfg.Limits().OpenCalls)
	p.newestStay("waiting", waiting, nil, p.m.cfg.Limits().WaitingCalls)
}

// newestStay checks that of some calls at most the oldest beyond a limit went. either may
// count besides.
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

// openCalls returns the events, once for each call, of calls that must stay whatever
// there is, and of those of which only so many stay: that wait for the user's side, or
// that nobody answers. Either are of the former: calls in
// an event that names no invocation, which may count as the newest's or not. Asking are
// requests to the user, each with the call that it is about: answered ones, where the call
// has not returned since and they stay as long as it does; and, the other way round,
// unanswered ones, where the call stays as long as they do.
func openCalls(v fold.View, run compaction.Run) (pending, waiting, dead, either []int, asking [][2]int) {
	owner := owners(v)
	newest := ""
	for i := range v.Len() {
		if !v.Entry(i).Summary {
			newest = owner[i]
		}
	}
	calls := v.Calls()
	waits := make([]string, len(calls)) // "", "pending" or "dead"
	concerns := map[int]int{}           // requests that are not answered, and the calls that they are about
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
		case !over(c), c.Newest, concerned && (!over(calls[about]) || calls[about].Newest):
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

// owners names each visible event's invocation: its own, else that of the event before
// it, but for the user, with whom one begins. Summaries have none.
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

// What went was shown to a summarizer, but for what a transcript says nothing of; what
// was shown to be covered went. No request mixes branches, nor summaries and raw events.
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
		limit := p.m.cfg.Limits().Input
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

// saidWordForWord reports whether a new summary that nobody was asked for says all that the
// event does.
func (p pass) saidWordForWord(e *patch.Event) bool {
	was := eventIDs(p.before)
	for _, s := range p.after.Events() {
		if _, there := was[s.ID()]; !there && groupName(s) == groupName(e) && p.isWordForWord(testlog.FirstText(s), groupName(s)) {
			return true
		}
	}
	return false
}

// isWordForWord reports whether the text, which nobody was asked for, says all that the
// events of a group that went do, and these are too few words for a summarizer.
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
			// Whether a call is answered, other events say.
			if !strings.Contains(text, strings.TrimSpace(strings.ReplaceAll(line, " (never answered)", ""))) {
				return false
			}
		}
	}
	return tokens < 32 || tokens < 128 && p.m.sum.failFrom > 0 // what it was asked for, it did not say
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
		text := testlog.FirstText(e)
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

// A new summary has role user. No function call comes first, or directly after a summary
// of role model, which somebody may have made by hand, where it did not before.
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
