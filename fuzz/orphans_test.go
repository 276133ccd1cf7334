package fuzz

import (
	"fmt"
	"strings"
	"testing"
)

func TestPair(t *testing.T) {
	for _, test := range []struct {
		name, log string
		want      string // pairs, each as the response and its call (or "-"), written as event:part
	}{{
		name: "by id",
		log: `e1 call:a call:b
		      e2 resp:b resp:a`,
		want: "e2:0>e1:1 e2:1>e1:0",
	}, {
		name: "by name where there is no id",
		log: `e1 call::look call::book
		      e2 resp::book`,
		want: "e2:0>e1:1",
	}, {
		name: "an id and a name are never the same",
		log: `e1 call:look:x
		      e2 resp::look
		      e3 call::book
		      e4 resp:book:x`,
		want: "e2:0>- e4:0>-",
	}, {
		name: "the name does not matter where there is an id",
		log: `e1 call:a:look
		      e2 resp:a:book`,
		want: "e2:0>e1:0",
	}, {
		name: "not within one event, and not a later call",
		log: `e1 call:a resp:a
		      e2 resp:b
		      e3 call:b`,
		want: "e1:0>- e2:0>-",
	}, {
		name: "a call id used again",
		log: `e1 call:a
		      e2 resp:a
		      e3 call:a
		      e4 resp:a`,
		want: "e2:0>e1:0 e4:0>e3:0",
	}, {
		name: "the latest unanswered call, then the one before",
		log: `e1 call:a
		      e2 call:a
		      e3 resp:a
		      e4 resp:a`,
		want: "e3:0>e2:0 e4:0>e1:0",
	}, {
		name: "in its event the first one",
		log: `e1 call::look call::look
		      e2 resp::look
		      e3 resp::look`,
		want: "e2:0>e1:0 e3:0>e1:1",
	}, {
		name: "the same branch goes before a later event",
		log: `e1 call:a #x
		      e2 call:a #y
		      e3 resp:a #x
		      e4 resp:a #x`,
		want: "e3:0>e1:0 e4:0>e2:0",
	}, {
		name: "a second response amends the first one's call",
		log: `e1 call:a
		      e2 resp:a
		      e3 resp:a
		      e4 resp:a`,
		want: "e2:0>e1:0 e3:0>e1:0 e4:0>e1:0",
	}, {
		name: "amended is the last such part of the latest event, whatever its branch",
		log: `e1 call:a #x
		      e2 call:a call:a #y
		      e3 resp:a resp:a resp:a #x
		      e4 resp:a #x`,
		want: "e3:0>e1:0 e3:1>e2:0 e3:2>e2:1 e4:0>e2:1",
	}} {
		t.Run(test.name, func(t *testing.T) {
			p := pair(fold(t, nil, test.log).visible())
			var got []string
			for _, r := range p.parts {
				if !r.Response {
					continue
				}
				// The parts of an event are numbered from 0, calls and responses separately.
				to := "-"
				if call, ok := p.callOf[r.place()]; ok {
					to = name(p, call)
				}
				got = append(got, name(p, r)+">"+to)
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

func name(p pairing, which part) string {
	n := 0
	for _, o := range p.parts {
		if o.node == which.node && o.Response == which.Response && o.nth < which.nth {
			n++
		}
	}
	return fmt.Sprintf("%s:%d", which.node.event.ID(), n)
}
