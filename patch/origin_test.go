package patch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestStandIn(t *testing.T) {
	e, err := patch.NewEvent(patch.Fields{
		ID: "e1", InvocationID: "i1", Author: "agent", Branch: "a.b",
		Content: mustContent(t, map[string]any{"role": "user", "parts": []any{
			map[string]any{"functionResponse": map[string]any{"id": "c1", "name": "f", "response": map[string]any{"n": 1}}},
			map[string]any{"functionResponse": map[string]any{"id": "c2", "name": "g", "response": map[string]any{"text": strings.Repeat("long ", 100), "n": 2}}},
		}}),
		Actions:        patch.Actions{StateDelta: map[string]any{"k": 1, "app:k": 2}, TransferToAgent: "other"},
		CustomMetadata: map[string]any{"mine": 3, "patchlog": map[string]any{"other": 4}},
	})
	if err != nil {
		t.Fatal(err)
	}
	short := json.RawMessage(`{"functionResponse":{"id":"c2","name":"g","response":{"text":"short"}}}`)
	in := testlog.Must(e.StandIn("e2", 7, map[int]json.RawMessage{1: short, 9: short}))(t)
	if o, ok := in.Origin(); !ok || o != (patch.Origin{CopyID: "e2", ID: "e1", Seq: 7, Tokens: e.EstimatedTokens()}) {
		t.Errorf("origin %+v, %v", o, ok)
	}
	if records.LoggedTokens(in) != e.EstimatedTokens() || in.EstimatedTokens() >= e.EstimatedTokens() || records.LoggedTokens(e) != e.EstimatedTokens() {
		t.Errorf("%d tokens, logged %d, want %d", in.EstimatedTokens(), records.LoggedTokens(in), e.EstimatedTokens())
	}
	if records.HasDelta(in) || in.ID() != "e2" || in.Branch() != "a.b" || in.InvocationID() != "i1" || !in.Timestamp().Equal(e.Timestamp()) {
		t.Errorf("%v", in)
	}
	var content struct {
		Parts []struct {
			FunctionResponse struct{ Response map[string]any }
		}
	}
	testlog.NoError(t, in.Decode("content", &content))
	tree := (*decoded[any](t, in, "content")).(map[string]any)
	if n := tree["parts"].([]any)[0].(map[string]any)["functionResponse"].(map[string]any)["response"].(map[string]any)["n"]; n != 1 { // n still has the Go type int
		t.Errorf("n is %v, a %[1]T", n)
	}
	if got := content.Parts[1].FunctionResponse.Response; len(got) != 1 || got["text"] != "short" {
		t.Errorf("%v", got)
	}
	if m := in.CustomMetadata(); m["mine"] != 3 || m["patchlog"].(map[string]any)["other"] == nil {
		t.Errorf("%v", m)
	}
	if text, _ := in.Field("actions"); string(text) != `{"transferToAgent":"other"}` {
		t.Errorf("actions %s", text)
	}

	// The copy of a cleared copy names the cleared copy as its original, and keeps the token count of the
	// uncleared event.
	again, err := in.StandIn("e3", 8, nil)
	if o, ok := again.Origin(); err != nil || !ok || o.ID != "e2" || o.Seq != 8 || o.Tokens != e.EstimatedTokens() {
		t.Errorf("%+v, %v, %v", o, ok, err)
	}
	if _, err := e.StandIn("e4", 1, map[int]json.RawMessage{0: json.RawMessage(`{"text":`)}); err == nil {
		t.Error("a part that is no JSON was taken")
	}
	bare := parseEvent(t, `{"id":"b","customMetadata":null,"content":{"parts":null},"actions":null}`)
	if in, err := bare.StandIn("b2", 1, map[int]json.RawMessage{0: short}); err != nil || in.SaysSomething() {
		t.Errorf("%v, %v", in, err)
	}
}

// Event.Origin ignores an origin that is malformed or that names another event.
func TestOriginRequiresOwnID(t *testing.T) {
	for _, text := range []string{
		`{"id":"x","customMetadata":{"patchlog":{"cleared":{"as":"y","id":"e","seq":1}}}}`,
		`{"customMetadata":{"patchlog":{"cleared":{"as":"","id":"e","seq":1}}}}`,
		`{"id":"x","customMetadata":{"cleared":{"as":"x"}}}`,
		`{"id":"x","customMetadata":{"patchlog":{"cleared":7}}}`,
		`{"id":"x","customMetadata":{"patchlog":{"cleared":{"as":"x","seq":-1}}}}`,
		`{"id":"x"}`,
	} {
		e := parseEvent(t, text)
		if o, ok := e.Origin(); ok {
			t.Errorf("%s says %+v", text, o)
		}
	}
}

func mustContent(t *testing.T, v any) patch.Value {
	t.Helper()
	return newEvent(t, patch.Fields{Content: v}).Content()
}
