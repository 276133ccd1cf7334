package redact_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
)

// Even if a custom pattern matches every number and id, the numbers and ids in receipts and in patchlog's own
// metadata stay unchanged.
func TestOwnMetadata(t *testing.T) {
	anyNumber := regexp.MustCompile(`[0-9]+|s-one|c-one`)
	r := testlog.Must(redact.New(redact.Options{Patterns: []redact.Pattern{
		{Name: "number", Find: func(text string) [][]int { return anyNumber.FindAllStringIndex(text, -1) }},
	}}))(t)

	lineage := compaction.Lineage{Level: 2, Windows: 4, Passes: 3, Events: 40, Tokens: 9000, From: 5, To: 44}
	metadata := lineage.Metadata()
	metadata[patch.OwnMetadata].(map[string]any)["shown"] = []any{[]any{1, 4}}
	summary := testlog.Must(patch.NewEvent(patch.Fields{
		ID: "e7", Content: patch.Text("user", "order 17"), CustomMetadata: metadata,
	}))(t)
	got := testlog.Must(r.Event(summary))(t)
	if l, ok := compaction.ParseLineage(got); !ok || l != lineage {
		t.Errorf("the lineage is %+v, want %+v", l, lineage)
	}
	if !jsonEqual(t, field(summary), field(got)) {
		t.Errorf("%s\nbecame %s", summary, got)
	}
	if text := kinds(got.Content().String()); text != `{"parts":[{"text":"order [number]"}],"role":"user"}` {
		t.Errorf("the text is %s", text)
	}

	written := compaction.Written{
		PatchID: "p", Trigger: "turns", Level: 1, EventsBefore: 10, EventsAfter: 1, TokensBefore: 900, TokensAfter: 90, Ratio: 0.1,
		Usage: compaction.Usage{Calls: 1, PromptTokens: 1000, AnswerTokens: 80}, Identifiers: 12, Lost: 3, Invented: 1,
	}
	own := testlog.Must(patch.ParseValue(testlog.Must(json.Marshal(written))(t)))(t)
	pass := testlog.Must(patch.NewSummarise(0, 1, summary).WithID("p").WithCustomMetadata(map[string]any{patch.OwnMetadata: own}))(t)
	record := testlog.Must(r.Record(patch.Record{Patch: pass}))(t)
	if w, ok := compaction.WrittenBy(record.Patch); !ok || w != written {
		t.Errorf("the pass is described as %+v, want %+v", w, written)
	}

	erasure := patch.Erasure{
		Seqs: []patch.Span{{From: 1, To: 3}}, ClosedAt: 12, Values: patch.KeepValues, CallID: "c-one", CallSession: "s-one", Session: "s-one",
		Seen: 11, MaxGrowth: 500,
	}
	record = testlog.Must(r.Record(patch.Record{Patch: patch.NewErase(erasure).WithID("p")}))(t)
	if e, ok := record.Patch.Erasure(); !ok || !reflect.DeepEqual(e, erasure) {
		t.Errorf("the receipt is %+v, want %+v", e, erasure)
	}
}

func jsonEqual(t *testing.T, a, b []byte) bool {
	t.Helper()
	x, y := testlog.Must(patch.ParseValue(a))(t), testlog.Must(patch.ParseValue(b))(t)
	return x.Equal(y)
}

func field(e *patch.Event) []byte {
	text, _ := e.Field("customMetadata")
	return text
}
