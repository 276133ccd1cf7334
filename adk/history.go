package adk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// WithHistory returns a context with which [Service.Get] returns a session whose Events are its history, for people to
// read: the visible log with each summary replaced by the events that it covers, as in [store.Store.History]. A summary
// that covers no event of this log, such as a summary by another program, stays, with the author "summary" and the role
// of a model. Events that cuts, splices and rewinds hid are not in the history. The state is that of an ordinary Get,
// and the request's filters apply to the history.
//
// After the first append or patch through the session, Events is the visible log, since a model should see that log.
// Indices into a history are not indices into the view, so [Service.ApplyPatch] and [Service.Preview] refuse a session
// that shows its history.
func WithHistory(ctx context.Context) context.Context { return WithHistoryPage(ctx, "", 0) }

// WithHistoryPage is [WithHistory] for a page of the history: at most limit events, the last before the event with the
// id before. If before is "", the page ends with the last event; limit 0 means no limit. To get the preceding page,
// pass the id of this page's first event. If the history does not have the event, such as after a rewind, [Service.Get]
// fails with [fold.ErrEventNotFound].
func WithHistoryPage(ctx context.Context, before string, limit int) context.Context {
	return context.WithValue(ctx, historyKey{}, historyMark{before, limit})
}

type historyKey struct{}

// historyMark is the value in contexts of [WithHistory].
type historyMark struct {
	before string
	limit  int
}

// HistoryHandler returns a handler that serves GET requests with a context of [WithHistory]. So ADK's REST API and
// developer UI show people the history of a session, while runs use the visible log. Requests for /run_live, which are
// runs, and requests with other methods go to next unchanged. The query parameters before and limit are those of
// [WithHistoryPage]. Put the handler around a server, or into a launcher's router:
//
//	router.Use(adk.HistoryHandler)
func HistoryHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || strings.HasSuffix(r.URL.Path, "/run_live") {
			next.ServeHTTP(w, r)
			return
		}
		marked, err := withHistory(r)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		next.ServeHTTP(w, marked)
	})
}

// HistoryMemory returns a memory service whose AddSessionToMemory passes the session's newest history to base in place
// of the given session, which shows summaries. AddSessionToMemory adds nothing and fails if the history cannot be read,
// with [store.ErrNotFound] if the service has no such session. SearchMemory is base's. base must not be nil.
func (s *Service) HistoryMemory(base memory.Service) memory.Service { return historyMemory{base, s} }

type historyMemory struct {
	memory.Service
	sessions *Service
}

// AddSessionToMemory adds the session's history.
func (m historyMemory) AddSessionToMemory(ctx context.Context, sess session.Session) error {
	if isNil(sess) {
		return errNoSession
	}
	got, err := m.sessions.Get(WithHistory(ctx), &session.GetRequest{AppName: sess.AppName(), UserID: sess.UserID(), SessionID: sess.ID()})
	if err != nil {
		return fmt.Errorf("add session to memory: %w", err)
	}
	return m.Service.AddSessionToMemory(ctx, got.Session)
}

// summaryAuthor is the author of a summary in a history.
const summaryAuthor = "summary"

// readHistory returns the history of a session that was got for a request, as its events.
func (s *Service) readHistory(ctx context.Context, mark historyMark, handle *Session, req *session.GetRequest) (session.Events, error) {
	limit := max(mark.limit, 0)
	if n := req.NumRecentEvents; limit == 0 || n > 0 && n < limit {
		limit = max(n, 0)
	}
	entries, err := s.historyPage(ctx, handle, mark.before, limit)
	if err != nil {
		return nil, fmt.Errorf("history of session %s: %w", handle.key, err)
	}
	var events []*patch.Event
	summaries := map[*patch.Event]bool{}
	for _, e := range entries {
		if !e.Event.Timestamp().Before(req.After) {
			events = append(events, e.Event)
			summaries[e.Event] = e.Summary
		}
	}
	return listOf(events, func(p *patch.Event) *session.Event {
		e := s.decoder.event(p)
		if summaries[p] {
			e.Author = summaryAuthor
			if e.Content != nil {
				e.Content.Role = genai.RoleModel
			}
		}
		return e
	}), nil
}

// historyPage returns the last entries of a session's history before the event with an id, all if limit is 0. Of a call
// that [compaction.RestoreCalls] restored, only the original is shown, wherever it is.
func (s *Service) historyPage(ctx context.Context, handle *Session, before string, limit int) ([]fold.Entry, error) {
	v, limit := handle.stored.View, cmp.Or(limit, math.MaxInt)
	var page []fold.Entry
	for {
		want := limit - len(page)
		older, err := s.store.HistoryPage(ctx, handle.key, v, before, want)
		if err != nil {
			return nil, err
		}
		reachesStart := len(older) < want
		if len(older) > 0 {
			before = older[0].Event.ID()
		}
		page = compaction.WithoutRestored(append(older, page...))
		if reachesStart {
			return page, nil
		}
		for i := len(page) - 1; i >= 0; i-- {
			original := compaction.RestoredFrom(page[i].Event)
			if original == "" {
				continue
			}
			_, err := s.store.HistoryPage(ctx, handle.key, v, original, 0)
			if err == nil {
				page = slices.Delete(page, i, i+1)
			} else if !errors.Is(err, fold.ErrEventNotFound) {
				return nil, err
			}
		}
		if len(page) == limit {
			return page, nil
		}
	}
}

// refuseHistory refuses a patch whose author has seen a history.
func refuseHistory(sess session.Session) error {
	s, ok := sess.(*Session)
	if !ok {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.history != nil {
		return fmt.Errorf("%w: session %s shows its history, whose indices are not those of the visible log; get the session without WithHistory to patch it", patch.ErrInvalid, s.key)
	}
	return nil
}
