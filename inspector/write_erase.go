package inspector

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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

// erasedSession lists what an erasure erases in a session.
type erasedSession struct {
	Key     string
	Events  []erasedEvent
	More    int // number of events not shown
	Initial []string
}

type erasedEvent struct {
	URL  template.URL // URL of the event's record
	Seq  uint64
	Text string // content of the event
	Why  string
}

func previewErase(i *Inspector, ctx context.Context, a *action, seen fold.View, p *actPage) error {
	if a.form.Get("values") == "" {
		a.form.Set("values", string(patch.NullValues))
	}
	plan, err := i.planErase(ctx, a, seen)
	if err != nil {
		return err
	}
	keep, word := string(patch.KeepValues), "Keep the values that they set in the state"
	if a.form.Get("values") == keep {
		keep, word = string(patch.NullValues), "Put null in the place of state values"
	}
	values := actForm{Button: word, Fields: a.fields("values", keep)}
	if plan.RemainingMatches > 0 {
		p.addNotice("%s", present.RemainingMatches(plan.RemainingMatches))
	}
	if match := a.form.Get("match"); match != "" {
		p.Heading = "Erase “" + present.Clip(match, 80) + "”"
		other := actForm{Button: "In all sessions instead", Fields: a.fields("where", "everywhere")}
		if a.form.Get("where") != "" {
			other = actForm{Button: "In this session alone", Fields: a.fields("where", "")}
		}
		p.Forms = append(p.Forms, other)
	}
	if len(plan.Sessions)+len(plan.Shared) == 0 {
		p.addNotice("There is nothing to erase: no selected event has content.")
		if plan.RemainingMatches > 0 {
			p.Forms = append(p.Forms, values)
		}
		return nil
	}
	p.Counts = countErased(plan)
	if err := i.listErased(ctx, a, plan, p); err != nil {
		return err
	}
	p.Effect = fmt.Sprintf("%s in %s.", eraseSentence(p.Counts), present.Counted(len(plan.Sessions), "session"))
	p.addNotice("The content of these events is removed from the log and from all copies in the store. The records keep their places. A receipt records who erased the content, when and why.")
	p.Confirm = &actForm{
		Button: a.confirm, Danger: true, Fields: a.fields("reason", "", "plan", planDigest(plan)),
		Input: &actInput{Name: "reason", Label: "Why, for the receipt", Value: cmp.Or(a.form.Get("reason"), "asked for in the inspector")},
	}
	p.Forms = append(p.Forms, values)
	return nil
}

func countErased(e store.Erasure) []present.Row {
	n := map[string]int{}
	for _, s := range e.Sessions {
		n["state"] += len(s.Initial)
		for _, event := range s.Events {
			switch event.Why {
			case "stands for an erased event", "summarizer was shown an erased event or summary":
				n["summaries"]++
			case "copy of an erased event", "brought by a tool from an erased event", "same event in another session":
				n["copies"]++
			default:
				n["events"]++
			}
		}
	}
	n["state"] += len(e.Shared)
	var rows []present.Row
	for _, name := range []string{"events", "summaries", "state", "copies"} {
		rows = append(rows, present.Row{Name: name, Text: present.Grouped(n[name])})
	}
	return rows
}

func eraseSentence(counts []present.Row) string {
	var parts []string
	for _, r := range counts {
		if r.Text != "0" {
			if r.Name == "state" {
				r.Name = "values of the state"
			}
			parts = append(parts, r.Text+" "+r.Name)
		}
	}
	return "Erases " + strings.Join(parts, ", ")
}

func applyErase(i *Inspector, ctx context.Context, a *action, seen fold.View, p *actPage) error {
	if a.form.Get("reason") == "" {
		return badRequest("reason", "it is missing; the receipt records it")
	}
	plan, err := i.planErase(ctx, a, seen)
	if err != nil {
		return err
	}
	if planDigest(plan) != a.form.Get("plan") {
		return &refusal{http.StatusConflict, "The erasure would differ from its preview: since then a record was logged, a session was forked or something was erased. Perhaps the form was sent twice. Nothing was written."}
	}
	erased, err := a.erasure(seen, false).Apply(ctx, i.store)
	if err != nil {
		return err
	}
	p.Next = query("session", "key", a.key)
	for n, s := range erased.Sessions {
		if s.Receipt.Seq > 0 && a.canErase(s.Key) && (n == 0 || s.Key == a.key) {
			p.Next = query("session", "key", s.Key, "done", fmt.Sprintf("%d-%[1]d", s.Receipt.Seq))
		}
	}
	return nil
}

// planErase returns what would be erased. It fails unless the request may erase all of that.
func (i *Inspector) planErase(ctx context.Context, a *action, seen fold.View) (store.Erasure, error) {
	if len(a.seqs)+len(a.spans) == 0 && a.form.Get("match") == "" {
		return store.Erasure{}, &ops.EditError{Problem: "no event is selected; tick events in the conversation, search for them, or open a record of the raw log"}
	}
	plan, err := a.erasure(seen, true).Apply(ctx, i.store)
	if err == nil && slices.ContainsFunc(plan.Sessions, func(s store.ErasedSession) bool { return !a.canErase(s.Key) }) {
		err = newForbiddenError("The same events are in other sessions, such as forks, and you may not erase in all of these sessions. Nothing was written.",
			"An event is erased in every session that has it, or not at all. Ask a person who may erase in all of them.")
	}
	return plan, err
}

func (a *action) canErase(key store.Key) bool {
	return a.isAllowed(key, Read) && a.isAllowed(key, Erase)
}

func (a *action) erasure(seen fold.View, dryRun bool) ops.Erase {
	return ops.Erase{
		Key: a.key, Everywhere: a.form.Get("where") != "", Only: a.canErase,
		Selection: store.EraseSelection{EventIDs: a.selectedIDs(seen), Seqs: a.seqs, Match: a.form.Get("match")},
		Options:   store.EraseOptions{DryRun: dryRun, Author: a.author, Reason: a.form.Get("reason"), Values: patch.ValuePolicy(a.form.Get("values"))},
	}
}

// planDigest returns a digest of what an erasure would erase.
func planDigest(e store.Erasure) string {
	type session struct {
		Key     string
		Open    uint64 // seq of the receipt of an unfinished erasure
		Events  []store.ErasedEvent
		Initial []string
	}
	var all []session
	for _, s := range e.Sessions {
		all = append(all, session{s.Key.String(), s.Receipt.Seq, s.Events, s.Initial})
	}
	all = append(all, session{Initial: e.Shared})
	text, _ := json.Marshal(all) // cannot fail: the value has only numbers and strings
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// listErased lists what is erased in the sessions that the request may read.
func (i *Inspector) listErased(ctx context.Context, a *action, e store.Erasure, p *actPage) error {
	left := actRows
	for _, s := range e.Sessions {
		if !a.canErase(s.Key) { // a fork that was created since the check
			continue
		}
		out := erasedSession{Key: s.Key.String()}
		for _, name := range s.Initial[:min(len(s.Initial), actRows)] {
			out.Initial = append(out.Initial, present.Clip(name, nameRunes))
		}
		var events []store.ErasedEvent
		events, out.More = truncate(s.Events, left)
		left -= len(events)
		for _, event := range events {
			row := erasedEvent{Seq: event.Seq, Why: event.Why, URL: recordURL(s.Key, event.Seq, "")}
			r, err := i.record(ctx, s.Key, event.Seq)
			if err != nil {
				return err
			}
			if of := r.Events(); event.Index >= 0 && event.Index < len(of) {
				row.Text = present.Clip(present.Describe(of[event.Index]), lineRunes)
			} else if r.Patch != nil {
				row.Text = present.Clip(present.PatchText(r.Patch), lineRunes)
			}
			out.Events = append(out.Events, row)
		}
		p.Erased = append(p.Erased, out)
	}
	// Name a damaged session only if the request may read it.
	for _, text := range e.OutOfReach {
		if rest, named := strings.CutPrefix(text, "session "); named {
			name, _, _ := strings.Cut(rest, ",")
			if key, err := store.ParseKey(name); err != nil || !a.isAllowed(key, Read) {
				text = "sessions that are damaged"
			}
		}
		if text = present.Clip(text, lineRunes); !slices.Contains(p.OutOfReach, text) && len(p.OutOfReach) < actRows {
			p.OutOfReach = append(p.OutOfReach, text)
		}
	}
	return nil
}

// newForbiddenError returns an error with the explanation of what is not allowed, and who may do it.
func newForbiddenError(text, advice string) error {
	return &explainedError{errForbidden, explanation{Text: text, Advice: advice}}
}
