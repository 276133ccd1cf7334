package adk

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/felixge/httpsnoop"
	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// WithHistory returns a context with which [Service.Get] gives a session whose Events are
// its history, for people to read: the visible log with what each summary stands for in its
// place, as [store.Store.History] has it. A summary that stands for nothing in this log, as
// one of another program, has the author "summary" and the role of a model. What cuts, splices
// and rewinds took out is not there. The state is the same with and without the mark, and the
// request's filters hold for the history.
//
// The history is read when the session's events are first looked at, with the context of
// Get. If that fails, Events is one event that says so in ErrorCode and ErrorMessage, and
// [Session.HistoryError] has the error. From the first append through the session on, and
// after a patch through it too, Events is the visible log: a model should see that. Indices
// into a history are not those of the view, so [Service.ApplyPatch] and [Service.Preview]
// refuse a session that shows one.
func WithHistory(ctx context.Context) context.Context { return WithHistoryPage(ctx, "", 0) }

// WithHistoryPage is [WithHistory] for a page of the history: the last events before the one with the
// id before, or if that is "", the last of all; limit is how many, 0 means any number. The page before
// this one is before its first event. An id that is not in the history gives an empty page.
func WithHistoryPage(ctx context.Context, before string, limit int) context.Context {
	return context.WithValue(ctx, historyKey{}, &historyMark{before: before, limit: limit})
}

type historyKey struct{}

// historyMark is in the contexts of [WithHistory]. It is safe for use by any number of
// goroutines.
type historyMark struct {
	before string
	limit  int

	mu  sync.Mutex
	err error // the first of a history that was got with the context
}

func (m *historyMark) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
}

func (m *historyMark) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func markOf(ctx context.Context) (m *historyMark, marked bool) {
	m, marked = ctx.Value(historyKey{}).(*historyMark)
	return m, marked
}

// HistoryHandler returns a handler that serves GET requests with a context of [WithHistory],
// so that ADK's REST API and developer UI show people the history of a session while its runs
// go on with the visible log. Requests for /run_live, which are runs, and those of other
// methods it hands on as they are. The parameters before and limit of a request are those of
// [WithHistoryPage]. It goes around a server, or into the router that a
// launcher hands out:
//
//	router.Use(adk.HistoryHandler)
//
// If a history cannot be read, the answer to the request has the status 500 and the error's
// text.
func HistoryHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || strings.HasSuffix(r.URL.Path, "/run_live") {
			next.ServeHTTP(w, r)
			return
		}
		query := r.URL.Query()
		limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "0"))
		if err != nil || limit < 0 {
			http.Error(w, fmt.Sprintf("limit: %q is not a number of events", query.Get("limit")), http.StatusBadRequest)
			return
		}
		ctx := WithHistoryPage(r.Context(), query.Get("before"), limit)
		mark, _ := markOf(ctx)
		next.ServeHTTP(failing(w, mark), r.WithContext(ctx))
	})
}

// failing returns a writer of an answer that is an error if a history was not read before it
// begins.
func failing(w http.ResponseWriter, mark *historyMark) http.ResponseWriter {
	begun, failed := false, false
	begin := func() (ok bool) {
		if err := mark.failed(); !begun && err != nil {
			failed = true
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		begun = true
		return !failed
	}
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(write httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				if begin() {
					write(status)
				}
			}
		},
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				if begin() {
					return write(b)
				}
				return len(b), nil
			}
		},
	})
}

// HistoryMemory returns a memory service that hands base the history of a session of this service,
// got anew, in place of the session that it is given: what a run holds shows summaries.
// AddSessionToMemory fails, and adds nothing, if the history cannot be read, and with
// [store.ErrNotFound] if the service has no such session. SearchMemory is base's. base must
// not be nil.
func (s *Service) HistoryMemory(base memory.Service) memory.Service { return memories{base, s} }

type memories struct {
	memory.Service
	sessions *Service
}

// AddSessionToMemory adds the session's history.
func (m memories) AddSessionToMemory(ctx context.Context, sess session.Session) error {
	if isNil(sess) {
		return errNoSession
	}
	got, err := m.sessions.Get(WithHistory(ctx), &session.GetRequest{AppName: sess.AppName(), UserID: sess.UserID(), SessionID: sess.ID()})
	if err != nil {
		return fmt.Errorf("add session to memory: %w", err)
	}
	if err := got.Session.(*Session).HistoryError(); err != nil {
		return fmt.Errorf("add session to memory: %w", err)
	}
	return m.Service.AddSessionToMemory(ctx, got.Session)
}

// HistoryError returns why the session's history could not be read, or nil if it could, or
// if it was not got with [WithHistory] or shows its history no longer. It reads the history
// if that was not read yet.
func (s *Session) HistoryError() error {
	if h := s.shownHistory(); h != nil {
		h.load()
		return h.err
	}
	return nil
}

func (s *Session) shownHistory() *history {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.history
}

// history is what a session shows people, read when it is first looked at.
type history struct {
	read  func() ([]fold.Entry, error)
	given *given
	mark  *historyMark

	once    sync.Once
	entries []fold.Entry
	err     error
}

func (h *history) load() {
	h.once.Do(func() {
		if h.entries, h.err = h.read(); h.err != nil {
			h.mark.fail(h.err)
		}
	})
}

// summaryAuthor is the author of a summary in a history.
const summaryAuthor = "summary"

// All yields the events, the caller's own.
func (h *history) All() iter.Seq[*session.Event] {
	return func(yield func(*session.Event) bool) {
		for i := range h.Len() {
			if !yield(h.At(i)) {
				return
			}
		}
	}
}

// Len returns the number of events.
func (h *history) Len() int {
	h.load()
	if h.err != nil {
		return 1
	}
	return len(h.entries)
}

// At returns an event, the caller's own, or nil for an index out of range.
func (h *history) At(i int) *session.Event {
	if i < 0 || i >= h.Len() {
		return nil
	}
	if h.err != nil {
		e := &session.Event{ID: "patchlog-history", Author: "patchlog"}
		e.ErrorCode, e.ErrorMessage = "HISTORY_UNREADABLE", h.err.Error()
		return e
	}
	p := h.entries[i].Event
	if !h.entries[i].Summary {
		return h.given.event(p)
	}
	e := h.given.decoded.event(p) // its own, since it is changed
	e.Author = summaryAuthor
	if e.Content != nil {
		e.Content.Role = genai.RoleModel
	}
	return e
}

// filterHistory chooses of a history as [fold.View.Last] and Since do of a view.
func filterHistory(entries []fold.Entry, req *session.GetRequest) []fold.Entry {
	if n := req.NumRecentEvents; n > 0 {
		entries = entries[max(0, len(entries)-n):]
	}
	if req.After.IsZero() {
		return entries
	}
	var since []fold.Entry
	for _, e := range entries {
		if !e.Event.Timestamp().Before(req.After) {
			since = append(since, e)
		}
	}
	return since
}

// historyOf returns the history of a session that was got for a request.
func (s *Service) historyOf(ctx context.Context, mark *historyMark, handle *Session, req *session.GetRequest) *history {
	key, view := handle.key, handle.stored.View
	return &history{given: handle.given, mark: mark, read: func() ([]fold.Entry, error) {
		entries, err := s.store.History(ctx, key, view)
		if err != nil {
			return nil, fmt.Errorf("history of session %s: %w", key, err)
		}
		entries = compaction.WithoutRestored(entries)
		if mark.before != "" {
			i := slices.IndexFunc(entries, func(e fold.Entry) bool { return e.Event.ID() == mark.before })
			entries = entries[:max(i, 0)]
		}
		if mark.limit > 0 {
			entries = entries[max(0, len(entries)-mark.limit):]
		}
		return filterHistory(entries, req), nil
	}}
}

// refuseHistory refuses a patch whose author has seen a history.
func refuseHistory(sess session.Session) error {
	if s, ok := sess.(*Session); ok && s.shownHistory() != nil {
		return fmt.Errorf("%w: session %s shows its history, and an index into that is none into the visible log; get the session without WithHistory to patch it", patch.ErrInvalid, s.key)
	}
	return nil
}
