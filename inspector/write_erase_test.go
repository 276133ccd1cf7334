package inspector_test

import (
	"context"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// newEraseTest returns a session, and a fork of it by another user. In both, the summary of record 9 covers e4
// and e5. The events contain "Tuesday", and the summary contains "midweek".
func newEraseTest(t *testing.T, opts inspector.Options) *actionTest {
	t.Helper()
	return newEraseTestOn(t, teststore.Memory(t, store.Options{}), opts)
}

func newEraseTestOn(t *testing.T, s *store.Store, opts inspector.Options) *actionTest {
	t.Helper()
	a := newActionTestOn(t, s, opts)
	summary := testlog.Must(patch.NewEvent(patch.Fields{ID: "sum", Author: "agent", Content: patch.Text("model", "It comes midweek.")}))(t)
	testlog.Must(a.store.ApplyPatch(t.Context(), a.key, []*patch.PatchEvent{patch.NewSummarise(4, 2, summary).WithID("p9")}, store.PatchOptions{AsOfNow: true}))(t)
	at := uint64(6)
	testlog.Must(a.store.Fork(t.Context(), a.key, store.Key{App: "shop", User: "bob", Session: "fork"}, store.ForkOptions{At: &at}))(t)
	return a
}

func (a *actionTest) get(path string) string {
	a.t.Helper()
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/"+path, nil))
	if w.Code != http.StatusOK {
		a.t.Fatalf("%s: status %d:\n%s", path, w.Code, actText(w.Body.String()))
	}
	return w.Body.String()
}

func (a *actionTest) sessionPath() string { return "session?key=" + url.QueryEscape(a.key.String()) }

func (a *actionTest) logOf(key store.Key) string {
	a.t.Helper()
	other := *a
	other.key = key
	var text strings.Builder
	for _, r := range other.log() {
		line := testlog.Must(r.MarshalJSON())(a.t)
		text.Write(line)
	}
	return text.String()
}

// eraseForm returns the form that confirms a preview.
func (a *actionTest) eraseForm(page, reason string) url.Values {
	f := a.form(page, "Erase permanently")
	f.Set("reason", reason)
	return f
}

// The preview shows what the store would erase. Confirming the preview erases the same content.
func TestErase(t *testing.T) {
	a := newEraseTest(t, inspector.Options{Erase: true, Author: func(*http.Request) string { return "grace" }})
	fork := store.Key{App: "shop", User: "bob", Session: "fork"}
	a.wantText(a.get(a.sessionPath()), "On Tuesday, before noon.", "It comes midweek.") // caches the contents

	page := a.mustPost(200, a.fields("erase", "seq", "6"))
	a.wantText(page, "1 event 1 summary 0 state values 1 copy", "Erases 1 event, 1 summary, 1 copy in 2 sessions.",
		"6 selected On Tuesday, before noon.", "9 stands for an erased event It comes midweek.",
		"In shop/bob/fork", "6 same event in another session On Tuesday", "Out of reach", "exports, copies and backups")
	if n := len(a.log()); n != 9 || !strings.Contains(a.logOf(fork), "Tuesday") {
		t.Fatalf("the preview has written: %d records", n)
	}

	a.mustPost(400, a.eraseForm(page, "")) // the reason is missing
	do := a.eraseForm(page, "request 812")
	page = a.mustPost(303, do)
	a.wantText(page, "Erased contents of events.", "This cannot be undone.")
	if said := actText(page); strings.Contains(said, "Tuesday") || strings.Contains(said, "midweek") {
		t.Errorf("the page says it still: %s", said)
	}
	for _, key := range []store.Key{a.key, fork} {
		if text := a.logOf(key); strings.Contains(text, "Tuesday") || strings.Contains(text, "midweek") {
			t.Errorf("%s has it still: %s", key, text)
		}
	}
	receipt := a.log()[9]
	if of, ok := receipt.Patch.Erasure(); !ok || of.Reason != "request 812" || of.Values != patch.NullValues || receipt.Patch.Author() != "grace" {
		t.Errorf("the receipt is %v", receipt)
	}

	// A second click has no effect.
	a.wantText(a.mustPost(409, do), "The erasure would differ from its preview")
	if n := len(a.log()); n != 11 { // the blank summary was reverted
		t.Errorf("%d records", n)
	}

	// Erased events are marked, their contents are no longer cached, and undo is not offered.
	page = a.get(a.sessionPath())
	a.wantText(page, "erased")
	if said := actText(page); strings.Contains(said, "Tuesday") || strings.Contains(said, "midweek") || !strings.Contains(said, "and when does it come") {
		t.Errorf("the session's page says %s", said)
	}
	record := func(a *actionTest, seq string) string {
		return a.get("record?seq=" + seq + "&key=" + url.QueryEscape(a.key.String()))
	}
	if strings.Contains(record(a, "9"), "act=revert") {
		t.Error("a client with only erase access can revert")
	}
	if strings.Contains(record(a, "10"), "act=erase") || strings.Contains(record(a, "6"), "act=erase") || !strings.Contains(record(a, "5"), "act=erase") {
		t.Error("a receipt or a blank can be erased, or an event not")
	}
	for seq, want := range map[string]string{"6": "Erased: the receipt is record 10", "9": "Erased, the patch or events that it added: the receipt is record 10"} {
		a.wantText(a.get("record?seq="+seq+"&key="+url.QueryEscape(a.key.String())), want)
	}
	a.wantText(a.get("record?seq=10&key="+url.QueryEscape(a.key.String())), "reason: request 812", "Erased content cannot be restored")
	a.wantText(a.mustPost(200, a.fields("erase", "seq", "6")), "There is nothing to erase")
	if writing := newActionTestOn(t, a.store, inspector.Options{Write: true}); strings.Contains(record(writing, "10"), "act=revert") || !strings.Contains(record(writing, "9"), "act=revert") {
		t.Error("a receipt can be reverted, or a patch cannot")
	}
	for p, err := range a.store.Verify(t.Context(), store.VerifyOptions{}) {
		t.Error(p, err)
	}
}

// A selected summary counts as a summary, not as an event.
func TestEraseCountsSelectedSummaries(t *testing.T) {
	a := newEraseTest(t, inspector.Options{Erase: true})
	a.wantText(a.mustPost(200, a.fields("erase", "seq", "9", "seq", "1")), "1 event 1 summary 0 state values 1 copy", "Erases 1 event, 1 summary, 1 copy in 2 sessions.")
	testlog.Must(a.store.ApplyPatch(t.Context(), a.key, []*patch.PatchEvent{patch.NewSplice(5, 1)}, store.PatchOptions{AsOfNow: true}))(t)
	a.wantText(a.mustPost(200, a.fields("erase", "seq", "10")), "0 events 0 summaries 0 state values 0 copies 1 patch", "Erases 1 patch in 1 session.")
}

// A person can erase visible events by selecting them, and hidden events by opening their records. The values
// that they set become null.
func TestEraseSelected(t *testing.T) {
	a := newEraseTest(t, inspector.Options{Erase: true})
	a.mustPost(422, a.fields("erase"))
	page := a.mustPost(200, a.fields("erase", "index", "3", "from", "5", "through", "6", "state", "drop", "text", "of another act"))
	a.wantText(page, "4 selected It is at the harbour.", "7 selected", "8 selected")
	kept := a.mustPost(200, a.form(page, "Keep their state values"))
	a.wantText(kept, "4 selected", "8 selected")
	page = a.mustPost(200, a.form(kept, "Set their state values to null"))
	a.mustPost(303, a.eraseForm(page, "x"))
	values := maps.Collect(a.view().Values())
	for _, name := range []string{"size", "found", "done"} {
		if v, ok := values[name]; !ok || v.Any() != nil {
			t.Errorf("%s is %v", name, v)
		}
	}
	if text := a.logOf(a.key); strings.Contains(text, "at the harbour.") || strings.Contains(text, "welcome") || !strings.Contains(text, "Tuesday") || strings.Contains(text, "another act") {
		t.Errorf("the log is %s", text)
	}
	a.mustPost(400, a.fields("erase", "seq", "2", "values", "burn"))

	// A selected event is erased even if it was hidden after the page was loaded.
	ticked := a.fields("erase", "index", "2")
	testlog.Must(a.store.ApplyPatch(t.Context(), a.key, []*patch.PatchEvent{patch.NewSplice(2, 1)}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))(t)
	a.wantText(a.mustPost(200, ticked), "3 selected")
}

// A text that was searched for can be erased, in the session or in all sessions where the viewer may erase. The
// preview counts events, summaries, state values and copies.
func TestEraseByText(t *testing.T) {
	only := func(users ...string) func(*http.Request, store.Key, inspector.Access) bool {
		return func(_ *http.Request, key store.Key, want inspector.Access) bool {
			return want == inspector.Read || slices.Contains(users, key.User)
		}
	}
	a := newEraseTest(t, inspector.Options{Erase: true, Authorize: only("ada", "bob")})
	other := store.Key{App: "shop", User: "bob", Session: "other"}
	testlog.Must(a.store.Create(t.Context(), other, map[string]any{"card": "4711-0815"}, store.CreateOptions{}))(t)
	appendText(t, a.store, other, "my card is 4711-0815")
	a.append(`{"id":"e8","author":"user","content":{"role":"user","parts":[{"text":"card 4711-0815"}]},"actions":{"stateDelta":{"card":"4711-0815"}}}`)
	eve := store.Key{App: "shop", User: "eve", Session: "1"}
	testlog.Must(a.store.Create(t.Context(), eve, nil, store.CreateOptions{}))(t)
	appendText(t, a.store, eve, "4711-0815 is mine")

	page := a.get("search?q=4711-0815&key=" + url.QueryEscape(a.key.String()))
	links := regexp.MustCompile(`<a class="button" href="act\?([^"]*)">Erase`).FindAllStringSubmatch(page, -1)
	if len(links) != 2 {
		t.Fatalf("the search offers %v", links)
	}
	preview := func(n int) (url.Values, string) {
		f := testlog.Must(url.ParseQuery(html.UnescapeString(links[n][1])))(t)
		f.Set("step", "preview")
		return f, a.mustPost(200, f)
	}
	_, page = preview(0)
	a.wantText(page, "Erase “4711-0815”", "1 event 0 summaries 0 state values 0 copies", "in 1 session.")
	a.wantText(a.mustPost(200, a.form(page, "In all sessions")), "2 events")
	_, page = preview(1)
	a.wantText(page, "2 events 0 summaries 1 state value 0 copies", "Erases 2 events, 1 state value in 2 sessions.", "In shop/bob/other", "Initial state that becomes null: card")
	if strings.Contains(page, "shop/eve") {
		t.Errorf("a session is named in which the viewer may not erase:\n%s", actText(page))
	}
	a.mustPost(303, a.eraseForm(page, "request 7"))
	for key, want := range map[store.Key]bool{a.key: false, other: false, eve: true} {
		if text := a.logOf(key); strings.Contains(text, "0815") != want {
			t.Errorf("the log of %s is %s", key, text)
		}
	}
	for _, v := range []string{"size", "card"} {
		if value, ok := a.view().Value(v); v == "card" && (!ok || value.Any() != nil) {
			t.Errorf("%s is %v", v, value)
		}
	}
	a.mustPost(400, a.fields("revert", "seq", "6", "seq", "8"))
	a.mustPost(400, a.fields("erase", "seq", "6", "seq", "x"))
	a.mustPost(400, a.fields("erase", "match", "x", "where", "nowhere"))

	// If the viewer may not erase, the search does not offer it.
	for _, opts := range []inspector.Options{{Erase: true, Authorize: only("bob")}, {Write: true}} {
		if page := newActionTestOn(t, a.store, opts).get("search?q=card&key=" + url.QueryEscape(a.key.String())); strings.Contains(page, "act=erase") {
			t.Errorf("%+v: hits can be erased", opts)
		}
	}
	// The page of all sessions offers to erase if the viewer may erase in a session that has matches.
	if page := newActionTestOn(t, a.store, inspector.Options{Erase: true, Authorize: only("ada")}).get("?q=harbour"); !strings.Contains(page, "Erase in all sessions") || !strings.Contains(page, "key=shop%2Fada%2F4711") {
		t.Errorf("the page of all sessions: %s", page)
	}
}

// If state values are kept, the page says how many matches remain, even if nothing else is left to erase. It
// offers to set the values to null.
func TestEraseRemainingMatches(t *testing.T) {
	a := newEraseTest(t, inspector.Options{Erase: true})
	const kept = "State values are kept: 1 match remains."
	page := a.mustPost(200, a.fields("erase", "seq", "4", "values", "keep"))
	a.wantText(page, kept)
	a.mustPost(303, a.eraseForm(page, "x"))
	page = a.mustPost(200, a.fields("erase", "seq", "4", "values", "keep"))
	a.wantText(page, "There is nothing to erase", kept)
	page = a.mustPost(200, a.form(page, "Set their state values to null"))
	a.wantText(page, "4 selected")
	a.mustPost(303, a.eraseForm(page, "x"))
	if page = a.mustPost(200, a.fields("erase", "seq", "4")); strings.Contains(page, "remains") {
		t.Error("null is in place of all state values, and the page says that some are kept")
	}
}

// Erasing needs its own option and permission. Both are independent of writing.
func TestErasePermissions(t *testing.T) {
	with := func(allowed ...inspector.Access) func(*http.Request, store.Key, inspector.Access) bool {
		return func(_ *http.Request, _ store.Key, want inspector.Access) bool { return slices.Contains(allowed, want) }
	}
	const erase, splice = "erase", "splice"
	for name, c := range map[string]struct {
		opts          inspector.Options
		erase, splice []int
	}{
		"neither":                 {inspector.Options{}, []int{404, 405}, []int{404, 405}},
		"Write":                   {inspector.Options{Write: true}, []int{403}, []int{200}},
		"Erase":                   {inspector.Options{Erase: true}, []int{200}, []int{403}},
		"both":                    {inspector.Options{Write: true, Erase: true}, []int{200}, []int{200}},
		"both, who may read":      {inspector.Options{Write: true, Erase: true, Authorize: with(inspector.Read)}, []int{403}, []int{403}},
		"both, who may write":     {inspector.Options{Write: true, Erase: true, Authorize: with(inspector.Read, inspector.Write)}, []int{403}, []int{200}},
		"both, who may erase":     {inspector.Options{Write: true, Erase: true, Authorize: with(inspector.Read, inspector.Erase)}, []int{200}, []int{403}},
		"both, who sees it not":   {inspector.Options{Write: true, Erase: true, Authorize: with(inspector.Write, inspector.Erase)}, []int{404}, []int{404}},
		"Write, who may erase":    {inspector.Options{Write: true, Authorize: with(inspector.Read, inspector.Write, inspector.Erase)}, []int{403}, []int{200}},
		"Erase, who may write":    {inspector.Options{Erase: true, Authorize: with(inspector.Read, inspector.Write)}, []int{403}, []int{403}},
		"Erase, without a token":  {inspector.Options{Erase: true, Token: "t0ken"}, []int{401}, []int{401}},
		"Erase, and all may read": {inspector.Options{Erase: true, Authorize: with(inspector.Read)}, []int{403}, []int{403}},
	} {
		t.Run(name, func(t *testing.T) {
			open := newEraseTest(t, inspector.Options{Write: true, Erase: true})
			do := map[string]url.Values{
				erase:  open.eraseForm(open.mustPost(200, open.fields(erase, "seq", "6")), "x"),
				splice: open.form(open.mustPost(200, open.fields(splice, "index", "1", "index", "2")), "Do it"),
			}
			a := newActionTestOn(t, open.store, c.opts)
			had := a.logOf(a.key)
			for act, want := range map[string][]int{erase: c.erase, splice: c.splice} {
				if status, page := a.post(a.fields(act, "seq", "6", "index", "1", "index", "2")); !slices.Contains(want, status) {
					t.Errorf("previewing %s: status %d, want %v:\n%s", act, status, want, actText(page))
				} else if act == erase && status == 403 {
					a.wantText(page, "You may not erase in this session")
				}
				if slices.Contains(want, 200) {
					continue
				}
				if status, page := a.post(do[act]); !slices.Contains(want, status) {
					t.Errorf("%s: status %d, want %v:\n%s", act, status, want, actText(page))
				}
			}
			if a.logOf(a.key) != had {
				t.Error("something was written")
			}
			if slices.Contains(c.erase, 200) {
				a.mustPost(303, do[erase])
				if strings.Contains(a.logOf(a.key), "Tuesday") {
					t.Error("it was not erased")
				}
			}
			if slices.Contains(c.erase, 401) || slices.Contains(c.erase, 404) && c.opts.Authorize != nil {
				return
			}
			mayErase, mayWrite := slices.Contains(c.erase, 200), slices.Contains(c.splice, 200)
			page, record := a.get(a.sessionPath()+"&edit=1"), a.get("record?seq=5&key="+url.QueryEscape(a.key.String()))
			for text, want := range map[string]bool{
				`value="erase">`: mayErase, "may erase": mayErase, `value="splice"`: mayWrite, `id="compacting"`: mayWrite, "may write": mayWrite,
				`name="index"`: mayErase || mayWrite, `id="acting"`: mayErase || mayWrite, "read-only": !mayErase && !mayWrite,
			} {
				if strings.Contains(page, text) != want {
					t.Errorf("the session's page has %s: %t", text, !want)
				}
			}
			if strings.Contains(record, "act=erase") != mayErase || strings.Contains(record, "act=fork") != mayWrite {
				t.Error("the record's page offers a forbidden action, or lacks an allowed one")
			}
		})
	}
}

// An event is erased in all sessions that have it or in none. Unreadable sessions are not named.
func TestEraseForkedEvents(t *testing.T) {
	for _, denied := range []inspector.Access{inspector.Read, inspector.Erase} {
		a := newEraseTest(t, inspector.Options{Erase: true})
		do := a.eraseForm(a.mustPost(200, a.fields("erase", "seq", "6")), "x")
		a = newActionTestOn(t, a.store, inspector.Options{Erase: true, Authorize: func(_ *http.Request, key store.Key, want inspector.Access) bool {
			return key.User == "ada" || want != denied
		}})
		had := a.logOf(a.key)
		for _, f := range []url.Values{a.fields("erase", "seq", "6"), do} {
			page := a.mustPost(403, f)
			a.wantText(page, "The same events are in other sessions", "Nothing was written.")
			if strings.Contains(page, "bob") {
				t.Errorf("without %s it names the fork:\n%s", denied, actText(page))
			}
		}
		if a.logOf(a.key) != had {
			t.Error("something was written")
		}
		// Events that the fork does not have can be erased.
		a.mustPost(303, a.eraseForm(a.mustPost(200, a.fields("erase", "seq", "8")), "x"))
	}
}

// If the erasure would differ from its preview, it is refused.
func TestEraseDiffersFromPreview(t *testing.T) {
	a := newEraseTest(t, inspector.Options{Erase: true})
	do := a.eraseForm(a.mustPost(200, a.fields("erase", "seq", "8")), "request 7")
	testlog.Must(a.store.Fork(t.Context(), a.key, store.Key{App: "shop", User: "ada", Session: "late"}, store.ForkOptions{}))(t)
	page := a.mustPost(409, do)
	a.wantText(page, "The erasure would differ from its preview")
	if !strings.Contains(a.logOf(a.key), "welcome") {
		t.Fatal("it was erased")
	}
	page = a.mustPost(200, a.form(page, "Preview again"))
	a.wantText(page, "In shop/ada/late")
	again := a.form(page, "Erase permanently")
	if again.Get("reason") != "request 7" {
		t.Errorf("the reason is %q", again.Get("reason"))
	}
	a.append(`{"id":"e8","author":"user","content":{"role":"user","parts":[{"text":"late"}]}}`) // the erasure would still be the same
	a.mustPost(303, again)
	if strings.Contains(a.logOf(a.key), "welcome") {
		t.Error("it was not erased")
	}
	other := a.fields("erase", "seq", "7")
	other.Set("creation", "other")
	a.mustPost(409, other)
}

// If another client erases contents, the inspector no longer shows them from its cache.
func TestEraseByAnotherClient(t *testing.T) {
	b := &damagedBackend{}
	s := testlog.Must(store.New(b, store.Options{}))(t)
	a := newEraseTestOn(t, s, inspector.Options{})
	a.wantText(a.get(a.sessionPath()), "midweek")
	testlog.Must(a.store.Erase(t.Context(), a.key, store.EraseSelection{EventIDs: []string{"sum"}}, store.EraseOptions{}))(t)
	for _, path := range []string{a.sessionPath(), "record?seq=9&key=" + url.QueryEscape(a.key.String()), "export?form=visible&key=" + url.QueryEscape(a.key.String())} {
		if page := a.get(path); strings.Contains(page, "midweek") {
			t.Errorf("%s says it still", path)
		}
	}
}

// damagedBackend is a backend that cannot read the logs of some sessions.
type damagedBackend struct {
	memory.Backend
	damagedKey string // text in the keys of the damaged sessions
}

func (b *damagedBackend) Read(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	if b.damagedKey != "" && strings.Contains(name, b.damagedKey) {
		return nil, backend.ErrDamaged
	}
	return b.Backend.Read(ctx, name, creation, seqs, maxBytes)
}

// The page names a damaged session that was left out only if the viewer may read it.
func TestEraseWithDamagedSession(t *testing.T) {
	b := &damagedBackend{}
	s := testlog.Must(store.New(b, store.Options{}))(t)
	a := newActionTestOn(t, s, inspector.Options{Erase: true})
	testlog.Must(s.Fork(t.Context(), a.key, store.Key{App: "shop", User: "bob, the other", Session: "torn"}, store.ForkOptions{}))(t)
	b.damagedKey = "torn"
	page := a.mustPost(200, a.fields("erase", "seq", "6"))
	a.wantText(page, "session shop/bob%2C%20the%20other/torn, which is damaged")
	a = newActionTestOn(t, s, inspector.Options{Erase: true, Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool { return key.User == "ada" }})
	for _, f := range []url.Values{a.fields("erase", "seq", "6"), a.eraseForm(page, "x")} {
		if f.Get("step") != "preview" {
			a.mustPost(303, f)
			continue
		}
		page := a.mustPost(200, f)
		a.wantText(page, "sessions that are damaged", "exports, copies and backups")
		if strings.Contains(page, "bob") {
			t.Errorf("it is named:\n%s", actText(page))
		}
	}
}
