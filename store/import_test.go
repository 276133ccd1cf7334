package store_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// tally describes the result of an import or a copy.
func tally(i store.Imported) string {
	return fmt.Sprintf("%d added, %d present, created %t", i.Added, i.Present, i.Created)
}

// elsewhere is the key of a session in another app and of another user.
var elsewhere = store.Key{App: "app2", User: "user2", Session: "elsewhere"}

func (e *env) importInto(key store.Key, text string, opts store.ImportOptions) (store.Imported, error) {
	return e.store.Import(ctx, key, strings.NewReader(text), opts)
}

func TestExport(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"b": 1.0, "a": "x"})
		e.append(event(`{"id":"e1","timestamp":"2025-11-20T10:30:00.25Z","odd":{"n":1e2}}`), event(`{"id":"e2","timestamp":"2025-11-20T10:30:01+01:00"}`))
		e.must(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{parsePatch(`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r"}],"note":"kept"}`)}, asOfNow))
		e.same("text", e.export(), `{"patchlog":1,"initialState":{"a":"x","b":1.0}}
{"seq":1,"id":"e1","timestamp":"2025-11-20T10:30:00.25Z","odd":{"n":1e2}}
{"seq":2,"id":"e2","timestamp":"2025-11-20T09:30:01Z"}
{"seq":3,"id":"p","timestamp":"2025-11-20T10:30:00.123456789Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r","timestamp":"2025-11-20T10:30:00.123456789Z"}],"note":"kept"}
`)
		visible := exportOf(e, e.store, key, store.ExportOptions{Visible: true})
		e.same("visible", visible, `{"id":"r","timestamp":"2025-11-20T10:30:00.123456789Z"}
{"id":"e2","timestamp":"2025-11-20T09:30:01Z"}
`)
		// The export omits hidden events.
		imported := testlog.Must(e.importInto(elsewhere, visible, store.ImportOptions{}))(e)
		e.same("visible elsewhere", ids(imported.View), "r e2")
		testlog.Equal(e, "patches", imported.View.PatchSeq(), 0)
		// If the writer of an export fails, Export returns the writer's error.
		for _, visible := range []bool{false, true} {
			e.is(e.store.Export(ctx, key, &fullWriter{}, store.ExportOptions{Visible: visible}), errFull)
		}
	})
}

func TestImportForms(t *testing.T) {
	for _, c := range []struct {
		name, text, visible, state string
	}{
		{"empty", "", "", "{}"},
		{"header alone", `{"patchlog":1,"initialState":{"k":1.0}}`, "", `{"k":1.0}`},
		{"no header", `{"id":"a"}` + "\n" + `{"id":"b","actions":{"stateDelta":{"k":null}}}`, "a b", `{"k":null}`},
		{"no newline at the end, CRLF, blank lines", "\r\n" + `{"id":"a"}` + "\r\n\r\n" + `{"id":"b"}`, "a b", "{}"},
		{"partial events dropped", `{"id":"a"}` + "\n" + `{"id":"x","partial":true}` + "\n" + `{"id":"b","partial":false}`, "a b", "{}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *env) {
				imported := e.importText("f", c.text)
				testlog.Equal(e, "created", imported.Created, true)
				e.same("visible", ids(e.view()), c.visible)
				e.same("state", e.state(), c.state)
				if again := e.importText("f", c.text); again.Created || again.Added != 0 {
					e.Errorf("importing again created %t and added %d", again.Created, again.Added)
				}
			})
		})
	}
}

// If a line has no id and no time, a repeated import finds the event by the id that the first import derived.
func TestImportWithoutIDs(t *testing.T) {
	const text = `{"author":"a"}
{"author":"a"}
{"patchType":"splice","start":0,"count":1,"replacement":[{"author":"r"},{"author":"r"}]}
`
	onEach(t, func(e *env) {
		first := e.importText("f", text) // patch.TestDecoderGivesStableIDs checks the ids
		testlog.Equal(e, "time", first.Records[0].Event.Timestamp(), now)
		testlog.Equal(e, "added again", e.importText("g", text).Added, 0)
		// An import into another session derives the same ids, so the two sessions can be compared.
		there := testlog.Must(e.importInto(elsewhere, text, store.ImportOptions{}))(e)
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
		{"garbage", "{\"id\":\"a\"}\nhello\n{\"id\":\"b\"}", store.ErrInvalid, "trip.jsonl:2"}, // package patch tests the decoder
		{"id twice", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"a\"}", store.ErrInvalid, "trip.jsonl:3"},
		{"wrong seq", "{\"seq\":1,\"id\":\"a\"}\n{\"seq\":3,\"id\":\"b\"}", store.ErrInvalid, "trip.jsonl:2"},
		{"header's state", "{\"patchlog\":1,\"initialState\":[]}", store.ErrInvalid, "initialState"},
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
				e.is(testlog.ErrorOf(e.store.Get(ctx, key)), store.ErrNotFound)
				// A refused import does not change an existing session.
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
		e.is(testlog.ErrorOf(e.store.Import(ctx, key, io.MultiReader(strings.NewReader("{\"id\":\"a\"}\n"), iotest.ErrReader(broken)), store.ImportOptions{})), broken, "input:2")
		cancelled, cancel := context.WithCancel(ctx)
		defer cancel()
		text := strings.Repeat("{\"author\":\"a\"}\n", 1000)
		e.is(testlog.ErrorOf(e.store.Import(cancelled, key, strings.NewReader(text), store.ImportOptions{Progress: func(int) { cancel() }})), context.Canceled)
		e.is(testlog.ErrorOf(e.store.Get(ctx, key)), store.ErrNotFound)
		var lines []int
		e.must(e.store.Import(ctx, key, strings.NewReader(text), store.ImportOptions{Progress: func(n int) { lines = append(lines, n) }}))
		e.same("progress", fmt.Sprint(lines), "[256 512 768]")
	})
}

// If a file has no patches, an import appends the events that the session lacks.
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
		imported := testlog.Must(e.importInto(key, lines(say("a2"), say("c1"), say("a1"), say("c2")), store.ImportOptions{}))(e)
		e.same("import", tally(imported), "2 added, 2 present, created false")
		e.same("visible", ids(e.view()), "a1 b1 a2 c1 c2")
		e.is(testlog.ErrorOf(e.importInto(key, lines(event(`{"id":"a1"}`)), store.ImportOptions{})), store.ErrDuplicateID, "a1")
		e.apply(patch.NewSplice(0, 1, say("r")).WithID("p"))
		e.is(testlog.ErrorOf(e.importInto(key, lines(say("r")), store.ImportOptions{})), store.ErrDuplicateID, "r")
		e.is(testlog.ErrorOf(e.importInto(key, lines(say("p")), store.ImportOptions{})), store.ErrDuplicateID, "p")
	})
}

// If a file contains a patch, the existing log must be a prefix of the file.
func TestImportWithPatchesIntoLog(t *testing.T) {
	const text = `{"id":"a1"}
{"id":"a2"}
{"id":"p1","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r1"}]}
{"id":"a3"}
`
	lines := strings.SplitAfter(text, "\n")
	onEach(t, func(e *env) {
		for n := range len(lines) { // imports into each prefix of the log, from none to all lines
			if n > 0 {
				e.no(e.store.Delete(ctx, key))
			}
			e.create(nil)
			e.importText("f", strings.Join(lines[:n], ""))
			e.same("import", tally(e.importText("f", text)), fmt.Sprintf("%d added, %d present, created false", 4-n, n))
			e.same("visible", ids(e.view()), "r1 a2 a3")
		}
		// The import can be repeated even if the session has later records.
		e.append(say("later"))
		e.same("import again", tally(e.importText("f", text)), "0 added, 4 present, created false")
		stored := e.dump()
		for _, c := range []struct{ name, text, says string }{
			{"other order", lines[1] + lines[0] + lines[2], "f:1"},
			{"other content", lines[0] + `{"id":"a2","author":"x"}` + "\n" + lines[2], "f:2"},
			{"one left out", lines[0] + lines[2], "f:2"},
			{"other patch", lines[0] + lines[1] + `{"id":"p1","patchType":"splice","start":1,"count":1}`, "f:3"},
			{"something else after", text + `{"id":"new"}`, "f:5"},
		} {
			e.is(testlog.ErrorOf(e.importInto(key, c.text, store.ImportOptions{Name: "f"})), store.ErrConflict, c.says, key.String())
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
		e.is(testlog.ErrorOf(e.importInto(key, strings.Replace(text, `"k":1`, `"k":1.0`, 1), store.ImportOptions{Name: "f"})), store.ErrConflict, "initial state", key.String())
		e.is(testlog.ErrorOf(e.importInto(key, strings.Replace(text, `"k":1`, `"j":1`, 1), store.ImportOptions{})), store.ErrConflict)
		e.is(testlog.ErrorOf(e.importInto(key, strings.Replace(text, `"k":1,`, ``, 1), store.ImportOptions{})), store.ErrConflict)
		e.importText("no header", `{"id":"a3"}`)
	})
}

// longText returns a file of several pages that contains a patch.
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

// A long file becomes a new session in several commits. Between two commits, the session is invisible. If the
// import is refused or fails, or if its context ends, nothing remains.
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
			e.must(e.store.Create(ctx, forkKey, map[string]any{"k": 1}, store.CreateOptions{}))
		}, nil, ""},
		"created meanwhile, other": {text, func(e *env, _ func()) {
			e.must(e.store.Create(ctx, forkKey, map[string]any{"k": 2}, store.CreateOptions{}))
		}, store.ErrConflict, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(e *env) {
				e.opts.MaxRecordBytes = 50_000
				s := e.stepped()
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
				if c.want == context.Canceled { // the context ends in the second commit
					least = 2
				}
				if s.steps < least || s.most > 512 {
					e.Errorf("%d steps, of up to %d records", s.steps, s.most)
				}
				s.between = nil
				testlog.Equal(e, "sessions that are still staged", s.staged(e), 0)
				if c.want != nil {
					e.is(err, c.want, c.says)
					if c.want != store.ErrConflict {
						e.absentFork()
					}
					return
				}
				e.no(err)
				e.same("import", tally(imported), fmt.Sprintf("1801 added, 0 present, created %t", c.at == nil))
				testlog.Equal(e, "records", len(imported.Records), 1801)
				e.same("shared", e.shared(forkKey), "")
				e.same("view", e.viewText(imported.View), e.viewText(viewOf(e, e.store, forkKey)))
				again := testlog.Must(e.store.Import(ctx, forkKey, strings.NewReader(text), store.ImportOptions{}))(e)
				e.same("import again", tally(again), "0 added, 1801 present, created false")
			})
		})
	}
}

// If a commit of an import fails, the import fails. Repeating the import creates the session once.
func TestImportWhoseStepsFail(t *testing.T) {
	text := longText()
	for _, how := range []storetest.Failure{storetest.Refused, storetest.NotApplied, storetest.Applied} {
		if testlog.Race && how == storetest.NotApplied {
			continue
		}
		onEach(t, func(e *env) {
			e.backend.Plan(storetest.Plan{Write: 2, Failure: how})
			e.failedStep(testlog.ErrorOf(e.importInto(forkKey, text, store.ImportOptions{})))
			testlog.Equal(e, "added", testlog.Must(e.importInto(forkKey, text, store.ImportOptions{}))(e).Added, 1801)
		})
	}
}

// The limit on the length of an import counts every byte of the input.
func TestImportLimit(t *testing.T) {
	text := "{\"id\":\"a\"}\n{\"id\":\"b\"}\n"
	onEach(t, func(e *env) {
		for _, most := range []int64{1, int64(len(text)) / 2, int64(len(text)) - 1} {
			input := strings.NewReader(text + strings.Repeat(" ", 1<<20))
			e.is(testlog.ErrorOf(e.store.Import(ctx, key, input, store.ImportOptions{Name: "f", MaxBytes: most})), store.ErrTooLarge, "f:", fmt.Sprint(most, " bytes"))
			if read := input.Size() - int64(input.Len()); read > most+1 {
				e.Errorf("%d bytes were read of %d", read, most)
			}
			e.is(testlog.ErrorOf(e.store.Get(ctx, key)), store.ErrNotFound)
		}
		e.is(testlog.ErrorOf(e.importInto(key, text, store.ImportOptions{MaxBytes: -1})), store.ErrInvalid, "MaxBytes")
		for _, most := range []int64{int64(len(text)), math.MaxInt64} {
			e.must(e.importInto(key, text, store.ImportOptions{MaxBytes: most}))
		}
	})
}

// A Text from ReadText can be imported into several stores.
func TestReadText(t *testing.T) {
	onEach(t, func(e *env) {
		text := testlog.Must(store.ReadText(ctx, strings.NewReader(longText()), store.ImportOptions{}))(e)
		for _, k := range []store.Key{key, elsewhere} {
			testlog.Equal(e, "added", testlog.Must(text.Import(ctx, e.store, k))(e).Added, 1801)
		}
		e.is(testlog.ErrorOf(text.Import(ctx, e.store, store.Key{})), store.ErrInvalid)
		e.is(testlog.ErrorOf(store.ReadText(ctx, strings.NewReader("{\nx"), store.ImportOptions{Name: "f"})), store.ErrInvalid, "f:1")
	})
}

// If an import would need many times the memory of its input, it is refused. The error names the file and the
// line, and nothing is imported.
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
		want error
		line int
	}{
		"empty objects":   {`{"id":"a"}` + "\n{}\n", store.ErrInvalid, 2},
		"no known field":  {`{"seq":1,"x":1}`, store.ErrInvalid, 1},
		"records":         {many(60_000, `{"id":"%d"}`+"\n", "", ""), store.ErrTooLarge, 0},
		"replacements":    {many(patch.MaxReplacements, `{"id":"%d"},`, `{"patchType":"splice","start":0,"count":0,"replacement":[`, `{}]}`), store.ErrTooLarge, 1},
		"state keys":      {many(patch.MaxStateKeys, `"%d":1,`, `{"actions":{"stateDelta":{`, `"z":1}}}`), store.ErrTooLarge, 1},
		"initial state":   {many(patch.MaxStateKeys, `"%d":1,`, `{"patchlog":1,"initialState":{`, `"z":1}}`), store.ErrTooLarge, 1},
		"fields":          {many(patch.MaxFields, `"%d":1,`, `{"id":"a",`, `"z":1}`), store.ErrTooLarge, 1},
		"long running":    {many(patch.MaxLongRunning, `"%d",`, `{"longRunningToolIds":[`, `"z"]}`), store.ErrTooLarge, 1},
		"calls":           {many(patch.MaxFunctionParts, `{"functionCall":{"name":"%d"}},`, `{"content":{"parts":[`, `{"functionCall":{}}]}}`), store.ErrTooLarge, 1},
		"of many records": {many(100, `{"id":"%d","patchType":"splice","start":0,"count":0,"replacement":[{}`+strings.Repeat(",{}", 9_998)+"]}\n", "", ""), store.ErrTooLarge, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := teststore.Memory(t, store.Options{})
			_, err := s.Import(ctx, key, strings.NewReader(c.text), store.ImportOptions{})
			var at *patch.LineError
			if !errors.Is(err, c.want) || c.line != 0 && (!errors.As(err, &at) || at.Line != c.line) {
				t.Errorf("error %v, want one of line %d that matches %q", err, c.line, c.want)
			}
			testlog.ErrorIs(t, testlog.ErrorOf(s.Info(ctx, key)), store.ErrNotFound, "the session is there")
		})
	}
}

// If a line is longer than the longest record, it is refused before its end is read.
func TestImportLongLine(t *testing.T) {
	const most = 1 << 20
	s := teststore.Memory(t, store.Options{MaxRecordBytes: most})
	read := &counted{strings.NewReader(`{"id":"a","content":{"parts":[{"text":"` + strings.Repeat("x", 16*most) + `"}]}}`), 0}
	testlog.ErrorIs(t, testlog.ErrorOf(s.Import(ctx, key, read, store.ImportOptions{})), store.ErrTooLarge)
	if read.n > 3*most {
		t.Errorf("%d bytes of a line were read, where a record has at most %d", read.n, most)
	}
	// A line with the longest record is accepted.
	text := `{"id":"a","author":"user","timestamp":"2025-01-01T00:00:00Z","content":{"parts":[{"text":"` + strings.Repeat("x", most-200) + `"}]}}`
	testlog.Must(s.Import(ctx, key, strings.NewReader(text), store.ImportOptions{}))(t)
	testlog.ErrorIs(t, testlog.ErrorOf(store.ReadText(ctx, strings.NewReader(text), store.ImportOptions{MaxRecordBytes: -1})), store.ErrInvalid)
}

// counted counts the bytes that are read from a reader.
type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// endless is an input that never ends and contains no record.
type endless struct{ cancel func() }

func (e endless) Read(p []byte) (int, error) {
	e.cancel()
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// ReadText stops when its context ends, even if the input contains no record.
func TestImportChecksItsContext(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	cut, cancel := context.WithCancel(ctx)
	testlog.ErrorIs(t, testlog.ErrorOf(s.Import(cut, key, endless{cancel}, store.ImportOptions{})), context.Canceled)
}

// plant creates a session with a secret in each place that can contain a secret, including patches and hidden
// events. It returns the secrets.
func (e *env) plant(key store.Key) (planted []string) {
	e.Helper()
	secret := func() string {
		n := len(planted)
		forms := []string{"user%04d@example.com", "AKIA%016d", "ghp_%036d", "+49 30 %07d"}
		planted = append(planted, fmt.Sprintf(forms[n%len(forms)], n))
		return planted[n]
	}
	e.must(e.store.Create(ctx, key, map[string]any{"home " + secret(): secret(), "user:mail": secret()}, store.CreateOptions{}))
	event := func(id, body string) *patch.Event { return testlog.Event(`{"id":"` + id + `",` + body + `}`) }
	file := base64.StdEncoding.EncodeToString([]byte("in a file: " + secret()))
	e.must(e.store.AppendEvents(ctx, key, []*patch.Event{event("e1", fmt.Sprintf(`"author":%q,"content":{"role":"user","parts":[{"text":%q},{"inlineData":{"mimeType":"text/plain","data":%q}}]}`, secret(), "needle "+secret(), file)),
		event("e2", fmt.Sprintf(`"author":"a","content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{%q:[%q,4111111111111111]}}}]}`, secret(), secret())),
		event("e3", fmt.Sprintf(`"author":"a","content":{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"result":%q}}}]}`, `{"x":"\n`+secret()+`"}`)),
		event("e4", fmt.Sprintf(`"author":"a","errorMessage":%q,"customMetadata":{"x":{%q:%q}},"actions":{"stateDelta":{"k":%q,"user:mail":%q}}`, secret(), secret(), secret(), secret(), secret())),
		event("e5", fmt.Sprintf(`"author":"a","content":{"role":"model","parts":[{"text":%q}]}`, secret())),
		event("e6", fmt.Sprintf(`"author":"a","content":{"role":"model","parts":[{"text":%q}]}`, "needle "+secret()))}, store.AppendOptions{}))
	apply := func(p *patch.PatchEvent) { e.must(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{p}, asOfNow)) }
	apply(patch.NewSummarise(0, 3, event("s1", fmt.Sprintf(`"author":"a","content":{"role":"user","parts":[{"text":%q}]}`, secret()))).WithID("p1").WithAuthor(secret()))
	why := patch.NewSplice(1, 1, event("r1", fmt.Sprintf(`"author":"a","content":{"role":"model","parts":[{"text":%q}]}`, secret()))).WithID("p2")
	apply(testlog.Must(why.WithCustomMetadata(map[string]any{"why": secret()}))(e))
	apply(patch.NewPin("e6").WithID("p3"))
	return append(planted, "4111111111111111")
}

func holdsNone(t *testing.T, where, text string, planted []string) {
	t.Helper()
	for _, p := range planted {
		if at := strings.Index(text, p); at >= 0 {
			t.Errorf("%s has %q: …%s…", where, p, text[max(0, at-60):min(len(text), at+60)])
		}
	}
	for word := range strings.SplitSeq(text, `"`) {
		if data, err := base64.StdEncoding.DecodeString(word); err == nil && len(data) > 8 && strings.Contains(string(data), "@") {
			t.Errorf("%s has %q in base64", where, data)
		}
	}
}

// A redacted export and a redacted search contain none of the session's secrets, and they do not change the log.
// After an import of the export, the visible log has the same structure as the original.
func TestRedactedExport(t *testing.T) {
	onEach(t, func(e *env) {
		t := e.T
		by := testlog.Must(redact.New(redact.Options{}))(t)
		planted := e.plant(key)
		before := e.export()
		for i, p := range planted {
			if i != 2 && i != 3 && !strings.Contains(before, p) { // number 2 is a shared value, and number 3 is in a file
				t.Errorf("%q is not planted", p)
			}
		}
		file := exportOf(e, e.store, key, store.ExportOptions{Redact: by})
		holdsNone(t, "the export", file, planted)
		if !strings.HasPrefix(file, `{"patchlog":1,"redacted":["key","card","iban","email","phone"],"initialState":{"home [`) {
			t.Errorf("the export begins with %.100s", file)
		}
		visible := exportOf(e, e.store, key, store.ExportOptions{Redact: by, Visible: true})
		holdsNone(t, "the visible export", visible, planted)
		if !strings.HasPrefix(visible, `{"patchlog":1,"redacted":["key","card","iban","email","phone"],"initialState":{}}`+"\n"+`{"id":"s1"`) {
			t.Errorf("the visible export begins with %.100s", visible)
		}
		testlog.Equal(t, "the log afterwards", e.export(), before)

		other := store.Key{App: key.App, User: key.User, Session: "redacted"}
		must(t)(e.store.Import(ctx, other, strings.NewReader(file), store.ImportOptions{}))
		v := viewOf(t, e.store, key)
		w := viewOf(t, e.store, other)
		shape := func(v fold.View) (all []string) {
			for i, entry := range v.Entries() {
				all = append(all, fmt.Sprint(v.At(i).ID(), entry.Seq, entry.Summary, v.IsPinned(i)))
			}
			return append(all, fmt.Sprint(len(v.State()), " keys"))
		}
		testlog.Equal(t, "what is visible", shape(w), shape(v))
		if _, err := e.store.Import(ctx, key, strings.NewReader(file), store.ImportOptions{}); err == nil {
			t.Error("a redacted export passes for the log that it is of")
		}

		for name, opts := range map[string]recall.Search{"all": {Query: "needle"}, "hidden": {Query: planted[4], Hidden: true}} {
			opts.Redact = by
			hits, err := recall.NewFinder(e.store, 0).Search(ctx, key, opts)
			if err != nil || len(hits) == 0 {
				t.Fatalf("%s: %d hits, %v", name, len(hits), err)
			}
			for _, h := range hits {
				holdsNone(t, "a hit of "+name, h.Event.String()+h.Snippet.Text, planted)
				for _, m := range h.Snippet.Marks {
					if got := h.Snippet.Text[m[0]:m[1]]; name == "all" && got != "needle" {
						t.Errorf("marked is %q", got)
					}
				}
			}
		}
	})
}

// A redacted export of a log with erased content contains the blanks and their receipt. After an import, the
// receipt covers the blanks. The receipt and the initial state contain the same redacted keys.
func TestRedactedExportOfErased(t *testing.T) {
	onEach(t, func(e *env) {
		t := e.T
		by := testlog.Must(redact.New(redact.Options{}))(t)
		e.plant(key)
		opts := store.EraseOptions{Author: "ann@example.com", Reason: "asked for by ada@example.com", Values: patch.NullValues}
		must(t)(e.store.Erase(ctx, key, store.EraseSelection{All: true}, opts))
		file := exportOf(e, e.store, key, store.ExportOptions{Redact: by})
		holdsNone(t, "the export", file, []string{"@example.com"})
		other := store.Key{App: key.App, User: key.User, Session: "redacted"}
		must(t)(e.store.Import(ctx, other, strings.NewReader(file), store.ImportOptions{}))
		verified(t, e.store)
		v := viewOf(t, e.store, other)
		for _, event := range v.Events() {
			if _, ok := event.ErasedBy(); !ok {
				t.Errorf("%s does not say that it was erased", event)
			}
		}
		start, err := e.store.ViewAt(ctx, other, 0)
		initial := maps.Collect(start.Values())
		testlog.NoError(t, err)
		receipts := testlog.Must(e.store.Receipts(ctx, other))(t)
		testlog.Equal(t, "receipts", len(receipts), 1)
		of, _ := receipts[0].Patch.Erasure()
		if _, there := initial[of.Initial[0]]; !there || !strings.HasPrefix(of.Reason, "asked for by [email ") {
			t.Errorf("the receipt says %+v; the initial state is %v", of, initial)
		}
	})
}
