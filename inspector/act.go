package inspector

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// action is what a request wants to be done to a session, and what its author was looking at. It is previewed,
// which writes nothing, and then done on the view that was previewed.
type action struct {
	*actionKind
	form    url.Values // its fields, checked
	key     store.Key
	at, seq uint64   // the record after which the session stood that the author saw; the record that this is about
	indices []int    // of selected events as they stood then,
	ids     []string // or their ids
	draw    uuid.UUID
	author  string
	may     func(key store.Key, want Access) bool // what the request may
}

// actionKind is a kind of action. Its functions get the view that the author looks at, and the page that
// says what would be done, or was.
type actionKind struct {
	name, title    string
	limit          time.Duration // 0 means pageTimeout
	preview, apply func(i *Inspector, ctx context.Context, a *action, v fold.View, p *actPage) error
}

// longAct is the time limit of compactions and erasures.
const longAct = 10 * time.Minute

var actionKinds = []actionKind{
	{"splice", "Cut events out", 0, previewChange, applyChange},
	{"summarise", "Summarise events by a text", 0, previewChange, applyChange},
	{"pin", "Pin events", 0, previewChange, applyChange},
	{"unpin", "Unpin events", 0, previewChange, applyChange},
	{"revert", "Take a patch back", 0, previewChange, applyChange},
	{"restore", "Restore what a summary stands for", 0, previewChange, applyChange},
	{"rewind", "Rewind to before a turn", 0, previewChange, applyChange},
	{"fork", "Fork the session", 0, previewFork, applyFork},
	{"compact", "Compact the session now", longAct, previewCompact, applyCompact},
	{actErase, "Erase what events say", longAct, previewErase, applyErase},
}

// actErase is the kind of action that needs the access Erase.
const actErase = "erase"

// act previews something that a person wants to be done to a session, or does it.
func (i *Inspector) act(w http.ResponseWriter, r *http.Request) error {
	a, err := i.action(w, r)
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(r.Context(), max(a.limit, pageTimeout))
	defer done()
	info, err := i.store.Info(ctx, a.key)
	if err != nil {
		return err
	}
	if info.Creation != a.form.Get("creation") {
		return fmt.Errorf("session %s: %w: it was deleted and created again since the page was made; nothing was written", a.key, store.ErrConflict)
	}
	make := func() (int, []byte, error) { return i.actPage(ctx, r, a) }
	status, text, err := 0, []byte(nil), error(nil)
	if a.form.Get("step") == stepDo {
		status, text, err = i.answers.once(ctx, a.form.Encode(), make)
	} else {
		status, text, err = make()
	}
	if err != nil {
		return err
	}
	return send(w, r, status, text)
}

// actPage previews or does it, and returns the page about that.
func (i *Inspector) actPage(ctx context.Context, r *http.Request, a *action) (status int, text []byte, err error) {
	p := &actPage{Key: a.key.String(), Heading: "Preview: " + a.title}
	if a.form.Get("step") == stepDo {
		p.Heading = a.title
		err = i.doAct(ctx, a, p)
	} else {
		err = i.previewAct(ctx, a, p)
	}
	status = http.StatusOK
	if err != nil {
		if status, err = i.refuse(ctx, a, p, err); err != nil {
			return 0, nil, err
		}
	}
	text, err = i.page(r, "act", page{Title: p.Heading, Key: &a.key, Body: p})
	return status, text, err
}

// previewAct previews on the newest view. Selected events are named by their ids: what had an index when the
// page was made may have another one now.
func (i *Inspector) previewAct(ctx context.Context, a *action, p *actPage) error {
	if len(a.indices) > 0 {
		seen, err := i.store.ViewAt(ctx, a.key, a.at)
		if err != nil {
			return err
		}
		for _, n := range a.indices {
			if n >= seen.Len() {
				return fmt.Errorf("%w: there is no visible event %d; the last one was %d", fold.ErrOutOfRange, n, seen.Len()-1)
			}
			a.ids = append(a.ids, seen.At(n).ID())
		}
	}
	v, err := i.store.View(ctx, a.key)
	if err != nil {
		return err
	}
	if v.PatchSeq() > a.at {
		p.notice("A patch was logged since the page was made that you come from. This is about the session as it is now.")
	}
	a.at, a.draw = v.Seq(), uuid.New()
	if len(a.ids) > 0 && a.name != actErase { // which takes hidden events too
		_, gone := a.selected(v)
		if len(gone) > 0 {
			p.notice("%s of the selection cannot be seen any longer, and stay out of this: %s.", present.Counted(len(gone), "event"), namesText(gone))
			a.ids = slices.DeleteFunc(a.ids, func(id string) bool { return slices.Contains(gone, id) })
		}
		if len(a.ids) == 0 {
			return &ops.EditError{Problem: "none of the selected events is visible any longer"}
		}
	}
	return a.preview(i, ctx, a, v, p)
}

// doAct does what was previewed, on the view after the record that the preview was made of.
func (i *Inspector) doAct(ctx context.Context, a *action, p *actPage) error {
	if a.draw == uuid.Nil || len(a.indices) > 0 {
		return badRequest("step", "what is to be done comes from its preview, which says draw and ids")
	}
	v, err := i.store.ViewAt(ctx, a.key, a.at)
	if err != nil {
		return err
	}
	return a.apply(i, ctx, a, v, p)
}

// selected returns the stretches of the visible log that are selected, and the ids that are not visible.
func (a *action) selected(v fold.View) (spans []compaction.Span, gone []string) {
	at := make(map[string]int, v.Len())
	for n, e := range v.Events() {
		if _, twice := at[e.ID()]; !twice {
			at[e.ID()] = n
		}
	}
	var indices []int
	for _, id := range a.ids {
		if n, visible := at[id]; visible {
			indices = append(indices, n)
		} else {
			gone = append(gone, id)
		}
	}
	slices.Sort(indices)
	for _, n := range slices.Compact(indices) {
		if last := len(spans) - 1; last >= 0 && spans[last].Start+spans[last].Count == n {
			spans[last].Count++
		} else {
			spans = append(spans, compaction.Span{Start: n, Count: 1})
		}
	}
	return spans, gone
}

// newID returns an id that comes from the preview: the same each time that it is done.
func (a *action) newID(what string) string { return uuid.NewSHA1(a.draw, []byte(what)).String() }

// fields are the hidden fields of a form that asks for the same, but for some, whose names and values stand in turn.
func (a *action) fields(step string, but ...string) []actField {
	form := url.Values{"step": {step}}
	for name := range a.form {
		if !slices.Contains([]string{"step", "index", "from", "through", "draw", "plan"}, name) {
			form.Set(name, a.form.Get(name))
		}
	}
	form.Set("at", strconv.FormatUint(a.at, 10))
	form.Set("ids", idsText(a.ids))
	if a.seq > 0 {
		form.Set("seq", strconv.FormatUint(a.seq, 10))
	}
	if step == stepDo {
		form.Set("draw", a.draw.String())
	}
	for n := 0; n < len(but); n += 2 {
		form.Set(but[n], but[n+1])
	}
	var fields []actField
	for _, name := range actFields {
		if value := form.Get(name); value != "" {
			fields = append(fields, actField{name, value})
		}
	}
	return fields
}

// idsText returns ids as the field has them; "" if there are none.
func idsText(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	text, _ := json.Marshal(ids) // of strings, which it can always write
	return string(text)
}

// changeOf returns the operation that logs patches.
func (i *Inspector) changeOf(ctx context.Context, a *action, v fold.View) (ops.Change, error) {
	orphans := a.form.Get("allow_orphans") != ""
	if !slices.Contains([]string{"revert", "restore", "rewind"}, a.name) {
		spans, gone := a.selected(v)
		if len(gone) > 0 {
			return nil, fmt.Errorf("%w: event %q was not visible after record %d", fold.ErrEventNotFound, clip(gone[0], 80), v.Seq())
		}
		edit := ops.Edit{
			Kind: ops.EditKind(a.name), Spans: spans, Text: a.form.Get("text"),
			State: patch.StatePolicy(a.form.Get("state")), Author: a.author, NewID: a.newID,
		}
		return ops.Patches{Plan: edit.Patches, Options: store.PatchOptions{AllowOrphans: orphans, AllowPinned: a.form.Get("allow_pinned") != ""}}, nil
	}
	r, err := i.record(ctx, a.key, a.seq)
	back := store.UndoOptions{Author: a.author, AllowOrphans: orphans}
	switch {
	case err != nil:
		return nil, err
	case a.name != "rewind" && r.Patch == nil:
		return nil, &ops.EditError{Problem: fmt.Sprintf("record %d is an event, and only patches can be taken back; cut the event out instead", r.Seq)}
	case a.name == "revert":
		return ops.Revert{PatchID: r.ID(), Options: back}, nil
	case a.name == "restore":
		return ops.Restore{PatchID: r.ID(), Author: a.author, Options: store.PatchOptions{AllowOrphans: orphans}}, nil
	case r.Event == nil || r.Event.InvocationID() == "":
		return nil, &ops.EditError{Problem: fmt.Sprintf("record %d belongs to no turn, so that there is none to rewind to", r.Seq)}
	}
	return ops.Rewind{InvocationID: r.Event.InvocationID(), Options: back}, nil
}

func previewChange(i *Inspector, ctx context.Context, a *action, v fold.View, p *actPage) error {
	c, err := i.changeOf(ctx, a, v)
	if err != nil {
		return err
	}
	would, err := c.Preview(ctx, i.store, a.key, v)
	if err != nil {
		return err
	}
	if len(would.Patches) == 0 {
		p.notice("Nothing is left of what came since, so that there is nothing to do.")
		return nil
	}
	around := 0
	if len(would.Patches) == 1 && would.Patches[0].Type() != patch.Revert {
		around = diffContext
	}
	p.Differences = append(p.Differences, shownDifferenceOf(a.key, "What would change", ops.Explain(would), around))
	p.notice("%s", reuseText(would.Difference))
	if a.form.Get("allow_orphans") != "" {
		p.notice("Split calls are accepted.")
	}
	if a.form.Get("allow_pinned") != "" {
		p.notice("Pinned events may be hidden.")
	}
	p.Forms = append(p.Forms, actForm{Button: "Do it", Strong: true, Fields: a.fields(stepDo)})
	return nil
}

// reuseText says how much of the prompt stays as it is.
func reuseText(d fold.Difference) string {
	if len(d.Removed)+len(d.Added) == 0 {
		return "What a model sees stays as it is, and so does what a provider has in its prompt cache."
	}
	anew := 0
	for i := d.First; i < d.After.Len(); i++ {
		anew += d.After.At(i).EstimatedTokens()
	}
	reuse := "none of them"
	if d.First > 0 {
		reuse = "the " + present.Counted(d.First, "event") + " before it"
	}
	return fmt.Sprintf("The first index that changes is %d: a provider's prompt cache can reuse %s, and about %s are read anew.", d.First, reuse, tokenCount(anew))
}

func applyChange(i *Inspector, ctx context.Context, a *action, v fold.View, p *actPage) error {
	c, err := i.changeOf(ctx, a, v)
	if err != nil {
		return err
	}
	done, err := c.Apply(ctx, i.store, a.key, v)
	if err != nil {
		return err
	}
	return i.showDone(ctx, a, p, done.Records)
}

// showDone shows records that were logged, and what became of the session by them.
func (i *Inspector) showDone(ctx context.Context, a *action, p *actPage, records []patch.Record) error {
	p.Heading = "Done: " + a.title
	if len(records) == 0 {
		p.notice("Nothing had to be logged.")
		return nil
	}
	first, last := records[0].Seq, records[len(records)-1].Seq
	before, err := i.store.ViewAt(ctx, a.key, first-1)
	if err != nil {
		return err
	}
	after, err := i.store.ViewAt(ctx, a.key, last)
	if err != nil {
		return err
	}
	difference := present.DifferenceOf(before, after)
	p.notice("%s.", difference.Sentence())
	for _, line := range difference.PinLines() {
		p.line("%s", line)
	}
	for _, r := range records[:min(len(records), actRows)] {
		row := actRecord{r.Seq, r.Patch.Type(), clip(r.ID(), nameRunes), clip(r.Patch.Author(), nameRunes), clip(present.PatchText(r.Patch), lineRunes), ""}
		if w, ok := compaction.WrittenBy(r.Patch); ok {
			row.Pass = present.PassText(r, w)
		}
		p.Records = append(p.Records, row)
	}
	p.RecordsMore = len(records) - len(p.Records)
	at, last10 := sessionURL(a.key, last), strconv.FormatUint(last, 10)
	changed, err := query("diff", "key", a.key, "from", first-1, "to", last)
	if err != nil {
		return err
	}
	p.Links = append(p.Links, link{at, "The session after record " + last10}, link{changed, "What changed"})
	back := action{form: url.Values{"key": {p.Key}, "creation": a.form["creation"]}, at: last}
	p.Forms = append(p.Forms, actForm{
		Text: "It can be taken back, as long as no later patch stands on it.", Button: "Take it back …",
		Fields: back.fields(stepPreview, "act", "revert", "seq", last10),
	})
	return nil
}

func previewFork(i *Inspector, ctx context.Context, a *action, v fold.View, p *actPage) error {
	if a.seq == 0 {
		a.seq = v.Seq()
	}
	suggested := a.form.Get("to")
	if suggested == "" {
		to := a.key
		to.Session = fmt.Sprintf("%s-fork-%d", a.key.Session, a.seq)
		if suggested = to.String(); to.Validate() != nil {
			suggested = ""
		}
	}
	upTo, err := i.store.ViewAt(ctx, a.key, a.seq)
	if err != nil {
		return err
	}
	p.notice("A new session begins with the initial state and the first %s of this one; %s. From there on each goes its own way. Values that sessions share are not copied.",
		present.Counted(upTo.Seq(), "record"), present.Counted(upTo.Len(), "visible event"))
	p.Forms = append(p.Forms, actForm{
		Button: "Do it", Strong: true, Fields: a.fields(stepDo, "to", ""), Input: &actInput{"to", "Key of the new session, as app/user/session", suggested},
	})
	return nil
}

func applyFork(i *Inspector, ctx context.Context, a *action, _ fold.View, p *actPage) error {
	key, err := store.ParseKey(a.form.Get("to"))
	if err != nil {
		return err
	}
	if !a.may(key, Read) || !a.may(key, Write) {
		return fmt.Errorf("session %s: %w: it may not be created by you", key, errForbidden)
	}
	if a.seq == 0 {
		return badRequest("seq", "it is missing; it says up to which record the fork goes")
	}
	fork := ops.Fork{From: a.key, To: key, At: &a.seq}
	v, err := fork.Apply(ctx, i.store)
	if err != nil {
		return err
	}
	p.Heading = "Done: " + a.title
	p.notice("%s.", fork.Explain(v))
	url, err := query("session", "key", key)
	p.Links = append(p.Links, link{url, "Session " + present.Printable(key.String())})
	return err
}

func (i *Inspector) compact(a *action) ops.Compact {
	return ops.Compact{Config: i.opts.Compaction, Run: compaction.Run{Focus: a.form.Get("focus"), Force: true}, Logger: i.opts.Logger}
}

func previewCompact(i *Inspector, _ context.Context, a *action, v fold.View, p *actPage) error {
	decision, err := i.compact(a).Preview(v)
	if err != nil {
		return err
	}
	plan := present.PlanOf(a.key, decision)
	p.notice("%s", plan.Reason)
	p.Plan = plan.Rows()
	w := decision.Window
	if w == nil {
		return nil
	}
	covered := shownDifference{Title: "What the next pass would make a summary of"}
	if w.Results > 0 {
		covered.Title = "Where results would be cleared"
		for _, s := range append(slices.Clone(w.Also), w.Span) {
			covered.add(a.key, present.Change{Sign: present.Changed, Index: s.Start, Entry: v.Entry(s.Start)})
		}
	}
	for _, g := range w.Groups {
		for _, n := range g.Indices {
			covered.add(a.key, present.Change{Sign: present.Went, Index: n, Entry: v.Entry(n)})
		}
	}
	p.Differences = append(p.Differences, covered)
	p.notice("%s", plan.Outlook())
	if len(w.Groups) > 0 {
		p.notice("The summarizer is asked when it is done, and that can take minutes. Where a turn is running, better wait until it is over.")
	}
	p.Forms = append(p.Forms, actForm{Button: "Do it", Strong: true, Fields: a.fields(stepDo)})
	return nil
}

func applyCompact(i *Inspector, ctx context.Context, a *action, v fold.View, p *actPage) error {
	newest, err := i.store.View(ctx, a.key)
	if err != nil {
		return err
	}
	if newest.PatchSeq() != v.PatchSeq() {
		return &fold.ConflictError{Base: v.PatchSeq(), Newest: newest.PatchSeq()}
	}
	done, failed := i.compact(a).Apply(ctx, i.store, a.key, newest)
	if len(done.Passes) > 0 {
		var records []patch.Record
		for _, pass := range done.Passes {
			records = append(records, pass.Record)
		}
		if err := i.showDone(context.WithoutCancel(ctx), a, p, records); err != nil {
			return err
		}
	} else {
		p.Heading = "Not compacted"
	}
	switch {
	case failed != nil:
		left := "Nothing was written, and the session is as it was."
		if len(done.Passes) > 0 {
			left = "What was written before that stays."
		}
		return &refusal{http.StatusBadGateway, fmt.Sprintf("The compaction failed: %s. %s", present.PrintableUpTo(failed.Error(), errorRunes), left)}
	case done.Stopped != "":
		p.notice("%s.", capital(done.Stopped))
	case len(done.Passes) == 0:
		p.notice("Nothing was written: nothing is due any longer.")
	}
	return nil
}
