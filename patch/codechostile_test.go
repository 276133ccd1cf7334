package patch_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// pack encodes a value as another program might. The value consists of arrays, strings, bytes, numbers, nil,
// and raw MessagePack.
func pack(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	var put func(v any) error
	put = func(v any) error {
		switch v := v.(type) {
		case raw:
			_, err := b.Write(v)
			return err
		case list:
			if err := enc.EncodeArrayLen(len(v)); err != nil {
				return err
			}
			for _, e := range v {
				if err := put(e); err != nil {
					return err
				}
			}
			return nil
		case int:
			return enc.EncodeInt(int64(v))
		default:
			return enc.Encode(v)
		}
	}
	testlog.NoError(t, put(v))
	return b.Bytes()
}

type (
	list []any
	raw  []byte
)

// Indices of the fields in the encoded forms of events and patches. The first two elements of a form are the seq
// and the kind.
const (
	idAt = 2 + iota
	invocationAt
	authorAt
	branchAt
	scopeAt
	timeAt
	jsonAt
	typesAt
	indexAt // field of events only
)

// Indices of the fields in a patch, after the fields shared with events.
const (
	typeAt = indexAt + iota
	startAt
	countAt
	replacementAt
	eventIDAt
	summaryAt
	baseAt
	stateAt
	patchIDAt
	groupAt
	defectAt
)

// Indices of the fields in an event's index.
const (
	flagsAt = iota
	roleAt
	tokensAt
	functionsAt
	longRunningAt
	changesAt
)

func validIndex() list { return list{0, "user", 0, list{}, nil, list{}} }

// eventForm returns the form of a valid event after the function change has modified the form.
func eventForm(change func(event list)) list {
	event := list{1, 0, "id", "inv", "author", "", "", list{0, 0}, []byte(`{"content":{"role":"user"}}`), list{}, validIndex()}
	change(event)
	return event
}

func patchForm(change func(p list)) list {
	p := list{1, 1, "id", "", "", "", "", nil, nil, list{}, "splice", 0, 1, list{}, nil, nil, nil, nil, nil, nil, nil}
	change(p)
	return p
}

func TestFormsAreValidWithoutChange(t *testing.T) {
	for _, form := range []list{eventForm(func(list) {}), patchForm(func(list) {})} {
		rec, err := patch.DecodeRecord(seal(pack(t, form)))
		if err != nil || rec.ID() != "id" || rec.Verify(nil) != nil {
			t.Errorf("%v: %v, %v", form, err, rec.Verify(nil))
		}
	}
}

func TestChangedFormsAreRefused(t *testing.T) {
	event := func(i int, v any) list { return eventForm(func(e list) { e[i] = v }) }
	index := func(i int, v any) list {
		x := validIndex()
		x[i] = v
		return event(indexAt, x)
	}
	splice := func(i int, v any) list { return patchForm(func(p list) { p[i] = v }) }
	long := strings.Repeat("i", patch.MaxIDBytes+1)
	sound := eventForm(func(list) {})
	for name, form := range map[string]any{
		"a number": 1, "a map": map[string]int{}, "nothing within": list{}, "a field less": list(sound[:10]), "a field more": append(list(nil), append(sound, nil)...),
		"unknown kind": event(1, 2), "kind a text": event(1, "event"), "seq a text": event(0, "1"),
		"patch of event's size": event(1, 1), "event of a patch's size": splice(1, 0),

		"id a number": event(idAt, 5), "id too long": event(idAt, long), "id not UTF-8": event(idAt, "\xff"), "author not UTF-8": event(authorAt, "\xff"),
		"time a number": event(timeAt, 0), "time with a field less": event(timeAt, list{0}), "nanoseconds negative": event(timeAt, list{0, -1}),
		"nanoseconds a second": event(timeAt, list{0, 1_000_000_000}), "time before year 1": event(timeAt, list{int64(-1 << 40), 0}), "time after year 9999": event(timeAt, list{int64(1 << 40), 0}),

		"JSON a map": event(jsonAt, map[string]int{}), "types a text": event(typesAt, "x"), "type without a name": event(typesAt, list{"/x"}),
		"index nil": event(indexAt, nil), "index with a field less": event(indexAt, list{0, "user", 0, list{}, nil}),
		"flags beyond a byte": index(flagsAt, 256), "tokens negative": index(tokensAt, -1), "tokens beyond 32 bits": index(tokensAt, int64(1<<40)),
		"functions nil of 3": index(functionsAt, list{0, false, "id"}), "function at a negative place": index(functionsAt, list{-1, false, "id", "name"}),
		"function's kind a number": index(functionsAt, list{0, 1, "id", "name"}), "long-running ids a text": index(longRunningAt, "id"),
		"a change without an end": index(changesAt, list{"k", 0}), "a change beyond the JSON": index(changesAt, list{"k", 0, 1000}),
		"a change that ends before it begins": index(changesAt, list{"k", 5, 4}), "a change before the JSON": index(changesAt, list{"k", -1, 4}),

		"start a text": splice(startAt, "0"), "replacement a text": splice(replacementAt, "r"), "replacement of nil": splice(replacementAt, list{nil}),
		"replacement of texts": splice(replacementAt, list{"r"}), "eventId a number": splice(eventIDAt, 1), "summary a text": splice(summaryAt, "s"),
		"state a number": splice(stateAt, 1), "type a number": splice(typeAt, 1), "patchId a number": splice(patchIDAt, 1), "group a number": splice(groupAt, 1),
		"defect a text": splice(defectAt, "x"), "defect with a field less": splice(defectAt, list{"a", "b"}), "patch's id too long": splice(idAt, long),
	} {
		t.Run(name, func(t *testing.T) {
			if rec, err := patch.DecodeRecord(seal(pack(t, form))); !errors.Is(err, patch.ErrCorrupt) {
				t.Errorf("it is taken as %+v, %v", rec, err)
			}
		})
	}
}

// If the checksum of a form is correct, DecodeRecord does not check the index and the Go types in it. If they are
// forged, no accessor of the record panics or takes long, and Verify fails.
func TestForgedFormsAreFoundByVerify(t *testing.T) {
	event := func(i int, v any) list { return eventForm(func(e list) { e[i] = v }) }
	object := func(text string) list { return event(jsonAt, []byte(text)) }
	index := func(i int, v any) list {
		x := validIndex()
		x[i] = v
		return event(indexAt, x)
	}
	typed := func(text string, types ...any) list {
		return eventForm(func(e list) {
			e[jsonAt], e[typesAt], e[indexAt] = []byte(text), list(types), list{0, "", 0, list{}, nil, list{}}
		})
	}
	splice := func(i int, v any) list { return patchForm(func(p list) { p[i] = v }) }
	deep := strings.Repeat("[", 1<<20)
	for name, form := range map[string]any{
		"no JSON": object("hello"), "JSON cut off": object(`{"a":`), "JSON with a space": object(`{"a": 1}`), "a repeated key": object(`{"a":1,"a":2}`), "a list": object(`[1]`),
		"JSON of quotes": object(`{""""""`), "JSON of backslashes": object(`{"\\\\\`), "JSON of brackets": object(`{{{[[]]}{`), "JSON of commas": object(`{,,,:,,`), "a key alone": object(`{"a"}`),
		"deep": object(`{"x":` + deep), "deep content": object(`{"content":{"parts":` + deep), "deep state": object(`{"actions":{"stateDelta":` + deep),
		"not UTF-8": object("{\"a\":\"\xff\"}"), "id in the JSON": object(`{"id":"x"}`), "seq in the JSON": object(`{"seq":1}`), "patchType in the JSON": object(`{"patchType":"splice"}`),
		"patch_type in the JSON": object(`{"patch_type":"splice"}`), "content a list": object(`{"content":[]}`), "text a number": object(`{"content":{"parts":[{"text":1}]}}`),
		"a second author": object(`{"author":"x"}`), "nothing in an object": object(`{}`),

		"temp: keys of no event": eventForm(func(e list) {
			e[jsonAt], e[indexAt] = []byte(`{"actions":{"stateDelta":{"temp:x":1},"compaction":-}}`), list{8, "", 0, list{}, nil, list{}}
		}),
		"excluded events": object(`{"actions":{"compaction":{"excludedEvents":[{"invocationId":"\q","timestamp":-}]}}}`), "a level": object(`{"customMetadata":{"patchlog":{"level":-}}}`),
		"a patch's level": splice(jsonAt, []byte(`{"customMetadata":{"patchlog":{"level":-}}}`)), "state too deep": object(`{"actions":{"stateDelta":{"k":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}}}`),
		"role not UTF-8": index(roleAt, "\xff"), "long-running id not UTF-8": index(longRunningAt, list{"\xff"}),

		"flags": index(flagsAt, 255), "role": index(roleAt, "model"), "tokens": index(tokensAt, 7), "a function": index(functionsAt, list{0, true, "id", "name"}),
		"a long-running id": index(longRunningAt, list{"id"}), "no long-running ids": index(longRunningAt, list{}), "a change": index(changesAt, list{"k", 1, 4}),
		"a change of nothing": index(changesAt, list{"k", 0, 0}), "a change in a string": index(changesAt, list{"k", 2, 9}), "changes of one key": index(changesAt, list{"k", 1, 4, "k", 1, 4}),

		"type at no place": typed(`{"x":1}`, "/y", "int"), "type inside nothing": typed(`{"x":{}}`, "/x/a", "int"), "unknown type": typed(`{"x":1}`, "/x", "int128"),
		"a type that any value has": typed(`{"x":1}`, "/x", "any"), "any at the root": typed(`{"x":1}`, "", "any"),
		"no type": typed(`{"x":1}`, "/x", ""), "a type too deep": typed(`{"x":[]}`, "/x", strings.Repeat("[]", 1000)+"int"), "type that does not fit": typed(`{"x":"s"}`, "/x", "int"),
		"type out of range": typed(`{"x":300}`, "/x", "uint8"), "type twice": typed(`{"x":[1]}`, "/x/0", "int", "/x/0", "int"), "type inside a typed value": typed(`{"x":[1]}`, "/x", "[]int", "/x/0", "int"),
		"an index in another way": typed(`{"x":[1]}`, "/x/00", "int"), "list noted on an object": typed(`{"x":{}}`, "/x", "[]any"), "bytes not in base64": typed(`{"x":"?"}`, "/x", "[]uint8"),

		"patch with its field in the JSON": splice(jsonAt, []byte(`{"state":"keep"}`)), "defect of nothing": splice(defectAt, list{"x", "y", "z"}),
		"a defect that is missing": splice(jsonAt, []byte(`{"base":"x"}`)), "patch's types": splice(typesAt, list{"/x", "int"}), "eventId not UTF-8": splice(eventIDAt, "\xff"),
		"replacement that is deep": splice(jsonAt, []byte(`{"replacement":`+deep)),
	} {
		t.Run(name, func(t *testing.T) {
			rec, err := patch.DecodeRecord(seal(pack(t, form)))
			if err != nil {
				t.Fatalf("it is refused before: %v", err)
			}
			readEverything(rec)
			patch.Same(rec, rec)
			if err := rec.Verify(nil); !errors.Is(err, patch.ErrCorrupt) || len(err.Error()) > 1000 {
				t.Errorf("Verify: %.1000v", err)
			}
		})
	}
}

func TestHostileBytesCostBoundedMemory(t *testing.T) {
	nested := func(open string, n int) string { return strings.Repeat(open, n) + "\xc0" }
	replaced := func(at int, entry ...any) string { // returns a patch with many events, each with many small entries in its index
		var entries, events list
		for range patch.MaxLongRunning {
			entries = append(entries, entry...)
		}
		x := validIndex()
		x[at] = entries
		for range 20 {
			events = append(events, list{"", "", "", "", "", nil, []byte{}, list{}, x})
		}
		return string(pack(t, patchForm(func(p list) { p[replacementAt] = events })))
	}
	for name, payload := range map[string]string{
		"array of 2³² values":                    "\xdd\xff\xff\xff\xff",
		"map of 2³² values":                      "\xdf\xff\xff\xff\xff",
		"text of 4 GiB":                          "\x9b\x01\x00\xdb\xff\xff\xff\xff",
		"bytes of 4 GiB":                         "\x9b\x01\x00\xa0\xa0\xa0\xa0\xa0\xc0\xc6\xff\xff\xff\xff",
		"extension of 4 GiB":                     "\xc9\xff\xff\xff\xff\x01",
		"arrays in arrays":                       nested("\x91", testlog.ScaleDownForRace(20<<20)),
		"maps in maps":                           nested("\x81\xc0", testlog.ScaleDownForRace(10<<20)),
		"types of 2³² values":                    "\x9b\x01\x00\xa0\xa0\xa0\xa0\xa0\xc0\xc0\xdd\xff\xff\xff\xff",
		"arrays in arrays, a few":                nested("\x91", 128),
		"a type with a long pointer":             string(pack(t, eventForm(func(e list) { e[typesAt] = list{strings.Repeat("/a", testlog.ScaleDownForRace(10<<20))} }))),
		"long-running ids that the JSON has not": replaced(longRunningAt, ""), "functions that the JSON has not": replaced(functionsAt, 0, false, "", ""),
		"changes that the JSON has not": replaced(changesAt, "", 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			form := seal([]byte(payload))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := patch.DecodeRecord(form)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, patch.ErrCorrupt) || len(err.Error()) > 1000 {
				t.Errorf("the error is %.1000v", err)
			}
			if most := uint64(1<<20 + 12*len(form)); after.TotalAlloc-before.TotalAlloc > most {
				t.Errorf("%d bytes cost %d bytes of memory", len(form), after.TotalAlloc-before.TotalAlloc)
			}
		})
	}
}

// If a list has many numbers, each number has its own noted Go type. Decoding takes time linear in their number.
func TestManyGoTypesTakeLinearTime(t *testing.T) {
	want := make([]any, 50_000)
	keys := map[string]any{}
	for i := range want {
		want[i] = i
		keys[fmt.Sprint("key ", i)] = i
	}
	e := storedEvent(t, newEvent(t, patch.Fields{
		Actions:        patch.Actions{StateDelta: map[string]any{"list": want}},
		CustomMetadata: keys,
	}))
	wantEqual(t, "list", e.StateDelta()["list"], any(want))
	wantEqual(t, "keys", e.CustomMetadata(), keys)
}
