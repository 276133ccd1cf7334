package adk_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Who asks for it gets the error that no run gets, and is not made to wait after it.
func TestCompactOnRequest(t *testing.T) {
	broken := errors.New("broken")
	fail := true
	svc := compacted(t, adk.Options{Compaction: compaction.Config{
		Enabled: true, CompactionInterval: 50, TokenThreshold: 100, EventRetentionSize: 1,
		Summarizer: compaction.SummarizerFunc(func(ctx context.Context, req compaction.Request) (compaction.Response, error) {
			if fail {
				return compaction.Response{}, broken
			}
			return adk.Summarizer(shortener{}).Summarize(ctx, req)
		}),
	}, CompactionTimeout: -1})
	sess := exchanges(t, svc, "app", 3)
	svc.Settle(t)
	for range 3 {
		written, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
		fails(t, err, broken)
		var of *compaction.SummarizerError
		if len(written) > 0 || !errors.As(err, &of) {
			t.Errorf("%v, %v", written, err)
		}
	}
	last, ok := svc.LastCompaction(sess)
	if !ok || !errors.Is(last.Err, broken) || last.Outcome != compaction.Failed {
		t.Errorf("the last attempt is %+v, %v", last, ok)
	}
	fail = false
	before := sess.Events().Len()
	written, err := svc.Compact(t.Context(), sess, adk.CompactOptions{})
	no(t, err)
	if len(written) == 0 || sess.Events().Len() >= before {
		t.Errorf("%v was written, and %d of %d events are shown", written, sess.Events().Len(), before)
	}
	last, _ = svc.LastCompaction(sess)
	equal(t, "last outcome", last.Outcome, compaction.Wrote)
	written, err = svc.Compact(t.Context(), sess, adk.CompactOptions{})
	no(t, err)
	equal(t, "written when there is nothing to do", len(written), 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = svc.Compact(ctx, sess, adk.CompactOptions{})
	fails(t, err, context.Canceled)

	// Of a session that is gone nothing is known.
	no(t, svc.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
	_, err = svc.Compact(t.Context(), sess, adk.CompactOptions{})
	fails(t, err, store.ErrNotFound)
	if last, ok := svc.LastCompaction(sess); ok && last.Outcome == compaction.Wrote {
		t.Errorf("the last attempt is %+v", last)
	}
	exchanges(t, svc, "app", 1)
	_, err = svc.Compact(t.Context(), sess, adk.CompactOptions{}) // created again
	fails(t, err, store.ErrNotFound)

	_, err = svc.Compact(t.Context(), nil, adk.CompactOptions{})
	fails(t, err, patch.ErrInvalid)
	_, err = inMemory(t).Compact(t.Context(), sess, adk.CompactOptions{})
	fails(t, err, adk.ErrCompactionOff)
	for _, s := range []*adk.Service{svc, inMemory(t)} {
		if _, ok := s.LastCompaction(nil); ok {
			t.Error("there was an attempt at no session")
		}
	}
}
