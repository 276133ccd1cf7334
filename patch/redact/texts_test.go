package redact

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// rewriteRecord rewrites every free text. Ids and other structure stay the same, even if they contain the same
// characters.
func TestRewrite(t *testing.T) {
	upper := func(_, text string) string { return strings.ReplaceAll(text, "x", "X") }
	for _, c := range []struct{ was, want string }{
		{`{"id":"x","invocationId":"x","author":"x","branch":"x","isolationScope":"x","content":{"parts":[{"text":"x"}],"role":"x"},"errorMessage":"x"}`,
			`{"id":"x","invocationId":"x","author":"X","branch":"x","isolationScope":"x","content":{"parts":[{"text":"X"}],"role":"x"},"errorMessage":"X"}`},
		{`{"id":"i","content":{"parts":[{"functionCall":{"id":"x","name":"x","args":{"x":["x",{"id":"x"}]}}},{"functionResponse":{"id":"x","name":"x","response":{"id":"x"}}}]},"longRunningToolIds":["x"]}`,
			`{"id":"i","content":{"parts":[{"functionCall":{"id":"x","name":"x","args":{"X":["X",{"id":"X"}]}}},{"functionResponse":{"id":"x","name":"x","response":{"id":"X"}}}]},"longRunningToolIds":["x"]}`},
		{`{"id":"i","content":{"parts":[{"inlineData":{"data":"eHl6","mimeType":"x"}},{"thoughtSignature":"eHl6","thought":true},{"inlineData":{"data":"/3h4"}}]}}`,
			`{"id":"i","content":{"parts":[{"inlineData":{"data":"WHl6","mimeType":"x"}},{"thoughtSignature":"eHl6","thought":true},{"inlineData":{"data":"/3h4"}}]}}`},
		{`{"id":"i","actions":{"stateDelta":{"x":"x","y":1.50},"transferToAgent":"x","requestedToolConfirmations":{"x":{"hint":"x"}}},"mine":{"x":"x"}}`,
			`{"id":"i","actions":{"stateDelta":{"X":"X","y":1.50},"transferToAgent":"x","requestedToolConfirmations":{"x":{"hint":"X"}}},"mine":{"X":"X"}}`},
		{`{"id":"i","customMetadata":{"patchlog":{"cleared":{"as":"x","id":"x","seq":1,"tokens":2}},"x":"x"}}`,
			`{"id":"i","customMetadata":{"patchlog":{"cleared":{"as":"x","id":"x","seq":1,"tokens":2}},"X":"X"}}`},
		{`{"seq":3,"id":"x","author":"x","patchType":"summarise","start":0,"count":2,"summaryEvent":{"id":"x","content":{"parts":[{"text":"x"}]}},"group":"x","why":"x"}`,
			`{"seq":3,"id":"x","author":"X","patchType":"summarise","start":0,"count":2,"summaryEvent":{"id":"x","content":{"parts":[{"text":"X"}]}},"group":"x","why":"X"}`},
		{`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"x","author":"x"},{"id":"y"}]}`,
			`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"x","author":"X"},{"id":"y"}]}`},
		{`{"id":"p","patchType":"revert","patchId":"x"}`, `{"id":"p","patchType":"revert","patchId":"x"}`},
		{`{"id":"p","patchType":"pin","eventId":"x"}`, `{"id":"p","patchType":"pin","eventId":"x"}`},
		// Erasure marks and receipts do not change.
		{`{"id":"x","content":{"parts":[{"text":"[erased]"}]},"customMetadata":{"patchlog":{"erased":{"as":"x","receipt":"x"}}}}`,
			`{"id":"x","content":{"parts":[{"text":"[erased]"}]},"customMetadata":{"patchlog":{"erased":{"as":"x","receipt":"x"}}}}`},
		{`{"id":"x","author":"x","patchType":"erase","seqs":[[1,2]],"within":[[2,0]],"summaries":"keep","values":"keep","initial":["ax","x"],"reason":"x"}`,
			`{"id":"x","author":"X","patchType":"erase","seqs":[[1,2]],"within":[[2,0]],"summaries":"keep","values":"keep","initial":["aX","X"],"reason":"X"}`},
		{`{"id":"x","patchType":"erase","seqs":"x","values":"x"}`, `{"id":"x","patchType":"erase","seqs":"X","values":"X"}`},
		{`{"id":"x","patchType":"pin","eventId":"x","values":["x"],"digest":"x"}`, `{"id":"x","patchType":"pin","eventId":"x","values":["X"],"digest":"X"}`},
		// If two rewritten keys would be equal, they stay distinct.
		{`{"id":"i","customMetadata":{"x":1,"X":2,"X'":3}}`, `{"id":"i","customMetadata":{"X''":1,"X":2,"X'":3}}`},
	} {
		rec, err := rewriteRecord(parsed(t, c.was), upper)
		if err != nil {
			t.Fatalf("%s: %v", c.was, err)
		}
		if got := marshalOf(rec); got != c.want {
			t.Errorf("%s\nbecame %s\n  want %s", c.was, got, c.want)
		}
	}
}

// The rewrite function receives each text with the key of its JSON member. It receives a number as its literal,
// and the rewritten number is a string.
func TestRewriteNames(t *testing.T) {
	var offered []string
	e := testlog.Must(patch.ParseEvent([]byte(`{"id":"i","content":{"parts":[{"functionCall":{"args":{"a":["b",{"c":1.50}],"d":true}}}]}}`)))(t)
	e = testlog.Must(rewriteEvent(e, func(name, text string) string {
		offered = append(offered, name+"="+text)
		if text == "1.50" {
			return "\xff"
		}
		return text
	}))(t)
	if got, want := fmt.Sprint(offered), "[=a a=b =c c=1.50 =d]"; got != want {
		t.Errorf("offered %s, want %s", got, want)
	}
	if got, want := e.String(), `"c":"`+"\uFFFD"+`"`; !strings.Contains(got, want) {
		t.Errorf("%s has no %s", got, want)
	}
}

// If nothing changes, rewriteRecord returns the same record with its Go types.
func TestRewriteUnchanged(t *testing.T) {
	e := testlog.Must(patch.NewEvent(patch.Fields{ID: "i", Actions: patch.Actions{StateDelta: map[string]any{"n": 7, "s": "x"}}}))(t)
	same, err := rewriteEvent(e, func(_, text string) string { return text })
	if err != nil || same != e {
		t.Errorf("another event: %v, %v", same, err)
	}
	v := testlog.Must(patch.NewValue(map[string]any{"n": 7}))(t)
	if got, err := rewriteValue(v, func(_, text string) string { return text }); err != nil || fmt.Sprintf("%#v", got.Any()) != `map[string]interface {}{"n":7}` {
		t.Errorf("%#v, %v", got.Any(), err)
	}
	if got, err := rewriteValue(v, func(_, text string) string { return "<" + text + ">" }); err != nil || got.String() != `{"<n>":"<7>"}` {
		t.Error(got, err)
	}
}

// After any rewriting, the log folds as before. The same events are at the same indices, and the same patches can
// be applied.
func TestPropertyRewriteKeepsTheFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{}).Draw(t, "records")
		v, _ := fold.New("", nil).Apply(records...)
		w := fold.New("", nil)
		var rewritten []patch.Record
		for _, r := range records {
			as, err := rewriteRecord(r, func(_, text string) string { return text + "~" })
			if err != nil {
				t.Fatalf("%v: %v", marshalOf(r), err)
			}
			if as.Seq != r.Seq || as.ID() != r.ID() {
				t.Fatalf("%v became %v", marshalOf(r), marshalOf(as))
			}
			if w, err = w.WithRecords(rewritten).Apply(as); err != nil && w.Seq() != as.Seq {
				t.Fatal(err)
			}
			rewritten = append(rewritten, as)
		}
		if v.Len() != w.Len() || fmt.Sprint(v.Skipped()) == "" {
			t.Fatalf("%d events are visible, were %d", w.Len(), v.Len())
		}
		for i, e := range v.Events() {
			got := w.At(i)
			if got.ID() != e.ID() || w.Entry(i).Seq != v.Entry(i).Seq || w.Entry(i).Summary != v.Entry(i).Summary || got.Role() != e.Role() ||
				fmt.Sprint(parts(got)) != fmt.Sprint(parts(e)) {
				t.Fatalf("at %d is %s, was %s", i, got, e)
			}
		}
		if got, want := len(w.State()), len(v.State()); got != want {
			t.Fatalf("the state has %d keys, had %d", got, want)
		}
	})
}

func marshalOf(r patch.Record) string {
	text, _ := r.MarshalJSON()
	return string(text)
}

func parts(e *patch.Event) (all []patch.FunctionPart) {
	for p := range e.FunctionParts() {
		all = append(all, p)
	}
	return all
}

func parsed(t *testing.T, text string) patch.Record {
	t.Helper()
	r := testlog.Must(patch.ParseRecord([]byte(text)))(t)
	return r
}
