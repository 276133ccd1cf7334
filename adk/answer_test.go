package adk_test

import (
	"testing"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/patch"
)

// A call that comes back says where its answer is to go: an agent on another server reads
// in its metadata which task it belongs to, a workflow which node asked, and what for.
func TestCallThatComesBackSaysWhereItsAnswerGoes(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		sess := create(t, s, "s", nil)
		asked := said("ask", "1", "remote", calling("c", "lookup"), func(e *session.Event) {
			e.CustomMetadata = map[string]any{"a2a:task_id": "task", "a2a:context_id": "context", "n": 1.5}
			e.NodeInfo = &session.NodeInfo{Path: "wf@1/n@1"}
			e.RequestedInput = &session.RequestInput{InterruptID: "c", Message: "which?"}
		})
		no(t, s.AppendEvent(t.Context(), sess, said("q", "1", "user")))
		no(t, s.AppendEvent(t.Context(), sess, asked))
		no(t, s.AppendEvent(t.Context(), sess, said("u", "2", "user")))
		sess = get(t, s, "s")
		e, err := patch.NewEvent(patch.Fields{ID: "S", Author: "user", Content: genai.NewContentFromText("in short", "user")})
		no(t, err)
		no(t, errOf(s.now().ApplyPatch(t.Context(), sess, patch.NewSummarise(0, 2, e))))
		no(t, s.AppendEvent(t.Context(), sess, said("late", "1", "user", returning("c", "lookup", map[string]any{"a": 1}))))
		events := get(t, s, "s").Events()
		equal(t, "events", events.Len(), 4)
		back := events.At(1)
		delete(back.CustomMetadata, "patchlog")
		equal(t, "metadata", back.CustomMetadata, asked.CustomMetadata)
		equal(t, "node", back.NodeInfo, asked.NodeInfo)
		equal(t, "request", back.RequestedInput, asked.RequestedInput)
	})
}
