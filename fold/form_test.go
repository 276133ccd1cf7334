package fold_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// payload is a view's binary form after its first byte, in the making. Its methods leave it
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
	object, err := patch.NewValue(v)
	if err != nil {
		t.Fatal(err)
	}
	form, err := object.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return p.text(string(form))
}

// form gives the payload the first byte of what this program writes.
func (p payload) form() []byte {
	whole, err := fold.View{}.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	return append(whole[:1:1], p...)
}

// head says which view it is, without its nodes.
func head(seq, patchSeq, skips uint64) payload {
	return payload{}.text("creation").uints(seq, patchSeq).text("inv").uints(0, skips)
}

// nodes says how many nodes follow.
func (p payload) nodes(n uint64) payload { return p.uints(n) }

// end says that no patch did anything.
func (p payload) end() payload { return p.uints(4, 0, 0, 0, 0) }

// Kinds of runs and flags of nodes.
const (
	runEvents, runNode     = 0, 1
	carries, marker, keeps = 2, 8, 16
)

// A log of so many records is what the malformed forms are said to be of.
const last = 44

func TestMalformedForms(t *testing.T) {
	at, two := head(last, 3, 1).nodes(1), head(last, 3, 1).nodes(2)
	for name, p := range map[string]payload{
		"nothing":                     {},
		"creation cut off":            payload{}.uints(8),
		"creation longer than all":    payload{}.uints(math.MaxUint64),
		"number cut off":              append(payload{}.text("creation"), 0x80),
		"number of more than 64 bits": append(payload{}.text("creation"), 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1),
		"invocation cut off":          payload{}.text("creation").uints(last, 3, 4),
		"no flags":                    payload{}.text("creation").uints(last, 3).text("inv"),
		"no skips":                    payload{}.text("creation").uints(last, 3).text("inv").uints(0),
		"patch seq above seq":         head(3, 4, 0).nodes(0).end(),
		"skips without a patch":       head(last, 0, 1).nodes(0).end(),
		"places go back":              two.uints(runEvents, 2, 1, runNode, 3, 0, marker, 1).end(),
		"ranges overlap":              two.uints(runEvents, 1, 2, runEvents, 1, 1).end(),
		"a marker without a patch":    head(last, 0, 0).nodes(1).uints(runNode, 3, 0, marker, 1).end(),
		"a summary without a patch":   head(last, 0, 0).nodes(1).uints(runNode, 1, 0, 1, 1).end(),
		"skips above seq":             head(3, 3, 4).nodes(0).end(),
		"largest skips":               head(3, 3, math.MaxUint64).nodes(0).end(),
		"unknown kind":                at.uints(3, 0),
		"largest kind":                at.uints(math.MaxUint64, 0),
		"kind cut off":                append(slices.Clip(at), 0x80),
		"no patches":                  at.uints(runEvents, 1, 1),
		"patches cut off":             at.uints(runEvents, 1, 1, 4, 0),
		"bytes behind":                at.uints(runEvents, 1, 1).end().uints(0),
		"range without first":         at.uints(runEvents),
		"range without count":         at.uints(runEvents, 1),
		"empty range":                 at.uints(runEvents, 1, 0),
		"range from record 0":         at.uints(runEvents, 0, 1),
		"range beyond seq":            at.uints(runEvents, 2, last),
		"range that starts there":     at.uints(runEvents, last+1, 1),
		"range that wraps around":     at.uints(runEvents, math.MaxUint64, 2),
		"largest range":               at.uints(runEvents, 1, math.MaxUint64),
		"ranges of more than all":     two.uints(runEvents, 1, last, runEvents, 1, 1),
		"ranges whose sum wraps":      two.uints(runEvents, 1, last, runEvents, 1, math.MaxUint64-last+1),
		"event without seq":           at.uints(runNode),
		"event without index":         at.uints(runNode, 1),
		"event without flags":         at.uints(runNode, 1, 0),
		"event of record 0":           at.uints(runNode, 0, 0, 0, 1),
		"event beyond seq":            at.uints(runNode, last+1, 0, 0, 1),
		"event of the largest record": at.uints(runNode, math.MaxUint64, 0, 0, 1),
		"index too large":             at.uints(runNode, 1, math.MaxInt32+1, 0, 1),
		"largest index":               at.uints(runNode, 1, math.MaxUint64, 0, 1),
		"marker without flags":        at.uints(runNode, 3, 0),
		"marker without place":        at.uints(runNode, 3, 0, marker),
		"event without place":         at.uints(runNode, 1, 0, 0),
		"marker placed beyond seq":    at.uints(runNode, 3, 0, marker, last+1).end(),
		"event placed beyond seq":     at.uints(runNode, 1, 0, 0, last+1),
		"a pinned marker":             at.uints(runNode, 3, 0, 4|marker, 1).end(),
		"carries nothing":             at.uints(runNode, 3, 0, carries|marker|keeps, 1),
		"carries cut off":             at.uints(runNode, 3, 0, carries|marker|keeps, 1, 9),
		"carries longer than all":     at.uints(runNode, 3, 0, carries|marker|keeps, 1, math.MaxUint64),
		"carries of no bytes":         at.uints(runNode, 3, 0, carries|marker|keeps, 1, 0),
		"carries garbage":             at.uints(runNode, 3, 0, carries|marker|keeps, 1).text("\xff\xff\xff\xff\xff"),
		"carries a text":              at.uints(runNode, 3, 0, carries|marker|keeps, 1).value(t, "text"),
		"carries a list":              at.uints(runNode, 3, 0, carries|marker|keeps, 1).value(t, []any{1}),
		"carries null":                at.uints(runNode, 3, 0, carries|marker|keeps, 1).value(t, nil),
		"carries no changes":          at.uints(runNode, 3, 0, carries|marker|keeps, 1).value(t, map[string]any{}),
		"bad node after a good one":   two.uints(runNode, 1, 0, 0, 1, 7),
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := fold.ParseSaved(p.form()); !errors.Is(err, patch.ErrCorrupt) {
				t.Errorf("%+v, error %v, want one that matches %q", s, err, patch.ErrCorrupt)
			}
		})
	}
	for name, p := range map[string]payload{
		"no nodes":      head(last, 3, 1).nodes(0).end(),
		"empty log":     head(0, 0, 0).nodes(0).end(),
		"whole range":   at.uints(runEvents, 1, last).end(),
		"range at seq":  at.uints(runEvents, last, 1).end(),
		"event":         at.uints(runNode, last, math.MaxInt32, 1, last-1).end(),
		"marker":        at.uints(runNode, 3, 0, marker, 0).end(),
		"what it keeps": at.uints(runNode, 3, 0, carries|marker|keeps, 1).value(t, map[string]any{"b": 1, "a": 2}).end(),
	} {
		if _, err := fold.ParseSaved(p.form()); err != nil {
			t.Errorf("%s: %v; the rows that are refused may be so for other reasons", name, err)
		}
	}
}

// A few bytes that claim much must not cost much.
func TestMalformedFormsCostLittle(t *testing.T) {
	const far = 1 << 40
	const furthest = math.MaxUint64
	for name, p := range map[string]payload{
		"events":              head(far, 0, 0).nodes(1).uints(runEvents, 1, far).end(),
		"events at the end":   head(furthest, 0, 0).nodes(1).uints(runEvents, furthest-1<<30, 1<<30).end(),
		"all events":          head(furthest, 0, 0).nodes(1).uints(runEvents, 1, furthest).end(),
		"events and a marker": head(far, far, 0).nodes(3).uints(runEvents, 1, far/2, runNode, far, 0, marker, far/2, runEvents, far/2+1, far/2).end(),
		"skips":               head(far, far, far).nodes(0).end(),
		"a far event":         head(far, 0, 0).nodes(1).uints(runNode, far, 0, 0, far).end(),
		"hidden events":       head(far, far, 0).nodes(0).text(string(payload{}.uints(1, 9, 0, 0, 0, 0, 1, 1, 0, 1, far, 0, 0, 0, 0))),
	} {
		data := p.form()
		cost := allocated(func() {
			s, err := fold.ParseSaved(data)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			v, err := s.Restore(fold.New("creation", nil), read(s.Needs(), 1000))
			if err == nil {
				_, err = v.Skipped()
			}
			if !errors.Is(err, patch.ErrCorrupt) && name != "hidden events" {
				t.Errorf("%s: %v", name, err)
			}
		})
		if cost > 2<<20 { // what the log's records cost among it
			t.Errorf("%s: %d bytes of memory for %d", name, cost, len(data))
		}
	}
	for name, p := range map[string]payload{
		"range":   head(last, 0, 0).nodes(1).uints(runEvents, 1, 1<<40),
		"ranges":  head(1000, 0, 0).nodes(3).uints(runEvents, 1, 1000, runEvents, 1, 1000, runEvents, 1, 1000),
		"nodes":   head(1000, 0, 0).nodes(1<<50).uints(runEvents, 1, 1),
		"text":    payload{}.uints(1 << 40),
		"patches": head(1000, 0, 0).nodes(0).uints(1 << 40),
		"carries": head(last, 3, 0).nodes(1).uints(runNode, 3, 0, carries|marker|keeps, 1, 1<<40),
		"value":   head(last, 3, 0).nodes(1).uints(runNode, 3, 0, carries|marker|keeps, 1).text("\xdf\xff\xff\xff\xff"),
	} {
		data := p.form()
		cost := allocated(func() {
			if _, err := fold.ParseSaved(data); !errors.Is(err, patch.ErrCorrupt) {
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

// read reads what a saved view needs of a log of n events, as far as it is there.
func read(needs iter.Seq[uint64], n uint64) []patch.Record {
	var out []patch.Record
	for seq := range needs {
		if seq > n {
			break
		}
		out = append(out, patch.Record{Seq: seq, Event: event(fmt.Sprint(seq))})
	}
	return out
}

// What the bytes say comes back node by node, in order, and is written in the same bytes.
func TestParseSaved(t *testing.T) {
	p := payload{}.text("creation").uints(9, 8).text("inv").uints(0, 0).nodes(4).
		uints(runNode, 8, 3, 1, 1).uints(runEvents, 2, 2).uints(runNode, 7, 0, carries|marker|keeps, 4).value(t, map[string]any{"b": 1, "a": nil}).
		uints(runNode, 9, 0, 1|carries|4|keeps, 7).value(t, map[string]any{"x": 1}).end()
	s, err := fold.ParseSaved(p.form())
	if err != nil {
		t.Fatal(err)
	}
	if s.Creation() != "creation" || s.Seq() != 9 {
		t.Errorf("creation %q, seq %d", s.Creation(), s.Seq())
	}
	if needs := slices.Collect(s.Needs()); !slices.Equal(needs, []uint64{2, 3, 8, 9}) {
		t.Errorf("it needs %d", needs)
	}
	records := append(read(s.Needs(), 3),
		patch.Record{Seq: 8, Patch: patch.NewSplice(0, 0, event("a"), event("b"), event("c"), event("d"))},
		patch.Record{Seq: 9, Patch: patch.NewSummarise(0, 1, event("s", "text:x"))})
	v, err := s.Restore(fold.New("creation", nil), records)
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(v); got != "d 2 3 s" || v.PatchSeq() != 8 || !v.IsSummary(0) || v.IsSummary(1) || !v.IsPinned(3) || v.IsPinned(0) {
		t.Errorf("%s, patch seq %d", got, v.PatchSeq())
	}
	if got := fmt.Sprint(v.State()); got != "map[a:<nil> b:1 x:1]" {
		t.Errorf("state %s", got)
	}
	if got := formOf(t, v); !bytes.Equal(got, p.form()) {
		t.Errorf("written again it is %x, want %x", got, p.form())
	}
	for range s.Needs() {
		break // as those do who find that a record is missing
	}
}

// formOf returns the view's binary form.
func formOf(t rapid.TB, v fold.View) []byte {
	t.Helper()
	form, err := v.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return form
}

// The form of another meaning is told apart from one that is damaged.
func TestParseSavedOutdated(t *testing.T) {
	form := formOf(t, fold.View{})
	if _, err := fold.ParseSaved(form); err != nil {
		t.Error(err)
	}
	form[0]--
	if _, err := fold.ParseSaved(form); !errors.Is(err, fold.ErrOutdated) || errors.Is(err, patch.ErrCorrupt) {
		t.Errorf("another meaning: %v", err)
	}
	if _, err := fold.ParseSaved(nil); !errors.Is(err, patch.ErrCorrupt) {
		t.Errorf("no bytes: %v", err)
	}
}

// A patch of a type that is not known has the view say so, and what is saved of it too.
func TestSavedUnknownPatchType(t *testing.T) {
	r, err := patch.ParseRecord([]byte(`{"id":"p","patchType":"newer"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Seq = 1
	k := &keeper{t: t, log: []patch.Record{r}}
	v := k.restore(k.fold(fold.New("", nil), k.log))
	if err := v.Check(patch.NewSplice(0, 0, event("x")), fold.CheckOptions{}); !errors.Is(err, fold.ErrUnknownPatch) || v.SkippedCount() != 1 {
		t.Errorf("%v, %d skipped", err, v.SkippedCount())
	}
}

// What a form says of a log that is another one gives an error, not a view or a panic.
func TestSavedOfAnotherLog(t *testing.T) {
	records := []patch.Record{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Patch: patch.NewSplice(0, 1, event("r")).WithID("p")}}
	restore := func(records []patch.Record, p payload) (fold.View, error) {
		t.Helper()
		s, err := fold.ParseSaved(p.form())
		if err != nil {
			t.Fatal(err)
		}
		return s.Restore(fold.New("creation", nil), records)
	}
	at := head(3, 3, 0).nodes(1)
	for name, c := range map[string]struct {
		records []patch.Record
		p       payload
	}{
		"no such event":        {records, at.uints(runNode, 3, 1, 0, 1).end()},
		"no such event either": {records, at.uints(runNode, 2, 1, 0, 2).end()},
		"a record missing":     {records[:1], head(2, 0, 0).nodes(1).uints(runEvents, 2, 1).end()},
		"one of several":       {records[:1], head(2, 0, 0).nodes(1).uints(runEvents, 1, 2).end()},
	} {
		if _, err := restore(c.records, c.p); !errors.Is(err, patch.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is said of patches is looked at when it is needed: bytes that no view has are an error then.
func TestMalformedPatches(t *testing.T) {
	records := []patch.Record{{Seq: 1, Event: event("e1")}}
	at := head(3, 3, 0).nodes(1).uints(runEvents, 1, 1)
	for name, p := range map[string]payload{
		"nothing":               {},
		"a patch beyond seq":    payload{}.uints(1, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0),
		"a patch twice":         payload{}.uints(2, 3, 0, 0, 0, 0, 1, 0, 0, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0),
		"a revert of nothing":   payload{}.uints(1, 3, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0),
		"a piece of no kind":    payload{}.uints(1, 3, 0, 0, 0, 0, 1, 1, 9, 1, 0, 0, 0, 0),
		"a piece of no patch":   payload{}.uints(1, 3, 0, 0, 0, 0, 1, 1, 1, 2, 0, 0, 0, 0, 0),
		"a piece of no events":  payload{}.uints(1, 3, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0),
		"a piece of too many":   payload{}.uints(1, 3, 0, 0, 0, 0, 1, 1, 0, 1, 9, 0, 0, 0, 0),
		"a skip that is not it": payload{}.uints(0, 0, 1, 2, 0, 0),
		"more patches than fit": payload{}.uints(1 << 50),
		"bytes behind":          payload{}.uints(0, 0, 0, 0, 7),
	} {
		s, err := fold.ParseSaved(at.text(string(p)).form())
		if err != nil {
			t.Fatal(name, err)
		}
		v, err := s.Restore(fold.New("creation", nil), records)
		if err != nil {
			t.Fatal(name, err)
		}
		for range 2 {
			if _, err := v.Standing("p"); !errors.Is(err, patch.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
			if next, err := v.Apply(patch.Record{Seq: 4, Patch: patch.NewSplice(0, 1)}); !errors.Is(err, patch.ErrCorrupt) || next.Seq() != 3 {
				t.Errorf("%s: applying a patch: %v", name, err)
			}
		}
	}
}
