package adk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// Limits on the results of [Service.Memory].
const (
	memoryEntries = 10
	memoryRunes   = 800 // maximum length of the text of an event
)

// Memory returns a memory service that searches the logs of a user's sessions. The search covers all sessions that
// the user has with one app in this service. It finds events by their words, as [recall.Finder] does. Sessions need
// not be added to the memory service. The search finds no events of deleted sessions. ADK's load_memory and
// preload_memory tools work with it.
//
// SearchMemory returns up to ten events, ordered by relevance. Each entry contains at most 800 characters of the
// event's text. Its CustomMetadata names the session and the record. If an agent searches, the results do not include
// the agent's own session. SearchMemory finds visible events and events that a summary covers. It finds neither
// summaries nor events that were rewound or cut by hand.
//
// AddSessionToMemory adds nothing. It fails with [store.ErrNotFound] if the service has no such session.
func (s *Service) Memory() memory.Service { return logMemory{s} }

type logMemory struct{ sessions *Service }

func (m logMemory) AddSessionToMemory(ctx context.Context, sess session.Session) error {
	if isNil(sess) {
		return errNoSession
	}
	if _, err := m.sessions.store.Info(ctx, store.Key{App: sess.AppName(), User: sess.UserID(), Session: sess.ID()}); err != nil {
		return fmt.Errorf("add session to memory: %w", err)
	}
	return nil
}

func (m logMemory) SearchMemory(ctx context.Context, req *memory.SearchRequest) (*memory.SearchResponse, error) {
	if req == nil {
		return nil, errNoRequest
	}
	if req.AppName == "" || req.UserID == "" {
		return nil, withMessage(patch.ErrInvalid, "app_name and user_id are required, got app_name: %q, user_id: %q", req.AppName, req.UserID)
	}
	out := &memory.SearchResponse{Memories: []memory.Entry{}}
	if strings.TrimSpace(req.Query) == "" {
		return out, nil
	}
	var except store.Key
	if running, ok := ctx.(interface{ SessionID() string }); ok {
		except = store.Key{App: req.AppName, User: req.UserID, Session: running.SessionID()}
	}
	hits, err := m.sessions.searchUser(ctx, req.AppName, req.UserID, except,
		recall.Search{Query: req.Query, Represented: true, Limit: memoryEntries, Snippet: memoryRunes, Redact: m.sessions.redact})
	if err != nil {
		return nil, fmt.Errorf("search memory: %w", err)
	}
	for _, h := range hits {
		out.Memories = append(out.Memories, memory.Entry{
			ID:        h.Event.ID(),
			Content:   genai.NewContentFromText(h.Snippet.Text, genai.Role(h.Event.Role())),
			Author:    h.Event.Author(),
			Timestamp: h.Event.Timestamp(),
			CustomMetadata: map[string]any{
				"session": h.Key.Session, "record": h.Seq, "score": h.Score,
			},
		})
	}
	return out, nil
}

// searchUser searches the sessions of a user, except the session whose key is in except. It skips sessions that
// cannot be read.
func (s *Service) searchUser(ctx context.Context, app, user string, except store.Key, search recall.Search) ([]recall.Hit[store.Key], error) {
	skip := func(key store.Key, err error) bool {
		if ctx.Err() != nil || !s.store.CanSkip(err) {
			return false
		}
		if !errors.Is(err, store.ErrNotFound) {
			s.logger.Warn("patchlog: a search leaves out a session that cannot be read", "session", key.String(), "error", err)
		}
		return true
	}
	keys := func(yield func(store.Key, error) bool) {
		for info, err := range s.store.List(ctx, store.ListOptions{App: app, User: user}) {
			if info.Key == except || errors.Is(err, store.ErrCorrupt) && skip(info.Key, err) {
				continue
			}
			if !yield(info.Key, err) {
				return
			}
		}
	}
	return s.finder.SearchAll(ctx, keys, skip, search)
}

func isNil(sess session.Session) bool {
	handle, ok := sess.(*Session)
	return sess == nil || ok && handle == nil
}
