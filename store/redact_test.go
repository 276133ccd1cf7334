package store_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// plant makes a session with a secret in each place that can hold one, in patches and hidden
// events too, and returns the secrets.
func (e *env) plant(key store.Key) (planted []string) {
	e.Helper()
	secret := func() string {
		n := len(planted)
		forms := []string{"user%04d@example.com", "AKIA%016d", "ghp_%036d", "+49 30 %07d"}
		planted = append(planted, fmt.Sprintf(forms[n%len(forms)], n))
		return planted[n]
	}
	must := func(_ any, err error) {
		e.Helper()
		e.no(err)
	}
	_, err := e.store.Create(ctx, key, map[string]any{"home " + secret(): secret(), "user:mail": secret()})
	must(nil, err)
	event := func(id, body string) *patch.Event {
		event, err := patch.ParseEvent([]byte(`{"id":"` + id + `",` + body + `}`))
		must(nil, err)
		return event
	}
	file := base64.StdEncoding.EncodeToString([]byte("in a file: " + secret()))
	must(e.store.AppendEvents(ctx, key, store.AppendOptions{},
		event("e1", fmt.Sprintf(`"author":%q,"content":{"role":"user","parts":[{"text":%q},{"inlineData":{"mimeType":"text/plain","data":%q}}]}`, secret(), "needle "+secret(), file)),
		event("e2", fmt.Sprintf(`"author":"a","content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{%q:[%q,4111111111111111]}}}]}`, secret(), secret())),
		event("e3", fmt.Sprintf(`"author":"a","content":{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"result":%q}}}]}`, `{"x":"\n`+secret()+`"}`)),
		event("e4", fmt.Sprintf(`"author":"a","errorMessage":%q,"customMetadata":{"x":{%q:%q}},"actions":{"stateDelta":{"k":%q,"user:mail":%q}}`, secret(), secret(), secret(), secret(), secret())),
		event("e5", fmt.Sprintf(`"author":"a","content":{"role":"model","parts":[{"text":%q}]}`, secret())),
		event("e6", fmt.Sprintf(`"author":"a","content":{"role":"model","parts":[{"text":%q}]}`, "needle "+secret())),
	))
	apply := func(p *patch.PatchEvent) {
		must(e.store.ApplyPatch(ctx, key, asOfNow, p))
	}
	apply(patch.NewSummarise(0, 3, event("s1", fmt.Sprintf(`"author":"a","content":{"role":"user","parts":[{"text":%q}]}`, secret()))).WithID("p1").WithAuthor(secret()))
	why, err := patch.NewSplice(1, 1, event("r1", fmt.Sprintf(`"author":"a","content":{"role":"model","parts":[{"text":%q}]}`, secret()))).WithID("p2").WithCustomMetadata(map[string]any{"why": secret()})
	must(nil, err)
	apply(why)
	apply(patch.NewPin("e6").WithID("p3"))
	return append(planted, "4111111111111111")
}

func (e *env) exportWith(key store.Key, opts store.ExportOptions) string {
	e.Helper()
	var out bytes.Buffer
	e.no(e.store.Export(ctx, key, &out, opts))
	return out.String()
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

// An export and a search that are redacted have none of the secrets, and the log stays as it was, byte
// for byte. What is imported of an export folds as the log does.
func TestRedactedExport(t *testing.T) {
	onEach(t, func(e *env) {
		t := e.T
		by, err := redact.New(redact.Options{})
		testlog.NoError(t, err)
		planted := e.plant(key)
		before := e.exportWith(key, store.ExportOptions{})
		for i, p := range planted {
			if i != 2 && i != 3 && !strings.Contains(before, p) { // shared, and in a file
				t.Errorf("%q is not planted", p)
			}
		}
		file := e.exportWith(key, store.ExportOptions{Redact: by})
		holdsNone(t, "the export", file, planted)
		if !strings.HasPrefix(file, `{"patchlog":1,"redacted":["key","card","iban","email","phone"],"initialState":{"home [`) {
			t.Errorf("the export begins with %.100s", file)
		}
		visible := e.exportWith(key, store.ExportOptions{Redact: by, Visible: true})
		holdsNone(t, "the visible export", visible, planted)
		if !strings.HasPrefix(visible, `{"patchlog":1,"redacted":["key","card","iban","email","phone"],"initialState":{}}`+"\n"+`{"id":"s1"`) {
			t.Errorf("the visible export begins with %.100s", visible)
		}
		if again := e.exportWith(key, store.ExportOptions{}); again != before {
			t.Errorf("the log was\n%s\nand is\n%s", before, again)
		}

		other := store.Key{App: key.App, User: key.User, Session: "redacted"}
		must(t)(e.store.Import(ctx, other, strings.NewReader(file), store.ImportOptions{}))
		v := viewOf(t, e.store, key)
		w := viewOf(t, e.store, other)
		shape := func(of func(int) string, n int) (all []string) {
			for i := range n {
				all = append(all, of(i))
			}
			return all
		}
		a := shape(func(i int) string { return fmt.Sprint(v.At(i).ID(), v.Entry(i).Seq, v.Entry(i).Summary, v.IsPinned(i)) }, v.Len())
		b := shape(func(i int) string { return fmt.Sprint(w.At(i).ID(), w.Entry(i).Seq, w.Entry(i).Summary, w.IsPinned(i)) }, w.Len())
		if fmt.Sprint(a) != fmt.Sprint(b) || len(v.State()) != len(w.State()) {
			t.Errorf("visible is %v, of the log %v", b, a)
		}
		if _, err := e.store.Import(ctx, key, strings.NewReader(file), store.ImportOptions{}); err == nil {
			t.Error("a redacted export passes for the log that it is of")
		}

		for name, opts := range map[string]recall.Search{"all": {Query: "needle"}, "hidden": {Query: planted[4], Hidden: true}} {
			opts.Redact = by
			hits, err := e.store.Search(ctx, key, opts)
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
		hits, err := e.store.SearchUser(ctx, key.App, key.User, recall.Search{Query: "needle", Redact: by}, store.SearchUserOptions{})
		if err != nil || len(hits) < 4 {
			t.Fatalf("%d hits, %v", len(hits), err)
		}
		for _, h := range hits {
			holdsNone(t, "a hit of all sessions", h.Event.String()+h.Snippet.Text, planted)
		}
	})
}

// A redacted export of a log in which something was erased has blanks that say so, and their receipt
// covers them where it is imported, by keys that are redacted as they are in the initial state.
func TestRedactedExportOfErased(t *testing.T) {
	onEach(t, func(e *env) {
		t := e.T
		by, err := redact.New(redact.Options{})
		testlog.NoError(t, err)
		e.plant(key)
		opts := store.EraseOptions{Author: "ann@example.com", Reason: "asked for by ada@example.com", Values: patch.NullValues}
		must(t)(e.store.Erase(ctx, key, store.EraseSelection{All: true}, opts))
		file := e.exportWith(key, store.ExportOptions{Redact: by})
		holdsNone(t, "the export", file, []string{"@example.com"})
		other := store.Key{App: key.App, User: key.User, Session: "redacted"}
		must(t)(e.store.Import(ctx, other, strings.NewReader(file), store.ImportOptions{}))
		verified(t, e.store)
		v := viewOf(t, e.store, other)
		for _, event := range v.Events() {
			if _, ok := event.Erased(); !ok {
				t.Errorf("%s does not say that it was erased", event)
			}
		}
		initial, err := e.store.InitialState(ctx, other)
		testlog.NoError(t, err)
		receipts, err := e.store.Receipts(ctx, other)
		if err != nil || len(receipts) != 1 {
			t.Fatalf("%d receipts, %v", len(receipts), err)
		}
		of, _ := receipts[0].Patch.Erasure()
		if _, there := initial[of.Initial[0]]; !there || !strings.HasPrefix(of.Reason, "asked for by [email ") || len(of.Digest) == 0 {
			t.Errorf("the receipt says %+v; the initial state is %v", of, initial)
		}
	})
}
