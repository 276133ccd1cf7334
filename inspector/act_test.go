package inspector_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/inspector/figures"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// acting is a session of which a person has the page open.
type acting struct {
	t       *testing.T
	store   *store.Store
	handler http.Handler
	key     store.Key
}

func actEvent(t *testing.T, text string) *patch.Event {
	t.Helper()
	e, err := patch.ParseEvent([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// newActing has a session of three invocations, the first with a call, a response and two keys of
// the state.
func newActing(t *testing.T, opts inspector.Options) *acting {
	t.Helper()
	s, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return newActingOn(t, s, opts)
}

func newActingOn(t *testing.T, s *store.Store, opts inspector.Options) *acting {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	i, err := inspector.New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	a := &acting{t, s, i, store.Key{App: "shop", User: "ada", Session: "4711"}}
	if _, err := s.Info(t.Context(), a.key); err == nil {
		return a
	}
	if _, err := s.Create(t.Context(), a.key, map[string]any{"size": "small"}); err != nil {
		t.Fatal(err)
	}
	a.append(
		`{"id":"e0","invocationId":"i1","author":"user","content":{"role":"user","parts":[{"text":"where is order 4711, the green lamp?"}]}}`,
		`{"id":"e1","invocationId":"i1","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"find","args":{"order":4711}}}]}}`,
		`{"id":"e2","invocationId":"i1","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"find","response":{"at":"the harbour"}}}]}}`,
		`{"id":"e3","invocationId":"i1","author":"agent","content":{"role":"model","parts":[{"text":"It is at the harbour."}]},"actions":{"stateDelta":{"size":"large","found":true}}}`,
		`{"id":"e4","invocationId":"i2","author":"user","content":{"role":"user","parts":[{"text":"and when does it come to me?"}]}}`,
		`{"id":"e5","invocationId":"i2","author":"agent","content":{"role":"model","parts":[{"text":"On Tuesday, before noon."}]}}`,
		`{"id":"e6","invocationId":"i3","author":"user","content":{"role":"user","parts":[{"text":"thank you very much"}]}}`,
		`{"id":"e7","invocationId":"i3","author":"agent","content":{"role":"model","parts":[{"text":"You are welcome, Ada."}]},"actions":{"stateDelta":{"done":true}}}`,
	)
	return a
}

func (a *acting) append(texts ...string) {
	a.t.Helper()
	var events []*patch.Event
	for _, text := range texts {
		events = append(events, actEvent(a.t, text))
	}
	if _, err := a.store.AppendEvents(a.t.Context(), a.key, store.AppendOptions{}, events...); err != nil {
		a.t.Fatal(err)
	}
}

func (a *acting) view() fold.View {
	a.t.Helper()
	v, err := a.store.View(a.t.Context(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return v
}

func (a *acting) log() []patch.Record {
	a.t.Helper()
	var records []patch.Record
	for r, err := range a.store.RawEvents(a.t.Context(), a.key, 1) {
		if err != nil {
			a.t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// fields are those of the session's page as it is now, and others.
func (a *acting) fields(act string, more ...string) url.Values {
	v := a.view()
	f := url.Values{"step": {"preview"}, "act": {act}, "key": {a.key.String()}, "creation": {v.Creation()}, "at": {fmt.Sprint(v.Seq())}}
	for n := 0; n < len(more); n += 2 {
		f.Add(more[n], more[n+1])
	}
	return f
}

func (a *acting) post(f url.Values, change ...func(*http.Request)) (int, string) {
	r := httptest.NewRequest("POST", "http://localhost/act", strings.NewReader(f.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://localhost")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (a *acting) must(status int, f url.Values) string {
	a.t.Helper()
	got, page := a.post(f)
	if got != status {
		a.t.Fatalf("%v: status %d, want %d:\n%s", f, got, status, actText(page))
	}
	return page
}

var (
	actFormText  = regexp.MustCompile(`(?s)<form class="offer".*?</form>`)
	actInputText = regexp.MustCompile(`<input [^>]*name="([^"]*)"(?: value="([^"]*)")`)
	actHidden    = regexp.MustCompile(`<input type="hidden"[^>]*>`)
	actTags      = regexp.MustCompile(`(?s)<[^>]*>`)
)

// actText is what a page says, without its markup.
func actText(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(actTags.ReplaceAllString(page, " "))), " ")
}

// form is what a page's form with such a button sends.
func (a *acting) form(page, button string) url.Values {
	a.t.Helper()
	for _, form := range actFormText.FindAllString(page, -1) {
		if !strings.Contains(form, ">"+button+"</button>") {
			continue
		}
		f := url.Values{}
		for _, m := range actInputText.FindAllStringSubmatch(form, -1) {
			f.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
		}
		return f
	}
	a.t.Fatalf("no form with the button %q in:\n%s", button, actText(page))
	return nil
}

func (a *acting) says(page string, texts ...string) {
	a.t.Helper()
	said := actText(page)
	for _, text := range texts {
		if text = strings.Join(strings.Fields(text), " "); !strings.Contains(said, text) {
			a.t.Errorf("the page does not say %q:\n%s", text, said)
		}
	}
}

// shows holds a page against what the command would show of a difference.
func (a *acting) shows(page string, d figures.Difference, around int) {
	a.t.Helper()
	for _, c := range d.Changes(around) {
		a.says(page, fmt.Sprintf("%d %s %s %s", c.Index, c.Entry.Event.ID(), c.Entry.Event.Author(), figures.EntryText(c.Entry)))
	}
	for _, row := range d.StateRows() {
		a.says(page, row.Key+" "+row.Value)
	}
	for _, row := range d.Rows() {
		a.says(page, row.Name+" "+row.Text)
	}
	a.says(page, d.PinLines()...)
}

func actPatch(t *testing.T, text string) *patch.PatchEvent {
	t.Helper()
	r, err := patch.ParseRecord([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r.Patch
}

// What is previewed is what the store says that the patches would do, and what is done is those.
func TestActsOnSelectedEvents(t *testing.T) {
	summary := func(v fold.View, start, count int) *patch.PatchEvent {
		e, err := compaction.ByHand(v, compaction.Span{Start: start, Count: count}, "", "Ada asked twice.")
		if err != nil {
			t.Fatal(err)
		}
		return patch.NewSummarise(start, count, e)
	}
	for name, c := range map[string]struct {
		fields []string
		want   func(v fold.View) []*patch.PatchEvent
	}{
		"splice": {[]string{"index", "4", "index", "5"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(4, 2)}
		}},
		"splice by a stretch": {[]string{"from", "1", "through", "3", "index", "4"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(1, 4)}
		}},
		"splice of two stretches": {[]string{"index", "4", "index", "6", "index", "7"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(6, 2), patch.NewSplice(4, 1)}
		}},
		"splice that keeps the state": {[]string{"index", "7", "state", "keep"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(7, 1).WithState(patch.Keep)}
		}},
		"replace": {[]string{"index", "4", "index", "5", "text", "Ada was told:\r\nTuesday", "role", "model"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(4, 2, actEvent(t, `{"invocationId":"i2","author":"agent","content":{"role":"model","parts":[{"text":"Ada was told:\nTuesday"}]}}`))}
		}},
		"truncate": {[]string{"index", "5", "index", "4"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewTruncateBefore("e4")}
		}},
		"summarise": {[]string{"index", "4", "index", "5", "index", "6", "text", "Ada asked twice."}, func(v fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{summary(v, 4, 3)}
		}},
		"pin": {[]string{"index", "0", "index", "4"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewPin("e0"), patch.NewPin("e4")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newActing(t, inspector.Options{Write: true, Author: func(*http.Request) string { return "grace" }})
			act, _, _ := strings.Cut(name, " ")
			before := a.view()
			want := c.want(before)
			group := ""
			if len(want) > 1 {
				group = "some group"
			}
			for n := range want {
				want[n] = want[n].WithAuthor("grace").WithGroup(group)
			}
			foretold, err := a.store.Preview(t.Context(), a.key, store.PatchOptions{On: before}, want...)
			if err != nil {
				t.Fatal(err)
			}
			difference, around := figures.DifferenceOf(foretold.Before, foretold.After), 0
			if len(want) == 1 {
				difference, around = figures.PreviewOf(foretold, want[0]), 2
			}

			page := a.must(200, a.fields(act, c.fields...))
			a.shows(page, difference, around)
			a.says(page, "Preview: ")
			if len(foretold.Removed) > 0 {
				a.says(page, fmt.Sprintf("can reuse %s", map[bool]string{true: "none of them", false: "the " + figures.Counted(foretold.First, "event") + " before it"}[foretold.First == 0]))
			}
			if n := len(a.log()); n != 8 {
				t.Fatalf("a preview has written: %d records", n)
			}

			do := a.form(page, "Do it")
			page = a.must(200, do)
			log := a.log()[8:]
			if len(log) != len(want) {
				t.Fatalf("%d records, want %d", len(log), len(want))
			}
			for n, r := range log {
				offered := want[n].WithGroup(r.Patch.Group())
				if e := offered.Summary(); e != nil { // its invocation has an id of its own
					offered = summary(before, offered.Start(), offered.Count()).WithAuthor("grace")
					if got := r.Patch.Summary(); figures.Describe(got) != figures.Describe(e) || got.Role() != e.Role() || got.InvocationID() == "" {
						t.Errorf("summary %s, want %s", got, e)
					}
				} else if !patch.Same(r, patch.Record{Patch: offered}) {
					t.Errorf("logged %s, want %s", r.Patch, offered)
				}
				if n == 0 {
					if base, ok := r.Patch.Base(); !ok || base != before.PatchSeq() {
						t.Errorf("base %d, %t", base, ok)
					}
				}
				if (len(log) > 1) != (r.Patch.Group() != "") || r.Patch.Group() != log[0].Patch.Group() || r.Patch.Type() != want[n].Type() || r.Patch.Author() != "grace" {
					t.Errorf("record %d: %s", r.Seq, r.Patch)
				}
				a.says(page, fmt.Sprint(r.Seq), "id "+r.ID(), figures.PatchText(r.Patch))
			}
			if d := a.view().Diff(foretold.After); a.view().Len() != foretold.After.Len() || len(d.StateChanged) > 0 {
				t.Errorf("the view is another one than the store foretold: %+v", d)
			}
			a.says(page, fmt.Sprintf("%s hidden, %d added; %s now.", figures.Counted(len(foretold.Removed), "event"), len(foretold.Added), figures.Counted(foretold.After.Len(), "visible event")))

			// A reload does nothing more, and says the same.
			if again := a.must(200, do); again != page {
				t.Errorf("a retry says something else:\n%s\nfirst it was:\n%s", actText(again), actText(page))
			}
			if n := len(a.log()); n != 8+len(want) {
				t.Fatalf("a retry has written: %d records", n)
			}

			// Taking it back is a click and a preview away.
			page = a.must(200, a.form(page, "Take it back …"))
			a.must(200, a.form(page, "Do it"))
			if d := before.Diff(a.view()); len(d.Removed)+len(d.Added)+len(d.StateChanged) > 0 {
				t.Errorf("taken back, it is not as it was: %+v", d)
			}
			for n := range a.view().Len() {
				if a.view().IsPinned(n) {
					t.Errorf("event %d is still pinned", n)
				}
			}
		})
	}
}

func TestUnpinLeavesOutWhatIsNotPinned(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.must(200, a.form(a.must(200, a.fields("pin", "index", "2")), "Do it"))
	page := a.must(200, a.form(a.must(200, a.fields("unpin", "index", "2", "index", "3")), "Do it"))
	a.says(page, "no longer pinned: e2")
	if log := a.log(); len(log) != 10 || log[9].Patch.Type() != patch.Unpin || log[9].Patch.Author() != "inspector" {
		t.Errorf("log %v", log[8:])
	}
	a.says(a.must(422, a.fields("unpin", "index", "2")), "All that is selected is not pinned.")
}

// However often it is clicked at once, it is logged once.
func TestDoubleClick(t *testing.T) {
	for _, act := range []string{"splice", "revert", "rewind", "compact", "fork"} {
		t.Run(act, func(t *testing.T) {
			var asked sync.Map
			cfg := compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
				_, twice := asked.LoadOrStore("here", true)
				if twice {
					t.Error("the summarizer was asked twice")
				}
				return compaction.Response{Text: "Ada asked."}, nil
			})}
			a := newActing(t, inspector.Options{Write: true, Compaction: cfg})
			var f url.Values
			logged := 1
			switch act {
			case "splice":
				f = a.fields(act, "index", "4", "index", "6")
				logged = 2
			case "revert":
				a.must(200, a.form(a.must(200, a.fields("splice", "index", "4", "index", "6")), "Do it"))
				f = a.fields(act, "seq", "9")
				logged = 2
			case "rewind":
				f = a.fields(act, "seq", "6")
			case "compact":
				a.fill(40)
				f = a.fields(act)
			case "fork":
				f = a.fields(act, "seq", "6", "to", "shop/ada/other")
				logged = 0
			}
			page := a.must(200, f)
			do := a.form(page, "Do it")
			had := len(a.log())
			var done sync.WaitGroup
			for range 6 {
				done.Go(func() {
					if status, page := a.post(do); status != 200 && !(act == "compact" && status == 422) {
						t.Errorf("status %d:\n%s", status, actText(page))
					}
				})
			}
			done.Wait()
			if n := len(a.log()) - had; n != logged && !(act == "compact" && n > 0) {
				t.Errorf("%d records were logged, want %d", n, logged)
			}
			page = a.must(200, do)
			if act != "splice" {
				a.says(page, "Nothing more was written.")
			}
			if n := len(a.log()) - had; n != logged && !(act == "compact" && n > 0) {
				t.Errorf("later, %d records were logged, want %d", n, logged)
			}
		})
	}
}

// fill appends turns, so that there is something to compact.
func (a *acting) fill(n int) {
	for k := range n {
		a.append(
			fmt.Sprintf(`{"invocationId":"f%d","author":"user","content":{"role":"user","parts":[{"text":"turn %d, which asks for something at some length, so that it is worth a summary"}]}}`, k, k),
			fmt.Sprintf(`{"invocationId":"f%d","author":"agent","content":{"role":"model","parts":[{"text":"answer %d, which says something at some length, so that it is worth a summary"}]}}`, k, k),
		)
	}
}

func TestConflict(t *testing.T) {
	for _, act := range []string{"splice", "revert", "rewind", "compact"} {
		t.Run(act, func(t *testing.T) {
			a := newActing(t, inspector.Options{Write: true})
			a.fill(10)
			f := map[string]url.Values{
				"splice": a.fields("splice", "index", "4", "index", "5", "index", "7"),
				"rewind": a.fields("rewind", "seq", "5"), "compact": a.fields("compact", "focus", "the lamp"),
			}[act]
			if act == "revert" {
				a.must(200, a.form(a.must(200, a.fields("splice", "index", "7")), "Do it"))
				f = a.fields("revert", "seq", fmt.Sprint(len(a.log())))
			}
			page := a.must(200, f)
			do := a.form(page, "Do it")
			base := a.view()
			other := make(chan error)
			go func() { // as an agent or a compactor would
				_, err := a.store.ApplyPatch(context.Background(), a.key, store.PatchOptions{On: base}, patch.NewSplice(5, 1).WithAuthor("somebody").WithID("other"))
				other <- err
			}()
			if err := <-other; err != nil {
				t.Fatal(err)
			}
			had := len(a.log())
			page = a.must(409, do)
			a.says(page, "Another patch was logged since the preview", "id other", "somebody", "start 5, count 1", "hid 1 visible event: index 5")
			a.shows(page, figures.DifferenceOf(base, a.view()), 0)
			if n := len(a.log()); n != had {
				t.Fatalf("%d records were written", n-had)
			}
			if act == "splice" {
				a.says(page, "1 event of those that were selected cannot be seen any more:", "event 5, id e5: On Tuesday, before noon.")
			}
			page = a.must(200, a.form(page, "Preview it anew"))
			a.must(200, a.form(page, "Do it"))
			log := a.log()[had:]
			if act == "splice" { // the same events, which are elsewhere now
				a.says(page, "1 event of those that were selected cannot be seen any more", "4 e4 user", "6 e7 agent")
				if len(log) != 2 || log[0].Patch.Start() != 6 || log[1].Patch.Start() != 4 {
					t.Errorf("logged %v", log)
				}
			} else if len(log) == 0 {
				t.Error("nothing was logged")
			}
			if act == "compact" && !slices.ContainsFunc(log, func(r patch.Record) bool { _, ok := compaction.WrittenBy(r.Patch); return ok }) {
				t.Errorf("not compacted: %v", log)
			}
		})
	}
}

// A page that was made before a patch has other indices: the events that were ticked count.
func TestStalePage(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	f := a.fields("splice", "index", "4", "index", "5")
	if _, err := a.store.ApplyPatch(t.Context(), a.key, store.PatchOptions{AsOfNow: true}, patch.NewTruncateBefore("e4")); err != nil {
		t.Fatal(err)
	}
	page := a.must(200, f)
	a.says(page, "A patch was logged since the page was made", "0 e4 user", "1 e5 agent")
	a.must(200, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 2 || v.At(0).ID() != "e6" {
		t.Errorf("%d events, the first is %s", v.Len(), v.At(0).ID())
	}
	page = a.must(422, f)
	a.says(page, "None of the selected events is visible any more", "event 4, id e4: and when does it come to me?")
	if strings.Contains(page, ">Do it<") {
		t.Error("it offers to do nothing")
	}
}

func TestOrphansAreExplained(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	for _, c := range []struct {
		act, text string
		indices   []string
		passes    string
		first     int
		left      int
	}{
		{"splice", "", []string{"2"}, "events 1 to 2", 1, 6},
		{"splice", "", []string{"1", "6"}, "events 1 to 2, and events 6", 1, 5},
		{"splice", "", []string{"1", "3"}, "events 1 to 3", 1, 5},
		{"truncate", "", []string{"2"}, "all before event 0", 0, 0},
		{"summarise", "what was found", []string{"2", "3"}, "events 1 to 3", 1, 6},
	} {
		f := a.fields(c.act, "text", c.text)
		f["index"] = c.indices
		page := a.must(422, f)
		a.says(page, `"c1" of function "find"`)
		if c.left > 0 {
			passes := strings.ReplaceAll(c.passes, "and events", "and")
			a.says(page, "What passes: "+passes+".")
			next := a.must(200, a.form(page, "Select these instead"))
			var ids []string
			if err := json.Unmarshal([]byte(a.form(next, "Do it").Get("ids")), &ids); err != nil || ids[0] != fmt.Sprintf("e%d", c.first) {
				t.Errorf("%v: ids %v, %v", c, ids, err)
			}
			a.says(next, fmt.Sprintf("8 -> %d", c.left))
		}
		if n := len(a.log()); n != 8 {
			t.Fatalf("%d records", n)
		}
	}
	// All the same, if somebody ticks that.
	page := a.must(422, a.fields("splice", "index", "2"))
	f := a.form(page, "Preview it so")
	if !f.Has("allow_orphans") {
		t.Fatalf("no checkbox: %v", f)
	}
	f.Del("allow_orphans")
	a.must(422, f) // not ticked
	page = a.must(200, a.form(page, "Preview it so"))
	a.says(page, "Split calls are accepted.")
	a.must(200, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 7 {
		t.Errorf("%d events", v.Len())
	}
}

func TestPinsAreExplained(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.must(200, a.form(a.must(200, a.fields("pin", "index", "4")), "Do it"))
	page := a.must(422, a.fields("splice", "index", "4", "index", "5"))
	a.says(page, "This would hide 1 pinned event.", "event 4, id e4: and when does it come to me?")
	page = a.must(200, a.form(page, "Preview it so"))
	a.says(page, "Pinned events may be hidden.")
	a.must(200, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 6 {
		t.Errorf("%d events", v.Len())
	}
}

func TestBlockedRevert(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.must(200, a.form(a.must(200, a.fields("summarise", "index", "4", "index", "5", "text", "Tuesday")), "Do it")) // 9
	a.must(200, a.form(a.must(200, a.fields("splice", "index", "4")), "Do it"))                                     // 10, cuts the summary
	page := a.must(409, a.fields("revert", "seq", "9"))
	a.says(page, "Record 10, patch "+a.log()[9].ID()+", stands on what this patch put in.", "Record 10")
	if !strings.Contains(page, `href="record?key=shop%2Fada%2F4711&amp;seq=10"`) {
		t.Error("no link to the record")
	}
	page = a.must(200, a.form(page, "Preview taking record 10 back"))
	a.must(200, a.form(page, "Do it"))
	a.must(200, a.form(a.must(200, a.fields("revert", "seq", "9")), "Do it"))
	if v := a.view(); v.Len() != 8 || v.At(4).ID() != "e4" {
		t.Errorf("%d events", v.Len())
	}
	page = a.must(409, a.fields("revert", "seq", "9"))
	a.says(page, "has been taken back already, by record 12")
	a.must(200, a.form(page, "Preview taking record 12 back"))
	a.says(a.must(422, a.fields("revert", "seq", "3")), "Record 3 is an event")
	a.must(404, a.fields("revert", "seq", "99"))
	a.must(400, a.fields("revert"))
}

func TestRewind(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	foretold, err := a.store.PreviewRewind(t.Context(), a.key, store.BackOptions{}, "i2")
	if err != nil {
		t.Fatal(err)
	}
	page := a.must(200, a.fields("rewind", "seq", "6"))
	a.shows(page, figures.DifferenceOf(foretold.Before, foretold.After), 0)
	do := a.form(page, "Do it")
	a.append(`{"id":"e8","invocationId":"i4","author":"user","content":{"role":"user","parts":[{"text":"late"}]}}`)
	a.must(200, do)
	if v := a.view(); v.Len() != 4 {
		t.Errorf("%d events", v.Len())
	}
	a.says(a.must(200, a.fields("rewind", "seq", "6")), "there is nothing to do")
	a.append(`{"id":"e9","author":"user","content":{"role":"user","parts":[{"text":"of no invocation"}]}}`)
	a.says(a.must(422, a.fields("rewind", "seq", fmt.Sprint(len(a.log())))), "belongs to no invocation")
}

func TestFork(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true, Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool { return key.User == "ada" }})
	page := a.must(200, a.fields("fork", "seq", "5"))
	a.says(page, "the first 5 records of this one; 5 visible events.")
	do := a.form(page, "Do it")
	if to := do.Get("to"); to != "shop/ada/4711-fork-5" {
		t.Errorf("suggested %q", to)
	}
	do.Set("to", "shop/bob/x")
	a.must(403, do)
	a.must(403, a.fields("fork", "seq", "5", "to", "shop/bob/x"))
	do.Set("to", "nonsense")
	a.must(400, do)
	do.Set("to", "shop/ada/new")
	a.says(a.must(200, do), "shop/ada/new forked from shop/ada/4711 with 5 records; 5 visible events.")
	a.says(a.must(200, a.fields("fork", "seq", "5", "to", "shop/ada/new")), "is there already. Take another key.")
	info, err := a.store.Info(t.Context(), store.Key{App: "shop", User: "ada", Session: "new"})
	if err != nil || info.Seq != 5 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := a.store.Create(t.Context(), store.Key{App: "shop", User: "ada", Session: "else"}, nil); err != nil {
		t.Fatal(err)
	}
	do.Set("to", "shop/ada/else")
	if status, page := a.post(do); status != 409 || strings.Contains(page, "done before") {
		t.Errorf("status %d:\n%s", status, actText(page))
	}
	if _, err := a.store.Info(t.Context(), store.Key{App: "shop", User: "bob", Session: "x"}); err == nil {
		t.Error("a session was made that may not be")
	}
}

func TestCompactNow(t *testing.T) {
	var focus string
	fail := fmt.Errorf("the model <b>is</b> away")
	cfg := compaction.Config{Enabled: true, CompactionInterval: 5, Summarizer: compaction.SummarizerFunc(func(_ context.Context, req compaction.Request) (compaction.Response, error) {
		focus = req.Focus
		return compaction.Response{Text: "Ada asked for much.", Model: "m1"}, fail
	})}
	a := newActing(t, inspector.Options{Write: true, Compaction: cfg})
	page := a.must(200, a.fields("compact"))
	if strings.Contains(page, ">Do it<") {
		t.Error("it offers to do nothing")
	}
	a.fill(10)
	decision, err := compaction.Plan(a.view(), cfg, compaction.Run{Again: true})
	if err != nil {
		t.Fatal(err)
	}
	plan := figures.PlanOf(a.key, decision)
	page = a.must(200, a.fields("compact", "focus", "the lamp"))
	a.says(page, plan.Reason, plan.Outlook(), "What the next pass would make a summary of", "0 e0 user")
	for _, row := range plan.Rows() {
		a.says(page, row.Name+" "+row.Text)
	}
	had := len(a.log())
	do := a.form(page, "Do it")
	page = a.must(502, do)
	a.says(page, "The summary could not be made", "the model <b>is</b> away", "Nothing was written")
	if focus != "the lamp" || len(a.log()) != had {
		t.Errorf("focus %q, %d records", focus, len(a.log())-had)
	}
	fail = nil
	page = a.must(200, a.form(a.must(200, a.form(page, "Preview it again")), "Do it"))
	passes := 0
	for _, r := range a.log()[had:] {
		if w, ok := compaction.WrittenBy(r.Patch); ok {
			passes++
			a.says(page, figures.PassText(r, w))
		}
	}
	if passes == 0 {
		t.Error("no pass was logged")
	}
}

// While a summarizer is at work, a second click says so.
func TestCompactingAlready(t *testing.T) {
	began, end := make(chan bool), make(chan bool)
	cfg := compaction.Config{Enabled: true, CompactionInterval: 5, Summarizer: compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		began <- true
		<-end
		return compaction.Response{}, nil // declines
	})}
	a := newActing(t, inspector.Options{Write: true, Compaction: cfg})
	a.fill(10)
	do := a.form(a.must(200, a.fields("compact")), "Do it")
	first := make(chan string)
	go func() { _, page := a.post(do); first <- page }()
	<-began
	a.says(a.must(422, do), "is being compacted already")
	close(end)
	a.says(<-first, "The summarizer declined")
	// One who leaves ends it.
	ctx, leave := context.WithCancel(t.Context())
	end = make(chan bool)
	gone := make(chan bool)
	go func() { a.post(do, func(r *http.Request) { *r = *r.WithContext(ctx) }); close(gone) }()
	<-began
	leave()
	<-gone
	close(end)
}

func TestOnlyOneStretchForAText(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	for _, act := range []string{"replace", "summarise"} {
		page := a.must(422, a.fields(act, "index", "4", "index", "6", "text", "both"))
		a.says(page, "the selected ones are 2 stretches")
		a.says(a.must(200, a.form(page, "Select the whole stretch instead")), "5 e5 agent")
		a.says(a.must(422, a.fields(act, "index", "4", "text", " \r\n ")), "The text is missing")
	}
	a.says(a.must(422, a.fields("splice")), "No event is selected")
	a.says(a.must(422, a.fields("truncate", "index", "0")), "Nothing stands before")
}

// What is no request of a person who may write and looks at a page of this inspector does nothing.
func TestNobodyElseActs(t *testing.T) {
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		opts   inspector.Options
		field  []string // of the do, in place of what the preview gave
		change func(*http.Request)
		status []int
	}{
		"without Write":         {inspector.Options{}, nil, nil, []int{404, 405}},
		"of another site":       {inspector.Options{Write: true}, nil, set("Origin", "http://evil.example"), []int{403}},
		"of a sandboxed frame":  {inspector.Options{Write: true}, nil, set("Origin", "null"), []int{403}},
		"fetched across sites":  {inspector.Options{Write: true}, nil, set("Sec-Fetch-Site", "cross-site"), []int{403}},
		"to another name":       {inspector.Options{Write: true}, nil, func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Origin", "http://evil.example") }, []int{421}},
		"without the token":     {inspector.Options{Write: true, Token: "t0ken"}, nil, nil, []int{401}},
		"who may not see it":    {inspector.Options{Write: true, Authorize: func(*http.Request, store.Key, inspector.Access) bool { return false }}, nil, nil, []int{404}},
		"who may read only":     {inspector.Options{Write: true, Authorize: func(_ *http.Request, _ store.Key, want inspector.Access) bool { return want == inspector.Read }}, nil, nil, []int{403}},
		"of no form":            {inspector.Options{Write: true}, nil, set("Content-Type", "text/plain"), []int{400}},
		"of several parts":      {inspector.Options{Write: true}, nil, set("Content-Type", "multipart/form-data; boundary=x"), []int{400}},
		"with an address":       {inspector.Options{Write: true}, nil, func(r *http.Request) { r.URL.RawQuery = "key=shop%2Fada%2F4711" }, []int{400}},
		"with an unknown field": {inspector.Options{Write: true}, []string{"colour", "red"}, nil, []int{400}},
		"of an unknown act":     {inspector.Options{Write: true}, []string{"act", "delete"}, nil, []int{400}},
		"of an unknown step":    {inspector.Options{Write: true}, []string{"step", "force"}, nil, []int{400}},
		"of another creation":   {inspector.Options{Write: true}, []string{"creation", "other"}, nil, []int{409}},
		"of no creation":        {inspector.Options{Write: true}, []string{"creation", ""}, nil, []int{400}},
		"of a later record":     {inspector.Options{Write: true}, []string{"at", "99"}, nil, []int{404}},
		"of unknown events":     {inspector.Options{Write: true}, []string{"ids", `["nobody"]`}, nil, []int{404}},
		"of no ids":             {inspector.Options{Write: true}, []string{"ids", `{}`}, nil, []int{400}},
		"without a preview":     {inspector.Options{Write: true}, []string{"draw", ""}, nil, []int{400}},
		"with a false draw":     {inspector.Options{Write: true}, []string{"draw", "7"}, nil, []int{400}},
		"of unknown rules":      {inspector.Options{Write: true}, []string{"allow_pinned", "perhaps"}, nil, []int{400}},
		"of an unknown policy":  {inspector.Options{Write: true}, []string{"state", "burn"}, nil, []int{400}},
		"of too much":           {inspector.Options{Write: true}, []string{"text", strings.Repeat("x", 1<<20)}, nil, []int{413}},
		"that drives terminals": {inspector.Options{Write: true}, []string{"text", "a\x1b[2Jb"}, nil, []int{400}},
		"that is not UTF-8":     {inspector.Options{Write: true}, []string{"text", "a\xffb"}, nil, []int{400}},
	} {
		t.Run(name, func(t *testing.T) {
			open := newActing(t, inspector.Options{Write: true})
			do := open.form(open.must(200, open.fields("splice", "index", "4")), "Do it")
			a := newActingOn(t, open.store, c.opts)
			for n := 0; n < len(c.field); n += 2 {
				do.Set(c.field[n], c.field[n+1])
			}
			change := func(*http.Request) {}
			if c.change != nil {
				change = c.change
			}
			for _, step := range []string{do.Get("step"), "preview"} {
				if step == "preview" && c.change == nil && len(c.field) > 0 {
					break
				}
				do.Set("step", step)
				if status, page := a.post(do, change); !slices.Contains(c.status, status) {
					t.Errorf("step %s: status %d, want %v:\n%s", step, status, c.status, actText(page))
				}
			}
			if n := len(a.log()); n != 8 {
				t.Errorf("%d records", n)
			}
		})
	}
	t.Run("by an address", func(t *testing.T) {
		a := newActing(t, inspector.Options{Write: true})
		do := a.form(a.must(200, a.fields("splice", "index", "4")), "Do it")
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/act?"+do.Encode(), nil))
		if len(a.log()) != 8 || w.Code < 400 {
			t.Errorf("status %d, %d records", w.Code, len(a.log()))
		}
		for _, field := range []string{"at", "from", "seq"} {
			f := a.fields("splice", "index", "1")
			f.Set(field, "-1")
			a.must(400, f)
		}
		a.must(400, a.fields("splice", "from", "3", "through", "2"))
		a.must(400, a.fields("splice", "from", "3"))
		a.must(400, a.fields("splice", "from", "0", "through", "99999999"))
		a.must(400, a.fields("splice", "index", "x"))
		a.must(422, a.fields("splice", "index", "8"))
		a.must(400, a.fields("splice", "index", "1", "act", "splice"))
	})
}

// A preview asks nothing of the store but reading.
func TestPreviewsOnlyRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := newActingOn(t, s, inspector.Options{Write: true})
	a.fill(10)
	a.must(200, a.form(a.must(200, a.fields("splice", "index", "4")), "Do it"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(path, store.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a = newActingOn(t, s, inspector.Options{Write: true})
	for _, f := range []url.Values{
		a.fields("splice", "index", "4"), a.fields("truncate", "index", "4"), a.fields("pin", "index", "4"), a.fields("summarise", "index", "4", "text", "x"),
		a.fields("replace", "index", "4", "text", "x"), a.fields("revert", "seq", fmt.Sprint(len(a.log()))), a.fields("rewind", "seq", "6"), a.fields("fork"), a.fields("compact"),
	} {
		page := a.must(200, f)
		if status, _ := a.post(a.form(page, "Do it")); status != 403 && !(f.Get("act") == "compact" && status == 502) {
			t.Errorf("%s: status %d", f.Get("act"), status)
		}
	}
}

func TestHostileContentsOfActs(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true, Author: func(*http.Request) string { return "<b>bob</b>" }})
	hostile := "</pre><script>alert(1)</script>\u202egnp.exe \x1b[31m \x00"
	id := "<img src=x onerror=alert(1)>\r\n\u202e'\""
	event, err := patch.NewEvent(patch.Fields{ID: id, InvocationID: id, Author: "user", Content: patch.Text("user", hostile+strings.Repeat("long ", 2<<20)), Actions: patch.Actions{StateDelta: map[string]any{hostile: hostile}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.AppendEvents(t.Context(), a.key, store.AppendOptions{}, event); err != nil {
		t.Fatal(err)
	}
	sound := func(page string) string {
		t.Helper()
		seen := actHidden.ReplaceAllString(page, "")
		for _, bad := range []string{"<script>", "<img", "<b>", "\u202e", "\x1b", "\x00"} {
			if strings.Contains(seen, bad) || bad != "\u202e" && strings.Contains(page, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
		if len(page) > 1<<20 {
			t.Errorf("the page has %d bytes", len(page))
		}
		return page
	}
	text := "<script>alert(2)</script> \u202e"
	page := sound(a.must(200, a.fields("summarise", "index", "8", "text", text)))
	page = sound(a.must(200, a.form(page, "Do it")))
	for _, p := range a.view().At(8).Content().Parts() {
		if p.Text() != text {
			t.Errorf("the summary says %q", p.Text())
		}
	}
	sound(a.must(200, a.form(page, "Take it back …")))
	sound(a.must(200, a.fields("rewind", "seq", "9")))
	sound(a.must(200, a.fields("compact", "focus", text)))
	sound(a.must(400, a.fields("<script>alert(3)</script>")))
	sound(a.must(200, a.form(sound(a.must(200, a.fields("pin", "index", "8"))), "Do it")))
	sound(a.must(422, a.fields("splice", "index", "8")))
}

// The session's page offers acts where they are allowed and mean what is shown.
func TestTheSessionOffersActs(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.must(200, a.form(a.must(200, a.fields("splice", "index", "4")), "Do it"))
	get := func(h http.Handler, query string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/session?key="+url.QueryEscape(a.key.String())+query, nil))
		body, err := io.ReadAll(w.Result().Body)
		if err != nil || w.Code != 200 {
			t.Fatalf("status %d, %v", w.Code, err)
		}
		return string(body)
	}
	page := get(a.handler, "")
	for _, want := range []string{
		`<form id="acting" method="post" action="act">`, `<input type="checkbox" name="index" value="0" form="acting"`, `form="reverting" name="seq" value="9"`,
		`form="rewinding" name="seq" value="1"`, `form="forking" name="seq" value="3"`, `name="at" value="9"`, `name="creation" value="` + a.view().Creation() + `"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if strings.Contains(page, `form="rewinding" name="seq" value="2"`) || strings.Contains(page, `form="reverting" name="seq" value="1"`) {
		t.Error("a model's answer can be rewound to, or an event taken back")
	}
	readers, err := inspector.New(a.store, inspector.Options{Write: true, Authorize: func(_ *http.Request, _ store.Key, want inspector.Access) bool { return want == inspector.Read }})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{get(a.handler, "&at=9"), get(readers, ""), get(newActingOn(t, a.store, inspector.Options{}).handler, "")} {
		if strings.Contains(page, "<button name=\"act\"") || strings.Contains(page, `method="post"`) || strings.Contains(page, `name="index"`) || strings.Contains(page, `class="small"`) {
			t.Error("a page offers acts that should not")
		}
	}
}

// What an act costs is what a pass of compaction would be said to, for the same tokens.
func TestCost(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.fill(30)
	before := a.view()
	preview, err := a.store.Preview(t.Context(), a.key, store.PatchOptions{On: before}, patch.NewSplice(4, 20))
	if err != nil {
		t.Fatal(err)
	}
	from, left := 0, 0
	for n, e := range before.Events() {
		if n >= 4 {
			from += e.EstimatedTokens()
		}
		if n >= 24 {
			left += e.EstimatedTokens()
		}
	}
	b := compaction.Balance{Once: 1.25*float64(left) - 0.1*float64(from), EachTurn: 0.1 * float64(from-left)}
	if preview.First != 4 || b.BreakEven() < 2 {
		t.Fatalf("first %d, break-even %d: no case of costs", preview.First, b.BreakEven())
	}
	page := a.must(200, a.fields("splice", "from", "4", "through", "23"))
	a.says(page, fmt.Sprintf("About %s tokens from there on are read anew. The next turn costs %.0f more than it would, and each further one %.0f less: it has paid for itself after %d turns.",
		figures.Grouped(left), b.Once, b.EachTurn, b.BreakEven()))
	a.says(a.must(200, a.fields("splice", "from", "60", "through", "67")), "it has paid for itself at once.")
	a.says(a.must(200, a.fields("replace", "index", "40", "text", strings.Repeat("more than before ", 50))), "it never pays for itself.")
	a.says(a.must(200, a.fields("pin", "index", "4")), "What a model sees stays as it is")
}

// A long session can be acted on within a page's time and size.
func TestActingOnALongSession(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	var events []*patch.Event
	for n := range 10_000 {
		e, err := patch.NewEvent(patch.Fields{Author: "user", Timestamp: time.Unix(int64(n), 0), Content: patch.Text("user", "turn")})
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if _, err := a.store.AppendEvents(t.Context(), a.key, store.AppendOptions{}, events...); err != nil {
		t.Fatal(err)
	}
	page := a.must(200, a.fields("splice", "from", "4", "through", "9999"))
	if len(page) > 1<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	a.says(page, "and 9800 more events")
	a.must(200, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 12 {
		t.Errorf("%d events", v.Len())
	}
}
