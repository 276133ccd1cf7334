package inspector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// erasing is the deed of an erasing.
type erasing struct {
	i *Inspector
	a *asked
}

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

func (d erasing) preview(ctx context.Context, _ fold.View, b *actBody) error {
	would, err := d.plan(ctx)
	if err != nil {
		return err
	}
	values := d.a.again("Preview it with null in place of state values", func(a *asked) { a.values = patch.NullValues })
	if len(would.Sessions) == 0 {
		b.notice("There is nothing to erase: no event is selected that says something still.")
		if !would.Kept.IsZero() {
			b.notice("%s", present.KeptValues(would.Kept))
			b.Forms = append(b.Forms, values)
		}
		return nil
	}
	b.notice("This cannot be taken back. What these events say is erased for good, from the log and from all that the store has of it. Their places stay, and a receipt in the log says who erased them, when and why.")
	if d.a.values == patch.NullValues {
		b.notice("Of the state values that they set, null is left.")
		values = d.a.again("Preview it with state values kept", func(a *asked) { a.values = patch.KeepValues })
	} else {
		b.notice("The state values that they set stay.")
	}
	if err := d.show(ctx, would, b); err != nil {
		return err
	}
	d.a.plan = planDigest(would)
	b.Forms = append(b.Forms, actForm{
		Button: "Erase for good", Strong: true, Fields: d.a.fields(stepDo),
		Input: &actInput{Name: fieldReason, Label: "Why, for the receipt", Value: d.a.reason},
	}, values)
	return nil
}

func (d erasing) do(ctx context.Context, _ fold.View, b *actBody) error {
	if d.a.reason == "" {
		return badRequest(fieldReason, "it is missing; the receipt says why something was erased")
	}
	d.i.erasings.Lock()
	defer d.i.erasings.Unlock()
	would, err := d.plan(ctx)
	if err != nil {
		return err
	}
	if planDigest(would) != d.a.plan {
		there, err := d.done(ctx)
		if err != nil {
			return err
		}
		if !there {
			b.Forms = append(b.Forms, d.a.again("Preview it anew", nil))
			return &unfit{busy: true, text: "Something else would be erased now than the preview showed, since a record was logged or a session forked meanwhile. Nothing was written."}
		}
		b.notice("This was done already. Nothing more is erased.")
	}
	// Once it has begun it is finished, whether somebody waits for it or not.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eraseTimeout)
	defer cancel()
	erased, err := d.erase().Apply(ctx, d.i.store)
	if err != nil {
		return err
	}
	b.Heading = "Done: " + d.a.title
	b.notice("The salt of the receipt's digest is %x. It is stored nowhere: keep it apart from the store, to prove some day what was erased, or forget it.", d.salt())
	return d.show(ctx, erased, b)
}

// plan is what would be erased. It is an error if the request may not erase all of it.
func (d erasing) plan(ctx context.Context) (store.Erasure, error) {
	if d.a.seq == 0 && len(d.a.ids) == 0 {
		return store.Erasure{}, &unfit{text: "No event is selected. Tick events of what the model sees, or take one of the raw log."}
	}
	would, err := d.erase().Preview(ctx, d.i.store)
	if err == nil && slices.ContainsFunc(would.Sessions, func(s store.ErasedSession) bool { return !d.may(s.Key) }) {
		err = forbidden("The same events are in other sessions too, such as forks, and in some of these you may not erase. Nothing was written.",
			"Whoever may erase in all of them has to do it: an event is erased wherever it is, or not at all.")
	}
	return would, err
}

// may reports whether the request may erase in a session.
func (d erasing) may(key store.Key) bool { return d.a.may(key, Read) && d.a.may(key, Erase) }

func (d erasing) erase() ops.Erase {
	e := ops.Erase{
		Key: d.a.key, Selection: store.EraseSelection{EventIDs: d.a.ids},
		Options: store.EraseOptions{ID: d.receipt(), Author: d.a.author, Reason: d.a.reason, Values: d.a.values, Salt: d.salt()},
	}
	if d.a.seq > 0 {
		e.Selection.Seqs = []uint64{d.a.seq}
	}
	return e
}

// receipt and salt come from the preview, so that a second click does nothing more and says the
// same.
func (d erasing) receipt() string { return d.a.drawn("receipt", 0) }

func (d erasing) salt() []byte {
	sum := sha256.Sum256(fmt.Appendf(d.a.draw[:], " salt"))
	return sum[:]
}

// done reports whether the log has the receipt.
func (d erasing) done(ctx context.Context) (bool, error) {
	receipts, err := d.i.store.Receipts(ctx, d.a.key)
	return slices.ContainsFunc(receipts, func(r patch.Record) bool { return r.ID() == d.receipt() }), err
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

// show shows what is erased, in the sessions that the request may know of.
func (d erasing) show(ctx context.Context, e store.Erasure, b *actBody) error {
	if !e.Kept.IsZero() {
		b.notice("%s", present.KeptValues(e.Kept))
	}
	left := actRows
	for _, s := range e.Sessions {
		if !d.may(s.Key) { // a fork that was made while this was under way
			continue
		}
		out := actErased{Key: s.Key.String(), Receipt: s.Receipt}
		for _, name := range s.Initial[:min(len(s.Initial), actRows)] {
			out.Initial = append(out.Initial, clip(name, nameRunes))
		}
		for _, event := range s.Events {
			if left == 0 {
				out.More++
				continue
			}
			left--
			row := actErasedEvent{Seq: event.Seq, ID: clip(event.ID, 80), Why: event.Why, URL: recordURL(s.Key, event.Seq, "")}
			if d.a.step == stepPreview {
				var err error
				if row.Text, err = d.text(ctx, s.Key, event); err != nil {
					return err
				}
			}
			out.Events = append(out.Events, row)
		}
		b.Erased = append(b.Erased, out)
	}
	b.OutOfReach = d.outOfReach(e)
	return nil
}

// text is what an event says.
func (d erasing) text(ctx context.Context, key store.Key, of store.ErasedEvent) (string, error) {
	r, err := d.i.record(ctx, key, of.Seq)
	if err != nil {
		return "", err
	}
	events := r.Events()
	switch {
	case of.Index >= 0 && of.Index < len(events):
		return clip(present.Describe(events[of.Index]), actRunes), nil
	case r.Patch != nil:
		return clip(present.PatchText(r.Patch), actRunes), nil
	}
	return "", nil
}

// outOfReach is what the erasing does not reach. Sessions that are left out since they are damaged
// are named to those alone who may read them.
func (d erasing) outOfReach(e store.Erasure) []string {
	var out []string
	for _, text := range e.OutOfReach {
		if rest, named := strings.CutPrefix(text, "session "); named {
			name, _, _ := strings.Cut(rest, ",")
			if key, err := store.ParseKey(name); err != nil || !d.a.may(key, Read) {
				text = "sessions that are damaged"
			}
		}
		if text = clip(text, actRunes); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return shorten(out)
}

// forbidden is an error that says what may not be done, and who may.
func forbidden(text, advice string) error {
	return &advised{errForbidden, explanation{Text: text, Advice: advice}}
}
