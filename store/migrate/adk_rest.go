package migrate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var adkSessions = Format{
	Name: "adk-sessions", Title: "sessions of ADK's REST API", Versions: "ADK for Go and for Python (GET /apps/A/users/U/sessions/S; adk run --save_session)",
	Kept: "events, state, shared values, compactions, rewinds", Omitted: "fields that ADK's API does not return, temp: keys, partial events",
	count: func(b *fileHead) int {
		return b.count(func(o obj) bool {
			return o.has("appName", "app_name") && o.has("userId", "user_id") && (o.has("events") || o.has("state") && !o.has("event_data", "session_id"))
		})
	},
	open: func(f *File) (Source, error) {
		text, mended := toValidUnicode(f.text)
		s := NewREST(bytes.NewReader(text), f.opts.Name)
		if mended {
			s.differences = append(s.differences, Difference{What: "some texts are not Unicode: replaced by U+FFFD"})
		}
		return s, nil
	},
}

// REST is a source of sessions in the JSON of the REST servers of ADK for Go and ADK for Python.
type REST struct {
	r           io.Reader
	name        string
	shared      map[scope]map[string]patch.Value
	differences []Difference
}

type scope struct{ app, user string }

var _ Source = (*REST)(nil)

// NewREST returns a source that reads sessions in JSON from r. A session is the response of GET
// /apps/APP/users/USER/sessions/SESSION. r has one session, an array of sessions, or a sequence of sessions, such as
// one per line. The argument name is the name of the input in errors. The input is read once, during the iteration
// over the sessions, with one session in memory at a time.
//
// The state in this JSON includes the values of shared scopes. If sessions have different values of a shared key, the
// value in the last session is used, and the difference is reported. The JSON has no creation time, so a session's
// creation time is the time of its first event. The JSON of ADK for Go has no citations, no custom metadata and no
// times of events. Its events get the time of the session's last update.
func NewREST(r io.Reader, name string) *REST {
	return &REST{r: r, name: name, shared: map[scope]map[string]patch.Value{}}
}

// String returns the title of the format.
func (s *REST) String() string { return adkSessions.Title }

// Count implements [Source]. It returns 0, because the number is unknown.
func (s *REST) Count(context.Context) (int, error) { return 0, nil }

// Sessions implements [Source].
func (s *REST) Sessions(ctx context.Context) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		n := 0
		for text, err := range s.objects() {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(nil, err)
				return
			}
			n++
			session, key, err := s.parseSession(text)
			if err != nil {
				err = &SessionError{key, fmt.Errorf("%s: session %d of the input: %w", s.name, n, err)}
			}
			if !yield(session, err) {
				return
			}
		}
	}
}

func (s *REST) objects() iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		in := bufio.NewReaderSize(s.r, 64<<10)
		d := json.NewDecoder(in)
		first, err := firstByte(in)
		array, empty, ended := first == '[', err == io.EOF, false
		if array {
			_, err = d.Token()
		}
		for err == nil && (!array || d.More()) {
			var text json.RawMessage
			if err = d.Decode(&text); err == nil && !yield(text, nil) {
				return
			}
			ended = !array && err == io.EOF
		}
		if err == nil {
			if _, err = d.Token(); err == nil { // the closing bracket of the array
				_, err = d.Token()
				ended = err == io.EOF
			}
		}
		var syntax *json.SyntaxError
		switch {
		case ended:
			return
		case err == nil:
			err = fmt.Errorf("%w: data follows the array of sessions", store.ErrInvalid)
		case empty:
			err = fmt.Errorf("%w: the input is empty", store.ErrInvalid)
		case errors.Is(err, io.ErrUnexpectedEOF), err == io.EOF:
			err = fmt.Errorf("%w: the JSON ends too early, after byte %d", store.ErrInvalid, d.InputOffset())
		case errors.As(err, &syntax):
			err = fmt.Errorf("%w: after byte %d: %w", store.ErrInvalid, d.InputOffset(), err)
		}
		yield(nil, fmt.Errorf("%s: %w", s.name, err))
	}
}

// firstByte returns the first byte that is not white space, without consuming it.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(b)) {
			return b, in.UnreadByte()
		}
	}
}

// memberNames maps each spelling of a member of a session to the name of the member.
var memberNames = map[string]string{
	"id": "id", "appName": "appName", "app_name": "appName", "userId": "userId", "user_id": "userId",
	"state": "state", "events": "events", "lastUpdateTime": "lastUpdateTime", "last_update_time": "lastUpdateTime",
}

// parseSession parses one session. If it fails, key has the parts of the key that were parsed before the failure.
func (s *REST) parseSession(text json.RawMessage) (_ *Session, key store.Key, err error) {
	value, err := patch.ParseValue(text)
	if err != nil {
		return nil, key, err
	}
	members := value.Members()
	if members == nil {
		return nil, key, fmt.Errorf("%w: want a session object, not %s", store.ErrInvalid, clip(value.String()))
	}
	out := &Session{State: map[string]patch.Value{}}
	byName := map[string]patch.Value{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		as, ok := memberNames[name]
		if _, duplicate := byName[as]; ok && duplicate {
			return nil, key, fmt.Errorf("%w: %s occurs in two spellings", store.ErrInvalid, as)
		}
		if ok {
			byName[as] = members[name]
		} else {
			out.Differences = append(out.Differences, Difference{What: fmt.Sprintf("the session's field %q is left out", name)})
		}
	}
	for _, p := range []struct {
		name string
		part *string
	}{{"appName", &key.App}, {"userId", &key.User}, {"id", &key.Session}} {
		if *p.part, _ = byName[p.name].Any().(string); *p.part == "" {
			return nil, store.Key{}, fmt.Errorf("%w: want a string %s, as in a session of ADK's REST API", store.ErrInvalid, p.name)
		}
	}
	out.Key = key
	if out.Updated, err = parseTime(byName["lastUpdateTime"].Any()); err != nil {
		return nil, key, fmt.Errorf("lastUpdateTime: %w", err)
	}
	if err := s.splitState(out, byName["state"]); err != nil {
		return nil, key, err
	}
	var events []json.RawMessage
	if list, ok := byName["events"]; !ok || json.Unmarshal([]byte(list.String()), &events) != nil || events == nil {
		return nil, key, fmt.Errorf("%w: want an array events, as in a session of ADK's REST API", store.ErrInvalid)
	}
	if recordWeight*len(events) > weightFactor*len(text)+weightBase {
		return nil, key, fmt.Errorf("%w: the import of its many short events would need more memory than 8 times its size", store.ErrTooLarge)
	}
	for i, text := range events {
		e, err := adkjson.ParseEvent(text)
		if err != nil {
			return nil, key, fmt.Errorf("event %d: %w", i+1, err)
		}
		out.Events = append(out.Events, e)
	}
	if len(events) == 0 {
		out.Differences = append(out.Differences, Difference{What: "it has no events; sessions in a list of ADK's REST API never have events, so get each session separately"})
	}
	return out, key, nil
}

// splitState divides a merged state between the session and the shared scopes.
func (s *REST) splitState(out *Session, state patch.Value) error {
	members := state.Members()
	if members == nil {
		return fmt.Errorf("%w: want an object state, as in a session of ADK's REST API", store.ErrInvalid)
	}
	for name, value := range members {
		sc := scope{app: out.Key.App}
		switch statekey.ScopeOf(name) {
		case statekey.User:
			sc.user = out.Key.User
		case statekey.App:
		default:
			out.State[name] = value
			continue
		}
		values := s.shared[sc]
		if values == nil {
			values = map[string]patch.Value{}
			s.shared[sc] = values
		}
		if before, ok := values[name]; ok && !before.Equal(value) {
			s.differences = append(s.differences, Difference{Key: name, What: fmt.Sprintf(
				"session %s has the value %s, and earlier sessions have %s; the last value is used", out.Key, clip(value.String()), clip(before.String()))})
		}
		values[name] = value
	}
	return nil
}

// Shared implements [Source]. It yields the values in the sessions read so far.
func (s *REST) Shared(context.Context) iter.Seq2[Shared, error] {
	return func(yield func(Shared, error) bool) {
		scopes := slices.SortedFunc(maps.Keys(s.shared), func(a, b scope) int {
			return strings.Compare(a.app+"\x00"+a.user, b.app+"\x00"+b.user)
		})
		for _, sc := range scopes {
			if !yield(Shared{sc.app, sc.user, s.shared[sc]}, nil) {
				return
			}
		}
	}
}

// Differences implements [Source].
func (s *REST) Differences(context.Context) ([]Difference, error) { return s.differences, nil }
