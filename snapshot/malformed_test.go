package snapshot_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
)

// payload is what a snapshot says after its header, in the making. Its methods leave it
// as it is.
type payload []byte

func (p payload) uints(us ...uint64) payload {
	p = slices.Clip(p)
	for _, u := range us {
		p = binary.AppendUvarint(p, u)
	}
	return p
}

func (p payload) text(s string) payload { return append(p.uints(uint64(len(s))), s...) }

func (p payload) value(t testing.TB, v any) payload {
	t.Helper()
	form, err := mustValue(v).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return p.text(string(form))
}

// signed gives the payload the header of a snapshot that is whole.
func (p payload) signed() []byte { return snapshot.Signed(append(make([]byte, 6), p...)) }

// head says of which view a snapshot is, without its nodes.
func head(seq, patchSeq, skips uint64) payload {
	return payload{}.text("creation").uints(seq, patchSeq).text("inv").uints(0, skips)
}

// Kinds of runs and flags of nodes.
const (
	events, event, marker = 0, 1, 2
	carries               = 2
)

// A log of so many records is what the malformed snapshots are said to be of.
const last = 44

func TestMalformed(t *testing.T) {
	at := head(last, 3, 1)
	for name, p := range map[string]payload{
		"nothing":                     {},
		"creation cut off":            payload{}.uints(8),
		"creation longer than all":    payload{}.uints(math.MaxUint64),
		"number cut off":              append(payload{}.text("creation"), 0x80),
		"number of more than 64 bits": append(payload{}.text("creation"), 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1),
		"invocation cut off":          payload{}.text("creation").uints(last, 3, 4),
		"no flags":                    payload{}.text("creation").uints(last, 3).text("inv"),
		"no skips":                    payload{}.text("creation").uints(last, 3).text("inv").uints(0),
		"another creation":            payload{}.text("creatioN").uints(last, 3).text("inv").uints(0, 0),
		"seq beyond the log":          head(last+1, 3, 0),
		"largest seq":                 head(math.MaxUint64, 3, 0),
		"patch seq above seq":         head(3, 4, 0),
		"skips above seq":             head(3, 3, 4),
		"largest skips":               head(3, 3, math.MaxUint64),
		"unknown kind":                at.uints(3, 0),
		"largest kind":                at.uints(math.MaxUint64, 0),
		"kind cut off":                append(slices.Clip(at), 0x80),
		"range without first":         at.uints(events),
		"range without count":         at.uints(events, 1),
		"empty range":                 at.uints(events, 1, 0),
		"range from record 0":         at.uints(events, 0, 1),
		"range beyond seq":            at.uints(events, 2, last),
		"range that starts there":     at.uints(events, last+1, 1),
		"range that wraps around":     at.uints(events, math.MaxUint64, 2),
		"largest range":               at.uints(events, 1, math.MaxUint64),
		"ranges of more than all":     at.uints(events, 1, last, events, 1, 1),
		"ranges whose sum wraps":      at.uints(events, 1, last, events, 1, math.MaxUint64-last+1),
		"event without seq":           at.uints(event),
		"event without index":         at.uints(event, 1),
		"event without flags":         at.uints(event, 1, 0),
		"event of record 0":           at.uints(event, 0, 0, 0, 1),
		"event beyond seq":            at.uints(event, last+1, 0, 0, 1),
		"event of the largest record": at.uints(event, math.MaxUint64, 0, 0, 1),
		"index too large":             at.uints(event, 1, math.MaxInt32+1, 0, 1),
		"largest index":               at.uints(event, 1, math.MaxUint64, 0, 1),
		"marker without flags":        at.uints(marker),
		"marker without place":        at.uints(marker, 0),
		"event without place":         at.uints(event, 1, 0, 0),
		"marker placed beyond seq":    at.uints(marker, 0, last+1),
		"event placed beyond seq":     at.uints(event, 1, 0, 0, last+1),
		"carries nothing":             at.uints(marker, carries, 1),
		"carries cut off":             at.uints(marker, carries, 1, 9),
		"carries longer than all":     at.uints(marker, carries, 1, math.MaxUint64),
		"carries of no bytes":         at.uints(marker, carries, 1, 0),
		"carries garbage":             at.uints(marker, carries, 1).text("\xff\xff\xff\xff\xff"),
		"carries a text":              at.uints(marker, carries, 1).value(t, "text"),
		"carries a list":              at.uints(marker, carries, 1).value(t, []any{1}),
		"carries null":                at.uints(marker, carries, 1).value(t, nil),
		"carries no changes":          at.uints(marker, carries, 1).value(t, map[string]any{}),
		"bad node after a good one":   at.uints(event, 1, 0, 0, 1, 7),
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := snapshot.Decode(p.signed(), "creation", last); !errors.Is(err, snapshot.ErrUnusable) {
				t.Errorf("%+v, error %v, want one that matches %q", s, err, snapshot.ErrUnusable)
			}
		})
	}
	for name, p := range map[string]payload{
		"no nodes":      at,
		"empty log":     head(0, 0, 0),
		"whole range":   at.uints(events, 1, last),
		"range at seq":  at.uints(events, last, 1),
		"event":         at.uints(event, last, math.MaxInt32, 1, last-1),
		"marker":        at.uints(marker, 0, 0),
		"what it keeps": at.uints(marker, carries, 1).value(t, map[string]any{"b": 1, "a": 2}),
	} {
		if _, err := snapshot.Decode(p.signed(), "creation", last); err != nil {
			t.Errorf("%s: %v; the rows that are refused may be so for other reasons", name, err)
		}
	}
}

func TestMalformedHeader(t *testing.T) {
	whole := head(last, 3, 1).signed()
	for name, at := range map[string]int{"version": 0, "meaning": 1} {
		data := append([]byte{}, whole...)
		data[at]++
		if _, err := snapshot.Decode(data, "creation", last); !errors.Is(err, snapshot.ErrUnusable) || errors.Is(err, snapshot.ErrOutdated) {
			t.Errorf("%s damaged: %v", name, err)
		}
		_, err := snapshot.Decode(snapshot.Resigned(data), "creation", last)
		if !errors.Is(err, snapshot.ErrUnusable) || !errors.Is(err, snapshot.ErrOutdated) || !strings.Contains(err.Error(), "version") {
			t.Errorf("another %s: %v", name, err)
		}
	}
	for n := range 6 {
		if _, err := snapshot.Decode(whole[:n], "creation", last); !errors.Is(err, snapshot.ErrUnusable) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// A few bytes that claim much must not cost much, also where a log is said to be as long as
// that.
func TestMalformedCostsLittle(t *testing.T) {
	const far = 1 << 40
	const furthest = math.MaxUint64
	for name, c := range map[string]struct {
		p    payload
		last uint64
	}{
		"events":              {head(far, 0, 0).uints(events, 1, far), far},
		"events at the end":   {head(furthest, 0, 0).uints(events, furthest-1<<30, 1<<30), furthest},
		"all events":          {head(furthest, 0, 0).uints(events, 1, furthest), furthest},
		"events and a marker": {head(far, far, 0).uints(events, 1, far/2, marker, 0, far/2, events, far/2+1, far/2), far},
		"skips":               {head(far, far, far), far},
		"a far event":         {head(far, 0, 0).uints(event, far, 0, 0, far), far},
	} {
		data := c.p.signed()
		cost := allocated(func() {
			s, err := snapshot.Decode(data, "creation", c.last)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			v, err := s.Restore(context.Background(), records(1000))
			if err == nil {
				_, err = v.Skipped()
			}
			if !errors.Is(err, fold.ErrSource) {
				t.Errorf("%s: %v", name, err)
			}
		})
		if cost > 2<<20 { // what the log's records cost among it
			t.Errorf("%s: %d bytes of memory for %d", name, cost, len(data))
		}
	}
	for name, c := range map[string]struct {
		p    payload
		last uint64
	}{
		"range":   {head(last, 0, 0).uints(events, 1, 1<<40), last},
		"ranges":  {head(1000, 0, 0).uints(events, 1, 1000, events, 1, 1000, events, 1, 1000), 1000},
		"text":    {payload{}.uints(1 << 40), last},
		"carries": {head(last, 0, 0).uints(marker, carries, 1, 1<<40), last},
		"value":   {head(last, 0, 0).uints(marker, carries, 1).text("\xdf\xff\xff\xff\xff"), last},
	} {
		data := c.p.signed()
		cost := allocated(func() {
			if _, err := snapshot.Decode(data, "creation", c.last); !errors.Is(err, snapshot.ErrUnusable) {
				t.Errorf("%s: %v", name, err)
			}
		})
		if cost > 1<<20 {
			t.Errorf("%s: %d bytes of memory for %d", name, cost, len(data))
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// records is the source of a log of so many events.
type records uint64

func (n records) Records(_ context.Context, seqs []uint64) ([]patch.Record, error) {
	var out []patch.Record
	for _, seq := range seqs {
		if seq > uint64(n) {
			return nil, fmt.Errorf("record %d is missing", seq)
		}
		e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint(seq)})
		if err != nil {
			return nil, err
		}
		out = append(out, patch.Record{Seq: seq, Event: e})
	}
	return out, nil
}

// What the bytes say comes back node by node, in order; of what is carried the keys are
// in order.
func TestDecode(t *testing.T) {
	p := payload{}.text("creation").uints(9, 8).text("inv").uints(1, 2).
		uints(event, 8, 3, 1, 1).uints(events, 2, 2).uints(marker, carries, 4).value(t, map[string]any{"b": 1, "a": nil}).
		uints(event, 9, 0, 1|carries, 7).value(t, map[string]any{"x": 1})
	s, err := snapshot.Decode(p.signed(), "creation", 9)
	if err != nil {
		t.Fatal(err)
	}
	if s.Creation != "creation" || s.Seq != 9 || s.PatchSeq != 8 || s.Invocation != "inv" || !s.Unknown || s.Skips != 2 {
		t.Errorf("skeleton %+v", s)
	}
	want := []fold.NodeRef{
		{Seq: 8, Index: 3, Summary: true, Pos: 1}, {Seq: 2, Pos: 2, More: 1},
		{Pos: 4, Carries: []patch.Change{{Key: "a", Value: mustValue(nil)}, {Key: "b", Value: mustValue(1)}}},
		{Seq: 9, Summary: true, Pos: 7, Carries: []patch.Change{{Key: "x", Value: mustValue(1)}}},
	}
	if len(s.Nodes) != len(want) {
		t.Fatalf("%d nodes, want %d", len(s.Nodes), len(want))
	}
	for i, n := range s.Nodes {
		w := want[i]
		same := n.Seq == w.Seq && n.More == w.More && n.Pos == w.Pos && n.Index == w.Index && n.Summary == w.Summary && len(n.Carries) == len(w.Carries)
		for k := 0; same && k < len(n.Carries); k++ {
			same = n.Carries[k].Key == w.Carries[k].Key && n.Carries[k].Value.Equal(w.Carries[k].Value)
		}
		if !same {
			t.Errorf("node %d is %+v, want %+v", i, n, w)
		}
	}
}

// A patch of a type that is not known has the view say so, and the snapshot too.
func TestUnknownPatchType(t *testing.T) {
	r, err := patch.ParseRecord([]byte(`{"id":"p","patchType":"newer"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Seq = 1
	v, err := fold.Fold(fold.New("creation", initial), []patch.Record{r})
	if err != nil {
		t.Fatal(err)
	}
	data, err := snapshot.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Decode(data, "creation", 1)
	if err != nil || !s.Unknown || s.Skips != 1 {
		t.Errorf("skeleton %+v, error %v", s, err)
	}
}

// A state key that is not UTF-8 cannot be written; such a snapshot is refused when it
// is made, and not made unreadable.
func TestEncodeRefusesKey(t *testing.T) {
	s := fold.Skeleton{Creation: "creation", Seq: 1, PatchSeq: 1, Nodes: []fold.NodeRef{{Carries: []patch.Change{{Key: "k\xff", Value: mustValue(1)}}}}}
	v, err := s.Restore(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Encode(v); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("error %v, want one that matches %q", err, patch.ErrInvalid)
	}
}
