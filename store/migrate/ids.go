package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// idNamespace is the namespace of ids that a migration derives, which are the same in each run.
var idNamespace = uuid.MustParse("6f0c7a52-58a1-5a0e-9b8f-0b7f4a2d9c31")

func deriveID(key store.Key, purpose string, n int, text []byte) string {
	name := fmt.Appendf(nil, "%s\n%s %d\n", key, purpose, n)
	return uuid.NewSHA1(idNamespace, append(name, text...)).String()
}

// idsAfter returns a function that makes ids for the records that follow the seq.
func idsAfter(key store.Key, seq uint64) func() string {
	n := 0
	return func() string {
		n++
		return deriveID(key, fmt.Sprint("after ", seq), n, nil)
	}
}

// withUniqueIDs returns those events of the session that will be logged, each with a unique id.
func withUniqueIDs(s *Session) (events []*patch.Event, differences []Difference, err error) {
	first := map[string]int{}
	untimed := 0
	for i, e := range s.Events {
		if e == nil {
			return nil, nil, fmt.Errorf("session %s: %w: event %d is nil", s.Key, store.ErrInvalid, i+1)
		}
		if e.Partial() {
			differences = append(differences, Difference{Event: e.ID(), What: "it is a partial event of a stream, which is not logged"})
			continue
		}
		if e.Timestamp().IsZero() {
			untimed++
		}
		for k := range e.StateDelta() {
			if statekey.ScopeOf(k) == statekey.Temp {
				differences = append(differences, Difference{Event: e.ID(), Key: k, What: "it belongs to one invocation only, and is not logged"})
			}
		}
		id := e.ID()
		switch {
		case id == "":
			id = deriveID(s.Key, "event", i, []byte(e.String()))
			e = patch.Complete(patch.Record{Event: e}, func() string { return id }, time.Time{}).Event
			differences = append(differences, Difference{Event: id, What: fmt.Sprintf("event %d has no id; it gets this one", i+1)})
		case first[id] > 0:
			newID := deriveID(s.Key, "again", i, []byte(e.String()))
			differences = append(differences, Difference{Event: id, What: fmt.Sprintf("events %d and %d both have this id; the later event gets %q", first[id], i+1, newID)})
			if e, err = withID(e, newID); err != nil {
				return nil, nil, fmt.Errorf("session %s, event %d: %w", s.Key, i+1, err)
			}
			id = newID
		}
		if first[id] == 0 {
			first[id] = i + 1
		}
		events = append(events, e)
	}
	if untimed > 0 {
		differences = append(differences, Difference{What: fmt.Sprintf("%d of %d events have no time; they get the time of the session's last update", untimed, len(s.Events))})
	}
	return events, differences, nil
}

// withID returns a copy of an event with another id. The event must have an id.
func withID(e *patch.Event, id string) (*patch.Event, error) {
	text := []byte(e.String())
	d := json.NewDecoder(bytes.NewReader(text))
	for range 3 { // skip the opening brace, the key "id" and its value
		if _, err := d.Token(); err != nil {
			return nil, err
		}
	}
	quoted, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	return adkjson.ParseEvent(fmt.Appendf(nil, `{"id":%s%s`, quoted, text[d.InputOffset():]))
}
