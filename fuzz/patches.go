package fuzz

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
)

// Patch generates a patch with the given id for a session with the given visible events. Most patches are
// well-formed and in range, but they may orphan calls. Some patches refer to events or positions that do not exist.
// Some patches are malformed or of an unknown type. A few patches have a base. The ids of inserted events are
// derived from the id of the patch.
func Patch(id string, visible []*patch.Event) *rapid.Generator[*patch.PatchEvent] {
	return rapid.Custom(func(t *rapid.T) *patch.PatchEvent {
		d := newDraft(t, id, rapid.SampledFrom([]string{"compactor", "compaction"}).Draw(t, "author"), visible)
		rapid.SampledFrom(patchKinds).Draw(t, "kind")(d)
		if policy := rapid.SampledFrom([]string{"", "keep", "drop"}).Draw(t, "state"); policy != "" && !d.isPin() {
			d.f["state"] = policy
		}
		d.drawBase()
		if oneIn(t, 12, "is of a group") {
			d.f["group"] = rapid.SampledFrom([]string{"g1", "g2", "g3"}).Draw(t, "group")
		}
		d.drawFlaw(5, malformations)
		if oneIn(t, 5, "is spelled otherwise") {
			d.decorate()
		}
		return d.patch()
	})
}

// Revert generates a revert with the given id. Most reverts target one of the last patches in patchIDs. A few
// reverts target another patch, and a few are malformed.
func Revert(id string, patchIDs []string) *rapid.Generator[*patch.PatchEvent] {
	return rapid.Custom(func(t *rapid.T) *patch.PatchEvent {
		d := newDraft(t, id, "user", nil)
		d.f["patchType"] = "revert"
		d.f["patchId"] = "nobody"
		if n := len(patchIDs); n > 0 && !oneIn(t, 16, "of no patch") {
			back := rapid.IntRange(0, n-1).Draw(t, "back")
			if !oneIn(t, 3, "of any patch") {
				back = min(back, rapid.IntRange(0, 3).Draw(t, "a little back"))
			}
			d.f["patchId"] = patchIDs[n-1-back]
		}
		d.drawBase()
		d.drawFlaw(24, []func(*patchDraft){
			func(d *patchDraft) { d.f["state"] = "keep" },
			func(d *patchDraft) { d.f["eventId"] = "e1" },
			func(d *patchDraft) { d.f["group"] = json.RawMessage("5") },
			func(d *patchDraft) { d.f["patchId"] = json.RawMessage("5") },
			func(d *patchDraft) { delete(d.f, "patchId") },
		})
		if oneIn(t, 5, "is spelled otherwise") {
			d.decorate()
		}
		return d.patch()
	})
}

// Receipt generates the receipt of an erasure with the given id. The receipt covers any records. A few receipts are
// malformed.
func Receipt(id string) *rapid.Generator[*patch.PatchEvent] {
	return rapid.Custom(func(t *rapid.T) *patch.PatchEvent {
		d := newDraft(t, id, "ann", nil)
		d.f["patchType"] = "erase"
		at := rapid.IntRange(1, 9).Draw(t, "from")
		d.f["seqs"] = [][]int{{at, at + rapid.IntRange(0, 3).Draw(t, "more")}}
		d.f["values"] = rapid.SampledFrom([]string{"keep", "null"}).Draw(t, "values")
		d.f["reason"] = "asked for"
		d.drawBase()
		d.drawFlaw(6, []func(*patchDraft){
			func(d *patchDraft) { delete(d.f, "seqs") },
			func(d *patchDraft) { d.f["seqs"] = json.RawMessage("[[2,1]]") },
			func(d *patchDraft) { d.f["values"] = "gone" },
			func(d *patchDraft) { d.f["start"] = 0 },
			func(d *patchDraft) { d.f["state"] = "keep" },
			func(d *patchDraft) { d.f["actions"] = object{} },
		})
		return d.patch()
	})
}

// Group generates up to four patches of one group, for the session of ref. About half of the groups revert a patch
// with its group, as [Reference.RevertAll] does. Most other groups shorten the session in several places. Each of
// their patches is made for the session as it is after the preceding patches. Some groups restore an event and then
// refer to it by id. A few groups contain arbitrary patches.
func Group(id string, ref *Reference) *rapid.Generator[[]*patch.PatchEvent] {
	return rapid.Custom(func(t *rapid.T) []*patch.PatchEvent {
		now, group := ref.clone(), "group "+id
		var patches []*patch.PatchEvent
		add := func(p *patch.PatchEvent) {
			p = p.WithGroup(group)
			patches = append(patches, p)
			now.Apply(patch.Record{Seq: now.nextSeq(), Patch: p})
		}
		memberID := func() string { return fmt.Sprintf("%s.%c", id, 'a'+len(patches)) }
		if all := ref.PatchIDs(); len(all) > 0 && rapid.Bool().Draw(t, "is reverted") {
			grouped := patchIDs(filter(ref.applied, func(a *applied) bool { return a.group != "" }))
			if len(grouped) > 0 && !oneIn(t, 4, "is any") {
				all = grouped
			}
			back := 0
			if oneIn(t, 3, "is not the last") {
				back = rapid.IntRange(0, len(all)-1).Draw(t, "back")
			}
			if ids, _, ok := ref.RevertAll(all[len(all)-1-back]); ok {
				for _, id := range ids {
					add(patch.NewRevert(id).WithID(memberID()))
				}
				return patches
			}
		}
		for n := rapid.IntRange(1, 4).Draw(t, "members"); len(patches) < n; {
			ids := now.PatchIDs()
			switch {
			case oneIn(t, 10, "is any patch"):
				add(PatchOn(memberID(), now).Draw(t, "patch"))
			case len(ids) > 0 && len(patches)+2 <= n && oneIn(t, 6, "brings back"):
				before := now.Visible()
				add(Revert(memberID(), ids).Draw(t, "revert"))
				back := slices.DeleteFunc(now.Visible(), func(e *patch.Event) bool { return slices.Contains(before, e) })
				if len(back) > 0 {
					d := newDraft(t, memberID(), "compactor", back)
					rapid.SampledFrom([]func(*patchDraft){(*patchDraft).pin, (*patchDraft).unpin, (*patchDraft).truncate}).Draw(t, "naming")(d)
					add(d.patch())
				}
			default:
				add(groupMember(memberID(), now.Visible()).Draw(t, "member"))
			}
		}
		return patches
	})
}

// groupMember generates a patch that removes one to three visible events, if there are any. Most of these patches
// keep the state of the events.
func groupMember(id string, visible []*patch.Event) *rapid.Generator[*patch.PatchEvent] {
	return rapid.Custom(func(t *rapid.T) *patch.PatchEvent {
		d := newDraft(t, id, "compactor", visible)
		d.maxSpan = 3
		rapid.SampledFrom([]func(*patchDraft){
			(*patchDraft).summarise, (*patchDraft).cut, (*patchDraft).replace, (*patchDraft).cut,
		}).Draw(t, "kind")(d)
		d.f["state"] = "keep"
		if oneIn(t, 5, "drops") {
			d.f["state"] = "drop"
		}
		return d.patch()
	})
}

// PatchOn generates a patch of any type with the given id, for the session of ref. It uses [Patch] and [Revert].
func PatchOn(id string, ref *Reference) *rapid.Generator[*patch.PatchEvent] {
	return rapid.Custom(func(t *rapid.T) *patch.PatchEvent {
		if ids := ref.PatchIDs(); len(ids) > 0 && oneIn(t, 3, "is a revert") {
			return Revert(id, ids).Draw(t, "revert")
		}
		return Patch(id, ref.Visible()).Draw(t, "patch")
	})
}

// patchKinds are the kinds of patches. Frequent kinds are repeated.
var patchKinds = []func(*patchDraft){
	(*patchDraft).cut, (*patchDraft).cut,
	(*patchDraft).truncate, (*patchDraft).truncate, (*patchDraft).truncate,
	(*patchDraft).summarise, (*patchDraft).summarise, (*patchDraft).summarise,
	(*patchDraft).replace, (*patchDraft).replace, (*patchDraft).replace,
	(*patchDraft).insert,
	(*patchDraft).pin, (*patchDraft).pin, (*patchDraft).unpin,
	(*patchDraft).outOfRange,
	(*patchDraft).unknownEvent,
}

type patchDraft struct {
	t       *rapid.T
	f       object
	id      string
	visible []*patch.Event
	maxSpan int // maximum length of a span; 0 means no limit
}

func newDraft(t *rapid.T, id, author string, visible []*patch.Event) *patchDraft {
	return &patchDraft{t: t, id: id, visible: visible, f: object{"id": id, "author": author, "timestamp": timestamp(t)}}
}

// drawBase sets a base on one patch in eight.
func (d *patchDraft) drawBase() {
	if oneIn(d.t, 8, "has a base") {
		d.f["base"] = rapid.IntRange(0, DefaultMax).Draw(d.t, "base")
	}
}

// drawFlaw makes about one in n patches malformed, by one of the functions flaws.
func (d *patchDraft) drawFlaw(n int, flaws []func(*patchDraft)) {
	if oneIn(d.t, n, "is malformed") {
		rapid.SampledFrom(flaws).Draw(d.t, "flaw")(d)
	}
}

func (d *patchDraft) isPin() bool { return d.f["patchType"] == "pin" || d.f["patchType"] == "unpin" }

func (d *patchDraft) patch() *patch.PatchEvent { return must(patch.ParseRecord(d.f.text())).Patch }

// drawSpan draws a span of at least minCount visible events. If there are fewer visible events, the span has all of
// them.
func (d *patchDraft) drawSpan(minCount int) {
	n := len(d.visible)
	minCount = min(minCount, n)
	start := rapid.IntRange(0, n-minCount).Draw(d.t, "start")
	d.f["start"] = start
	maxCount := n - start
	if d.maxSpan > 0 {
		maxCount = min(maxCount, d.maxSpan)
	}
	d.f["count"] = rapid.IntRange(minCount, maxCount).Draw(d.t, "count")
}

func (d *patchDraft) cut() {
	d.f["patchType"] = "splice"
	d.drawSpan(1)
	if oneIn(d.t, 3, "says that nothing is put in") {
		d.f["replacement"] = []any{}
	}
	if len(d.visible) == 0 {
		d.drawInserted()
	}
}

func (d *patchDraft) replace() {
	d.f["patchType"] = "splice"
	d.drawSpan(1)
	d.drawInserted()
}

func (d *patchDraft) insert() {
	d.f["patchType"] = "splice"
	d.drawSpan(0)
	d.f["count"] = 0
	d.drawInserted()
}

// drawInserted draws one or two events for a splice to insert. They are new events, or copies of removed events
// with new ids.
func (d *patchDraft) drawInserted() {
	start, count := d.f["start"].(int), d.f["count"].(int)
	var events []any
	for i := range rapid.IntRange(1, 2).Draw(d.t, "events") {
		id := fmt.Sprintf("%s.%d", d.id, i+1)
		if count > 0 && oneIn(d.t, 3, "replaces a removed event") {
			var copied map[string]json.RawMessage
			original := d.visible[start+rapid.IntRange(0, count-1).Draw(d.t, "which")]
			must(&copied, json.Unmarshal([]byte(original.String()), &copied))
			copied["id"] = json.RawMessage(fmt.Sprintf("%q", id))
			events = append(events, copied)
			continue
		}
		events = append(events, Event(id, d.visible[:start]).Draw(d.t, "event"))
	}
	d.f["replacement"] = events
}

func (d *patchDraft) truncate() {
	d.f["patchType"] = "truncate_before"
	d.drawEventID(true)
}

// drawEventID draws the id of a visible event. If anyEvent is false, it draws the id of the first event.
func (d *patchDraft) drawEventID(anyEvent bool) {
	d.f["eventId"] = "e1"
	if last := len(d.visible) - 1; last >= 0 {
		i := 0
		if anyEvent {
			i = rapid.IntRange(0, last).Draw(d.t, "which")
		}
		d.f["eventId"] = d.visible[i].ID()
	}
}

// pin draws a pin. In most cases, the event is the first event, so that some events are pinned several times.
func (d *patchDraft) pin() {
	d.f["patchType"] = "pin"
	d.drawEventID(oneIn(d.t, 3, "is any"))
}

func (d *patchDraft) unpin() {
	d.pin()
	d.f["patchType"] = "unpin"
}

func (d *patchDraft) summarise() {
	d.f["patchType"] = "summarise"
	d.drawSpan(1)
	role := rapid.SampledFrom([]string{"user", "model"}).Draw(d.t, "role")
	parts := []object{textPart("what was said")}
	if oneIn(d.t, 12, "has a call") {
		parts = append(parts, object{"functionCall": callKey(d.t)})
	}
	if oneIn(d.t, 12, "has a response") {
		parts = append(parts, object{"functionResponse": callKey(d.t)})
	}
	summary := object{"id": d.id + ".1", "author": "agent", "content": content(role, parts...)}
	if rapid.Bool().Draw(d.t, "says what it covers") {
		summary["actions"] = object{"compaction": object{"startTimestamp": 1, "endTimestamp": 2}}
	}
	d.f["summaryEvent"] = summary
}

// outOfRange draws a span that is out of range in this visible log, or out of range in every log.
func (d *patchDraft) outOfRange() {
	rapid.SampledFrom([]func(*patchDraft){
		(*patchDraft).summarise, (*patchDraft).cut, (*patchDraft).replace,
	}).Draw(d.t, "of type")(d)
	n := len(d.visible)
	bad := [][2]int{
		{n, 1}, {n + 1, 0}, {0, n + 1}, {-1, 1}, {0, -1}, {n, 0}, {1, -1},
		{math.MaxInt, 1}, {1, math.MaxInt}, {math.MinInt, math.MaxInt}, {math.MaxInt, math.MaxInt},
	}
	span := rapid.SampledFrom(bad).Draw(d.t, "span")
	d.f["start"], d.f["count"] = span[0], span[1]
}

func (d *patchDraft) unknownEvent() {
	d.f["patchType"] = rapid.SampledFrom([]string{"truncate_before", "pin", "unpin"}).Draw(d.t, "of type")
	d.f["eventId"] = rapid.SampledFrom([]string{"e1", "e2", "e3", "p2.1", "p3", "", "none"}).Draw(d.t, "id")
}

// decorate adds fields that have no effect.
func (d *patchDraft) decorate() {
	d.f["unknown"] = object{"patchType": "splice"}
	if d.f["patchType"] != "revert" {
		d.f["patchId"] = nil
	}
	d.f["customMetadata"] = object{"why": "none"}
}

// malformations are functions that make a patch malformed. The last function sets an unknown type.
var malformations = []func(*patchDraft){
	func(d *patchDraft) { // removes a required field
		fields := []string{"start", "count", "summaryEvent", "eventId"}
		fields = slices.DeleteFunc(fields, func(name string) bool { return d.f[name] == nil })
		delete(d.f, rapid.SampledFrom(fields).Draw(d.t, "missing"))
	},
	func(d *patchDraft) { // gives a field the wrong type
		wrong := rapid.SampledFrom([]struct{ name, text string }{
			{"start", `"0"`}, {"start", `0.0`}, {"count", `1e0`}, {"count", `[1]`}, {"count", `99999999999999999999`},
			{"eventId", `1`}, {"replacement", `{}`}, {"replacement", `[1]`}, {"replacement", `[{"content":"x"}]`},
			{"summaryEvent", `"x"`}, {"summaryEvent", `{"id":1}`}, {"base", `-1`}, {"base", `"0"`}, {"state", `true`},
			{"group", `5`}, {"group", `""`}, {"group", `["g1"]`},
		}).Draw(d.t, "wrong")
		d.f[wrong.name] = json.RawMessage(wrong.text)
	},
	func(d *patchDraft) { // sets an invalid policy, or any policy on a type that has none
		policies := []string{"", "purge", "Keep"}
		if d.isPin() {
			policies = []string{"keep"}
		}
		d.f["state"] = rapid.SampledFrom(policies).Draw(d.t, "policy")
	},
	func(d *patchDraft) { // adds a field of another type of patch, or of an event
		foreign := object{
			"eventId": "e1", "start": 0, "replacement": []any{}, "summaryEvent": object{"id": d.id + ".s"}, "patchId": "p1",
			"content": content("user", textPart("x")), "actions": object{"stateDelta": object{"k": 1}}, "partial": false,
		}
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(foreign))).Draw(d.t, "foreign")
		if _, ok := d.f[name]; !ok {
			d.f[name] = foreign[name]
		}
	},
	func(d *patchDraft) { // inserts an invalid event
		inner := rapid.SampledFrom([]object{
			{"id": d.id + ".in", "patchType": "splice", "start": 0, "count": 1},
			{"id": d.id + ".in", "patchType": "rewind"},
			{"id": d.id + ".in", "partial": true, "content": content("user", textPart("x"))},
			{"id": d.id + ".in", "seq": 1},
		}).Draw(d.t, "inner")
		if d.f["patchType"] == "summarise" {
			d.f["summaryEvent"] = inner
		} else {
			d.f["replacement"] = []object{inner}
		}
	},
	func(d *patchDraft) { // makes the summary invalid
		d.summarise()
		summary := d.f["summaryEvent"].(object)
		maps.Copy(summary, rapid.SampledFrom([]object{
			{"content": nil}, {"content": content("user")},
			{"actions": object{"stateDelta": object{"k": 1}}}, {"actions": object{"stateDelta": object{"app:k": 1}}},
		}).Draw(d.t, "summary"))
		delete(d.f, "replacement")
		delete(d.f, "eventId")
	},
	func(d *patchDraft) { // makes a patch that has no effect
		d.cut()
		d.f["count"] = 0
		for _, name := range []string{"replacement", "eventId", "summaryEvent"} {
			delete(d.f, name)
		}
	},
	func(d *patchDraft) { // sets an unknown type
		d.f["patchType"] = rapid.SampledFrom([]string{"rewind", "compact", "", "Splice"}).Draw(d.t, "type")
	},
}
