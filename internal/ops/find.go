package ops

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// EventID returns the id of the event that a person names: by its id, by the number of the record that
// brought it, or by the beginning of its id, if no other event begins so.
func EventID(ctx context.Context, s *store.Store, key store.Key, v fold.View, name string) (string, error) {
	if _, found := v.Find(name); found {
		return name, nil
	}
	return find(ctx, s, key, "event", name, true, func(r patch.Record) (ids []string) {
		for _, e := range r.Events() {
			ids = append(ids, e.ID())
		}
		return ids
	})
}

// PatchID returns the id of the patch that a person names: by its id, by the number of its record, or
// by the beginning of its id, if no other patch begins so.
func PatchID(ctx context.Context, s *store.Store, key store.Key, name string) (string, error) {
	return find(ctx, s, key, "patch", name, true, func(r patch.Record) []string {
		if r.Patch == nil {
			return nil
		}
		return []string{r.ID()}
	})
}

// VisibleEvent is [EventID] for an event that must be visible. The error for a hidden one names the patch that hides it, and
// matches [store.ErrEventNotFound].
func VisibleEvent(ctx context.Context, s *store.Store, key store.Key, v fold.View, name string) (string, error) {
	id, err := EventID(ctx, s, key, v, name)
	if err != nil {
		return "", err
	}
	if _, visible := v.Find(id); visible {
		return id, nil
	}
	places, err := v.Places()
	if err != nil {
		return "", err
	}
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return "", err
		}
		for n, e := range r.Events() {
			if e.ID() != id {
				continue
			}
			if place, ok := places.Of(r.Seq, n); ok && place.HiddenBySeq > 0 {
				return "", fmt.Errorf("session %s: %w: event %q is hidden by patch %d; revert that first", key, store.ErrEventNotFound, id, place.HiddenBySeq)
			}
		}
	}
	return "", fmt.Errorf("session %s: %w: event %q is not visible", key, store.ErrEventNotFound, id)
}

// Invocation is what a person names an invocation by: one of the fields.
type Invocation struct {
	ID     string // or its beginning, if no other invocation's id begins so
	Turn   int    // counted from 1, see [Turns]
	Record uint64 // the seq of any of its records
}

// Find returns the id of the invocation.
func (i Invocation) Find(ctx context.Context, s *store.Store, key store.Key) (string, error) {
	if i.ID != "" {
		return find(ctx, s, key, "invocation", i.ID, false, func(r patch.Record) []string {
			if r.Event == nil || r.Event.InvocationID() == "" {
				return nil
			}
			return []string{r.Event.InvocationID()}
		})
	}
	turns := Turns{}
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return "", err
		}
		turn, id := turns.Add(r), ""
		if r.Event != nil {
			id = r.Event.InvocationID()
		}
		switch {
		case i.Turn > 0 && turn == i.Turn && id != "":
			return id, nil
		case i.Record > 0 && r.Seq == i.Record && id == "":
			return "", fmt.Errorf("session %s: record %d belongs to no turn of its own", key, i.Record)
		case i.Record > 0 && r.Seq == i.Record:
			return id, nil
		}
	}
	if i.Turn > 0 {
		return "", noTurn(key, i.Turn, len(turns))
	}
	return "", fmt.Errorf("session %s: %w: there is no record %d", key, store.ErrNotFound, i.Record)
}

// Turns maps the id of each invocation to the number of its turn, counted from 1 in the order in which turns begin.
type Turns map[string]int

// Add returns the turn of the log's next record: the turn of its event's invocation, or, if it has none, the turn that
// began last, or 0 before the first turn.
func (t Turns) Add(r patch.Record) int {
	if r.Event == nil || r.Event.InvocationID() == "" {
		return len(t)
	}
	id := r.Event.InvocationID()
	if t[id] == 0 {
		t[id] = len(t) + 1
	}
	return t[id]
}

// LastRecordOfTurn returns the seq of the last record of a turn, before the next one begins. Records before the first turn
// belong to it.
func LastRecordOfTurn(ctx context.Context, s *store.Store, key store.Key, turn int) (uint64, error) {
	turns, last := Turns{}, uint64(0)
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return 0, err
		}
		if turns.Add(r) > turn {
			return last, nil
		}
		last = r.Seq
	}
	if len(turns) < turn {
		return 0, noTurn(key, turn, len(turns))
	}
	return last, nil
}

func noTurn(key store.Key, turn, has int) error {
	return fmt.Errorf("session %s: %w: there is no turn %d; it has %d", key, store.ErrNotFound, turn, has)
}

// find looks for a name in the log: as an id that a record has, as the number of a record if byNumber, as the beginning
// of an id.
func find(ctx context.Context, s *store.Store, key store.Key, what, name string, byNumber bool, ids func(patch.Record) []string) (string, error) {
	var begin, numbered []string // different ids that begin so; those of the record with the number
	isRecord := false
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return "", err
		}
		has := ids(r)
		if byNumber && strconv.FormatUint(r.Seq, 10) == name {
			isRecord, numbered = true, has
		}
		for _, id := range has {
			if id == name {
				return name, nil
			}
			if name != "" && strings.HasPrefix(id, name) && !slices.Contains(begin, id) {
				begin = append(begin, id)
			}
		}
	}
	switch {
	case isRecord && len(numbered) == 0:
		return "", fmt.Errorf("session %s: record %s has no %s", key, name, what)
	case isRecord:
		return numbered[0], nil
	case len(begin) > 1:
		return "", fmt.Errorf("session %s: the ids of several %ss begin with %q: %q and %q, for example; type more of it", key, what, name, begin[0], begin[1])
	case len(begin) == 1:
		return begin[0], nil
	}
	return "", fmt.Errorf("session %s: %w: there is no %s %q", key, store.ErrNotFound, what, name)
}
