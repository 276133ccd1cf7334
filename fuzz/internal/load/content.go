package load

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
)

// text makes a session of a file, which now and then has more records than one commit takes.
func (c *Client) text(op string) func(context.Context, *Call) (bool, error) {
	return func(_ context.Context, one *Call) (bool, error) {
		n := 1 + c.random.IntN(8)
		if c.chance(10) {
			n = 520 + c.random.IntN(300)
		}
		one.Op = op
		one.State = jsonOf(object{"k0": c.n})
		for range n {
			one.Offered = append(one.Offered, jsonOf(object{"id": c.newID(), "author": "a", "timestamp": when, "content": text("user", c.n)}))
		}
		last := object{"id": c.newID(), "author": "a", "timestamp": when}
		if c.chance(50) {
			c.count(one, changes(last))
		}
		one.Offered = append(one.Offered, jsonOf(last))
		if c.chance(30) {
			one.Offered = append(one.Offered, jsonOf(object{"id": c.newID(), "patchType": "splice", "start": 0, "count": 1, "timestamp": when}))
		}
		return true, nil
	}
}

type object map[string]any

const when = "2026-01-02T03:04:05.000000006Z"

func jsonOf(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func text(role string, n int) object {
	return object{"role": role, "parts": []object{{"text": strings.Repeat(fmt.Sprint(n, " "), n%40)}}}
}

// changes gives an event a state delta.
func changes(event object) object {
	delta := object{}
	event["actions"] = object{"stateDelta": delta}
	return delta
}

// count sets the client's shared keys, which nobody else sets, to a value that grows.
func (c *Client) count(one *Call, delta object) {
	c.n++
	one.Counter = int64(c.Round)<<32 + int64(c.n)
	for _, key := range counters(c.i) {
		delta[key] = one.Counter
	}
}

func counters(client int) []string {
	return []string{fmt.Sprint("app:c", client), fmt.Sprint("user:c", client)}
}

func (c *Client) event() object {
	e := object{"id": c.newID(), "invocationId": fmt.Sprint("inv ", c.Round, ".", c.i, ".", c.n/8), "author": "a", "timestamp": when, "content": text("user", c.n)}
	if c.chance(3) {
		e["content"] = object{"role": "model", "parts": []object{{"text": strings.Repeat("long ", 1000+c.random.IntN(6000))}}}
	}
	if c.chance(30) {
		changes(e)[fmt.Sprint("k", c.random.IntN(4))] = c.n
	}
	return e
}

func (c *Client) events() (texts []json.RawMessage) {
	for range 1 + c.random.IntN(4) {
		texts = append(texts, jsonOf(c.event()))
	}
	if c.chance(15) {
		texts = append(texts, c.called()...)
	}
	return texts
}

// called is a call of a function and its response.
func (c *Client) called() []json.RawMessage {
	id := c.newID()
	call := object{"functionCall": object{"id": id, "name": "f"}}
	response := object{"functionResponse": object{"id": id, "name": "f", "response": object{"n": c.n}}}
	return []json.RawMessage{
		jsonOf(object{"id": id + "c", "timestamp": when, "content": object{"role": "model", "parts": []object{call}}}),
		jsonOf(object{"id": id + "r", "timestamp": when, "content": object{"role": "user", "parts": []object{response}}}),
	}
}

// response is one so long that a patch puts a shorter one in its place.
func (c *Client) response() []json.RawMessage {
	id := c.newID()
	response := object{"functionResponse": object{"id": id, "name": "g", "response": object{"result": strings.Repeat(fmt.Sprintln("line", c.n), 400)}}}
	return []json.RawMessage{jsonOf(object{"id": id, "timestamp": when, "content": object{"role": "user", "parts": []object{response}}})}
}

func (c *Client) append(one *Call) {
	one.Op = "append"
	one.Offered = c.events()
	if c.chance(30) {
		e := c.event()
		c.count(one, changes(e))
		one.Offered = append(one.Offered, jsonOf(e))
	}
}

// erase draws what to erase of a session that the client has to itself: a few records, or all.
func (c *Client) erase(one *Call, last uint64) {
	one.Op, one.Target = "erase", c.newID()
	from, n := uint64(1), last
	if c.chance(70) {
		from = 1 + c.random.Uint64N(last)
		n = min(1+c.random.Uint64N(4), last-from+1)
	}
	for i := range n {
		one.Seqs = append(one.Seqs, from+i)
	}
}

// patch draws a patch of any type, or a group of two.
func (c *Client) patch(one *Call, v fold.View) {
	one.Op, one.Loose = "patch", c.chance(70)
	start := c.random.IntN(v.Len())
	count := min(1+c.random.IntN(3), v.Len()-start)
	at := v.At(start).ID()
	p := object{"id": c.newID(), "timestamp": when, "author": "a", "base": v.PatchSeq()}
	switch c.random.IntN(8) {
	case 0, 1:
		p["patchType"], p["start"], p["count"] = "splice", start, count
		if c.chance(60) {
			p["replacement"] = []object{c.event()}
		}
		if c.chance(50) {
			p["state"] = "keep"
		}
	case 2:
		p["patchType"], p["eventId"] = "truncate_before", v.At(min(start, 4)).ID()
	case 3:
		p["patchType"], p["start"], p["count"] = "summarise", start, count
		p["summaryEvent"] = object{"id": c.newID(), "timestamp": when, "content": text("user", c.n)}
	case 4:
		p["patchType"], p["eventId"] = "pin", at
	case 5:
		p["patchType"], p["eventId"] = "unpin", at
	case 6:
		if id, ok := c.aPatch(one.Creation, c.random); ok {
			p["patchType"], p["patchId"] = "revert", id
			break
		}
		fallthrough
	default:
		p["patchType"], p["start"], p["count"], p["group"] = "splice", start, 1, p["id"].(string)+"g"
		second := object{"id": c.newID(), "timestamp": when, "patchType": "splice", "start": 0, "count": 0, "group": p["group"], "replacement": []object{c.event()}}
		one.Offered = []json.RawMessage{jsonOf(p), jsonOf(second)}
		return
	}
	one.Offered = []json.RawMessage{jsonOf(p)}
}
