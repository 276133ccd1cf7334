package compaction_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
)

// What a pass returned is what its patch says, but for the time that logging took.
func TestWrittenBy(t *testing.T) {
	s := newSession(t, "u1*50 a1*50 u2*50 a2*50 u3*50")
	reply := says("told")
	reply.Usage = compaction.Tokens{Prompt: 12, Answer: 7}
	c := s.compactor(every(1, 0, &scripted{reply: func(compaction.Request) (compaction.Response, error) { return reply, nil }}))
	done, err := c.MaybeCompact(t.Context(), key)
	if err != nil || len(done) == 0 {
		t.Fatal(done, err)
	}
	var said []compaction.Written
	for _, p := range s.patches() {
		w, ok := compaction.WrittenBy(p)
		if !ok {
			t.Fatalf("%s is of no pass", p)
		}
		said = append(said, w)
	}
	if len(said) != len(done) {
		t.Fatalf("%d patches of %d passes", len(said), len(done))
	}
	for i, w := range done {
		if said[i].Took > w.Took {
			t.Errorf("the summaries took %v, the pass %v", said[i].Took, w.Took)
		}
		w.Took = said[i].Took
		if w != said[i] || w.Model != "scripted" || w.Usage != (compaction.Usage{Calls: 1, PromptTokens: 12, AnswerTokens: 7}) {
			t.Errorf("it returned %+v, its patch says %+v", w, said[i])
		}
	}
	for name, metadata := range map[string]any{
		"nothing of a pass":     map[string]any{"patchlog": map[string]any{"adopted": "e1"}},
		"another shape":         map[string]any{"patchlog": map[string]any{"trigger": 7}},
		"a text":                map[string]any{"patchlog": "interval"},
		"another's":             map[string]any{"other": map[string]any{"trigger": "interval"}},
		"no trigger in figures": map[string]any{"patchlog": map[string]any{"level": 1}},
	} {
		p, err := patch.NewSplice(0, 1).WithCustomMetadata(metadata.(map[string]any))
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := compaction.WrittenBy(p); ok || w != (compaction.Written{}) {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if _, ok := compaction.WrittenBy(nil); ok {
		t.Error("no patch is of a pass")
	}
	if _, ok := compaction.WrittenBy(patch.NewSplice(0, 1)); ok {
		t.Error("a patch without metadata is of a pass")
	}
}
