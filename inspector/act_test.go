package inspector_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
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

// newActing has a session of three invocations, the first with a call, a response and two keys of
// the state.
func newActing(t *testing.T, opts inspector.Options) *acting {
	t.Helper()
	return newActingOn(t, teststore.Memory(t, store.Options{}), opts)
}

func newActingOn(t *testing.T, s *store.Store, opts inspector.Options) *acting {
	t.Helper()
	a := &acting{t, s, newInspector(t, s, opts), store.Key{App: "shop", User: "ada", Session: "4711"}}
	if _, err := s.Info(t.Context(), a.key); err == nil {
		return a
	}
	testlog.Must(s.Create(t.Context(), a.key, map[string]any{"size": "small"}))(t)
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
		events = append(events, testlog.Event(text))
	}
	testlog.Must(a.store.AppendEvents(a.t.Context(), a.key, store.AppendOptions{}, events...))(a.t)
}

func (a *acting) view() fold.View {
	a.t.Helper()
	return testlog.Must(a.store.View(a.t.Context(), a.key))(a.t)
}

func (a *acting) log() []patch.Record {
	a.t.Helper()
	var records []patch.Record
	for r, err := range a.store.RawEvents(a.t.Context(), a.key, 1) {
		testlog.NoError(a.t, err)
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
func (a *acting) shows(page string, d present.Difference, around int) {
	a.t.Helper()
	for _, c := range d.Changes(around) {
		a.says(page, fmt.Sprintf("%d %s %s %s", c.Index, c.Entry.Event.ID(), c.Entry.Event.Author(), present.EntryText(c.Entry)))
	}
	for _, row := range d.StateRows() {
		a.says(page, row.Key+" "+row.Value)
	}
	for _, row := range d.Rows() {
		a.says(page, row.Name+" "+row.Text)
	}
	a.says(page, d.PinLines()...)
}

// What is previewed is what the store says that the patches would do, and what is done is those.
func TestActsOnSelectedEvents(t *testing.T) {
	summary := func(v fold.View, invocation string) *patch.PatchEvent {
		e := testlog.Must(ops.SummaryByHand(v, compaction.Span{Start: 4, Count: 3}, invocation, "Ada asked twice."))(t)
		return patch.NewSummarise(4, 3, e)
	}
	for name, c := range map[string]struct {
		fields []string
		want   func(v fold.View) []*patch.PatchEvent
	}{
		"splice": {[]string{"index", "4", "index", "5"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(4, 2)}
		}},
		"splice by a stretch": {[]string{"from", "1", "through", "3", "index", "4", "index", "2"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(1, 4)}
		}},
		"splice of two stretches": {[]string{"index", "4", "index", "6", "index", "7"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(6, 2), patch.NewSplice(4, 1)}
		}},
		"splice that keeps the state": {[]string{"index", "7", "state", "keep"}, func(fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{patch.NewSplice(7, 1).WithState(patch.Keep)}
		}},
		"summarise": {[]string{"index", "4", "index", "5", "index", "6", "text", "Ada asked twice."}, func(v fold.View) []*patch.PatchEvent {
			return []*patch.PatchEvent{summary(v, "")}
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
			foretold := testlog.Must(a.store.Preview(t.Context(), a.key, store.PatchOptions{On: before}, want...))(t)
			difference, around := present.DifferenceOf(foretold.Before, foretold.After), 0
			if len(want) == 1 {
				difference, around = present.PreviewOf(foretold, want[0]), 2
			}

			page := a.must(200, a.fields(act, c.fields...))
			a.shows(page, difference, around)
			a.says(page, "Preview: ")
			if len(foretold.Removed) > 0 {
				a.says(page, fmt.Sprintf("can reuse %s", map[bool]string{true: "none of them", false: "the " + present.Counted(foretold.First, "event") + " before it"}[foretold.First == 0]))
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
				if r.Patch.Type() == patch.Summarise && r.Patch.NewEvents()[0].InvocationID() != "" { // one of its own
					offered = summary(before, r.Patch.NewEvents()[0].InvocationID()).WithAuthor("grace")
				}
				if !patch.Same(r, patch.Record{Patch: offered}) {
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
				a.says(page, fmt.Sprint(r.Seq), "id "+r.ID(), present.PatchText(r.Patch))
			}
			if d := a.view().Diff(foretold.After); a.view().Len() != foretold.After.Len() || len(d.StateChanged) > 0 {
				t.Errorf("the view is another one than the store foretold: %+v", d)
			}
			a.says(page, fmt.Sprintf("%s hidden, %d added; %s now.", present.Counted(len(foretold.Removed), "event"), len(foretold.Added), present.Counted(foretold.After.Len(), "visible event")))

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
	a.says(a.must(422, a.fields("unpin", "index", "2")), "Nothing that is selected is pinned.")
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
					if status, page := a.post(do); status != 200 {
						t.Errorf("status %d:\n%s", status, actText(page))
					}
				})
			}
			done.Wait()
			if n := len(a.log()) - had; n != logged && !(act == "compact" && n > 0) {
				t.Errorf("%d records were logged, want %d", n, logged)
			}
			a.says(a.must(200, do), "Done: ")
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
