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

// WithHistory returns a context for [Service.Get]. With this context, Get returns a session whose Events method
// returns the session's history, for people to read. The history is the visible log, with each summary replaced by
// the events that it covers, as in [store.Store.History]. The history does not contain events that were hidden by
// cuts, splices or rewinds.
//
// A summary may cover no event of this log, for example if another program wrote the summary. Such a summary stays in
// the history, with the author "summary" and the role of a model. The state is that of an ordinary Get. The request's
// filters apply to the history.
//
// After the first append or patch through the session, Events returns the visible log, because an agent that
// continues the session should see the visible log. Indices into a history are not indices into the view. So
// [Service.ApplyPatch] and [Service.Preview] refuse a session that shows its history.
func WithHistory(ctx context.Context) context.Context { return WithHistoryPage(ctx, "", 0) }

// WithHistoryPage is like [WithHistory], but for one page of the history. The page contains at most limit events. If
// limit is 0, the number of events is not limited. The argument before is the id of the event directly after the
// page. If this id is "", the page ends with the last event of the history. To get the preceding page, pass the id of
// the first event of the current page. If the history does not contain the event, for example after a rewind,
// [Service.Get] fails with [fold.ErrEventNotFound].
func WithHistoryPage(ctx context.Context, before string, limit int) context.Context {
	return context.WithValue(ctx, historyKey{}, historyPageParams{before, limit})
}

type historyKey struct{}

// historyPageParams is the value that WithHistoryPage adds to a context.
type historyPageParams struct {
	before string
	limit  int
}

// HistoryHandler returns a handler that passes each request to the handler next. It adds the context of
// [WithHistory] to GET requests, so that ADK's REST API and developer UI show the history of a session to people.
// The query parameters "before" and "limit" select a page, as in [WithHistoryPage].
//
// Runs still use the visible log. The handler does not change requests that can start a run, which are GET requests
// for /run_live and all requests with other methods. Put the handler around a server, or into the router of a
// launcher:
//
//	router.Use(adk.HistoryHandler)
func HistoryHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || strings.HasSuffix(r.URL.Path, "/run_live") {
			next.ServeHTTP(w, r)
			return
		}
		withContext, err := withHistoryParams(r)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		next.ServeHTTP(w, withContext)
	})
}

// HistoryMemory returns a memory service that adds the histories of sessions to another memory service, the base.
// SearchMemory calls the base. The base must not be nil.
//
// AddSessionToMemory ignores the events of the given session, because some of them may be summaries. It reads the
// session's current history and passes the history to the base. If it cannot read the history, it adds nothing and
// returns an error. The error matches [store.ErrNotFound] if this service has no such session.
func (s *Service) HistoryMemory(base memory.Service) memory.Service { return historyMemory{base, s} }

type historyMemory struct {
	memory.Service
	sessions *Service
}

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

const summaryAuthor = "summary"

// readHistory returns a page of the session's history as ADK events, limited by the request's filters.
func (s *Service) readHistory(ctx context.Context, params historyPageParams, handle *Session, req *session.GetRequest) (session.Events, error) {
	limit := max(params.limit, 0)
	if n := req.NumRecentEvents; limit == 0 || n > 0 && n < limit {
		limit = max(n, 0)
	}
	entries, err := s.historyPage(ctx, handle, params.before, limit)
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
	return newEventList(events, func(p *patch.Event) *session.Event {
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

// historyPage returns the part of a session's history that ends directly before the event with the id before. It
// returns the last limit entries of this part, or all if limit is 0. If [compaction.RestoreCalls] has restored a
// call, the history contains the original call and a copy. historyPage leaves out the copy, even if the original
// is on another page.
func (s *Service) historyPage(ctx context.Context, handle *Session, before string, limit int) ([]fold.Entry, error) {
	v, limit := handle.stored.View, cmp.Or(limit, math.MaxInt)
	var page []fold.Entry
	for {
		missing := limit - len(page)
		older, err := s.store.HistoryPage(ctx, handle.key, v, before, missing)
		if err != nil {
			return nil, err
		}
		reachesStart := len(older) < missing
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

// refuseHistory returns an error if sess shows its history.
func refuseHistory(sess session.Session) error {
	s, ok := sess.(*Session)
	if !ok {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.history != nil {
		return fmt.Errorf("%w: session %s shows its history, whose indices differ from those of the visible log; to patch the session, get it without WithHistory", patch.ErrInvalid, s.key)
	}
	return nil
}
