package inspector

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Limits of lists of records and events: rows, and runes per row.
const (
	listedRows = 100
	lineRunes  = 800
)

type recordBody struct {
	Seq           uint64
	Effect        string // effect of the record's patch, in words
	Erasure       []fact // the erasure, if the record is erased
	CanErase      bool   // the record has content that can be erased
	CanRewind     bool
	Before, After uint64 // seqs of the adjacent records, or 0
	Facts         []fact
	Events        []recordEvent
	More          int // number of the record's events that are not shown
	OtherEvents   []fact
	Patch         *recordPatch // nil for an event
	Raw           template.URL
}

// fact is a name with its text. URL is "" if the text is not a link.
type fact struct {
	Name, Text string
	URL        template.URL
}

type recordEvent struct {
	Facts   []fact
	Place   []fact
	Calls   []fact // links from calls to responses and back
	Content eventContent
}

type recordPatch struct {
	Text       string
	ID         string
	Applied    bool
	Reason     patch.Flaw
	CanRevert  bool
	Status     []fact // whether the patch is active in the newest view, and which patches reverted it
	Pass       []string
	Group      []fact
	Summary    bool // whether the patch added a summary or a cleared copy
	Difference shownDifference
}

// recordPanel shows a record with all its events, or with only the event that the request names.
func (i *Inspector) recordPanel(ctx context.Context, r *http.Request, b *sessionBody) error {
	seq, _, err := formNumber(r, "seq")
	if err != nil {
		return err
	}
	rec, err := i.record(ctx, b.Key, seq)
	if err != nil {
		return err
	}
	b.OpenRecord, b.Title = rec.Seq, fmt.Sprintf("Record %d", rec.Seq)
	b.Body, err = i.newRecordBody(ctx, b.Key, b.timeline, rec, r.FormValue("id"))
	return err
}

// recordPage answers with the page of a record, or with its JSON.
func (i *Inspector) recordPage(w http.ResponseWriter, r *http.Request) error {
	if r.FormValue("form") != "json" {
		return i.sessionPage("record", i.recordPanel)(w, r)
	}
	key, err := i.authorizedKey(r, Read)
	if err != nil {
		return err
	}
	seq, _, err := formNumber(r, "seq")
	if err != nil {
		return err
	}
	rec, err := i.record(r.Context(), key, seq)
	if err != nil {
		return err
	}
	text, err := rec.MarshalJSON()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%d.json"`, fileName(key), rec.Seq))
	_, _ = w.Write(append(text, '\n')) // fails only if the client has disconnected
	return nil
}

// record reads a record of a session.
func (i *Inspector) record(ctx context.Context, key store.Key, seq uint64) (patch.Record, error) {
	if seq == 0 {
		return patch.Record{}, badRequest("seq", "it is missing; records are numbered from 1")
	}
	found, err := i.records(ctx, key, []uint64{seq})
	switch {
	case err != nil:
		return patch.Record{}, err
	case len(found) == 0:
		return patch.Record{}, fmt.Errorf("session %s: %w: there is no record %d", key, store.ErrNotFound, seq)
	}
	return found[0], nil
}

// rawURL returns a function that returns the URL of a raw record.
func rawURL(key store.Key) func(seq uint64) template.URL {
	return func(seq uint64) template.URL {
		return query("record", "key", key, "seq", seq, "form", "json")
	}
}

func recordURL(key store.Key, seq uint64, id string) template.URL {
	return query("record", "key", key, "seq", seq, "id", id)
}

// newRecordBody describes a record with all its events. If id is not "", only the event with this id is shown in
// full.
func (i *Inspector) newRecordBody(ctx context.Context, key store.Key, t *timeline, rec patch.Record, id string) (recordBody, error) {
	body := recordBody{
		Seq: rec.Seq, Before: rec.Seq - 1, Raw: rawURL(key)(rec.Seq),
		Erasure: t.erasureFacts(key, rec), CanErase: isErasable(rec), CanRewind: rec.Event != nil && rec.Event.InvocationID() != "",
	}
	if rec.Seq < t.last() {
		body.After = rec.Seq + 1
	}
	newest, err := i.store.View(ctx, key)
	if err != nil {
		return recordBody{}, err
	}
	places := eventPlaces{key: key, timeline: t, view: newest}
	if places.places, err = newest.Places(); err != nil {
		return recordBody{}, err
	}
	if id != "" && !slices.ContainsFunc(rec.Events(), func(e *patch.Event) bool { return e.ID() == id }) {
		return recordBody{}, fmt.Errorf("session %s: record %d: %w: it has no event %q", key, rec.Seq, store.ErrNotFound, id)
	}
	show := contentRenderer{BytesLeft: pageBytes, Raw: rawURL(key)}
	for n, e := range rec.Events() {
		if id != "" && e.ID() != id || len(body.Events) >= 1 && show.BytesLeft < blockBytes {
			if len(body.OtherEvents) == listedRows {
				body.More++
				continue
			}
			body.OtherEvents = append(body.OtherEvents, fact{"", present.Clip(present.Describe(e), lineRunes), recordURL(key, rec.Seq, e.ID())})
			continue
		}
		entry := fold.Entry{Event: e, Summary: e.IsSummary() || rec.Patch != nil && rec.Patch.Type() == patch.Summarise}
		shown := recordEvent{Content: show.event(e, rec.Seq)}
		shown.Facts = eventFacts(entry)
		shown.Place = places.facts(rec.Seq, n, e)
		if shown.Calls, err = i.callFacts(ctx, &places, rec.Seq, n, e); err != nil {
			return recordBody{}, err
		}
		body.Events = append(body.Events, shown)
	}
	if rec.Patch != nil {
		body.Effect = t.describePatch(rec.Seq)
		body.Facts = envelopeFacts("type", string(rec.Patch.Type()), &rec.Patch.Envelope)
		if body.Patch, err = i.newRecordPatch(ctx, key, t, newest, rec); err != nil {
			return recordBody{}, err
		}
	}
	return body, nil
}

// eventFacts returns the kind, the fields and the tokens of an event.
func eventFacts(e fold.Entry) []fact {
	return append(envelopeFacts("kind", string(present.KindOf(e)), &e.Event.Envelope), fact{Name: "tokens", Text: "about " + present.Grouped(e.Event.EstimatedTokens())})
}

// envelopeFacts returns a fact named what, and the fields of an envelope.
func envelopeFacts(what, kind string, e *patch.Envelope) []fact {
	facts := []fact{{Name: what, Text: present.Clip(kind, nameRunes)}}
	for _, f := range [][2]string{{"id", e.ID()}, {"author", e.Author()}, {"branch", e.Branch()}, {"scope", e.IsolationScope()}, {"invocation", e.InvocationID()}, {"time", formatTime(e.Timestamp())}} {
		if f[1] != "" {
			facts = append(facts, fact{Name: f[0], Text: present.Clip(f[1], nameRunes)})
		}
	}
	return facts
}

// eventPlaces finds the events of a session in its newest view.
type eventPlaces struct {
	key      store.Key
	timeline *timeline
	view     fold.View
	places   *fold.Places

	before   fold.View // the view before the patch hiddenBy
	hiddenBy uint64    // seq of a patch, or 0
}

// facts says whether the event at index in record seq is visible, or which patch hides it.
func (w *eventPlaces) facts(seq uint64, index int, e *patch.Event) []fact {
	place, ok := w.places.Of(seq, index)
	switch {
	case !ok:
		return []fact{{Text: "It was never visible: its patch was not applied."}}
	case place.Index >= 0:
		facts := []fact{{Text: fmt.Sprintf("The model sees it, at index %d", place.Index)}}
		if w.view.IsPinned(place.Index) {
			facts = append(facts, fact{Text: "pinned"})
		}
		if isClearedCopy(e) || w.view.Entry(place.Index).Summary {
			facts = append(facts, fact{Text: "what it hides", URL: summaryURL(w.key, w.view.Seq(), place.Index, 0)})
		}
		return facts
	case place.HiddenBySeq == 0:
		return []fact{{Text: "Not visible"}}
	}
	facts := []fact{{Text: fmt.Sprintf("Hidden by the %s at %d", patchNoun(w.timeline.at(place.HiddenBySeq).Patch), place.HiddenBySeq), URL: recordURL(w.key, place.HiddenBySeq, "")}}
	if w.places.IsRepresented(seq, index, e.Branch(), e.IsolationScope()) {
		return append(facts, fact{Text: "a visible event represents it"})
	}
	return append(facts, fact{Text: "no visible event represents it"})
}

// callFacts links a function call to the records of its responses, and a response to the record of its call.
// Calls and responses are paired in the newest view that contains the event.
func (i *Inspector) callFacts(ctx context.Context, w *eventPlaces, seq uint64, index int, e *patch.Event) (out []fact, err error) {
	place, ok := w.places.Of(seq, index)
	if !ok || len(slices.Collect(e.FunctionParts())) == 0 {
		return nil, nil
	}
	v := w.view
	if by := place.HiddenBySeq; by > 0 {
		if by != w.hiddenBy {
			if w.before, err = i.store.ViewAt(ctx, w.key, by-1); err != nil {
				return nil, err
			}
			w.hiddenBy = by
		}
		v = w.before
	}
	add := func(text string, to uint64) {
		if f := (fact{Text: fmt.Sprintf(text, to), URL: recordURL(w.key, to, "")}); len(out) < listedRows && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	for _, c := range v.Calls() {
		call := v.Entry(c.Index)
		for _, n := range c.Responses {
			switch answer := v.Entry(n); e.ID() {
			case call.Event.ID():
				add("Answered by record %d", answer.Seq)
			case answer.Event.ID():
				add("Answers the call of record %d", call.Seq)
			}
		}
	}
	return out, nil
}

// views returns two views of a session: after the record with seq from, and after the record with seq to.
func (i *Inspector) views(ctx context.Context, key store.Key, from, to uint64) (before, after fold.View, err error) {
	if before, err = i.store.ViewAt(ctx, key, from); err == nil {
		after, err = i.store.ViewAt(ctx, key, to)
	}
	return before, after, err
}

// newRecordPatch describes a patch, its effect, and whether it is active in the newest view.
func (i *Inspector) newRecordPatch(ctx context.Context, key store.Key, t *timeline, newest fold.View, rec patch.Record) (*recordPatch, error) {
	before, after, err := i.views(ctx, key, rec.Seq-1, rec.Seq)
	if err != nil {
		return nil, err
	}
	f, err := present.EffectOf(before, after, rec)
	if err != nil {
		return nil, err
	}
	p := recordPatch{
		Text: present.Clip(present.PatchText(rec.Patch), lineRunes), Applied: f.Applied, Reason: f.Reason, ID: rec.ID(), Pass: passLines(rec),
		CanRevert: f.Applied && rec.Patch.Type() != patch.Erase, Summary: addsSummary(rec.Patch, f.Added),
		Difference: newShownDifference(key, "What changed", present.DifferenceOf(before, after), 0),
	}
	for _, s := range t.steps {
		if s.Patch != nil && s.Patch.Group != "" && s.Patch.Group == rec.Patch.Group() && s.Seq != rec.Seq && len(p.Group) < listedRows {
			p.Group = append(p.Group, fact{Text: fmt.Sprintf("record %d", s.Seq), URL: recordURL(key, s.Seq, "")})
		}
	}
	if f.Applied {
		p.Status, err = patchStatus(key, t, newest, rec)
	}
	return &p, err
}

// addsSummary reports whether a patch added a summary or a cleared copy.
func addsSummary(p *patch.PatchEvent, added []*patch.Event) bool {
	return slices.ContainsFunc(added, func(e *patch.Event) bool { return p.Type() == patch.Summarise || isClearedCopy(e) || e.IsSummary() })
}

// passLines describes the compaction pass that wrote a patch. It returns nil if no pass did.
func passLines(rec patch.Record) []string {
	written, ok := compaction.WrittenBy(rec.Patch)
	if !ok {
		return nil
	}
	notes := []string{present.PassText(rec, written)}
	if u := written.Usage; u.Calls > 0 {
		notes = append(notes, fmt.Sprintf("%s of the summarizer: %s tokens read, %s written", present.Counted(u.Calls, "call"), present.Grouped(u.PromptTokens), present.Grouped(u.AnswerTokens)))
	}
	if written.Trigger != compaction.ByClearing {
		notes = append(notes, fmt.Sprintf("compared with the events that it covers: %d of %s lost", written.Lost, present.Counted(written.Identifiers, "identifier")))
	}
	return notes
}

// patchStatus says whether an applied patch is active in the newest view, and which patches reverted it.
func patchStatus(key store.Key, t *timeline, newest fold.View, rec patch.Record) ([]fact, error) {
	if rec.Patch.Type() == patch.Erase {
		return []fact{{Text: "Erased content cannot be restored."}}, nil
	}
	active, err := newest.RevertTargets(rec.ID())
	switch {
	case errors.Is(err, fold.ErrBlocked):
		active = nil
	case errors.Is(err, patch.ErrInvalid): // an earlier patch has the same id
		return []fact{{Text: "It is unknown whether the patch is active, because another record has its id."}}, nil
	case err != nil:
		return nil, err
	}
	var reverts []fact
	for _, s := range t.steps[rec.Seq:] {
		if s.Patch != nil && s.Patch.Type == patch.Revert && s.Patch.Applied && s.Patch.Target == rec.ID() {
			reverts = append(reverts, fact{Text: fmt.Sprintf("reverted by record %d", s.Seq), URL: recordURL(key, s.Seq, "")})
		}
	}
	if over := len(reverts) - listedRows; over > 0 {
		reverts = reverts[over:]
	}
	text := "Active"
	switch {
	case !slices.Contains(active, rec.ID()):
		text = "Reverted"
	case len(reverts) > 0:
		text = "Active again"
	}
	return append([]fact{{Text: text}}, reverts...), nil
}
