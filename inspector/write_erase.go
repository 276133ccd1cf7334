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
	keep, word := string(patch.KeepValues), "Keep their state values"
	if a.form.Get("values") == keep {
		keep, word = string(patch.NullValues), "Set their state values to null"
	}
	values := actForm{Button: word, Fields: a.fields("values", keep)}
	if plan.RemainingMatches > 0 {
		p.addNotice("%s", present.RemainingMatchesText(plan.RemainingMatches))
	}
	if match := a.form.Get("match"); match != "" {
		p.Heading = "Erase “" + present.Clip(match, 80) + "”"
		other := actForm{Button: "In all sessions", Fields: a.fields("where", "everywhere")}
		if a.form.Get("where") != "" {
			other = actForm{Button: "Only in this session", Fields: a.fields("where", "")}
		}
		p.Forms = append(p.Forms, other)
	}
	if len(plan.Sessions)+len(plan.Shared) == 0 {
		p.addNotice("There is nothing to erase: no selected event has any content.")
		if plan.RemainingMatches > 0 {
			p.Forms = append(p.Forms, values)
		}
		return nil
	}
	counts := countErased(plan)
	p.Counts = counts.rows()
	if err := i.listErased(ctx, a, plan, p); err != nil {
		return err
	}
	p.Effect = counts.sentence(len(plan.Sessions))
	p.addNotice("The content of these events is removed from the log and from all copies in the store. The records keep their places. A receipt records who erased the content, when and why.")
	p.Confirm = &actForm{
		Button: a.confirm, Danger: true, Fields: a.fields("reason", "", "plan", planDigest(plan)),
		Input: &actInput{Name: "reason", Label: "Reason, for the receipt", Value: cmp.Or(a.form.Get("reason"), "requested in the inspector")},
	}
	p.Forms = append(p.Forms, values)
	return nil
}

// Reasons of the store for erasing summaries and copies.
var (
	summaryReasons = []string{"stands for an erased event", "summarizer was shown an erased event or summary"}
	copyReasons    = []string{"copy of an erased event", "brought by a tool from an erased event", "same event in another session"}
)

// erasedCounts are the numbers of items that an erasure erases.
type erasedCounts struct{ events, summaries, values, copies, patches int }

// countErased counts what an erasure erases. A patch counts only if none of its events are erased.
func countErased(e store.Erasure) (n erasedCounts) {
	for _, s := range e.Sessions {
		n.values += len(s.Initial)
		hasEvents := map[uint64]bool{} // key: seq; value: whether events of the record are erased
		for _, event := range s.Events {
			hasEvents[event.Seq] = hasEvents[event.Seq] || event.Index >= 0
		}
		for _, event := range s.Events {
			switch {
			case event.Index < 0 && hasEvents[event.Seq]:
			case event.Index < 0:
				n.patches++
			case slices.Contains(summaryReasons, event.Why):
				n.summaries++
			case slices.Contains(copyReasons, event.Why):
				n.copies++
			case event.Summary:
				n.summaries++
			default:
				n.events++
			}
		}
	}
	n.values += len(e.Shared)
	return n
}

// items returns the counts with their names, singular or plural.
func (n erasedCounts) items() []present.Row {
	name := func(n int, one, many string) present.Row {
		if n == 1 {
			many = one
		}
		return present.Row{Name: many, Text: present.Grouped(n)}
	}
	return []present.Row{
		name(n.events, "event", "events"), name(n.summaries, "summary", "summaries"), name(n.values, "state value", "state values"),
		name(n.copies, "copy", "copies"), name(n.patches, "patch", "patches"),
	}
}

// rows returns the counts for the page. Patches are omitted if there are none.
func (n erasedCounts) rows() []present.Row {
	rows := n.items()
	if last := len(rows) - 1; n.patches == 0 {
		rows = rows[:last]
	}
	return rows
}

// sentence says what is erased in a number of sessions.
func (n erasedCounts) sentence(sessions int) string {
	var parts []string
	for _, item := range n.items() {
		if item.Text != "0" {
			parts = append(parts, item.Text+" "+item.Name)
		}
	}
	return fmt.Sprintf("Erases %s in %s.", strings.Join(parts, ", "), present.Counted(sessions, "session"))
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

// planErase returns what would be erased. It fails unless the request may erase in every affected session.
func (i *Inspector) planErase(ctx context.Context, a *action, seen fold.View) (store.Erasure, error) {
	if len(a.seqs)+len(a.spans) == 0 && a.form.Get("match") == "" {
		return store.Erasure{}, &ops.EditError{Problem: "no event is selected; select events in the conversation, search for a text, or open a record of the raw log"}
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
		Key: a.key, Everywhere: a.form.Get("where") != "", Filter: a.canErase,
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

// newForbiddenError returns an error about a forbidden action. The text explains the error, and the advice says who may
// act.
func newForbiddenError(text, advice string) error {
	return &explainedError{errForbidden, explanation{Text: text, Advice: advice}}
}
