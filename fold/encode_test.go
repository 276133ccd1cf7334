package fold_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// payload builds a view's binary form without its first byte. Its methods return copies.
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
	object := testlog.Must(patch.NewValue(v))(t)
	form := testlog.Must(object.MarshalBinary())(t)
	return p.text(string(form))
}

// form returns the payload after a first byte with the current version.
func (p payload) form() []byte {
	whole, err := fold.View{}.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	return append(whole[:1:1], p...)
}

// head returns the fields before the cuts and the nodes.
func head(seq, patchSeq, skips uint64) payload {
	return payload{}.text("creation").uints(seq, patchSeq).text("inv").uints(0, skips)
}

// end appends the fields of a view without pinned events and patches.
func (p payload) end() payload { return p.uints(0, 2, 0, 0) }

// Flags of cuts, and kinds of the pieces of a run, as in a form.
const (
	keeps, puts, reverts, pins, carries = 1, 2, 8, 32, 128

	events1, event1, summary1, marker1 = 0, 1, 2, 3
)

// last is the seq of the last record in the log of the malformed forms.
const last = 44

func TestMalformedForms(t *testing.T) {
	at, two := head(last, 3, 1).uints(0, 1), head(last, 3, 1).uints(0, 2) // beginnings of forms without cuts, with one piece and with two pieces
	cut := head(last, 3, 1).uints(1, 3)                                   // beginning of a form with the cut of record 3
	marker, replaced := cut.uints(0, 1, 1), cut.uints(puts, 1, 1)         // beginnings of forms with this cut at pos 1, and with one piece
	kept := cut.uints(keeps|carries, 1)
	for name, p := range map[string]payload{
		"nothing":                     {},
		"creation cut off":            payload{}.uints(8),
		"creation longer than all":    payload{}.uints(math.MaxUint64),
		"number cut off":              append(payload{}.text("creation"), 0x80),
		"number of more than 64 bits": append(payload{}.text("creation"), 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1),
		"invocation cut off":          payload{}.text("creation").uints(last, 3, 4),
		"no flags":                    payload{}.text("creation").uints(last, 3).text("inv"),
		"no skips":                    payload{}.text("creation").uints(last, 3).text("inv").uints(0),
		"no cuts":                     head(last, 3, 1),
		"cut without flags":           cut,
		"cut without place":           cut.uints(0),
		"cut of record 0":             head(last, 3, 1).uints(1, 0, 0, 0, 0).end(),
		"cut placed after itself":     cut.uints(0, 3, 0).end(),
		"cut twice":                   head(last, 3, 1).uints(2, 3, 0, 1, 3, 0, 1, 0).end(),
		"no nodes":                    cut.uints(0, 1),
		"places go back":              cut.uints(0, 1, 2, events1, 2, 1, marker1, 3).end(),
		"ranges overlap":              two.uints(events1, 1, 2, events1, 1, 1).end(),
		"a marker without a cut":      at.uints(marker1, 3).end(),
		"a summary without a cut":     at.uints(summary1, 1, 0).end(),
		"a marker of a replacement":   replaced.uints(marker1, 3).end(),
		"an event in place of it":     marker.uints(event1, 3, 0).end(),
		"unknown kind":                at.uints(4, 1).end(),
		"largest kind":                at.uints(math.MaxUint64, 1).end(),
		"kind cut off":                append(slices.Clip(at), 0x80),
		"no pins":                     at.uints(events1, 1, 1),
		"pins cut off":                at.uints(events1, 1, 1, 1, 1),
		"a pin beyond seq":            at.uints(events1, 1, 1, 1, last+1, 0, 2, 0, 0),
		"no patches":                  at.uints(events1, 1, 1, 0),
		"patches cut off":             at.uints(events1, 1, 1, 0, 4, 0),
		"range without first":         at.uints(events1),
		"range without count":         at.uints(events1, 1),
		"empty range":                 at.uints(events1, 1, 0).end(),
		"range from record 0":         at.uints(events1, 0, 1).end(),
		"range beyond seq":            at.uints(events1, 2, last).end(),
		"range that starts there":     at.uints(events1, last+1, 1).end(),
		"range that wraps around":     at.uints(events1, math.MaxUint64, 2).end(),
		"largest range":               at.uints(events1, 1, math.MaxUint64).end(),
		"ranges of more than all":     two.uints(events1, 1, last, events1, 1, 1).end(),
		"ranges whose sum overflows":  two.uints(events1, 1, last, events1, 1, math.MaxUint64-last+1).end(),
		"event without seq":           replaced.uints(event1),
		"event without index":         replaced.uints(event1, 3),
		"event of record 0":           replaced.uints(event1, 0, 0).end(),
		"event beyond seq":            replaced.uints(event1, last+1, 0).end(),
		"event of the largest record": replaced.uints(event1, math.MaxUint64, 0).end(),
		"index too large":             replaced.uints(event1, 3, math.MaxInt32+1).end(),
		"largest index":               replaced.uints(event1, 3, math.MaxUint64).end(),
		"marker without seq":          marker.uints(marker1),
		"carries nothing":             kept,
		"carries cut off":             kept.uints(9),
		"carries longer than all":     kept.uints(math.MaxUint64),
		"carries of no bytes":         kept.uints(0, 1, marker1, 3).end(),
		"carries garbage":             kept.text("\xff\xff\xff\xff\xff").uints(1, marker1, 3).end(),
		"bad piece after a good one":  two.uints(events1, 1, 1, 7, 2).end(),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := restored(p, last); !errors.Is(err, patch.ErrCorrupt) {
				t.Errorf("error %v, want one that matches %q", err, patch.ErrCorrupt)
			}
		})
	}
	for name, p := range map[string]payload{
		"no nodes":      head(last, 3, 1).uints(0, 0).end(),
		"empty log":     head(0, 0, 0).uints(0, 0).end(),
		"whole range":   at.uints(events1, 1, last).end(),
		"range at seq":  at.uints(events1, last, 1).end(),
		"event":         replaced.uints(event1, 3, math.MaxInt32).end(),
		"marker":        marker.uints(marker1, 3).end(),
		"pin":           at.uints(events1, 1, 1, 1, last, 7, 2, 0, 0),
		"what it keeps": kept.value(t, map[string]any{"b": 1, "a": 2}).uints(1, marker1, 3).end(),
	} {
		if _, err := restored(p, last); err != nil && !errors.As(err, new(*fold.MissingRecordsError)) {
			t.Errorf("%s: %v; the rows that are refused may be so for other reasons", name, err)
		}
	}
}

// Restoring a short form takes little memory and time, even if the form contains large lengths.
func TestMalformedFormsUseLittleMemory(t *testing.T) {
	const far = 1 << 40
	const furthest = math.MaxUint64
	for name, p := range map[string]payload{
		"events":              head(far, 0, 0).uints(0, 1, events1, 1, far).end(),
		"events at the end":   head(furthest-1, 0, 0).uints(0, 1, events1, furthest-1-1<<30, 1<<30).end(),
		"events and a marker": head(far, far, 0).uints(1, far, 0, far/2, 3, events1, 1, far/2, marker1, far, events1, far/2+1, far/4).end(),
		"skips":               head(far, far, far).uints(0, 0).end(),
		"a far event":         head(far, 0, 0).uints(0, 1, events1, far, 1).end(),
		"hidden events":       head(far, far, 0).uints(0, 0, 0).text(string(payload{}.uints(1, far, 0, 1, 0, 0, 1, 1, events1, 1, far-1, 0, 0))),
		"range":               head(last, 0, 0).uints(0, 1, events1, 1, 1<<40),
		"ranges":              head(1000, 0, 0).uints(0, 3, events1, 1, 1000, events1, 1, 1000, events1, 1, 1000),
		"nodes":               head(1000, 0, 0).uints(0, 1<<50, events1, 1, 1),
		"cuts":                head(1000, 3, 0).uints(1<<50, 1, 0, 0),
		"pins":                head(1000, 3, 0).uints(0, 0, 1<<50, 1, 0),
		"text":                payload{}.uints(1 << 40),
		"patches":             head(1000, 0, 0).uints(0, 0, 0).uints(1 << 40),
		"carries":             head(last, 3, 0).uints(1, 3, keeps|carries, 1, 1<<40),
		"value":               head(last, 3, 0).uints(1, 3, keeps|carries, 1).text("\xdf\xff\xff\xff\xff"),
	} {
		data := p.form()
		cost := allocated(func() {
			testlog.ErrorIs(t, testlog.ErrorOf(fold.Restore(fold.New("creation", nil), data, 1000)), patch.ErrCorrupt, "%s", name)
		})
		if cost > 1<<20 {
			t.Errorf("%s: %d bytes of memory for %d", name, cost, len(data))
		}
	}
}

// allocated returns the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// restored calls Restore with the last seq of the log and the supplied records.
func restored(p payload, last uint64, records ...patch.Record) (fold.View, error) {
	return fold.Restore(fold.New("creation", nil).WithRecords(records), p.form(), last)
}

// A restored view has the nodes of the form in the same order. Encoding the view again gives the same bytes.
func TestRestore(t *testing.T) {
	p := payload{}.text("creation").uints(9, 9).text("inv").uints(0, 0, 3).
		uints(8, puts, 1).uints(7, carries|keeps, 4).value(t, map[string]any{"b": 1, "a": nil}).uints(9, puts|carries|keeps, 6).value(t, map[string]any{"x": 1}).
		uints(4, summary1, 8, 3, events1, 2, 2, marker1, 7, summary1, 9, 0).
		uints(1, 9, 0, 2, 0, 0)
	records := []patch.Record{{Seq: 2, Event: event("2")}, {Seq: 3, Event: event("3")},
		{Seq: 8, Patch: patch.NewSplice(0, 0, event("a"), event("b"), event("c"), event("d"))},
		{Seq: 9, Patch: patch.NewSummarise(0, 1, event("s", "text:x"))}}
	for n := range records {
		_, err := restored(p, 9, records[:n]...)
		if need := (*fold.MissingRecordsError)(nil); !errors.As(err, &need) || !slices.Equal(need.Seqs, []uint64{2, 3, 8, 9}) {
			t.Errorf("with %d records at hand: %v", n, err)
		}
	}
	v := testlog.Must(restored(p, 9, records...))(t)
	if v.Creation() != "creation" || v.Seq() != 9 {
		t.Errorf("creation %q, seq %d", v.Creation(), v.Seq())
	}
	if got := ids(v); got != "d 2 3 s" || v.PatchSeq() != 9 || !v.Entry(0).Summary || v.Entry(1).Summary || !v.IsPinned(3) || v.IsPinned(0) {
		t.Errorf("%s, patch seq %d", got, v.PatchSeq())
	}
	if got := fmt.Sprint(v.State()); got != "map[a:<nil> b:1 x:1]" {
		t.Errorf("state %s", got)
	}
	if got := formOf(t, v); !bytes.Equal(got, p.form()) {
		t.Errorf("written again it is %x, want %x", got, p.form())
	}
}

func formOf(t rapid.TB, v fold.View) []byte {
	t.Helper()
	form := testlog.Must(v.AppendBinary(nil))(t)
	return form
}

// If a form has another version, Restore reports it as outdated, not as corrupt.
func TestRestoreOutdated(t *testing.T) {
	form := formOf(t, fold.View{})
	if _, err := fold.Restore(fold.View{}, form, 0); err != nil {
		t.Error(err)
	}
	form[0]--
	if _, err := fold.Restore(fold.View{}, form, 0); !errors.Is(err, fold.ErrOutdated) || errors.Is(err, patch.ErrCorrupt) {
		t.Errorf("another version: %v", err)
	}
	testlog.ErrorIs(t, testlog.ErrorOf(fold.Restore(fold.View{}, nil, 0)), patch.ErrCorrupt, "no bytes")
}

// If the log contains a patch of unknown type, a restored view refuses every new patch.
func TestRestoreUnknownPatchType(t *testing.T) {
	r := testlog.Must(patch.ParseRecord([]byte(`{"id":"p","patchType":"newer"}`)))(t)
	r.Seq = 1
	k := &keeper{t: t, log: []patch.Record{r}}
	v := k.restore(k.fold(fold.New("", nil), k.log))
	if err := v.Check(patch.NewSplice(0, 0, event("x")), fold.CheckOptions{}); !errors.Is(err, fold.ErrUnknownPatch) || v.SkippedCount() != 1 {
		t.Errorf("%v, %d skipped", err, v.SkippedCount())
	}
}

// If a form belongs to another log, Restore returns an error and does not panic.
func TestRestoreOfAnotherLog(t *testing.T) {
	records := []patch.Record{{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Patch: patch.NewSplice(0, 1, event("r")).WithID("p")}}
	for name, c := range map[string]struct {
		records []patch.Record
		p       payload
	}{
		"no such event":    {records, head(3, 3, 0).uints(1, 3, puts, 1, 1, event1, 3, 1).end()},
		"a longer log":     {records, head(4, 0, 0).uints(0, 1, events1, 1, 2).end()},
		"another creation": {records, payload{}.text("another").uints(3, 3).text("inv").uints(0, 0, 0, 0).end()},
	} {
		testlog.ErrorIs(t, testlog.ErrorOf(restored(c.p, 3, c.records...)), patch.ErrCorrupt, "%s", name)
	}
}

// If the effects of patches in a form are malformed, the error is reported when a caller first needs these
// effects.
func TestMalformedPatches(t *testing.T) {
	records := []patch.Record{{Seq: 1, Event: event("e1")}}
	at := head(3, 3, 0).uints(0, 1, events1, 1, 1, 0)
	one := func(seq, flags uint64) payload { return payload{}.uints(1, seq, flags, 1, 0, 0) } // one patch without id and group
	for name, p := range map[string]payload{
		"nothing":               {},
		"a patch beyond seq":    one(4, 0).uints(1, 0, 0, 0),
		"a patch twice":         payload{}.uints(2, 3, 0, 1, 0, 0, 1, 0, 0, 3, 0, 0, 1, 0, 0, 0),
		"a revert of nothing":   one(3, reverts).uints(0, 1, 0, 0, 0),
		"a pin of a later node": one(3, pins).uints(3, 0, 0),
		"a piece of no kind":    one(3, 0).uints(1, 1, 9, 1, 0, 0),
		"a piece of no patch":   one(3, 0).uints(1, 1, event1, 2, 0, 0, 0),
		"a piece of itself":     one(3, 0).uints(1, 1, marker1, 3, 0, 0),
		"a piece of no events":  one(3, 0).uints(1, 1, events1, 1, 0, 0, 0),
		"a piece of too many":   one(3, 0).uints(1, 1, events1, 1, 9, 0, 0),
		"a skip that is not it": payload{}.uints(0, 1, 2, 0),
		"more patches than fit": payload{}.uints(1 << 50),
	} {
		v, err := restored(at.text(string(p)), 3, records...)
		if err != nil {
			t.Fatal(name, err)
		}
		for range 2 {
			testlog.ErrorIs(t, testlog.ErrorOf(v.RevertTargets("p")), patch.ErrCorrupt, "%s", name)
			if next, err := v.Apply(patch.Record{Seq: 4, Patch: patch.NewSplice(0, 1)}); !errors.Is(err, patch.ErrCorrupt) || next.Seq() != 3 {
				t.Errorf("%s: applying a patch: %v", name, err)
			}
		}
	}
}
