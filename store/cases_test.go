package store_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func at(id, timestamp string) *patch.Event {
	return event(`{"id":%q,"author":"a","timestamp":%q,"content":{"role":"user","parts":[{"text":%q}]}}`, id, timestamp, id)
}

// rawIDs returns the ids of the raw log.
func (e *env) rawIDs() string {
	e.Helper()
	var out []string
	for _, r := range e.records(key) {
		out = append(out, r.ID())
	}
	return strings.Join(out, " ")
}

func TestEqualTimestampsOnBothSidesOfACut(t *testing.T) {
	const noon = "2025-01-01T12:00:00Z"
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(at("a", noon), at("b", noon), at("c", noon), at("d", noon))
		e.apply(patch.NewSummarise(0, 2, summary("s")))
		e.same("visible", ids(e.view()), "s c d")
		e.apply(patch.NewTruncateBefore("d"))
		e.same("visible", ids(e.view()), "d")
		v, err := e.store.ViewAt(ctx, key, 4)
		e.no(err)
		e.same("before", ids(v), "a b c d")
	})
}

func TestTimestampsThatGoBack(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(at("five", "2025-01-01T12:00:05Z"), at("one", "2025-01-01T12:00:01Z"), at("three", "2025-01-01T12:00:03Z"))
		e.same("visible", ids(e.view()), "five one three")
		e.same("raw", e.rawIDs(), "five one three")
		e.reopen()
		e.same("visible", ids(e.view()), "five one three")
		e.apply(patch.NewTruncateBefore("one"))
		e.same("visible", ids(e.view()), "one three")
	})
}

func TestAppendedWhileASummaryWasMade(t *testing.T) {
	for _, when := range []string{"2025-01-01T12:00:00Z", "2025-01-01T12:00:01.5Z", "2025-01-01T12:00:09Z"} {
		onEach(t, func(e *env) {
			e.create(nil)
			e.append(at("a", "2025-01-01T12:00:01Z"), at("b", "2025-01-01T12:00:02Z"), at("c", "2025-01-01T12:00:03Z"))
			seen := e.view()
			e.append(at("late", when))
			_, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, patch.NewSummarise(0, 3, summary("s")))
			e.no(err)
			e.same("visible", ids(e.view()), "s late")
		})
	}
}

func TestCallIDUsedAgain(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		again := event(`{"id":"c2","invocationId":"inv1","content":{"role":"model","parts":[{"functionCall":{"id":"k","name":"tool","args":{"other":true}}}]}}`)
		e.append(say("a"), call("c1", "inv1", "k"), answer("r1", "inv1", "k"), again, answer("r2", "inv1", "k"), say("b"))
		// The second response belongs to the second call.
		e.refuse(asOfNow, one(patch.NewSplice(3, 1).WithID("p")), fold.ErrOrphanedCall, `"r2"`)
		e.refuse(asOfNow, one(patch.NewSplice(2, 1).WithID("p")), fold.ErrOrphanedCall, `"c1"`)
		e.apply(patch.NewSplice(3, 2))
		e.same("visible", ids(e.view()), "a c1 r1 b")
		// The first pair is still one.
		e.refuse(asOfNow, one(patch.NewSplice(1, 1).WithID("p")), fold.ErrOrphanedCall, `"r1"`)
	})
}

func TestParallelCallsOneUnanswered(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a"), call("c", "inv1", "k1", "k2", "k3"), answer("r1", "inv1", "k1"), answer("r3", "inv1", "k3"), say("b"))
		err := e.refuse(asOfNow, one(patch.NewSplice(1, 3).WithID("p")), fold.ErrOrphanedCall, `"k2"`)
		if o := as[*fold.OrphanError](e, err).Orphans; len(o) != 1 || o[0].CallID != "k2" || o[0].EventID != "c" || o[0].Index != 1 {
			e.Errorf("orphans %v, want k2 of c alone", o)
		}
		// One response cut: that one is named, not the one that was missing anyway.
		err = e.refuse(asOfNow, one(patch.NewSplice(3, 1).WithID("p")), fold.ErrOrphanedCall, `"k3"`)
		if o := as[*fold.OrphanError](e, err).Orphans; len(o) != 1 || o[0].CallID != "k3" {
			e.Errorf("orphans %v, want k3 alone", o)
		}
		e.append(answer("r2", "inv1", "k2"))
		e.apply(patch.NewSplice(1, 5, say("x")))
		e.same("visible", ids(e.view()), "a x")
	})
}

func TestInitialStateOutlivesPatches(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"tenant": "t1"})
		e.append(sets("a", `{"tenant":"t2","k":1}`), say("b"), sets("c", `{"tenant":null}`))
		e.apply(patch.NewSplice(0, 3).WithState(patch.Drop))
		e.same("state", e.state(), `{"tenant":"t1"}`)
		e.reopen()
		e.same("state", e.state(), `{"tenant":"t1"}`)
		e.same("visible", ids(e.view()), "")
	})
}

func TestStateOfCutsAfterSummaries(t *testing.T) {
	events := func() []*patch.Event {
		var out []*patch.Event
		for i := 1; i <= 7; i++ {
			out = append(out, sets(fmt.Sprint("e", i), fmt.Sprintf(`{"k%d":%d,"last":%d}`, i, i, i)))
		}
		return out
	}
	states := map[string]string{}
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(events()...)
		e.apply(patch.NewTruncateBefore("e6"))
		states["alone"] = e.state()
	})
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(events()...)
		e.apply(patch.NewSummarise(0, 4, summary("s")))
		e.same("state after the summary", e.state(), `{"k1":1,"k2":2,"k3":3,"k4":4,"k5":5,"k6":6,"k7":7,"last":7}`)
		e.apply(patch.NewTruncateBefore("e6").WithState(patch.Drop))
		e.same("state", e.state(), states["alone"])
		e.same("state", e.state(), `{"k6":6,"k7":7,"last":7}`)
	})
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(events()...)
		e.apply(patch.NewSplice(1, 1, say("r")).WithState(patch.Keep))
		e.apply(patch.NewTruncateBefore("r"))
		e.same("state", e.state(), `{"k2":2,"k3":3,"k4":4,"k5":5,"k6":6,"k7":7,"last":7}`)
	})
}

func TestEventsWithoutContent(t *testing.T) {
	lines := []string{
		`{"id":"e1","author":"model","timestamp":"2025-01-01T00:00:00Z","content":{"role":"model","parts":[]},"interrupted":true,"errorMessage":"aborted"}`,
		`{"id":"e2","author":"model","timestamp":"2025-01-01T00:00:00Z"}`,
		`{"id":"e3","author":"system","timestamp":"2025-01-01T00:00:00Z","actions":{"stateDelta":{"k":1},"artifactDelta":{}}}`,
		`{"id":"e4","timestamp":"2025-01-01T00:00:00Z","content":{}}`,
		`{"id":"e5","timestamp":"2025-01-01T00:00:00Z","content":null}`,
		`{"id":"e6","timestamp":"2025-01-01T00:00:00Z","content":{"parts":[{"functionCall":{"name":"f","args":{}}}]},"longRunningToolIds":[]}`,
	}
	onEach(t, func(e *env) {
		e.importText("f", strings.Join(lines, "\n"))
		e.reopen()
		e.same("visible", ids(e.view()), "e1 e2 e3 e4 e5 e6")
		e.same("state", e.state(), `{"k":1}`)
		var b strings.Builder
		e.no(e.store.Export(ctx, key, &b, store.ExportOptions{Visible: true}))
		e.same("text", b.String(), strings.Join(lines, "\n")+"\n")
	})
}

// toolResponse is a content of one part, what a tool returns.
func toolResponse(response map[string]any) any {
	return map[string]any{"parts": []any{map[string]any{"functionResponse": map[string]any{"id": "k", "name": "tool", "response": response}}}}
}

func TestOddText(t *testing.T) {
	odd := "nul \x00 esc \x1b line \u2028 para \u2029 astral \U0001f600\U0010fffd del \x7f bell \x07 bom \ufeff replacement \ufffd quote \" slash \\ </script> & cr \r\n"
	long := strings.Repeat("0123456789abcde\n", 116_000/16)
	onEach(t, func(e *env) {
		e.create(nil)
		for i, s := range []string{odd, long} {
			ev, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", i), Author: odd, Content: toolResponse(map[string]any{"output": s, odd: []any{s}}), Actions: patch.Actions{StateDelta: map[string]any{odd: s}}})
			e.no(err)
			e.append(ev)
		}
		// From JSON with escapes of each kind: the text comes back byte for byte.
		line := `{"id":"e2","timestamp":"2025-01-01T00:00:00Z","content":{"parts":[{"text":"\u0000\u001b\u2028\ud83d\ude00\/\u00e9é😀\b\f"}]}}`
		e.append(event("%s", line))
		e.reopen()
		v := e.view()
		for i, s := range []string{odd, long} {
			var c struct {
				Parts []struct {
					FunctionResponse struct{ Response map[string]any }
				}
			}
			e.no(v.At(i).Decode("content", &c))
			r := c.Parts[0].FunctionResponse.Response
			if r["output"] != s || !reflect.DeepEqual(r[odd], []any{s}) || v.At(i).Author() != odd {
				e.Errorf("event %d came back as %.80q", i, r)
			}
			if got, _ := v.Value(odd); i == 1 && got.Any() != s {
				e.Errorf("the state came back as %.80q", got.Any())
			}
		}
		e.same("line", v.At(2).String(), line)
		// What JSON cannot carry is refused by name.
		for field, text := range map[string]string{
			"content/parts/0/functionResponse/response/output": `{"id":"x","content":{"parts":[{"functionResponse":{"name":"t","response":{"output":"a` + "\xff" + `b"}}}]}}`,
			"content/parts/0/text":                             `{"id":"x","content":{"parts":[{"text":"\ud800"}]}}`,
			"actions/stateDelta/k":                             `{"id":"x","actions":{"stateDelta":{"k":"` + "\xc3" + `"}}}`,
		} {
			_, err := e.importInto(key, text, store.ImportOptions{Name: "f"})
			e.is(err, store.ErrInvalid, "f:1", field)
		}
		_, err := patch.NewEvent(patch.Fields{Content: toolResponse(map[string]any{"output": "a\xffb"})})
		e.is(err, store.ErrInvalid, "output")
	})
}

func TestNumbers(t *testing.T) {
	delta := map[string]any{
		"int64": int64(1<<53 + 1), "max": int64(math.MaxInt64), "min": int64(math.MinInt64), "uint64": uint64(math.MaxUint64),
		"int": 5, "float": 0.1, "whole": 2.0, "negative zero": math.Copysign(0, -1), "huge": 1e300, "tiny": 5e-324,
		"null": nil, "bool": false, "text": "", "bytes": []byte{1, 0, 255},
		"nested":  map[string]any{"list": []any{1, int64(2), 3.0, "4", nil, []any{}, map[string]any{}}, "f32": float32(0.5), "u8": uint8(200)},
		"strings": []string{"a", "b"}, "counts": map[string]int64{"x": 1 << 60},
	}
	onEach(t, func(e *env) {
		e.create(map[string]any{"initial": delta})
		ev, err := patch.NewEvent(patch.Fields{ID: "e1", Actions: patch.Actions{StateDelta: delta}})
		e.no(err)
		e.append(ev)
		for range 2 {
			state := e.get().State()
			initial := state["initial"]
			delete(state, "initial")
			for k, want := range delta {
				for _, got := range []any{state[k], initial.(map[string]any)[k]} {
					if !reflect.DeepEqual(got, want) {
						e.Errorf("%s came back as %#v, want %#v", k, got, want)
					}
				}
			}
			if z := state["negative zero"].(float64); !math.Signbit(z) {
				e.Error("-0.0 lost its sign")
			}
			if !reflect.DeepEqual(e.view().At(0).StateDelta(), delta) {
				e.Errorf("the event's delta came back as %#v", e.view().At(0).StateDelta())
			}
			e.reopen()
		}
		// From JSON, literals stay.
		text := `{"a":9007199254740993,"b":1.0,"c":1e2,"d":-0.0,"e":-0,"f":0.1,"g":123456789012345678901234567890,"h":null}`
		e.append(event(`{"id":"e2","actions":{"stateDelta":{"j":%s}}}`, text))
		e.reopen()
		v, _ := e.view().Value("j")
		e.same("literals", v.String(), text)
		for name, bad := range map[string]any{"nan": math.NaN(), "inf": math.Inf(-1), "f32": float32(math.Inf(1)), "deep": []any{math.NaN()}} {
			_, err := patch.NewEvent(patch.Fields{Actions: patch.Actions{StateDelta: map[string]any{name: bad}}})
			e.is(err, store.ErrInvalid, name)
		}
		for _, bad := range []string{"NaN", "Infinity", "01", "+1", ".5", "1."} {
			_, err := e.importInto(key, `{"id":"x","actions":{"stateDelta":{"k":`+bad+`}}}`, store.ImportOptions{})
			if !errors.Is(err, store.ErrInvalid) {
				e.Errorf("%s: error %v", bad, err)
			}
		}
	})
}
