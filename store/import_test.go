package store_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// elsewhere returns the key of another session of another user.
var elsewhere = store.Key{App: "app2", User: "user2", Session: "elsewhere"}

func (e *env) importInto(key store.Key, text string, opts store.ImportOptions) (store.Imported, error) {
	return e.store.Import(ctx, key, strings.NewReader(text), opts)
}

func TestExportThenImport(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"k0": []any{"x", 1, 2.5}, "null": nil, "app:x": 1})
		e.fill(50)
		e.append(sets("scopes", `{"app:x":2,"user:x":3,"k":1}`))
		// A log may hold what cannot be applied.
		e.importText("f", e.export()+`{"id":"skipped","patchType":"splice","start":99,"count":1}
{"id":"wrong","patchType":"summarise","start":"x"}
{"id":"after"}
`)
		text := e.export()
		imported, err := e.importInto(elsewhere, text, store.ImportOptions{})
		e.no(err)
		if n := strings.Count(text, "\n") - 1; !imported.Created || imported.Added != n || imported.Present != 0 || len(imported.Records) != n {
			e.Errorf("created %t, %d added, %d present, %d records; want %d", imported.Created, imported.Added, imported.Present, len(imported.Records), n)
		}
		there := sessionOf(e, e.store, elsewhere)
		e.same("view", withoutCreation(e.viewText(there.View)), withoutCreation(e.viewText(e.view())))
		if n := len(e.skipped(there.View)); n != 2 {
			e.Errorf("%d skipped, want 2", n)
		}
		e.same("returned view", e.viewText(imported.View), e.viewText(there.View))
		e.same("shared", e.shared(elsewhere), "")
		var again strings.Builder
		e.no(e.store.Export(ctx, elsewhere, &again, store.ExportOptions{}))
		e.same("text", again.String(), text)

		// Once more.
		stored := e.dump()
		for _, k := range []store.Key{key, elsewhere} {
			imported, err = e.importInto(k, text, store.ImportOptions{})
			e.no(err)
			if imported.Created || imported.Added != 0 || imported.Present != len(imported.Records) {
				e.Errorf("created %t, %d added, %d present", imported.Created, imported.Added, imported.Present)
			}
		}
		e.same("stored", e.dump(), stored)
	})
}

func TestExport(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"b": 1.0, "a": "x"})
		e.append(event(`{"id":"e1","timestamp":"2025-11-20T10:30:00.25Z","odd":{"n":1e2}}`), event(`{"id":"e2","timestamp":"2025-11-20T10:30:01+01:00"}`))
		e.must(e.store.ApplyPatch(ctx, key, asOfNow, parsePatch(`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r"}],"note":"kept"}`)))
		e.same("text", e.export(), `{"patchlog":1,"initialState":{"a":"x","b":1.0}}
{"seq":1,"id":"e1","timestamp":"2025-11-20T10:30:00.25Z","odd":{"n":1e2}}
{"seq":2,"id":"e2","timestamp":"2025-11-20T09:30:01Z"}
{"seq":3,"id":"p","timestamp":"2025-11-20T10:30:00.123456789Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r","timestamp":"2025-11-20T10:30:00.123456789Z"}],"note":"kept"}
`)
		var b strings.Builder
		e.no(e.store.Export(ctx, key, &b, store.ExportOptions{Visible: true}))
		e.same("visible", b.String(), `{"id":"r","timestamp":"2025-11-20T10:30:00.123456789Z"}
{"id":"e2","timestamp":"2025-11-20T09:30:01Z"}
`)
		// It forgets what was hidden.
		imported, err := e.importInto(elsewhere, b.String(), store.ImportOptions{})
		e.no(err)
		e.same("visible elsewhere", ids(imported.View), "r e2")
		if imported.View.PatchSeq() != 0 {
			e.Error("there is a patch")
		}
		// Errors of the writer come back.
		full := errors.New("disk full")
		for _, visible := range []bool{false, true} {
			e.is(e.store.Export(ctx, key, failingWriter{full}, store.ExportOptions{Visible: visible}), full)
		}
	})
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestImportForms(t *testing.T) {
	for _, c := range []struct {
		name, text, visible, state string
	}{
		{"empty", "", "", "{}"},
		{"blank lines", "\n \r\n", "", "{}"},
		{"header alone", `{"patchlog":1,"initialState":{"k":1.0}}`, "", `{"k":1.0}`},
		{"header without state", `{"patchlog":1}` + "\n" + `{"id":"a"}`, "a", "{}"},
		{"no header", `{"id":"a"}` + "\n" + `{"id":"b","actions":{"stateDelta":{"k":null}}}`, "a b", `{"k":null}`},
		{"no newline at the end, CRLF, blank lines", "\r\n" + `{"id":"a"}` + "\r\n\r\n" + `{"id":"b"}`, "a b", "{}"},
		{"partial events dropped", `{"id":"a"}` + "\n" + `{"id":"x","partial":true}` + "\n" + `{"id":"b","partial":false}`, "a b", "{}"},
		{"snake_case spellings", `{"id":"a"}
{"id":"b"}
{"id":"p1","patch_type":"truncate_before","event_id":"b"}
{"id":"p2","patch_type":"summarise","start":0,"count":1,"summary_event":{"id":"s","content":{"parts":[{"text":"s"}]}}}`, "s", "{}"},
		{"seqs", `{"seq":1,"id":"a"}` + "\n" + `{"id":"b"}` + "\n" + `{"seq":3,"id":"c"}`, "a b c", "{}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *env) {
				imported := e.importText("f", c.text)
				if !imported.Created {
					e.Error("not created")
				}
				e.same("visible", ids(e.view()), c.visible)
				e.same("state", e.state(), c.state)
				if again := e.importText("f", c.text); again.Created || again.Added != 0 {
					e.Errorf("importing again created %t and added %d", again.Created, again.Added)
				}
			})
		})
	}
}

// Lines without ids and times get ids that importing again finds.
func TestImportWithoutIDs(t *testing.T) {
	const text = `{"author":"a"}
{"author":"a"}
{"patchType":"splice","start":0,"count":1,"replacement":[{"author":"r"},{"author":"r"}]}
`
	onEach(t, func(e *env) {
		first := e.importText("f", text)
		seen := map[string]bool{}
		for _, r := range first.Records {
			for id := range r.IDs() {
				if seen[id] || len(id) != 36 {
					e.Errorf("id %q", id)
				}
				seen[id] = true
			}
		}
		if len(seen) != 5 {
			e.Errorf("%d ids, want 5", len(seen))
		}
		if at := first.Records[0].Event.Timestamp(); !at.Equal(now) {
			e.Errorf("time %v", at)
		}
		if again := e.importText("g", text); again.Added != 0 {
			e.Errorf("importing again added %d", again.Added)
		}
		// Elsewhere they are the same, so that the two can be compared.
		there, err := e.importInto(elsewhere, text, store.ImportOptions{})
		e.no(err)
		for i, r := range there.Records {
			e.same("id", r.ID(), first.Records[i].ID())
		}
	})
}

func TestImportRefusesMalformed(t *testing.T) {
	long := strings.Repeat("x", 400_000)
	for _, c := range []struct {
		name, text string
		target     error
		says       string
	}{
		{"garbage", "{\"id\":\"a\"}\nhello\n{\"id\":\"b\"}", store.ErrInvalid, "trip.jsonl:2"},
		{"id twice", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"a\"}", store.ErrInvalid, "trip.jsonl:3"},
		{"nested id twice", "{\"id\":\"a\"}\n{\"id\":\"p\",\"patchType\":\"splice\",\"start\":0,\"count\":1,\"replacement\":[{\"id\":\"a\"}]}", store.ErrInvalid, "trip.jsonl:2"},
		{"wrong seq", "{\"seq\":1,\"id\":\"a\"}\n{\"seq\":3,\"id\":\"b\"}", store.ErrInvalid, "trip.jsonl:2"},
		{"header's state", "{\"patchlog\":1,\"initialState\":[]}", store.ErrInvalid, "initialState"},
		{"header not first", "{\"id\":\"a\"}\n{\"patchlog\":1,\"initialState\":{}}", store.ErrInvalid, "trip.jsonl:2"},
		{"long record", "{\"id\":\"a\"}\n{\"id\":\"b\",\"author\":\"" + long[:150_000] + "\"}", store.ErrTooLarge, "trip.jsonl:2"},
		{"long line", "{\"id\":\"a\"}\n{\"id\":\"b\",\"author\":\"" + long + "\"}", store.ErrTooLarge, "trip.jsonl:2"},
		{"long initial state", "{\"patchlog\":1,\"initialState\":{\"k\":\"" + long[:150_000] + "\"}}", store.ErrTooLarge, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEachWith(t, store.Options{MaxRecordBytes: 100_000}, func(e *env) {
				imported, err := e.importInto(key, c.text, store.ImportOptions{Name: "trip.jsonl"})
				e.is(err, c.target, c.says)
				if imported.Created || len(imported.Records) > 0 {
					e.Errorf("a refusal imported %+v", imported)
				}
				_, err = e.store.Get(ctx, key)
				e.is(err, store.ErrNotFound)
				// Nor into a session that is there.
				e.create(nil)
				e.append(say("z"))
				stored := e.dump()
				_, err = e.importInto(key, c.text, store.ImportOptions{})
				if err == nil || c.name != "header's state" && c.name != "long initial state" && errors.Is(err, store.ErrConflict) {
					e.Errorf("error %v", err)
				}
				e.same("stored", e.dump(), stored)
			})
		})
	}
}

func TestImportErrorsOfTheReader(t *testing.T) {
	onEach(t, func(e *env) {
		broken := errors.New("broken pipe")
		_, err := e.store.Import(ctx, key, io.MultiReader(strings.NewReader("{\"id\":\"a\"}\n"), iotest.ErrReader(broken)), store.ImportOptions{})
		e.is(err, broken, "input:2")
		cancelled, cancel := context.WithCancel(ctx)
		defer cancel()
		text := strings.Repeat("{\"author\":\"a\"}\n", 1000)
		_, err = e.store.Import(cancelled, key, strings.NewReader(text), store.ImportOptions{Progress: func(int) { cancel() }})
		e.is(err, context.Canceled)
		_, err = e.store.Get(ctx, key)
		e.is(err, store.ErrNotFound)
		var lines []int
		e.must(e.store.Import(ctx, key, strings.NewReader(text), store.ImportOptions{Progress: func(n int) { lines = append(lines, n) }}))
		e.same("progress", fmt.Sprint(lines), "[256 512 768]")
	})
}

// Events without patches: those that are not there are appended.
func TestImportMergesEvents(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"), say("b1"), say("a2"))
		lines := func(events ...*patch.Event) string {
			var b strings.Builder
			for _, ev := range events {
				fmt.Fprintln(&b, ev)
			}
			return b.String()
		}
		imported, err := e.importInto(key, lines(say("a2"), say("c1"), say("a1"), say("c2")), store.ImportOptions{})
		e.no(err)
		if imported.Added != 2 || imported.Present != 2 || imported.Created {
			e.Errorf("%d added, %d present, created %t", imported.Added, imported.Present, imported.Created)
		}
		e.same("visible", ids(e.view()), "a1 b1 a2 c1 c2")
		_, err = e.importInto(key, lines(event(`{"id":"a1"}`)), store.ImportOptions{})
		e.is(err, store.ErrDuplicateID, "a1")
		e.apply(patch.NewSplice(0, 1, say("r")).WithID("p"))
		_, err = e.importInto(key, lines(say("r")), store.ImportOptions{})
		e.is(err, store.ErrDuplicateID, "r")
		_, err = e.importInto(key, lines(say("p")), store.ImportOptions{})
		e.is(err, store.ErrDuplicateID, "p")
	})
}

// With a patch in the file order matters: the log that is there must be a prefix.
func TestImportWithPatchesIntoLog(t *testing.T) {
	const text = `{"id":"a1"}
{"id":"a2"}
{"id":"p1","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r1"}]}
{"id":"a3"}
`
	lines := strings.SplitAfter(text, "\n")
	onEach(t, func(e *env) {
		for n := range len(lines) { // each prefix, none to all
			if n > 0 {
				e.no(e.store.Delete(ctx, key))
			}
			e.create(nil)
			e.importText("f", strings.Join(lines[:n], ""))
			imported := e.importText("f", text)
			if imported.Present != n || imported.Added != 4-n {
				e.Errorf("after %d lines: %d present, %d added", n, imported.Present, imported.Added)
			}
			e.same("visible", ids(e.view()), "r1 a2 a3")
		}
		// What came after does not hinder importing again.
		e.append(say("later"))
		if imported := e.importText("f", text); imported.Added != 0 || imported.Present != 4 {
			e.Errorf("%d added, %d present", imported.Added, imported.Present)
		}
		stored := e.dump()
		for _, c := range []struct{ name, text, says string }{
			{"other order", lines[1] + lines[0] + lines[2], "f:1"},
			{"other content", lines[0] + `{"id":"a2","author":"x"}` + "\n" + lines[2], "f:2"},
			{"one left out", lines[0] + lines[2], "f:2"},
			{"other patch", lines[0] + lines[1] + `{"id":"p1","patchType":"splice","start":1,"count":1}`, "f:3"},
			{"something else after", text + `{"id":"new"}`, "f:5"},
		} {
			_, err := e.importInto(key, c.text, store.ImportOptions{Name: "f"})
			e.is(err, store.ErrConflict, c.says, key.String())
			e.same(c.name+": stored", e.dump(), stored)
		}
	})
}

func TestImportInitialState(t *testing.T) {
	const text = `{"patchlog":1,"initialState":{"k":1,"app:x":1}}
{"id":"a1"}
`
	onEach(t, func(e *env) {
		e.importText("f", text)
		e.same("state", e.state(), `{"k":1}`)
		e.importText("again", text)
		_, err := e.importInto(key, strings.Replace(text, `"k":1`, `"k":1.0`, 1), store.ImportOptions{Name: "f"})
		e.is(err, store.ErrConflict, "initial state", key.String())
		_, err = e.importInto(key, strings.Replace(text, `"k":1`, `"j":1`, 1), store.ImportOptions{})
		e.is(err, store.ErrConflict)
		_, err = e.importInto(key, strings.Replace(text, `"k":1,`, ``, 1), store.ImportOptions{})
		e.is(err, store.ErrConflict)
		_, err = e.importInto(key, `{"id":"a2"}`, store.ImportOptions{State: map[string]any{"k": 2}})
		e.is(err, store.ErrConflict, "initial state")
		e.importText("no header", `{"id":"a3"}`)

		// State stands in for the header's, also when the same file comes again.
		opts := store.ImportOptions{State: map[string]any{"mine": true, "user:x": 1, "temp:y": 2}}
		imported, err := e.importInto(elsewhere, text, opts)
		e.no(err)
		v, ok := imported.View.Value("mine")
		if _, k := imported.View.Value("k"); !ok || v.String() != "true" || k {
			e.Errorf("state %v", imported.View.State())
		}
		imported, err = e.importInto(elsewhere, text, opts)
		e.no(err)
		if imported.Added != 0 {
			e.Errorf("%d added", imported.Added)
		}
		e.same("shared", e.shared(elsewhere), "")
		_, err = e.importInto(elsewhere, text, store.ImportOptions{})
		e.is(err, store.ErrConflict)
		_, err = e.importInto(store.Key{App: "a", User: "b", Session: "c"}, text, store.ImportOptions{State: map[string]any{"bad": make(chan int)}})
		e.is(err, store.ErrInvalid, "bad")
		_, err = e.importInto(elsewhere, text, store.ImportOptions{State: map[string]any{"bad": make(chan int)}})
		e.is(err, store.ErrInvalid, "bad")
	})
}

// longText is a file of several pages, with a patch in it.
func longText() string {
	var b strings.Builder
	fmt.Fprintln(&b, `{"patchlog":1,"initialState":{"k":1}}`)
	for i := range 1800 {
		fmt.Fprintf(&b, "{\"id\":\"e%d\",\"actions\":{\"stateDelta\":{\"app:x\":%d}}}\n", i, i)
		if i == 900 {
			fmt.Fprintln(&b, `{"id":"p","patchType":"splice","start":10,"count":800}`)
		}
	}
	return b.String()
}

// A long file becomes a new session in steps, between which it is invisible; a refusal, a
// failure or the end of the context leaves nothing.
func TestImportInSteps(t *testing.T) {
	text := longText()
	for name, c := range map[string]struct {
		text string
		at   func(e *env, cancel func())
		want error
		says string
	}{
		"whole":      {text, nil, nil, ""},
		"cancelled":  {text, func(_ *env, cancel func()) { cancel() }, context.Canceled, ""},
		"wrong seq":  {text + `{"seq":3,"id":"z"}`, nil, store.ErrInvalid, "f:1803"},
		"large line": {text + `{"id":"z","author":"` + strings.Repeat("x", 60_000) + `"}`, nil, store.ErrTooLarge, "f:1803"},
		"created meanwhile, alike": {text, func(e *env, _ func()) {
			e.must(e.store.Create(ctx, forkKey, map[string]any{"k": 1}))
		}, nil, ""},
		"created meanwhile, other": {text, func(e *env, _ func()) {
			e.must(e.store.Create(ctx, forkKey, map[string]any{"k": 2}))
		}, store.ErrConflict, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(e *env) {
				s := &stepped{}
				e.opts.MaxRecordBytes = 50_000
				e.reopenOn(func(engine backend.Backend) backend.Backend { s.Faulty = &storetest.Faulty{Backend: engine}; return s })
				cut, cancel := context.WithCancel(ctx)
				defer cancel()
				s.between = func(step int) {
					e.absentFork()
					if step == 2 && c.at != nil {
						c.at(e, cancel)
						s.between = nil
					}
				}
				imported, err := e.store.Import(cut, forkKey, strings.NewReader(c.text), store.ImportOptions{Name: "f"})
				least := 3
				if c.want == context.Canceled { // in the second step
					least = 2
				}
				if s.steps < least || s.most > 512 {
					e.Errorf("%d steps, of up to %d records", s.steps, s.most)
				}
				s.between = nil
				if s.staged(e) > 0 {
					e.Error("something is still staged")
				}
				if c.want != nil {
					e.is(err, c.want, c.says)
					if c.want != store.ErrConflict {
						e.absentFork()
					}
					return
				}
				e.no(err)
				if imported.Added != 1801 || imported.Present != 0 || imported.Created != (c.at == nil) || len(imported.Records) != 1801 {
					e.Errorf("%d added, %d present, created %t", imported.Added, imported.Present, imported.Created)
				}
				e.same("shared", e.shared(forkKey), "")
				there := sessionOf(e, e.store, forkKey)
				e.same("view", e.viewText(imported.View), e.viewText(there.View))
				again, err := e.store.Import(ctx, forkKey, strings.NewReader(text), store.ImportOptions{})
				e.no(err)
				if again.Added != 0 || again.Present != 1801 {
					e.Errorf("again: %d added, %d present", again.Added, again.Present)
				}
			})
		})
	}
}

// A step that fails fails the import, and importing again lands it once.
func TestImportWhoseStepsFail(t *testing.T) {
	text := longText()
	for _, how := range []storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed} {
		if testlog.Race && how == storetest.Lost {
			continue
		}
		onEach(t, func(e *env) {
			e.backend.Plan(storetest.Plan{Write: 2, Failure: how})
			_, err := e.importInto(forkKey, text, store.ImportOptions{})
			e.is(err, storetest.ErrInjected)
			if errors.Is(err, store.ErrOutcomeUnknown) {
				e.Errorf("error %v, but the outcome is known", err)
			}
			e.absentFork()
			imported, err := e.importInto(forkKey, text, store.ImportOptions{})
			e.no(err)
			if imported.Added != 1801 {
				e.Errorf("%d added", imported.Added)
			}
		})
	}
}

// The whole input has a limit, which counts each of its bytes.
func TestImportLimit(t *testing.T) {
	text := "{\"id\":\"a\"}\n{\"id\":\"b\"}\n"
	onEach(t, func(e *env) {
		for _, most := range []int64{1, int64(len(text)) / 2, int64(len(text)) - 1} {
			read := 0
			_, err := e.store.Import(ctx, key, &countedReader{strings.NewReader(text + strings.Repeat(" ", 1<<20)), &read}, store.ImportOptions{Name: "f", MaxBytes: most})
			e.is(err, store.ErrTooLarge, "f:", fmt.Sprint(most, " bytes"))
			if read > int(most)+1 {
				e.Errorf("%d bytes were read of %d", read, most)
			}
			_, err = e.store.Get(ctx, key)
			e.is(err, store.ErrNotFound)
		}
		_, err := e.importInto(key, text, store.ImportOptions{MaxBytes: -1})
		e.is(err, store.ErrInvalid, "MaxBytes")
		for _, most := range []int64{int64(len(text)), math.MaxInt64} {
			e.must(e.importInto(key, text, store.ImportOptions{MaxBytes: most}))
		}
	})
}

type countedReader struct {
	io.Reader
	n *int
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	*r.n += n
	return n, err
}

// What was read can be imported into any store.
func TestReadText(t *testing.T) {
	onEach(t, func(e *env) {
		text, err := store.ReadText(ctx, strings.NewReader(longText()), store.ImportOptions{})
		e.no(err)
		for _, k := range []store.Key{key, elsewhere} {
			imported, err := e.store.ImportText(ctx, k, text)
			e.no(err)
			if imported.Added != 1801 {
				e.Errorf("%d added", imported.Added)
			}
		}
		_, err = e.store.ImportText(ctx, store.Key{}, text)
		e.is(err, store.ErrInvalid)
		_, err = store.ReadText(ctx, strings.NewReader("{\nx"), store.ImportOptions{Name: "f"})
		e.is(err, store.ErrInvalid, "f:1")
	})
}

// An import that would take many times the memory of its input is refused with file and line, and
// nothing of it is taken.
func TestImportLimits(t *testing.T) {
	many := func(n int, format, before, after string) string {
		var b strings.Builder
		b.WriteString(before)
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String() + after
	}
	for name, c := range map[string]struct {
		text string
		opts store.ImportOptions
		want error
		line int
	}{
		"empty objects":   {`{"id":"a"}` + "\n{}\n", store.ImportOptions{}, store.ErrInvalid, 2},
		"no known field":  {`{"seq":1,"x":1}`, store.ImportOptions{}, store.ErrInvalid, 1},
		"records":         {many(60_000, `{"id":"%d"}`+"\n", "", ""), store.ImportOptions{}, store.ErrTooLarge, 0},
		"own limit":       {many(3, `{"id":"%d"}`+"\n", "", ""), store.ImportOptions{MaxRecords: 2}, store.ErrTooLarge, 3},
		"replacements":    {many(patch.MaxReplacements, `{"id":"%d"},`, `{"patchType":"splice","start":0,"count":0,"replacement":[`, `{}]}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"state keys":      {many(patch.MaxStateKeys, `"%d":1,`, `{"actions":{"stateDelta":{`, `"z":1}}}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"initial state":   {many(patch.MaxStateKeys, `"%d":1,`, `{"patchlog":1,"initialState":{`, `"z":1}}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"fields":          {many(patch.MaxFields, `"%d":1,`, `{"id":"a",`, `"z":1}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"long running":    {many(patch.MaxLongRunning, `"%d",`, `{"longRunningToolIds":[`, `"z"]}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"calls":           {many(patch.MaxFunctionParts, `{"functionCall":{"name":"%d"}},`, `{"content":{"parts":[`, `{"functionCall":{}}]}}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"of many records": {many(100, `{"id":"%d","patchType":"splice","start":0,"count":0,"replacement":[{}`+strings.Repeat(",{}", 9_998)+"]}\n", "", ""), store.ImportOptions{}, store.ErrTooLarge, 0},
		"negative limit":  {`{"id":"a"}`, store.ImportOptions{MaxRecords: -1}, store.ErrInvalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := teststore.Memory(t, store.Options{})
			_, err := s.Import(ctx, key, strings.NewReader(c.text), c.opts)
			var at *patch.LineError
			if !errors.Is(err, c.want) || c.line != 0 && (!errors.As(err, &at) || at.Line != c.line) {
				t.Errorf("error %v, want one of line %d that matches %q", err, c.line, c.want)
			}
			if errors.Is(err, store.ErrTooLarge) && strings.Contains(err.Error(), "records") != strings.Contains(err.Error(), "ImportOptions.MaxRecords") {
				t.Errorf("the error does not name the option: %v", err)
			}
			if _, err := s.Info(ctx, key); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the session is there: %v", err)
			}
		})
	}
}

// endless is input that never ends and holds no record.
type endless struct{ cancel func() }

func (e endless) Read(p []byte) (int, error) {
	e.cancel()
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// The end of the context ends the reading of a text, also where no record comes.
func TestImportChecksItsContext(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	cut, cancel := context.WithCancel(ctx)
	if _, err := s.Import(cut, key, endless{cancel}, store.ImportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Real sessions come back as they came, line by line.
func TestCorpusComesBack(t *testing.T) {
	for _, set := range recorded.Sets(t) {
		if set.Large && len(set.Files) != 91 {
			t.Errorf("%d sessions, want 91", len(set.Files))
		}
		t.Run(set.Name, func(t *testing.T) { comeBack(t, set.Sample(t, 9)) })
	}
}

func comeBack(t *testing.T, files []string) {
	t.Helper()
	onEach(t, func(e *env) {
		for _, file := range files {
			text := readFile(e, file)
			k := store.Key{App: "corpus", User: filepath.Base(filepath.Dir(file)), Session: filepath.Base(file)}
			e.must(e.store.Import(ctx, k, bytes.NewReader(text), store.ImportOptions{Name: file}))
			var out bytes.Buffer
			e.no(e.store.Export(ctx, k, &out, store.ExportOptions{}))
			e.sameLines(file, text, out.Bytes())
			// And again, elsewhere.
			imported, err := e.store.Import(ctx, k, bytes.NewReader(text), store.ImportOptions{Name: file})
			e.no(err)
			if imported.Added != 0 {
				e.Errorf("%s: importing again added %d", file, imported.Added)
			}
		}
	})
}

func (e *env) sameLines(file string, came, gave []byte) {
	e.Helper()
	want, got := jsonLines(e, came), jsonLines(e, gave)
	if len(got) != len(want)+1 {
		e.Errorf("%s: %d lines, want %d and a header", file, len(got), len(want))
		return
	}
	for i, line := range want {
		back := got[i+1]
		if seq := back["seq"]; seq != json.Number(strconv.Itoa(i+1)) {
			e.Errorf("%s:%d: seq %v", file, i+1, seq)
		}
		delete(back, "seq")
		for _, l := range []map[string]any{line, back} {
			at, err := time.Parse(time.RFC3339Nano, l["timestamp"].(string))
			e.no(err)
			l["timestamp"] = at.UTC().String()
		}
		if !reflect.DeepEqual(back, line) {
			e.Errorf("%s:%d: came\n%v\nand went\n%v", file, i+1, line, back)
			return
		}
	}
}

// jsonLines reads lines with their number literals.
func jsonLines(e *env, text []byte) (out []map[string]any) {
	e.Helper()
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, len(text)+1)
	for s.Scan() {
		d := json.NewDecoder(bytes.NewReader(s.Bytes()))
		d.UseNumber()
		var line map[string]any
		e.no(d.Decode(&line))
		out = append(out, line)
	}
	e.no(s.Err())
	return slices.Clip(out)
}
