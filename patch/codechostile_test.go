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

// pack writes a payload as another program might: arrays, texts, bytes, numbers, nil,
// or raw MessagePack.
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

// eventForm is the form of an event with the given fields in place of those that a
// sound one has.
func eventForm(change func(event list)) list {
	event := list{"id", "inv", "author", "", "", list{0, 0}, list{"content", []byte(`{"role":"user"}`)}, list{}}
	change(event)
	return list{1, 0, event}
}

func patchForm(change func(p list)) list {
	p := list{"id", "", "", "", "", nil, "splice", 0, 1, list{}, nil, nil, nil, nil, nil, nil, list{}, list{}}
	change(p)
	return list{1, 1, p}
}

func TestSoundFormsOfTheTests(t *testing.T) {
	for _, form := range []list{eventForm(func(list) {}), patchForm(func(list) {})} {
		if rec, err := patch.DecodeRecord(seal(pack(t, form))); err != nil || rec.ID() != "id" {
			t.Errorf("%v: %v", form, err)
		}
	}
}

func TestFormsThatAreNotAsWrittenAreRefused(t *testing.T) {
	event := func(i int, v any) list { return eventForm(func(e list) { e[i] = v }) }
	splice := func(i int, v any) list { return patchForm(func(p list) { p[i] = v }) }
	members := func(v ...any) list { return event(6, list(v)) }
	typed := func(text string, notes ...any) list {
		return eventForm(func(e list) { e[6], e[7] = list{"x", []byte(text)}, list(notes) })
	}
	long := strings.Repeat("i", patch.MaxIDBytes+1)
	sound := []any{"id", "", "", "", "", nil, list{}, list{}}
	for name, form := range map[string]any{
		"a number": 1, "a map": map[string]int{}, "nothing within": list{}, "a field less": list{1, 0}, "a field more": list{1, 0, sound, nil},
		"unknown kind": list{1, 2, sound}, "kind a text": list{1, "event", sound}, "kind nil": list{1, nil, sound}, "seq nil": list{nil, 0, sound},
		"seq negative": list{-1, 0, sound}, "seq a float": list{1.0, 0, sound}, "seq in more bytes": list{raw{0xcf, 0, 0, 0, 0, 0, 0, 0, 1}, 0, sound},
		"array in more bytes": raw(append([]byte{0xdc, 0, 3}, pack(t, eventForm(func(list) {}))[1:]...)),
		"event a text":        list{1, 0, "event"}, "event nil": list{1, 0, nil}, "event with a field less": list{1, 0, list(sound[:7])},
		"patch of event's size": list{1, 1, list(sound)},

		"id nil": event(0, nil), "id a number": event(0, 5), "id bytes": event(0, []byte("id")), "id not UTF-8": event(0, "\xff"),
		"id too long": event(0, long), "id in more bytes": event(0, raw{0xd9, 2, 'i', 'd'}),
		"time a number": event(5, 0), "time with a field less": event(5, list{0}), "nanoseconds negative": event(5, list{0, -1}),
		"nanoseconds a second": event(5, list{0, 1_000_000_000}), "time before year 1": event(5, list{int64(-1 << 40), 0}), "time after year 9999": event(5, list{int64(1 << 40), 0}),
		"seconds beyond int64": event(5, list{raw{0xcf, 255, 255, 255, 255, 255, 255, 255, 255}, 0}),

		"members a map": event(6, map[string]int{}), "members nil": event(6, nil), "a member without value": members("x"),
		"member's name bytes": members([]byte("x"), []byte("1")), "member's name not UTF-8": members("\xff", []byte("1")),
		"member a text": members("x", "1"), "member nil": members("x", nil), "member no JSON": members("x", []byte("{")),
		"member with space": members("x", []byte("[1, 2]")), "member with space around": members("x", []byte(" 1")),
		"member with a repeated key": members("x", []byte(`{"a":1,"a":2}`)), "member twice": members("x", []byte("1"), "x", []byte("1")),
		"member id": members("id", []byte(`""`)), "member timestamp": members("timestamp", []byte("null")), "member seq": members("seq", []byte("1")),
		"member patchType": members("patchType", []byte(`"splice"`)), "member patch_type": members("patch_type", []byte(`1`)),
		"member event_id": members("event_id", []byte(`"x"`)), "member author beside author": members("author", []byte(`null`)),
		"member branch that says something": members("branch", []byte(`"b"`)), "member content a list": members("content", []byte(`[]`)),
		"state delta a list": members("actions", []byte(`{"stateDelta":[]}`)),

		"notes nil": event(7, nil), "note without type": typed(`1`, "/x"), "note without a place": typed(`1`, "x", "int"), "note at no member": typed(`1`, "/y", "int"),
		"note inside nothing": typed(`{}`, "/x/a", "int"), "note of an unknown type": typed(`1`, "/x", "int128"), "note of no type": typed(`1`, "/x", ""),
		"note of a type too deep": typed(`[]`, "/x", strings.Repeat("[]", 1000)+"int"), "note that does not fit": typed(`"s"`, "/x", "int"),
		"note out of range": typed(`300`, "/x", "uint8"), "notes out of order": typed(`[1,2]`, "/x/1", "int", "/x/0", "int"), "note twice": typed(`[1]`, "/x/0", "int", "/x/0", "int"),
		"note inside a typed value": typed(`[1]`, "/x", "[]int", "/x/0", "int"), "outer note after inner": typed(`[1]`, "/x/0", "int", "/x", "[]any"),
		"note for a longer name": typed(`[1]`, "/xy/0", "int"), "note with an index in another way": typed(`[1]`, "/x/00", "int"),
		"list noted on an object": typed(`{}`, "/x", "[]any"), "map noted on a list": typed(`[]`, "/x", "map[string]any"), "bytes not in base64": typed(`"?"`, "/x", "[]uint8"),
		"note inside a list in a map": typed(`{"a":[1]}`, "/x", "map[string][]any", "/x/a/1", "int"), "type unfit inside a map": typed(`{"a":1}`, "/x", "map[string][]any"),
		"type unfit inside a list": typed(`[1]`, "/x", "[]map[string]any"), "unfit inside a noted list": typed(`[["s"]]`, "/x", "[][]any", "/x/0/0", "int"),
		"note in the name of a path": typed(`{"a":{"b":"s"}}`, "/x/a/b", "int"),

		"start a text": splice(7, "0"), "start a float": splice(7, 0.0), "replacement a text": splice(9, "r"), "replacement of nil": splice(9, list{nil}),
		"replacement of texts": splice(9, list{"r"}), "eventId a number": splice(10, 1), "eventId not UTF-8": splice(10, "\xff"), "summary a text": splice(11, "s"),
		"base negative": splice(12, -1), "state a number": splice(13, 1), "type a number": splice(6, 1), "type nil": splice(6, nil),
		"patch member start": splice(16, list{"start", []byte("null")}), "patch member well-formed": splice(16, list{"state", []byte(`"keep"`)}), "patch member group well-formed": splice(16, list{"group", []byte(`"g"`)}),
		"patchId a number": splice(14, 1), "group a number": splice(15, 1), "group not UTF-8": splice(15, "\xff"),
		"patch member patchType": splice(16, list{"patchType", []byte(`"x"`)}), "patch member event_id": splice(16, list{"event_id", []byte(`5`)}),
		"patch's members nil": splice(16, nil), "patch's notes": splice(17, list{"/x", "int"}), "patch's id too long": splice(0, long),
	} {
		t.Run(name, func(t *testing.T) {
			if rec, err := patch.DecodeRecord(seal(pack(t, form))); !errors.Is(err, patch.ErrCorrupt) {
				t.Errorf("it is taken as %+v, %v", rec, err)
			}
		})
	}
}

// Forms that no AppendRecord writes, but that are read as what they say.
func TestNotesAtUnusualPlacesDoNoHarm(t *testing.T) {
	for _, notes := range []list{
		{"/customMetadata", "map[string]int"}, {"/actions", "map[string]any"}, {"/actions/stateDelta", "map[string]map[string]int"},
		{"/content", "map[string]any", "/content/parts/0/text", "string"}, {"/content/parts", "[]map[string]string"}, {"/content/parts/0/text", "json.Number"},
		{"/actions/stateDelta/k", "any", "/actions/stateDelta/k/n", "any"},
	} {
		form := eventForm(func(e list) {
			e[6] = list{"content", []byte(`{"parts":[{"text":"5"}]}`), "actions", []byte(`{"stateDelta":{"k":{"n":1}}}`), "customMetadata", []byte(`{"a":1}`)}
			e[7] = notes
		})
		rec, err := patch.DecodeRecord(seal(pack(t, form)))
		if errors.Is(err, patch.ErrCorrupt) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		readEverything(rec)
	}
}

func TestHostileBytesCostBoundedMemory(t *testing.T) {
	nested := func(open string, n int) string { return strings.Repeat(open, n) + "\xc0" }
	for name, payload := range map[string]string{
		"array of 2³² values":          "\xdd\xff\xff\xff\xff",
		"map of 2³² values":            "\xdf\xff\xff\xff\xff",
		"text of 4 GiB":                "\x93\x01\x00\x98\xdb\xff\xff\xff\xff",
		"bytes of 4 GiB":               "\x93\x01\x00\xc6\xff\xff\xff\xff",
		"extension of 4 GiB":           "\xc9\xff\xff\xff\xff\x01",
		"arrays in arrays":             nested("\x91", testlog.ScaleDownForRace(20<<20)),
		"maps in maps":                 nested("\x81\xc0", testlog.ScaleDownForRace(10<<20)),
		"members of 2³² values":        "\x93\x01\x00\x98\xa0\xa0\xa0\xa0\xa0\xc0\xdd\xff\xff\xff\xff",
		"arrays in arrays, a few":      nested("\x91", 128),
		"JSON in a member, deep":       string(pack(t, eventForm(func(e list) { e[6] = list{"x", []byte(strings.Repeat("[", testlog.ScaleDownForRace(20<<20)))} }))),
		"notes with long pointers":     string(pack(t, eventForm(func(e list) { e[7] = list{strings.Repeat("/a", testlog.ScaleDownForRace(10<<20)), "int"} }))),
		"a note with a long type name": string(pack(t, eventForm(func(e list) { e[7] = list{"/content", strings.Repeat("[]", testlog.ScaleDownForRace(10<<20)) + "int"} }))),
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

// A list of many numbers has a Go type noted for each; all are met in one walk.
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
