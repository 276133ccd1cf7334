package adk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// RESTHandler returns a handler that adds three routes to ADK's REST API. The argument next is the handler of ADK's
// REST API.
//
//	POST …/apps/{app}/users/{user}/sessions/{session}/rewind   {"rewindBeforeInvocationId": "…"}
//	POST …/apps/{app}/users/{user}/sessions/{session}/fork     {"sessionId": "…", "forkBeforeInvocationId": "…"}
//	GET  …/apps/{app}/users/{user}/sessions/{session}/history?before={event}&limit={events}
//
// The routes call [Service.Rewind], [Service.Fork] and [WithHistoryPage]. Both fields of the fork's body are
// optional. If a request succeeds, the response is the session, in the form of ADK's own GET route. If a request
// fails, the status is 400, 404, 409, 413, 415 or 500. All other requests go to ADK's handler.
//
// Like ADK's routes, these routes do not authenticate clients. Any client that can connect can change every session,
// so put authentication in front of the handler. Request bodies must have the content type application/json, which
// browsers send to another site only with its permission.
//
// Put the handler around a server, or into the router of a launcher:
//
//	router.Use(sessions.RESTHandler)
func (s *Service) RESTHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := sessionRoute.FindStringSubmatch(r.URL.Path)
		if route == nil || (r.Method == http.MethodGet) != (route[5] == "history") || r.Method != http.MethodGet && r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		key := store.Key{App: route[2], User: route[3], Session: route[4]}
		var err error
		get := r.Clone(r.Context())
		if route[5] == "history" {
			if get, err = withHistoryParams(get); err == nil {
				err = s.checkHistoryPage(r.Context(), key, r.URL.Query().Get("before"))
			}
		} else {
			key.Session, err = s.rewindOrFork(w, r, route[5], key)
		}
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		get.Method, get.Body, get.ContentLength = http.MethodGet, http.NoBody, 0
		get.URL = &url.URL{Path: fmt.Sprintf("%s/apps/%s/users/%s/sessions/%s", route[1], key.App, key.User, key.Session)}
		get.RequestURI = get.URL.RequestURI()
		next.ServeHTTP(w, get)
	})
}

var sessionRoute = regexp.MustCompile(`^(.*)/apps/([^/]+)/users/([^/]+)/sessions/([^/]+)/(rewind|fork|history)$`)

// maxBody is the maximum size of a request body in bytes.
const maxBody = 1 << 16

var errMediaType = errors.New("the content type is not application/json; send the body as JSON with this type")

// rewindOrFork rewinds or forks a session. It returns the id of the session that the response will show.
func (s *Service) rewindOrFork(w http.ResponseWriter, r *http.Request, action string, key store.Key) (id string, err error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return "", errMediaType
	}
	var rewind rewindBody
	var fork forkBody
	if err := decodeBody(w, r, map[string]any{"rewind": &rewind, "fork": &fork}[action]); err != nil {
		return "", err
	}
	switch id := fork.SessionID; {
	case action == "rewind" && rewind.Before == "":
		return "", &patch.FieldError{Field: "rewindBeforeInvocationId", Problem: "the field is missing or empty"}
	case id == "." || id == ".." || strings.Contains(id, "/"):
		return "", &patch.FieldError{Field: "sessionId", Problem: fmt.Sprintf("the id %q cannot be part of a URL path; use an id without a slash, other than . and ..", id)}
	}
	got, err := s.Get(r.Context(), &session.GetRequest{AppName: key.App, UserID: key.User, SessionID: key.Session})
	if err != nil {
		return "", err
	}
	if action == "rewind" {
		_, err := s.Rewind(r.Context(), got.Session, rewind.Before)
		return key.Session, err
	}
	forked, err := s.Fork(r.Context(), got.Session, ForkOptions{SessionID: fork.SessionID, BeforeInvocation: fork.Before})
	if err != nil {
		return "", err
	}
	return forked.ID(), nil
}

type rewindBody struct {
	Before string `json:"rewindBeforeInvocationId"`
}

type forkBody struct {
	SessionID string `json:"sessionId"`
	Before    string `json:"forkBeforeInvocationId"`
}

// decodeBody decodes a request body into a struct. The body must be one JSON object with no other fields than the
// struct. A missing body is decoded as {}.
func decodeBody(w http.ResponseWriter, r *http.Request, into any) error {
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	in.DisallowUnknownFields()
	err := in.Decode(into)
	if err == nil {
		if _, err = in.Token(); err == nil {
			err = errors.New("there is data after the JSON object")
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("%w: body: %w", patch.ErrInvalid, err)
}

// checkHistoryPage returns an error if the session does not exist, or if before is not empty and the history does
// not contain the event with this id.
func (s *Service) checkHistoryPage(ctx context.Context, key store.Key, before string) error {
	v, err := s.store.View(ctx, key)
	if err == nil && before != "" {
		_, err = s.store.HistoryPage(ctx, key, v, before, 0)
	}
	return err
}

func withHistoryParams(r *http.Request) (*http.Request, error) {
	query := r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "0"))
	if err != nil || limit < 0 {
		return nil, &patch.FieldError{Field: "limit", Problem: fmt.Sprintf("%q is not a number of events; pass 0 for all events, or a positive number", query.Get("limit"))}
	}
	return r.WithContext(WithHistoryPage(r.Context(), query.Get("before"), limit)), nil
}

func statusOf(err error) int {
	var tooLarge *http.MaxBytesError
	for _, s := range []struct {
		is     bool
		status int
	}{
		{errors.Is(err, errMediaType), http.StatusUnsupportedMediaType},
		{errors.As(err, &tooLarge), http.StatusRequestEntityTooLarge},
		{errors.Is(err, store.ErrNotFound) || errors.Is(err, fold.ErrEventNotFound), http.StatusNotFound},
		{errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) || errors.Is(err, fold.ErrBlocked), http.StatusConflict},
		{errors.Is(err, patch.ErrInvalid), http.StatusBadRequest},
	} {
		if s.is {
			return s.status
		}
	}
	return http.StatusInternalServerError
}
