package inspector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// actErased is what is erased of a session, or would be.
type actErased struct {
	Key     string
	Events  []actErasedEvent
	More    int // events that are not shown
	Initial []string
	Receipt patch.Record // zero before it is logged
}

// actErasedEvent is an event that is erased.
type actErasedEvent struct {
	URL  template.URL // of its record
	Seq  uint64
	ID   string
	Text string // what it says, as long as it does
	Why  string
}

func previewErase(i *Inspector, ctx context.Context, a *action, seen fold.View, p *actPage) error {
	would, err := i.planErase(ctx, a, seen)
	if err != nil {
		return err
	}
	values := actForm{Button: "Preview it with null in place of state values", Fields: a.fields(stepPreview, "values", string(patch.NullValues))}
	if would.RemainingMatches > 0 {
		p.notice("%s", present.RemainingMatches(would.RemainingMatches))
	}
	if len(would.Sessions) == 0 {
		p.notice("There is nothing to erase: no event is selected that says something still.")
		if would.RemainingMatches > 0 {
			p.Forms = append(p.Forms, values)
		}
		return nil
	}
	p.notice("This cannot be taken back. What these events say is erased for good, from the log and from all that the store has of it. Their places stay, and a receipt in the log says who erased them, when and why.")
	if a.form.Get("values") == string(patch.NullValues) {
		p.notice("Of the state values that they set, null is left.")
		values = actForm{Button: "Preview it with state values kept", Fields: a.fields(stepPreview, "values", string(patch.KeepValues))}
	} else {
		p.notice("The state values that they set stay.")
	}
	if err := i.showErased(ctx, a, would, p); err != nil {
		return err
	}
	p.Forms = append(p.Forms, actForm{
		Button: "Erase for good", Danger: true, Fields: a.fields(stepDo, "reason", "", "plan", planDigest(would)),
		Input: &actInput{"reason", "Why, for the receipt", a.form.Get("reason")},
	}, values)
	return nil
}

func applyErase(i *Inspector, ctx context.Context, a *action, seen fold.View, p *actPage) error {
	if a.form.Get("reason") == "" {
		return badRequest("reason", "it is missing; the receipt says why something was erased")
	}
	would, err := i.planErase(ctx, a, seen)
	if err != nil {
		return err
	}
	if planDigest(would) != a.form.Get("plan") {
		return &refusal{http.StatusConflict, "Something else would be erased now than the preview showed, since a record was logged, a session forked or something erased meanwhile, perhaps by this form, sent twice. Nothing was written now."}
	}
	erased, err := a.erase(seen).Apply(ctx, i.store)
	if err != nil {
		return err
	}
	p.Heading = "Done: " + a.title
	if erased.RemainingMatches > 0 {
		p.notice("%s", present.RemainingMatches(erased.RemainingMatches))
	}
	return i.showErased(ctx, a, erased, p)
}

// planErase is what would be erased. It is an error if the request may not erase all of it.
func (i *Inspector) planErase(ctx context.Context, a *action, seen fold.View) (store.Erasure, error) {
	if len(a.seqs)+len(a.spans) == 0 {
		return store.Erasure{}, &ops.EditError{Problem: "no event is selected; tick events of what the model sees or that a search found, or take one of the raw log"}
	}
	would, err := a.erase(seen).Preview(ctx, i.store)
	if err == nil && slices.ContainsFunc(would.Sessions, func(s store.ErasedSession) bool { return !a.mayErase(s.Key) }) {
		err = forbidden("The same events are in other sessions too, such as forks, and in some of these you may not erase. Nothing was written.",
			"Whoever may erase in all of them has to do it: an event is erased wherever it is, or not at all.")
	}
	return would, err
}

func (a *action) mayErase(key store.Key) bool { return a.may(key, Read) && a.may(key, Erase) }

func (a *action) erase(seen fold.View) ops.Erase {
	return ops.Erase{
		Key: a.key, Selection: store.EraseSelection{EventIDs: a.ids(seen), Seqs: a.seqs},
		Options: store.EraseOptions{Author: a.author, Reason: a.form.Get("reason"), Values: patch.ValuePolicy(a.form.Get("values"))},
	}
}

// planDigest tells plans apart that erase something else.
func planDigest(e store.Erasure) string {
	type session struct {
		Key     string
		Open    uint64 // the receipt of an earlier erasing, to be finished
		Events  []store.ErasedEvent
		Initial []string
	}
	var all []session
	for _, s := range e.Sessions {
		all = append(all, session{s.Key.String(), s.Receipt.Seq, s.Events, s.Initial})
	}
	text, _ := json.Marshal(all) // of numbers and strings, which it can always write
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// showErased shows what is erased, in the sessions that the request may know of.
func (i *Inspector) showErased(ctx context.Context, a *action, e store.Erasure, p *actPage) error {
	left := actRows
	for _, s := range e.Sessions {
		if !a.mayErase(s.Key) { // a fork that was made while this was under way
			continue
		}
		out := actErased{Key: s.Key.String(), Receipt: s.Receipt}
		for _, name := range s.Initial[:min(len(s.Initial), actRows)] {
			out.Initial = append(out.Initial, present.Clip(name, nameRunes))
		}
		var events []store.ErasedEvent
		events, out.More = cutTo(s.Events, left)
		left -= len(events)
		for _, event := range events {
			row := actErasedEvent{Seq: event.Seq, ID: present.Clip(event.ID, nameRunes), Why: event.Why, URL: recordURL(s.Key, event.Seq, "")}
			if a.form.Get("step") == stepPreview {
				r, err := i.record(ctx, s.Key, event.Seq)
				if err != nil {
					return err
				}
				if of := r.Events(); event.Index >= 0 && event.Index < len(of) {
					row.Text = present.Clip(present.Describe(of[event.Index]), lineRunes)
				} else if r.Patch != nil {
					row.Text = present.Clip(present.PatchText(r.Patch), lineRunes)
				}
			}
			out.Events = append(out.Events, row)
		}
		p.Erased = append(p.Erased, out)
	}
	// Sessions that are left out since they are damaged are named to those alone who may read them.
	for _, text := range e.OutOfReach {
		if rest, named := strings.CutPrefix(text, "session "); named {
			name, _, _ := strings.Cut(rest, ",")
			if key, err := store.ParseKey(name); err != nil || !a.may(key, Read) {
				text = "sessions that are damaged"
			}
		}
		if text = present.Clip(text, lineRunes); !slices.Contains(p.OutOfReach, text) && len(p.OutOfReach) < actRows {
			p.OutOfReach = append(p.OutOfReach, text)
		}
	}
	return nil
}

// forbidden is an error that says what may not be done, and who may.
func forbidden(text, advice string) error {
	return &advised{errForbidden, explanation{Text: text, Advice: advice}}
}
