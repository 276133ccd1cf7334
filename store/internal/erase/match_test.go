package erase_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// The matcher finds a text only in content that an erasure removes, not in ids, field names or kept keys.
func TestMatcherFindsWhatAnEraseRemoves(t *testing.T) {
	const event = `{"id":"secret-id","author":"secret-author","content":{"role":"user","parts":[{"text":"a Secret"},{"inlineData":{"mimeType":"text/plain","data":"Ynl0ZXM="}},
		{"functionCall":{"name":"kept","args":{"inside":7.50}}}]},"actions":{"stateDelta":{"key":"value"}},"x":{"own":true}}`
	e := testlog.Must(patch.ParseEvent([]byte(event)))(t)
	for text, want := range map[string]bool{
		"Secret": true, "bytes": true, "7.50": true, "inside": true, "value": true, "own": true,
		"": false, "secret": false, "secret-id": false, "secret-author": false, "kept": false, "key": false, "parts": false,
	} {
		if got := (erase.Matcher{Text: text}).Event(e); got != want {
			t.Errorf("%q is found: %v, want %v", text, got, want)
		}
	}
	folded := erase.Matcher{Text: "SECRET", Folded: true}
	if !folded.Event(e) || (erase.Matcher{Text: "SECRET"}).Event(e) {
		t.Error("upper and lower case are not told apart as asked")
	}
	kept := e.Blank("r", patch.KeepValues)
	if folded.Event(kept) || !(erase.Matcher{Text: "value"}).Event(kept) || (erase.Matcher{Text: "value"}).Event(e.Blank("r", patch.NullValues)) {
		t.Error("a blank is not found by its values alone")
	}

	p := testlog.Must(patch.NewSplice(0, 1, e).WithID("p").WithCustomMetadata(map[string]any{"why": "Secret reason"}))(t)
	if !(erase.Matcher{Text: "reason"}).Patch(p) || (erase.Matcher{Text: "a Secret"}).Patch(p) {
		t.Error("a patch is not found by what it says besides its events")
	}
	for text, want := range map[string]bool{"deep": true, "12": true, "": false, "other": false} {
		v := testlog.Must(patch.ParseValue([]byte(`{"a":["deep",12]}`)))(t)
		if got := (erase.Matcher{Text: text}).Value(v); got != want {
			t.Errorf("%q is found in a value: %v", text, got)
		}
	}
}
