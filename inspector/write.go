package inspector

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// action is a requested change of a session, together with the view that its author saw. A preview writes
// nothing. After the preview, the action is applied to the previewed view.
type action struct {
	*actionKind
	form      url.Values // validated fields
	key       store.Key
	confirmed bool              // apply the action, do not preview it
	at, seq   uint64            // seq of the view that the author saw; seq of the record that the action concerns
	seqs      []uint64          // seqs of the records to erase; seq is the first of them
	spans     []compaction.Span // the selected events, as spans of the view after record at
	author    string
	isAllowed func(key store.Key, want Access) bool // reports the request's permissions
}

// actionKind is a kind of action. Its functions get the view that the author saw, and fill in the page.
type actionKind struct {
	name, title    string
	confirm        string        // label of the button
	limit          time.Duration // time limit; 0 means pageTimeout
	preview, apply func(i *Inspector, ctx context.Context, a *action, v fold.View, p *actPage) error
}

// longActionTimeout is the time limit of compactions and erasures.
const longActionTimeout = 10 * time.Minute

var actionKinds = []actionKind{
	{"splice", "Hide events", "Hide", 0, previewChange, applyChange},
	{"summarise", "Summarise by hand", "Summarise", 0, previewChange, applyChange},
	{"pin", "Pin events", "Pin", 0, previewChange, applyChange},
	{"unpin", "Unpin events", "Unpin", 0, previewChange, applyChange},
	{"revert", "Revert a patch", "Revert", 0, previewChange, applyChange},
	{"restore", "Restore what a summary hides", "Restore", 0, previewChange, applyChange},
	{"rewind", "Rewind to before a turn", "Rewind", 0, previewChange, applyChange},
	{"fork", "Fork the session", "Fork", 0, previewFork, applyFork},
	{"compact", "Compact the session", "Compact", longActionTimeout, previewCompact, applyCompact},
	{eraseAction, "Erase", "Erase permanently", longActionTimeout, previewErase, applyErase},
}

// eraseAction is the name of the action that needs the permission Erase.
const eraseAction = "erase"

// actionPage previews an action (GET) or applies it (POST). After it has applied an action, it redirects to the
// session's page, which shows a notice. Previews and refusals are panels of the session's page.
func (i *Inspector) actionPage(w http.ResponseWriter, r *http.Request) error {
	a, err := i.parseAction(w, r)
	if err != nil {
		return err
	}
	p := &actPage{Heading: a.title}
	do := i.previewAction
	if a.confirmed {
		do = i.applyAction
		// If a form is sent twice, it is applied once: the second request conflicts with the first.
		unlock, err := i.lockSession(r.Context(), a.key)
		if err != nil {
			return err
		}
		defer unlock()
	}
	// Finish the action even if the client disconnects.
	ctx, done := context.WithTimeout(context.WithoutCancel(r.Context()), max(a.limit, pageTimeout))
	defer done()
	info, err := i.store.Info(ctx, a.key)
	if err != nil {
		return err
	}
	if info.Creation != a.form.Get("creation") {
		return fmt.Errorf("session %s: %w: it was deleted and created again since this page was loaded; nothing was written", a.key, store.ErrConflict)
	}
	status, err := http.StatusOK, do(ctx, a, p)
	if err != nil {
		if status, err = i.refuse(ctx, a, p, err); err != nil {
			return err
		}
	}
	if p.Next != "" {
		w.Header().Set("Location", "./"+string(p.Next))
		w.WriteHeader(http.StatusSeeOther)
		return nil
	}
	b := sessionBody{status: status, Key: a.key, Newest: true, First: -1, Panel: "act", Title: p.Heading, Body: p, ConfirmBar: p}
	if b.timeline, err = i.timeline(ctx, a.key); err != nil {
		return err
	}
	if err := i.fillSession(ctx, &b, b.timeline.last()); err != nil {
		return err
	}
	return i.renderSession(w, r, b)
}

// lockSession serialises the actions on a session. The caller must call unlock.
func (i *Inspector) lockSession(ctx context.Context, key store.Key) (unlock func(), err error) {
	done := make(chan struct{})
	for {
		other, locked := i.actionLocks.LoadOrStore(key, done)
		if !locked {
			break
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return func() {
		i.actionLocks.Delete(key)
		close(done)
	}, nil
}

// previewAction previews the action on the newest view, and moves the selection to that view. An erasure also
// erases selected events that a patch has hidden after the author's view. Its preview therefore uses the
// author's view.
func (i *Inspector) previewAction(ctx context.Context, a *action, p *actPage) error {
	seen, err := i.authorView(ctx, a)
	if err != nil {
		return err
	}
	v, err := i.store.View(ctx, a.key)
	if err != nil {
		return err
	}
	changed := v.PatchSeq() > a.at
	if changed {
		p.addNotice("The session has changed since this page was loaded. This preview shows the current session.")
	}
	if a.name == eraseAction {
		return a.preview(i, ctx, a, seen, p)
	}
	if changed && len(a.spans) > 0 {
		if gone := a.moveSelection(seen, v); len(gone) > 0 {
			p.addNotice("No longer visible, and removed from the selection: %s (listed below).", present.Counted(len(gone), "event"))
			for _, id := range gone {
				p.addLine("%s", present.Clip(id, nameRunes))
			}
		}
		if len(a.spans) == 0 {
			return &ops.EditError{Problem: "none of the selected events is still visible"}
		}
	}
	a.at = v.Seq()
	return a.preview(i, ctx, a, v, p)
}

func (i *Inspector) applyAction(ctx context.Context, a *action, p *actPage) error {
	v, err := i.authorView(ctx, a)
	if err != nil {
		return err
	}
	return a.apply(i, ctx, a, v, p)
}

// authorView returns the view that the author saw, and checks that it has the selected events.
func (i *Inspector) authorView(ctx context.Context, a *action) (fold.View, error) {
	v, err := i.store.ViewAt(ctx, a.key, a.at)
	if err != nil {
		return v, err
	}
	if n := len(a.spans); n > 0 && a.spans[n-1].Start+a.spans[n-1].Count > v.Len() {
		return v, fmt.Errorf("%w: there is no visible event %d; the last one was %d", fold.ErrOutOfRange, a.spans[n-1].Start+a.spans[n-1].Count-1, v.Len()-1)
	}
	return v, nil
}

func (a *action) selectedIDs(seen fold.View) (ids []string) {
	for _, s := range a.spans {
		for n := range s.Count {
			ids = append(ids, seen.At(s.Start+n).ID())
		}
	}
	return ids
}

// moveSelection maps the selected spans from the view in seen to the later view in now. It returns the ids of selected
// events that are hidden in the later view.
func (a *action) moveSelection(seen, now fold.View) (gone []string) {
	at := make(map[string]int, now.Len())
	for n, e := range now.Events() {
		if _, twice := at[e.ID()]; !twice {
			at[e.ID()] = n
		}
	}
	var spans []compaction.Span
	for _, id := range a.selectedIDs(seen) {
		if n, visible := at[id]; visible {
			spans = append(spans, compaction.Span{Start: n, Count: 1})
		} else {
			gone = append(gone, id)
		}
	}
	a.spans = mergeSpans(spans)
	return gone
}

// mergeSpans returns the union of spans in order. Adjacent spans are joined.
func mergeSpans(spans []compaction.Span) (out []compaction.Span) {
	slices.SortFunc(spans, func(a, b compaction.Span) int { return a.Start - b.Start })
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.Start <= out[last].Start+out[last].Count {
			out[last].Count = max(out[last].Count, s.Start+s.Count-out[last].Start)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// fields returns the hidden fields of a form for the same action. The arguments are alternating names and
// values, which replace those of the action.
func (a *action) fields(overrides ...string) []actField {
	form := maps.Clone(a.form)
	for _, name := range []string{"index", "from", "through", "plan"} {
		form.Del(name)
	}
	form.Set("at", strconv.FormatUint(a.at, 10))
	for _, s := range a.spans {
		form.Add("from", strconv.Itoa(s.Start))
		form.Add("through", strconv.Itoa(s.Start+s.Count-1))
	}
	for n := 0; n < len(overrides); n += 2 {
		form.Set(overrides[n], overrides[n+1])
	}
	var fields []actField
	for _, name := range actFields {
		for _, value := range form[name] {
			if value != "" {
				fields = append(fields, actField{name, value})
			}
		}
	}
	return fields
}

// newChange returns the operation that logs the action's patches.
func (i *Inspector) newChange(ctx context.Context, a *action) (ops.Change, error) {
	orphans := a.form.Get("allow_orphans") != ""
	if !slices.Contains([]string{"revert", "restore", "rewind"}, a.name) {
		edit := ops.Edit{Kind: ops.EditKind(a.name), Spans: a.spans, Text: a.form.Get("text"), State: patch.StatePolicy(a.form.Get("state")), Author: a.author}
		return ops.Patches{Plan: edit.Patches, Options: store.PatchOptions{AllowOrphans: orphans, AllowPinned: a.form.Get("allow_pinned") != ""}}, nil
	}
	r, err := i.record(ctx, a.key, a.seq)
	back := store.UndoOptions{Author: a.author, AllowOrphans: orphans}
	switch {
	case err != nil:
		return nil, err
	case a.name != "rewind" && r.Patch == nil:
		return nil, &ops.EditError{Problem: fmt.Sprintf("record %d is an event, and only patches can be reverted; hide the event instead", r.Seq)}
	case a.name == "revert":
		return ops.Undo{PatchID: r.ID(), Options: back}, nil
	case a.name == "restore":
		return ops.Restore{PatchID: r.ID(), Author: a.author, Options: store.PatchOptions{AllowOrphans: orphans}}, nil
	case r.Event == nil || r.Event.InvocationID() == "":
		return nil, &ops.EditError{Problem: fmt.Sprintf("record %d belongs to no turn, so there is no turn to rewind to", r.Seq)}
	}
	return ops.Undo{InvocationID: r.Event.InvocationID(), Options: back}, nil
}

func previewChange(i *Inspector, ctx context.Context, a *action, v fold.View, p *actPage) error {
	text := a.form.Get("text")
	if a.name == "summarise" && text == "" {
		a.form.Set("text", "…") // the preview's form asks for the text
	}
	c, err := i.newChange(ctx, a)
	if err != nil {
		return err
	}
	preview, err := c.Preview(ctx, i.store, a.key, v)
	if err != nil {
		return err
	}
	if len(preview.Patches) == 0 {
		p.addNotice("There is nothing to change: no event since then is visible.")
		return nil
	}
	around := 0
	if len(preview.Patches) == 1 && preview.Patches[0].Type() != patch.Revert {
		around = diffContext
	}
	difference := ops.DifferenceOf(preview)
	p.Differences = append(p.Differences, newShownDifference(a.key, "What would change", difference, around))
	p.Effect = fmt.Sprintf("%s. About %s → %s tokens.", difference.Sentence(), present.Grouped(difference.TokensBefore), present.Grouped(difference.TokensAfter))
	p.addNotice("%s", cacheReuseText(preview.Difference))
	if a.form.Get("allow_orphans") != "" {
		p.addNotice("Calls may be separated from their responses.")
	}
	if a.form.Get("allow_pinned") != "" {
		p.addNotice("Pinned events may be hidden.")
	}
	p.Confirm = &actForm{Button: a.confirm, Fields: a.fields()}
	if a.name == "summarise" {
		p.Confirm.Fields = a.fields("text", "")
		p.Confirm.Input = &actInput{Name: "text", Label: "The summary", Value: text, Long: true}
	}
	return nil
}

// cacheReuseText says how much of the prompt cache stays valid.
func cacheReuseText(d fold.Difference) string {
	if len(d.Removed)+len(d.Added) == 0 {
		return "The visible log does not change, so a provider's prompt cache stays valid."
	}
	rereadTokens := 0
	for i := d.FirstChanged; i < d.After.Len(); i++ {
		rereadTokens += d.After.At(i).EstimatedTokens()
	}
	reuse := "no event"
	if d.FirstChanged > 0 {
		reuse = "the " + present.Counted(d.FirstChanged, "event") + " before it"
	}
	return fmt.Sprintf("The first index that changes is %d. A provider's prompt cache can reuse %s. The provider reads about %s again.", d.FirstChanged, reuse, tokenCount(rereadTokens))
}

func applyChange(i *Inspector, ctx context.Context, a *action, v fold.View, p *actPage) error {
	c, err := i.newChange(ctx, a)
	if err != nil {
		return err
	}
	done, err := c.Apply(ctx, i.store, a.key, v)
	if err != nil {
		return err
	}
	p.showResult(a, done.Records)
	return nil
}

// showResult sets the next page to the session's page, with a notice.
func (p *actPage) showResult(a *action, records []patch.Record) {
	if len(records) == 0 {
		p.addNotice("Nothing was logged, because nothing would change.")
		return
	}
	p.Next = query("session", "key", a.key, "done", fmt.Sprintf("%d-%d", records[0].Seq, records[len(records)-1].Seq))
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
	p.Effect = fmt.Sprintf("The new session has the initial state and the first %s of this session, with %s.", present.Counted(upTo.Seq(), "record"), present.Counted(upTo.Len(), "visible event"))
	p.addNotice("Later changes to one session do not affect the other. Shared values are not copied.")
	p.Confirm = &actForm{
		Button: a.confirm, Fields: a.fields("to", "", "seq", fmt.Sprint(a.seq)), Input: &actInput{Name: "to", Label: "Key of the new session, as app/user/session", Value: suggested},
	}
	return nil
}

func applyFork(i *Inspector, ctx context.Context, a *action, _ fold.View, p *actPage) error {
	key, err := store.ParseKey(a.form.Get("to"))
	if err != nil {
		return err
	}
	if !a.isAllowed(key, Read) || !a.isAllowed(key, Write) {
		return fmt.Errorf("session %s: %w: you may not create it", key, errForbidden)
	}
	if a.seq == 0 {
		return badRequest("seq", "it is missing; it names the last record of the fork")
	}
	p.Next = query("session", "key", key, "done", "fork")
	_, err = i.store.Fork(ctx, a.key, key, store.ForkOptions{At: &a.seq})
	return err
}

func (i *Inspector) compact(a *action) ops.Compact {
	return ops.Compact{Config: i.opts.Compaction, Run: compaction.Run{Focus: a.form.Get("focus"), Force: true}, Logger: i.opts.Logger}
}

func previewCompact(i *Inspector, _ context.Context, a *action, v fold.View, p *actPage) error {
	compact := i.compact(a)
	decision, err := compaction.Plan(v, compact.Config, compact.Run)
	if err != nil {
		return err
	}
	p.addNotice("%s", decision.Reason)
	p.Plan = present.PlanRows(decision)
	w := decision.Window
	if w == nil {
		return nil
	}
	covered := shownDifference{Title: "Events that the next pass would summarise"}
	if w.Results > 0 {
		covered.Title = "Where results would be cleared"
		for _, s := range append(slices.Clone(w.EarlierSpans), w.Span) {
			covered.add(a.key, present.Change{Sign: present.Changed, Index: s.Start, Entry: v.Entry(s.Start)})
		}
	}
	for _, g := range w.Groups {
		for _, n := range g.Indices {
			covered.add(a.key, present.Change{Sign: present.Removed, Index: n, Entry: v.Entry(n)})
		}
	}
	p.Differences = append(p.Differences, covered)
	p.addNotice("%s", present.NextPassesText(decision))
	if len(w.Groups) > 0 {
		p.addNotice("Compacting calls the summarizer, which can take minutes. If a turn is running, wait until it has ended.")
	}
	p.Effect = "A model or the offline summarizer writes summaries until no pass is due."
	p.Confirm = &actForm{Button: a.confirm, Fields: a.fields()}
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
		p.showResult(a, records)
	}
	switch {
	case failed != nil:
		left := "Nothing was written, and the session is unchanged."
		if p.Next = ""; len(done.Passes) > 0 {
			left = "The passes before the failure stay logged."
		}
		return &refusal{http.StatusBadGateway, fmt.Sprintf("The compaction failed: %s. %s", present.PrintableUpTo(failed.Error(), errorRunes), left)}
	case done.Stopped != "":
		p.addNotice("%s.", capitalize(done.Stopped))
	case len(done.Passes) == 0:
		p.addNotice("Nothing was written: no pass is due now.")
	}
	return nil
}

// actBytes is the maximum size of an action's request.
const actBytes = 1 << 20

// actFields are the fields of an action's request. Each occurs at most once, except index, from, through, and
// seq.
var actFields = []string{
	"act", "key", "creation", // creation identifies the session that the author saw
	"at",                       // seq of the view that the author saw
	"index", "from", "through", // the selected events: single indices, and spans
	"seq", // the record that the action concerns; an erasure accepts several
	"text", "state", "focus", "to", "allow_orphans", "allow_pinned", "values", "reason",
	"match", "where", // text whose matches are erased, and whether in all sessions
	"plan", // digest of a previewed erasure
}

// allowedValues has the values of each field that accepts only certain values.
var allowedValues = map[string][]string{
	"where": {"", "everywhere"}, "state": {"", string(patch.Keep), string(patch.Drop)},
	"allow_orphans": {"", "yes"}, "allow_pinned": {"", "yes"}, "values": {"", string(patch.KeepValues), string(patch.NullValues)},
}

// parseAction parses a request. The request needs Erase for an erasure, and Write for any other action.
func (i *Inspector) parseAction(w http.ResponseWriter, r *http.Request) (*action, error) {
	confirmed := r.Method == http.MethodPost
	if confirmed {
		if err := i.parseForm(w, r); err != nil {
			return nil, err
		}
	} else if err := r.ParseForm(); err != nil {
		return nil, badRequest("address", "%s", present.PrintableUpTo(err.Error(), 200))
	}
	for name, values := range r.Form {
		switch {
		case !slices.Contains(actFields, name):
			return nil, badRequest("form", "unknown field %q", present.PrintableUpTo(name, 40))
		case len(values) > 1 && !slices.Contains([]string{"index", "from", "through"}, name) && (name != "seq" || r.Form.Get("act") != eraseAction):
			return nil, badRequest(name, "it occurs %d times; give it once", len(values))
		}
	}
	want := Write
	if r.Form.Get("act") == eraseAction {
		want = Erase
	}
	key, err := i.authorizedKey(r, want)
	if err != nil {
		return nil, err
	}
	a := &action{form: r.Form, confirmed: confirmed, key: key, author: i.opts.Author(r), isAllowed: func(key store.Key, want Access) bool { return i.isAllowed(r, key, want) }}
	return a, a.parse(r)
}

// parseForm parses the body of an action's request. The request's URL must have no parameters.
func (i *Inspector) parseForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, actBytes) // the limit also applies if the error page reads the body
	if r.URL.RawQuery != "" {
		return badRequest("address", "the fields of an action must be in the body, not in the address")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return badRequest("Content-Type", "%q is not the content type of a form", present.PrintableUpTo(r.Header.Get("Content-Type"), 80))
	}
	err := r.ParseForm()
	switch large := (*http.MaxBytesError)(nil); {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return fmt.Errorf("%w: the request of an action may have %d bytes; select fewer events, or shorten the text", store.ErrTooLarge, large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the request's body did not arrive within %v: %w", i.bodyTimeout, os.ErrDeadlineExceeded)
	}
	return badRequest("form", "%s", present.PrintableUpTo(err.Error(), 200))
}

func (a *action) parse(r *http.Request) (err error) {
	n := slices.IndexFunc(actionKinds, func(v actionKind) bool { return v.name == a.form.Get("act") })
	if n < 0 {
		return badRequest("act", "%q is not an action", present.PrintableUpTo(a.form.Get("act"), 40))
	}
	a.actionKind = &actionKinds[n]
	for name, allowed := range allowedValues {
		if text := a.form.Get(name); !slices.Contains(allowed, text) {
			return badRequest(name, "%q is not one of %q", present.PrintableUpTo(text, 40), allowed)
		}
	}
	for _, name := range []string{"creation", "at"} {
		if a.form.Get(name) == "" {
			return badRequest(name, "it is missing; it says which session the page showed, and after which record")
		}
	}
	if a.at, _, err = formNumber(r, "at"); err != nil {
		return err
	}
	for _, text := range a.form["seq"] {
		if text == "" {
			continue
		}
		seq, err := parseNumber("seq", text)
		if err != nil {
			return err
		}
		a.seqs = append(a.seqs, seq)
	}
	if len(a.seqs) > 0 {
		a.seq = a.seqs[0]
	}
	for _, name := range []string{"text", "focus", "reason", "to", "match"} {
		text, err := normalizeText(name, a.form.Get(name))
		if err != nil {
			return err
		}
		a.form.Set(name, text)
	}
	return a.parseSelection()
}

func (a *action) parseSelection() error {
	from, through := append(slices.Clone(a.form["from"]), a.form["index"]...), append(slices.Clone(a.form["through"]), a.form["index"]...)
	if len(from) != len(through) {
		return badRequest("through", "a range of events needs its first and its last index")
	}
	for n := range from {
		if from[n]+through[n] == "" {
			continue
		}
		first, err := strconv.ParseUint(from[n], 10, 31)
		last, lastErr := strconv.ParseUint(through[n], 10, 31)
		if err != nil || lastErr != nil || last < first {
			return badRequest("through", "%q through %q is not a range of events", present.PrintableUpTo(from[n], 40), present.PrintableUpTo(through[n], 40))
		}
		a.spans = append(a.spans, compaction.Span{Start: int(first), Count: int(last - first + 1)})
	}
	a.spans = mergeSpans(a.spans)
	return nil
}

// normalizeText validates a text that a person typed, and changes its line breaks to \n.
func normalizeText(name, text string) (string, error) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	if !utf8.ValidString(text) {
		return "", badRequest(name, "it is not UTF-8")
	}
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return "", badRequest(name, "it has the control character %U", c)
		}
	}
	return strings.TrimSpace(text), nil
}

// actRows is the maximum number of rows of a list on an action's page.
const actRows = 200

// actPage is the panel of an action: its preview, or why it was refused.
type actPage struct {
	Heading     string
	Effect      string       // what Confirm does, in a sentence
	Confirm     *actForm     // nil if the action was refused or has no effect
	Next        template.URL // the page that shows the result, or ""
	Problem     string
	Notices     []string
	Lines       []string // details of a problem or notice
	Plan        []present.Row
	Differences []shownDifference
	Links       []link
	Erased      []erasedSession
	Counts      []present.Row // numbers of erased items by kind
	OutOfReach  []string
	Forms       []actForm // for other previews
}

func (p *actPage) addNotice(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		p.Notices = append(p.Notices, text)
	}
}

func (p *actPage) addLine(format string, args ...any) {
	if len(p.Lines) < actRows {
		p.Lines = append(p.Lines, fmt.Sprintf(format, args...))
	}
}

type actField struct{ Name, Value string }

// actForm is a form with a button, and perhaps a checkbox or a text field.
type actForm struct {
	Text     string // shown before the form
	Button   string
	Danger   bool // the action cannot be undone
	Fields   []actField
	Checkbox *actCheckbox
	Input    *actInput
}

type actCheckbox struct{ Name, Label string }

type actInput struct {
	Name, Label, Value string
	Long               bool // several lines
}

// refusal is an error that says why an action was not applied.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

// refuse fills in the page if the author can resolve the error, for example by another selection. It returns
// any other error.
func (i *Inspector) refuse(ctx context.Context, a *action, p *actPage, err error) (status int, _ error) {
	var (
		refused  *refusal
		edit     *ops.EditError
		orphans  *fold.OrphanError
		pinned   *fold.PinnedError
		blocked  *fold.BlockedError
		conflict *fold.ConflictError
	)
	status = http.StatusConflict
	addForm := func(fields []actField, button string) *actForm {
		p.Forms = append(p.Forms, actForm{Button: button, Fields: fields})
		return &p.Forms[len(p.Forms)-1]
	}
	addPreview := func(button string, overrides ...string) *actForm { return addForm(a.fields(overrides...), button) }
	addSelection := func(button string, s compaction.Span) *actForm {
		other := *a
		other.spans = []compaction.Span{s}
		return addForm(other.fields(), button)
	}
	switch {
	case errors.As(err, &refused):
		status, p.Problem = refused.status, refused.text
		addPreview("Preview again")
	case errors.As(err, &edit):
		status, p.Problem = http.StatusUnprocessableEntity, capitalize(edit.Problem)+"."
		if edit.Suggested.Count > 0 {
			addSelection("Select the whole range instead", edit.Suggested)
		}
	case errors.As(err, &orphans):
		status = http.StatusUnprocessableEntity
		p.Problem = "This would separate function calls from their responses, or leave a log that model APIs refuse."
		for _, o := range orphans.Orphans {
			p.addLine("%s", present.Clip(o.String(), lineRunes))
		}
		if span := (compaction.Span{Start: orphans.Start, Count: orphans.Count}); orphans.Suggested && span.Count > 0 {
			addSelection("Select these instead", span).Text = "This selection would be accepted: events " + present.IndexRange(span.Start, span.Count) + "."
		} else if len(a.spans) > 0 {
			p.addNotice("There is no other selection to suggest.")
		}
		addPreview("Preview anyway").Checkbox = &actCheckbox{"allow_orphans", "Separate calls from responses anyway"}
	case errors.As(err, &pinned):
		status = http.StatusUnprocessableEntity
		p.Problem = fmt.Sprintf("This would hide %s.", present.Counted(len(pinned.Events), "pinned event"))
		for _, e := range pinned.Events {
			p.addLine("event %d, id %s: %s", e.Index, present.Clip(e.Event.ID(), nameRunes), present.Clip(present.Describe(e.Event), nameRunes))
		}
		addPreview("Preview anyway").Checkbox = &actCheckbox{"allow_pinned", "Hide pinned events anyway"}
	case errors.As(err, &blocked):
		p.Problem = fmt.Sprintf("Record %d, patch %s, depends on the events of this patch. Revert that record first.", blocked.BlockingSeq, present.Clip(blocked.Blocking, nameRunes))
		if blocked.AlreadyReverted {
			p.Problem = fmt.Sprintf("The patch is already reverted, by record %d, revert %s. If you revert that record, the patch applies again.", blocked.BlockingSeq, present.Clip(blocked.Blocking, nameRunes))
		}
		p.Links = append(p.Links, link{recordURL(a.key, blocked.BlockingSeq, ""), fmt.Sprintf("Record %d", blocked.BlockingSeq)})
		addPreview(fmt.Sprintf("Preview reverting record %d", blocked.BlockingSeq), "act", "revert", "seq", fmt.Sprint(blocked.BlockingSeq))
	case errors.As(err, &conflict):
		p.Problem = "Another patch was logged after the preview, perhaps because the form was sent twice. Nothing was written, because the effect could differ from the preview."
		seen, err := i.store.ViewAt(ctx, a.key, a.at)
		if err != nil {
			return 0, err
		}
		now, err := i.store.View(ctx, a.key)
		if err != nil {
			return 0, err
		}
		p.Differences = append(p.Differences, newShownDifference(a.key, "What changed since the preview", present.DifferenceOf(seen, now), 0))
		p.Links = append(p.Links, link{recordURL(a.key, conflict.Newest, ""), fmt.Sprintf("Record %d, logged after the preview", conflict.Newest)})
		addPreview("Preview again")
	default:
		return 0, err
	}
	p.Heading = "Not done: " + a.title
	return status, nil
}

// capitalize changes the first letter of a sentence to upper case.
func capitalize(text string) string {
	r, size := utf8.DecodeRuneInString(text)
	return strings.ToUpper(string(r)) + text[size:]
}

func tokenCount(n int) string {
	if n == 1 {
		return "1 token"
	}
	return present.Grouped(n) + " tokens"
}
