package fuzz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
)

// Event generates an event with the given id. The event can be appended to a session with the given visible events.
// Event generates messages of the user, texts of the model, calls, responses to visible calls, changes of state, and
// events of unusual shape. Some events are made from Go values, and all others are made from JSON.
func Event(id string, visible []*patch.Event) *rapid.Generator[*patch.Event] {
	return rapid.Custom(func(t *rapid.T) *patch.Event {
		d := eventDraft{t: t, f: object{"id": id}, visible: visible}
		rapid.SampledFrom(eventKinds).Draw(t, "kind")(&d)
		if d.fromFields != nil {
			return d.fromFields
		}
		d.drawCommonFields()
		return d.f.event()
	})
}

// eventKinds are the kinds of events, beginning with the simplest kind. Frequent kinds are repeated.
var eventKinds = []func(*eventDraft){
	(*eventDraft).drawUserMessage, (*eventDraft).drawUserMessage,
	(*eventDraft).drawModelText,
	(*eventDraft).drawCalls, (*eventDraft).drawCalls, (*eventDraft).drawCalls,
	(*eventDraft).drawResponses, (*eventDraft).drawResponses, (*eventDraft).drawResponses, (*eventDraft).drawResponses,
	(*eventDraft).drawStateDelta,
	(*eventDraft).drawMixedParts,
	(*eventDraft).drawUnusual,
	(*eventDraft).makeFromFields,
}

type object map[string]any

func (f object) text() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // keep the literals unchanged
	return must(&b, enc.Encode(f)).Bytes()
}

func (f object) event() *patch.Event { return must(patch.ParseEvent(f.text())) }

type eventDraft struct {
	t          *rapid.T
	f          object
	visible    []*patch.Event
	actions    object
	fromFields *patch.Event
}

// setDefault sets a field, unless the field is set already.
func (d *eventDraft) setDefault(name string, value any) {
	if _, ok := d.f[name]; !ok {
		d.f[name] = value
	}
}

func (d *eventDraft) actionsObject() object {
	if d.actions == nil {
		d.actions = object{}
		d.f["actions"] = d.actions
	}
	return d.actions
}

// drawCommonFields draws the fields that all kinds of events may have.
func (d *eventDraft) drawCommonFields() {
	t := d.t
	d.setDefault("author", rapid.SampledFrom([]string{"agent", "agent", "helper", "user"}).Draw(t, "author"))
	switch rapid.IntRange(0, 7).Draw(t, "invocation") {
	case 0, 1, 2, 3, 4:
		d.setDefault("invocationId", d.lastInvocation())
	case 5:
		d.setDefault("invocationId", rapid.SampledFrom([]string{"inv1", "inv2", "inv3"}).Draw(t, "resumed"))
	case 6:
		d.f["invocationId"] = "" // replaces any earlier value
	}
	if branch := rapid.SampledFrom([]string{"", "", "a", "a.b", "b"}).Draw(t, "branch"); branch != "" {
		d.setDefault("branch", branch)
	}
	d.f["timestamp"] = timestamp(t)
	if oneIn(t, 4, "sets state") {
		d.drawStateDelta()
	}
}

// timestamp draws one of a few times, so that some times are equal and some go backward.
func timestamp(t *rapid.T) string {
	at := time.Unix(1700000000, 0).UTC().Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "second")) * time.Second)
	after := []time.Duration{0, time.Nanosecond, 250 * time.Millisecond}
	return at.Add(after[rapid.IntRange(0, 2).Draw(t, "fraction")]).Format(time.RFC3339Nano)
}

func (d *eventDraft) lastInvocation() string {
	for _, e := range slices.Backward(d.visible) {
		if id := e.InvocationID(); id != "" {
			return id
		}
	}
	return "inv1"
}

func (d *eventDraft) drawStateDelta() {
	if d.actionsObject()["stateDelta"] != nil {
		return
	}
	d.actionsObject()["stateDelta"] = rapid.MapOfN(rapid.SampledFrom(stateKeys), stateValue(), 1, 2).Draw(d.t, "delta")
}

func textPart(text string) object { return object{"text": text} }

func content(role string, parts ...object) object {
	return object{"role": role, "parts": append([]object{}, parts...)}
}

func (d *eventDraft) drawUserMessage() {
	d.setDefault("author", "user")
	if !oneIn(d.t, 4, "same invocation") {
		d.setDefault("invocationId", fmt.Sprintf("inv%d", 1+len(d.visible)))
	}
	d.f["content"] = content("user", textPart("a question"))
}

func (d *eventDraft) drawModelText() {
	d.f["content"] = content("model", textPart("an answer"))
}

func (d *eventDraft) drawCalls() {
	d.f["content"] = content("model", d.callParts()...)
}

// callParts draws one to three calls. Some calls are long-running.
func (d *eventDraft) callParts() []object {
	var parts []object
	var longRunning []string
	for range rapid.IntRange(1, 3).Draw(d.t, "calls") {
		call := callKey(d.t)
		if rapid.Bool().Draw(d.t, "has args") {
			call["args"] = object{"n": json.RawMessage("1.0")}
		}
		if id, ok := call["id"].(string); ok && oneIn(d.t, 5, "is long-running") {
			longRunning = append(longRunning, id)
		}
		parts = append(parts, object{"functionCall": call})
	}
	if longRunning != nil {
		d.f["longRunningToolIds"] = longRunning
	}
	return parts
}

// callKey draws the name of a function and, in most cases, an id. The names and ids are few. One id equals a name,
// so that a fold that confuses ids with names is detected.
func callKey(t *rapid.T) object {
	key := object{"name": rapid.SampledFrom([]string{"look", "book"}).Draw(t, "function")}
	if id := rapid.SampledFrom([]string{"c1", "c2", "c3", "c4", "look", ""}).Draw(t, "call id"); id != "" {
		key["id"] = id
	}
	return key
}

func (d *eventDraft) drawResponses() {
	d.f["content"] = content("user", d.responseParts()...)
}

// responseParts draws one or two responses. Most responses answer a visible call, preferably an open call, and have
// the branch and invocation of the call.
func (d *eventDraft) responseParts() []object {
	nodes := nodesOf(d.visible)
	pairs := pair(nodes)
	calls := filter(pairs.parts, func(p part) bool { return !p.Response })
	slices.Reverse(calls)
	calls = append(filter(calls, pairs.isOpen), slices.DeleteFunc(calls, pairs.isOpen)...)

	var parts []object
	for range rapid.IntRange(1, 2).Draw(d.t, "responses") {
		var response object
		if len(calls) == 0 || oneIn(d.t, 10, "answers any call") {
			response = callKey(d.t)
		} else {
			call := rapid.SampledFrom(calls).Draw(d.t, "answers")
			response = object{"name": call.Name}
			if call.ID != "" {
				response["id"] = call.ID
			}
			if isLongRunning(call) && rapid.Bool().Draw(d.t, "is final") {
				d.setDefault("author", "user")
			}
			if !oneIn(d.t, 4, "answers elsewhere") {
				d.setDefault("invocationId", invocationAt(nodes, call.pos))
				d.setDefault("branch", call.node.event.Branch())
			}
		}
		response["response"] = object{"result": "done"}
		parts = append(parts, object{"functionResponse": response})
	}
	return parts
}

func nodesOf(visible []*patch.Event) []*node {
	var nodes []*node
	for _, e := range visible {
		nodes = append(nodes, &node{event: e})
	}
	return nodes
}

// drawMixedParts draws an event with calls, responses and a text, in any order.
func (d *eventDraft) drawMixedParts() {
	parts := append(d.callParts(), d.responseParts()...)
	parts = append(parts, textPart("and text"))
	d.f["content"] = content("model", rapid.Permutation(parts).Draw(d.t, "parts")...)
}

// drawUnusual draws an event of a rare but valid shape.
func (d *eventDraft) drawUnusual() {
	switch rapid.IntRange(0, 6).Draw(d.t, "shape") {
	case 0: // the event has neither content nor actions
	case 1:
		d.f["content"] = content("user")
	case 2:
		d.f["content"] = object{"role": "model"}
	case 3:
		d.f["content"] = nil
	case 4:
		d.f["unknown"] = object{"deep": json.RawMessage(`[1e2,{"parts":[]}]`)}
		d.f["content"] = content("model", object{"text": "thought", "thought": true, "unknown": 1})
	default: // the event is a summary, either logged as an event or inserted by a splice
		role := rapid.SampledFrom([]string{"model", "user"}).Draw(d.t, "role")
		d.actionsObject()["compaction"] = object{"startTimestamp": 1, "endTimestamp": json.RawMessage("2.5")}
		d.f["content"] = content(role, textPart("what was said"))
	}
}

func (d *eventDraft) makeFromFields() {
	delta := rapid.MapOfN(rapid.SampledFrom(stateKeys), rapid.SampledFrom(goValues), 1, 2).Draw(d.t, "delta")
	d.fromFields = must(patch.NewEvent(patch.Fields{
		ID: d.f["id"].(string), InvocationID: d.lastInvocation(), Author: "agent",
		Timestamp: time.Unix(1700000000, 1),
		Actions:   patch.Actions{StateDelta: delta},
	}))
}

// must returns v. If err is not nil, must panics, because the generator has a fault.
func must[T any](v T, err error) T {
	if err != nil {
		panic("fuzz: " + err.Error())
	}
	return v
}

// stateKeys are the keys of state. They are few, so that changes collide, and they have every prefix.
var stateKeys = []string{"k", "j", "l", "app:k", "user:k", "temp:k"}

// stateLiterals are values of every JSON type, and literals that some decoders change.
var stateLiterals = []string{
	"0", "1", "true", "null", `""`, `"text"`, "[]", "{}", "false", "0.1", "1.0", "1e2", "-0.0",
	"9007199254740993", "123456789012345678901234567890",
	`"\u0000\u001b\u2028😀</>"`, `{"a":{"b":[1,null,"x",{}]}}`, `[[],[1.50],{"k":null}]`,
}

var goValues = []any{
	0, true, nil, "", "text", int64(1)<<53 + 1, uint8(7), 0.1, float32(0.1), 1.0,
	[]byte{0, 255}, json.Number("1.0"), []any{}, []any{1, nil, "x"}, []string{"a"},
	map[string]any{}, map[string]any{"a": map[string]any{"b": []any{int32(2)}}}, map[string]int{"n": 1},
}

// stateValue draws a value of the state as JSON text.
func stateValue() *rapid.Generator[patch.Value] {
	return rapid.Custom(func(t *rapid.T) patch.Value {
		return must(patch.ParseValue([]byte(rapid.SampledFrom(stateLiterals).Draw(t, "literal"))))
	})
}
