package inspector_test

import (
	"context"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// actionTest is a session that a person has open in a page.
type actionTest struct {
	t       *testing.T
	store   *store.Store
	handler http.Handler
	key     store.Key
}

// newActionTest returns a session of three invocations. The first has a call, its response and two state keys.
func newActionTest(t *testing.T, opts inspector.Options) *actionTest {
	t.Helper()
	return newActionTestOn(t, teststore.Memory(t, store.Options{}), opts)
}

func newActionTestOn(t *testing.T, s *store.Store, opts inspector.Options) *actionTest {
	t.Helper()
	a := &actionTest{t, s, newInspector(t, s, opts), store.Key{App: "shop", User: "ada", Session: "4711"}}
	if _, err := s.Info(t.Context(), a.key); err == nil {
		return a
	}
	testlog.Must(s.Create(t.Context(), a.key, map[string]any{"size": "small"}, store.CreateOptions{}))(t)
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

func (a *actionTest) append(texts ...string) {
	a.t.Helper()
	var events []*patch.Event
	for _, text := range texts {
		events = append(events, testlog.Event(text))
	}
	testlog.Must(a.store.AppendEvents(a.t.Context(), a.key, events, store.AppendOptions{}))(a.t)
}

func (a *actionTest) view() fold.View {
	a.t.Helper()
	return testlog.Must(a.store.View(a.t.Context(), a.key))(a.t)
}

func (a *actionTest) log() []patch.Record {
	a.t.Helper()
	var records []patch.Record
	for r, err := range a.store.RawEvents(a.t.Context(), a.key, 1) {
		testlog.NoError(a.t, err)
		records = append(records, r)
	}
	return records
}

// fields returns the form fields of the session's current page, and the fields in more.
func (a *actionTest) fields(act string, more ...string) url.Values {
	v := a.view()
	f := url.Values{"step": {"preview"}, "act": {act}, "key": {a.key.String()}, "creation": {v.Creation()}, "at": {fmt.Sprint(v.Seq())}}
	for n := 0; n < len(more); n += 2 {
		f.Add(more[n], more[n+1])
	}
	return f
}

// post sends a form. If the form has the field step, post sends it by GET, as a preview. Otherwise post sends
// it by POST. After an applied action it returns the page that the response redirects to.
func (a *actionTest) post(f url.Values, change ...func(*http.Request)) (int, string) {
	f = maps.Clone(f)
	var r *http.Request
	if f.Get("step") == "preview" {
		f.Del("step")
		r = httptest.NewRequest("GET", "http://localhost/act?"+f.Encode(), nil)
	} else {
		r = httptest.NewRequest("POST", "http://localhost/act", strings.NewReader(f.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Origin", "http://localhost")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if w.Code == http.StatusSeeOther {
		return w.Code, a.get(strings.TrimPrefix(w.Header().Get("Location"), "./"))
	}
	return w.Code, w.Body.String()
}

func (a *actionTest) mustPost(status int, f url.Values) string {
	a.t.Helper()
	got, page := a.post(f)
	if got != status {
		a.t.Fatalf("%v: status %d, want %d:\n%s", f, got, status, actText(page))
	}
	return page
}

var (
	actFormText  = regexp.MustCompile(`(?s)<form [^>]*action="act".*?</form>`)
	actInputText = regexp.MustCompile(`<input [^>]*name="([^"]*)"(?: value="([^"]*)")`)
	actTextText  = regexp.MustCompile(`(?s)<textarea [^>]*name="([^"]*)"[^>]*>(.*?)</textarea>`)
	actHidden    = regexp.MustCompile(`(?s)<input type="hidden"[^>]*>|<textarea.*?</textarea>`) // hidden fields and texts that a person typed
	actTags      = regexp.MustCompile(`(?s)<[^>]*>`)
)

func actText(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(actTags.ReplaceAllString(page, " "))), " ")
}

// form returns the fields of the form with the given button. The button "Do it" stands for the one that
// confirms a preview.
func (a *actionTest) form(page, button string) url.Values {
	a.t.Helper()
	for _, form := range actFormText.FindAllString(page, -1) {
		if !strings.Contains(form, ">"+button+"</button>") && (button != "Do it" || !strings.Contains(form, `class="confirm"`)) {
			continue
		}
		f := url.Values{}
		if !strings.Contains(form, `method="post"`) {
			f.Set("step", "preview")
		}
		for _, m := range slices.Concat(actInputText.FindAllStringSubmatch(form, -1), actTextText.FindAllStringSubmatch(form, -1)) {
			f.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
		}
		return f
	}
	a.t.Fatalf("no form with the button %q in:\n%s", button, actText(page))
	return nil
}

func (a *actionTest) wantText(page string, texts ...string) {
	a.t.Helper()
	said := actText(page)
	for _, text := range texts {
		if text = strings.Join(strings.Fields(text), " "); !strings.Contains(said, text) {
			a.t.Errorf("the page does not say %q:\n%s", text, said)
		}
	}
}

// wantDifference compares a page with what the command prints for a difference.
func (a *actionTest) wantDifference(page string, d present.Difference, around int) {
	a.t.Helper()
	for _, c := range d.Changes(around) {
		a.wantText(page, fmt.Sprintf("%s %s", c.Entry.Event.Author(), present.EntryText(c.Entry)))
	}
	for _, row := range d.StateRows() {
		a.wantText(page, row.Key+" "+row.Value)
	}
	for _, row := range d.Rows() {
		a.wantText(page, row.Name+" "+row.Text)
	}
	a.wantText(page, d.PinLines()...)
}

// The preview shows the effect that the store predicts. Confirming it logs the same patches.
func TestActions(t *testing.T) {
	summary := func(v fold.View, invocation string) *patch.PatchEvent {
		e := testlog.Must(ops.ManualSummary(v, compaction.Span{Start: 4, Count: 3}, invocation, "Ada asked twice."))(t)
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
			a := newActionTest(t, inspector.Options{Write: true, Author: func(*http.Request) string { return "grace" }})
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
			preview := testlog.Must(a.store.Preview(t.Context(), a.key, want, store.PatchOptions{On: before}))(t)
			difference, around := present.DifferenceOf(preview.Before, preview.After), 0
			if len(want) == 1 {
				difference, around = present.PreviewOf(preview, want[0]), 2
			}

			page := a.mustPost(200, a.fields(act, c.fields...))
			a.wantDifference(page, difference, around)
			if len(preview.Removed) > 0 {
				a.wantText(page, fmt.Sprintf("can reuse %s", map[bool]string{true: "none of them", false: "the " + present.Counted(preview.FirstChanged, "event") + " before it"}[preview.FirstChanged == 0]))
			}
			if n := len(a.log()); n != 8 {
				t.Fatalf("a preview has written: %d records", n)
			}

			do := a.form(page, "Do it")
			page = a.mustPost(303, do)
			log := a.log()[8:]
			if len(log) != len(want) {
				t.Fatalf("%d records, want %d", len(log), len(want))
			}
			for n, r := range log {
				offered := want[n].WithGroup(r.Patch.Group())
				if r.Patch.Type() == patch.Summarise && r.Patch.NewEvents()[0].InvocationID() != "" { // a manual summary has its own invocation
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
			}
			if d := a.view().Diff(preview.After); a.view().Len() != preview.After.Len() || len(d.StateChanged) > 0 {
				t.Errorf("the view is another one than the store foretold: %+v", d)
			}
			a.wantText(page, fmt.Sprintf("%s hidden, %d added; %s now.", present.Counted(len(preview.Removed), "event"), len(preview.Added), present.Counted(preview.After.Len(), "visible event")))

			// Sending the form again writes nothing, and the response names the record that was logged the
			// first time.
			a.wantText(a.mustPost(409, do), "Another patch was logged after the preview", fmt.Sprintf("Record %d, logged after the preview", log[len(log)-1].Seq))
			if n := len(a.log()); n != 8+len(want) {
				t.Fatalf("a retry has written: %d records", n)
			}

			// The action can be undone with one click.
			a.mustPost(303, a.form(a.get(a.sessionPath()+fmt.Sprintf("&done=9-%d", 8+len(want))), "Undo"))
			if d := before.Diff(a.view()); len(d.Removed)+len(d.Added)+len(d.StateChanged) > 0 {
				t.Errorf("after the revert, it is not as before: %+v", d)
			}
			for n := range a.view().Len() {
				if a.view().IsPinned(n) {
					t.Errorf("event %d is still pinned", n)
				}
			}
		})
	}
}

func TestUnpinSkipsUnpinned(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	a.mustPost(303, a.form(a.mustPost(200, a.fields("pin", "index", "2")), "Do it"))
	page := a.mustPost(303, a.form(a.mustPost(200, a.fields("unpin", "index", "2", "index", "3")), "Do it"))
	a.wantText(page, "Unpinned 1 event.")
	if log := a.log(); len(log) != 10 || log[9].Patch.Type() != patch.Unpin || log[9].Patch.Author() != "inspector" {
		t.Errorf("log %v", log[8:])
	}
	a.wantText(a.mustPost(422, a.fields("unpin", "index", "2")), "No selected event is pinned.")
}

// If a form is sent several times at once, its action is logged once.
func TestDoubleClick(t *testing.T) {
	for _, act := range []string{"splice", "revert", "rewind", "compact", "fork"} {
		t.Run(act, func(t *testing.T) {
			var asked sync.Map
			arrived := make(chan bool, 99)
			cfg := compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
				if _, twice := asked.LoadOrStore("here", true); twice {
					t.Error("the summarizer was asked twice")
					return compaction.Response{}, nil
				}
				for range 6 { // waits until all requests have arrived
					<-arrived
				}
				return compaction.Response{Text: "Ada asked."}, nil
			})}
			a := newActionTest(t, inspector.Options{Write: true, Compaction: cfg, Author: func(*http.Request) string { arrived <- true; return "ada" }})
			var f url.Values
			logged := 1
			switch act {
			case "splice":
				f = a.fields(act, "index", "4", "index", "6")
				logged = 2
			case "revert":
				a.mustPost(303, a.form(a.mustPost(200, a.fields("splice", "index", "4", "index", "6")), "Do it"))
				f = a.fields(act, "seq", "9")
				logged = 2
			case "rewind":
				f = a.fields(act, "seq", "6")
			case "compact":
				a.appendTurns(40)
				f = a.fields(act)
			case "fork":
				f = a.fields(act, "seq", "6", "to", "shop/ada/other")
				logged = 0
			}
			do := a.form(a.mustPost(200, f), "Do it")
			for len(arrived) > 0 {
				<-arrived
			}
			had := len(a.log())
			var done sync.WaitGroup
			var times [2]atomic.Int64 // counts of successes and refusals
			for range 6 {
				done.Go(func() {
					status, page := a.post(do)
					if status != 303 && status != 409 {
						t.Errorf("status %d:\n%s", status, actText(page))
					}
					times[(status-303)/106].Add(1)
				})
			}
			done.Wait()
			if done, refused := times[0].Load(), times[1].Load(); done != 1 || refused != 5 {
				t.Errorf("it was done %d times, and refused %d times", done, refused)
			}
			if n := len(a.log()) - had; n != logged && !(act == "compact" && n > 0) {
				t.Errorf("%d records were logged, want %d", n, logged)
			}
			a.mustPost(409, do)
		})
	}
}

// appendTurns appends turns, so that there is something to compact.
func (a *actionTest) appendTurns(n int) {
	for k := range n {
		a.append(
			fmt.Sprintf(`{"invocationId":"f%d","author":"user","content":{"role":"user","parts":[{"text":"turn %d, which asks for something at some length, so that it is worth a summary"}]}}`, k, k),
			fmt.Sprintf(`{"invocationId":"f%d","author":"agent","content":{"role":"model","parts":[{"text":"answer %d, which says something at some length, so that it is worth a summary"}]}}`, k, k),
		)
	}
}

func TestActionsWithHostileContent(t *testing.T) {
	testlog.SkipUnderRace(t)
	a := newActionTest(t, inspector.Options{Write: true, Author: func(*http.Request) string { return "<b>bob</b>" }})
	hostile := "</pre><script>alert(1)</script>\u202egnp.exe \x1b[31m \x00"
	id := "<img src=x onerror=alert(1)>\r\n\u202e'\""
	event := testlog.Must(patch.NewEvent(patch.Fields{ID: id, InvocationID: id, Author: "user", Content: patch.Text("user", hostile+strings.Repeat("long ", 2<<20)), Actions: patch.Actions{StateDelta: map[string]any{hostile: hostile}}}))(t)
	testlog.Must(a.store.AppendEvents(t.Context(), a.key, []*patch.Event{event}, store.AppendOptions{}))(t)
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
	parts := strings.Repeat(`{"text":"`+strings.Repeat("many parts ", 30)+`"},`, 3000)
	a.append(`{"id":"parts","author":"user","content":{"role":"user","parts":[` + strings.TrimSuffix(parts, ",") + `]}}`)
	if page := sound(a.mustPost(200, a.fields("splice", "index", "9"))); len(page) > 50_000 {
		t.Errorf("the page about an event of many parts has %d bytes", len(page))
	}
	if page := sound(a.mustPost(200, a.fields("summarise", "index", "4", "text", strings.Repeat("x", 300_000)))); len(page) > 400_000 { // the page has the text once
		t.Errorf("the page about a long text has %d bytes", len(page))
	}
	text := "<script>alert(2)</script> \u202e"
	page := sound(a.mustPost(200, a.fields("summarise", "index", "8", "text", text)))
	page = sound(a.mustPost(303, a.form(page, "Do it")))
	for _, p := range a.view().At(8).Content().Parts() {
		if p.Text != text {
			t.Errorf("the summary says %q", p.Text)
		}
	}
	sound(page)
	sound(a.mustPost(200, a.fields("rewind", "seq", "9")))
	sound(a.mustPost(200, a.fields("compact", "focus", text)))
	sound(a.mustPost(400, a.fields("<script>alert(3)</script>")))
	sound(a.mustPost(303, a.form(sound(a.mustPost(200, a.fields("pin", "index", "8"))), "Do it")))
	sound(a.mustPost(422, a.fields("splice", "index", "8")))
}

// The session's page offers only actions that are allowed and possible.
func TestOfferedActions(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	a.mustPost(303, a.form(a.mustPost(200, a.fields("splice", "index", "4")), "Do it"))
	page := a.get(a.sessionPath() + "&edit=1")
	for _, want := range []string{
		`<form id="acting" action="act">`, `<input type="checkbox" name="index" value="0" form="acting"`, `name="at" value="9"`, `name="creation" value="` + a.view().Creation() + `"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	of := func(a *actionTest, seq, more string) string {
		return a.get("record?seq=" + seq + more + "&key=" + url.QueryEscape(a.key.String()))
	}
	for seq, want := range map[string]string{"9": "act=revert", "1": "act=rewind", "3": "act=fork"} {
		if page := of(a, seq, ""); !strings.Contains(page, want+"&amp;at=9") {
			t.Errorf("record %s has no %s", seq, want)
		}
	}
	if strings.Contains(of(a, "9", ""), "act=rewind") || strings.Contains(of(a, "1", ""), "act=revert") {
		t.Error("a patch can be rewound to, or an event reverted")
	}
	readers := newActionTestOn(t, a.store, inspector.Options{Write: true, Authorize: func(_ *http.Request, _ store.Key, want inspector.Access) bool { return want == inspector.Read }})
	nobody := newActionTestOn(t, a.store, inspector.Options{})
	for _, page := range []string{readers.get(a.sessionPath() + "&edit=1"), nobody.get(a.sessionPath() + "&edit=1&done=9-9"), of(readers, "9", ""), of(nobody, "1", "")} {
		if strings.Contains(page, `"act"`) || strings.Contains(page, `method="post"`) || strings.Contains(page, `name="index"`) || strings.Contains(page, "act?") {
			t.Error("a page offers acts that should not")
		}
	}
}

// A preview says how much of the prompt cache a provider can reuse.
func TestPromptCacheReuse(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	left := 0
	for i := 6; i < a.view().Len(); i++ {
		left += a.view().At(i).EstimatedTokens()
	}
	a.wantText(a.mustPost(200, a.fields("splice", "index", "4", "index", "5")),
		fmt.Sprintf("The first index that changes is 4. A provider's prompt cache can reuse the 4 events before it. The provider reads about %d tokens again.", left))
	a.wantText(a.mustPost(200, a.fields("pin", "index", "4")), "The visible log does not change")
}

// Actions on a long session stay within a page's limits of time and size.
func TestActionsOnLongSession(t *testing.T) {
	testlog.SkipUnderRace(t)
	a := newActionTest(t, inspector.Options{Write: true})
	var events []*patch.Event
	for n := range 10_000 {
		e := testlog.Must(patch.NewEvent(patch.Fields{Author: "user", Timestamp: time.Unix(int64(n), 0), Content: patch.Text("user", "turn")}))(t)
		events = append(events, e)
	}
	testlog.Must(a.store.AppendEvents(t.Context(), a.key, events, store.AppendOptions{}))(t)
	page := a.mustPost(200, a.fields("splice", "from", "4", "through", "9999"))
	if len(page) > 1<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	a.wantText(page, "and 9800 more events")
	a.mustPost(303, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 12 {
		t.Errorf("%d events", v.Len())
	}
}

func TestConflict(t *testing.T) {
	for _, act := range []string{"splice", "revert", "rewind", "compact"} {
		t.Run(act, func(t *testing.T) {
			a := newActionTest(t, inspector.Options{Write: true})
			a.appendTurns(10)
			f := map[string]url.Values{
				"splice": a.fields("splice", "index", "4", "index", "5", "index", "5", "index", "7"),
				"rewind": a.fields("rewind", "seq", "5"), "compact": a.fields("compact", "focus", "the lamp"),
			}[act]
			if act == "revert" {
				a.mustPost(303, a.form(a.mustPost(200, a.fields("splice", "index", "7")), "Do it"))
				f = a.fields("revert", "seq", fmt.Sprint(len(a.log())))
			}
			page := a.mustPost(200, f)
			do := a.form(page, "Do it")
			base := a.view()
			other := make(chan error)
			go func() { // another client logs a patch
				_, err := a.store.ApplyPatch(context.Background(), a.key, []*patch.PatchEvent{patch.NewSplice(5, 1).WithAuthor("somebody").WithID("other")}, store.PatchOptions{On: base})
				other <- err
			}()
			testlog.NoError(t, <-other)
			had := len(a.log())
			page = a.mustPost(409, do)
			a.wantText(page, "Another patch was logged after the preview", "What changed since the preview", fmt.Sprintf("Record %d, logged after the preview", had))
			a.wantDifference(page, present.DifferenceOf(base, a.view()), 0)
			if n := len(a.log()); n != had {
				t.Fatalf("%d records were written", n-had)
			}
			page = a.mustPost(200, a.form(page, "Preview again"))
			a.mustPost(303, a.form(page, "Do it"))
			log := a.log()[had:]
			if act == "splice" { // the same events at other indices
				a.wantText(page, "No longer visible, and removed from the selection: 1 event (listed below).", "e5", "user and when does it come to me?", "agent You are welcome, Ada.")
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

// If a patch was logged after the page was loaded, the action applies to the selected events, not to their
// indices.
func TestStalePage(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	f := a.fields("splice", "index", "4", "index", "5")
	testlog.Must(a.store.ApplyPatch(t.Context(), a.key, []*patch.PatchEvent{patch.NewTruncateBefore("e4")}, store.PatchOptions{AsOfNow: true}))(t)
	page := a.mustPost(200, f)
	a.wantText(page, "The session has changed since this page was loaded", "user and when does it come to me?", "agent On Tuesday")
	a.mustPost(303, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 2 || v.At(0).ID() != "e6" {
		t.Errorf("%d events, the first is %s", v.Len(), v.At(0).ID())
	}
	page = a.mustPost(422, f)
	a.wantText(page, "None of the selected events is still visible.")
	if strings.Contains(page, `class="confirm"`) {
		t.Error("it offers to do nothing")
	}
}

func TestOrphanedCalls(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	for _, c := range []struct {
		act, text string
		indices   []string
		passes    string
		first     int
		left      int
	}{
		{"splice", "", []string{"2"}, "events 1 to 2", 1, 6},
		{"splice", "", []string{"1", "6"}, "", 0, 0}, // two ranges of events
		{"summarise", "what was found", []string{"2", "3"}, "events 1 to 3", 1, 6},
	} {
		f := a.fields(c.act, "text", c.text)
		f["index"] = c.indices
		page := a.mustPost(422, f)
		a.wantText(page, `"c1" of function "find"`)
		if c.left > 0 {
			a.wantText(page, "This selection would be accepted: "+c.passes+".")
			next := a.mustPost(200, a.form(page, "Select these instead"))
			testlog.Equal(t, "the first selected event", a.form(next, "Do it").Get("from"), fmt.Sprint(c.first))
			a.wantText(next, fmt.Sprintf("8 → %d", c.left))
		} else {
			a.wantText(page, "There is no other selection to suggest.")
		}
		if n := len(a.log()); n != 8 {
			t.Fatalf("%d records", n)
		}
	}
	b := newActionTest(t, inspector.Options{Write: true})
	b.append(
		`{"id":"e8","author":"user","content":{"role":"user","parts":[{"text":"and order 5?"}]}}`,
		`{"id":"e9","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c2","name":"find"}}]}}`,
		`{"id":"e10","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c2","name":"find","response":{}}}]}}`)
	b.mustPost(303, b.form(b.mustPost(200, b.fields("splice", "from", "0", "through", "7")), "Do it"))
	b.append(`{"id":"e11","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c3","name":"ask"}}]},"longRunningToolIds":["c3"]}`)
	page := b.mustPost(422, b.fields("splice", "index", "1", "index", "3")) // the second event has an open call, and no span around it passes
	b.wantText(page, "There is no other selection to suggest.")
	// A checkbox allows orphaned calls.
	page = a.mustPost(422, a.fields("splice", "index", "2"))
	f := a.form(page, "Preview anyway")
	if !f.Has("allow_orphans") {
		t.Fatalf("no checkbox: %v", f)
	}
	f.Del("allow_orphans")
	a.mustPost(422, f) // not checked
	a.previewAndApply(page, "Calls may be separated from their responses.", 7)
}

// previewAndApply previews a refused action again, now with the failed check turned off, and applies the
// action. It fails unless the preview contains the text want and the session then has the given number of
// visible events.
func (a *actionTest) previewAndApply(page, want string, events int) {
	a.t.Helper()
	page = a.mustPost(200, a.form(page, "Preview anyway"))
	a.wantText(page, want)
	a.mustPost(303, a.form(page, "Do it"))
	testlog.Equal(a.t, "visible events", a.view().Len(), events)
}

func TestPinnedEvents(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	a.mustPost(303, a.form(a.mustPost(200, a.fields("pin", "index", "4")), "Do it"))
	page := a.mustPost(422, a.fields("splice", "index", "4", "index", "5"))
	a.wantText(page, "This would hide 1 pinned event.", "event 4, id e4: and when does it come to me?")
	a.previewAndApply(page, "Pinned events may be hidden.", 6)
}

func TestBlockedRevert(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	a.mustPost(303, a.form(a.mustPost(200, a.fields("summarise", "index", "4", "index", "5", "text", "Tuesday")), "Do it")) // record 9
	a.mustPost(303, a.form(a.mustPost(200, a.fields("splice", "index", "4")), "Do it"))                                     // record 10, which cuts the summary
	page := a.mustPost(409, a.fields("revert", "seq", "9"))
	a.wantText(page, "Record 10, patch "+a.log()[9].ID()+", depends on the events of this patch.", "Record 10")
	if !strings.Contains(page, `href="record?key=shop%2Fada%2F4711&amp;seq=10"`) {
		t.Error("no link to the record")
	}
	page = a.mustPost(200, a.form(page, "Preview reverting record 10"))
	a.mustPost(303, a.form(page, "Do it"))
	a.mustPost(303, a.form(a.mustPost(200, a.fields("revert", "seq", "9")), "Do it"))
	if v := a.view(); v.Len() != 8 || v.At(4).ID() != "e4" {
		t.Errorf("%d events", v.Len())
	}
	page = a.mustPost(409, a.fields("revert", "seq", "9"))
	a.wantText(page, "is already reverted, by record 12")
	a.mustPost(200, a.form(page, "Preview reverting record 12"))
	a.wantText(a.mustPost(422, a.fields("revert", "seq", "3")), "Record 3 is an event")
	a.mustPost(404, a.fields("revert", "seq", "99"))
	a.mustPost(400, a.fields("revert"))
}

func TestSummariseNeedsOneRange(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	page := a.mustPost(422, a.fields("summarise", "index", "4", "index", "6", "text", "both"))
	a.wantText(page, "2 ranges are selected")
	a.wantText(a.mustPost(200, a.form(page, "Select the whole range instead")), "agent On Tuesday, before noon.")
	do := a.form(a.mustPost(200, a.fields("summarise", "index", "4", "text", " \r\n ")), "Do it") // the preview's form has the text
	a.wantText(a.mustPost(422, do), "The text of the summary is missing")
	do.Set("text", "typed")
	a.mustPost(303, do)
	a.wantText(a.mustPost(422, a.fields("splice")), "No event is selected")
}

// If a similar action was logged meanwhile, the action does not count as done.
func TestConflictWithSimilarAction(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	a.mustPost(303, a.form(a.mustPost(200, a.fields("splice", "index", "4", "index", "6")), "Do it"))
	do := a.form(a.mustPost(200, a.fields("revert", "seq", "9")), "Do it")
	newest := a.log()[9].ID()
	testlog.Must(a.store.ApplyPatch(t.Context(), a.key, []*patch.PatchEvent{patch.NewRevert(newest).WithAuthor("inspector")}, store.PatchOptions{AsOfNow: true}))(t)
	a.wantText(a.mustPost(409, do), "Another patch was logged after the preview", "What changed since the preview", "Record 11, logged after the preview")
	if n := len(a.log()); n != 11 {
		t.Errorf("%d records", n)
	}
}

func TestRewind(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true})
	preview := testlog.Must(a.store.Rewind(t.Context(), a.key, "i2", store.UndoOptions{DryRun: true}))(t)
	page := a.mustPost(200, a.fields("rewind", "seq", "6"))
	a.wantDifference(page, present.DifferenceOf(preview.Before, preview.View), 0)
	do := a.form(page, "Do it")
	a.append(`{"id":"e8","invocationId":"i4","author":"user","content":{"role":"user","parts":[{"text":"late"}]}}`)
	a.mustPost(303, do)
	if v := a.view(); v.Len() != 4 {
		t.Errorf("%d events", v.Len())
	}
	a.wantText(a.mustPost(200, a.fields("rewind", "seq", "6")), "There is nothing to change")
	a.append(`{"id":"e9","author":"user","content":{"role":"user","parts":[{"text":"of no invocation"}]}}`)
	a.wantText(a.mustPost(422, a.fields("rewind", "seq", fmt.Sprint(len(a.log())))), "belongs to no turn")
}

func TestFork(t *testing.T) {
	a := newActionTest(t, inspector.Options{Write: true, Authorize: func(_ *http.Request, key store.Key, want inspector.Access) bool {
		return key.User == "ada" || key.User == "bob" && want == inspector.Read || key.User == "carol" && want == inspector.Write
	}})
	page := a.mustPost(200, a.fields("fork", "seq", "5"))
	a.wantText(page, "the first 5 records of this session, with 5 visible events.")
	do := a.form(page, "Do it")
	if to := do.Get("to"); to != "shop/ada/4711-fork-5" {
		t.Errorf("suggested %q", to)
	}
	for _, user := range []string{"bob", "carol", "dave"} {
		do.Set("to", "shop/"+user+"/x")
		a.mustPost(403, do)
	}
	do.Set("to", "nonsense")
	a.mustPost(400, do)
	do.Set("to", "shop/ada/new")
	a.wantText(a.mustPost(303, do), "The new session begins with 5 records.", "5 of 5 events")
	other := a.form(a.mustPost(200, a.fields("fork", "seq", "5")), "Do it")
	other.Set("to", "shop/ada/new")
	a.wantText(a.mustPost(409, other), "exists already. Choose another key, unless you sent the form twice.")
	info, err := a.store.Info(t.Context(), store.Key{App: "shop", User: "ada", Session: "new"})
	if err != nil || info.Seq != 5 {
		t.Errorf("%+v, %v", info, err)
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
	a := newActionTest(t, inspector.Options{Write: true, Compaction: cfg})
	page := a.mustPost(200, a.fields("compact"))
	if strings.Contains(page, `class="confirm"`) {
		t.Error("it offers to do nothing")
	}
	a.appendTurns(10)
	decision := testlog.Must(compaction.Plan(a.view(), cfg, compaction.Run{Force: true}))(t)
	page = a.mustPost(200, a.fields("compact", "focus", "the lamp"))
	a.wantText(page, decision.Reason, present.NextPassesText(decision), "Events that the next pass would summarise", "user where is order 4711")
	for _, row := range present.PlanRows(decision) {
		a.wantText(page, row.Name+" "+row.Text)
	}
	had := len(a.log())
	do := a.form(page, "Do it")
	page = a.mustPost(502, do)
	a.wantText(page, "The compaction failed", "the model <b>is</b> away", "Nothing was written")
	if focus != "the lamp" || len(a.log()) != had {
		t.Errorf("focus %q, %d records", focus, len(a.log())-had)
	}
	fail = nil
	page = a.mustPost(303, a.form(a.mustPost(200, a.form(page, "Preview again")), "Do it"))
	passes := 0
	for _, r := range a.log()[had:] {
		if w, ok := compaction.WrittenBy(r.Patch); ok {
			passes++
			a.wantText(page, "Summarised ", fmt.Sprint(w.EventsBefore))
		}
	}
	if passes == 0 {
		t.Error("no pass was logged")
	}
}

// A compaction continues if the client disconnects.
func TestCompactAfterDisconnect(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	cfg := compaction.Config{Enabled: true, CompactionInterval: 5, Summarizer: compaction.SummarizerFunc(func(ctx context.Context, _ compaction.Request) (compaction.Response, error) {
		leave()
		return compaction.Response{}, ctx.Err() // the summarizer declines
	})}
	a := newActionTest(t, inspector.Options{Write: true, Compaction: cfg})
	a.appendTurns(10)
	do := a.form(a.mustPost(200, a.fields("compact")), "Do it")
	_, page := a.post(do, func(r *http.Request) { *r = *r.WithContext(ctx) })
	a.wantText(page, "The summarizer declined")
}

// Downloads, their file names and the input of a summarizer are redacted.
func TestRedactedDownloads(t *testing.T) {
	by := testlog.Must(redact.New(redact.Options{}))(t)
	asked := ""
	a := newActionTest(t, inspector.Options{Write: true, Redact: by, Compaction: compaction.Config{
		Enabled: true, CompactionInterval: 5, Summarizer: compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
			asked += r.Prompt
			return compaction.Response{}, nil
		}),
	}})
	a.append(`{"invocationId":"i4","author":"user","content":{"role":"user","parts":[{"text":"write to bob@example.com"}]}}`)
	a.appendTurns(10)
	a.mustPost(200, a.form(a.mustPost(200, a.fields("compact")), "Do it")) // the summarizer declines
	if !strings.Contains(asked, by.Text("bob@example.com")) || strings.Contains(asked, "@example") {
		t.Errorf("the summarizer was asked %.300q", asked)
	}
	key := store.Key{App: "shop", User: "ada@example.com", Session: "1"}
	testlog.Must(a.store.Fork(t.Context(), a.key, key, store.ForkOptions{}))(t)
	for _, form := range []string{"jsonl", "visible"} {
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/export?form="+form+"&key="+url.QueryEscape(key.String()), nil))
		body, name := w.Body.String(), w.Header().Get("Content-Disposition")
		if w.Code != http.StatusOK || strings.Contains(body, "@example") || !strings.Contains(body, by.Text("bob@example.com")) || strings.Contains(name, "ada") {
			t.Errorf("%s: %d, named %s: %.300s", form, w.Code, name, body)
		}
	}
}
