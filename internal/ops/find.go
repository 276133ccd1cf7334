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

// EventID returns the id of the event that name identifies. The name is the event's id, a unique prefix of the
// id, or the seq of the event's record.
func EventID(ctx context.Context, s *store.Store, key store.Key, v fold.View, name string) (string, error) {
	if _, found := v.Find(name); found {
		return name, nil
	}
	return findID(ctx, s, key, "event", name, true, func(r patch.Record) (ids []string) {
		for _, e := range r.Events() {
			ids = append(ids, e.ID())
		}
		return ids
	})
}

// PatchID returns the id of the patch with a name. The name is the patch's id, a unique prefix of the id, or
// the patch's seq.
func PatchID(ctx context.Context, s *store.Store, key store.Key, name string) (string, error) {
	return findID(ctx, s, key, "patch", name, true, func(r patch.Record) []string {
		if r.Patch == nil {
			return nil
		}
		return []string{r.ID()}
	})
}

// VisibleEventID is [EventID] for a visible event. If the event is hidden, the error matches
// [store.ErrEventNotFound] and names the patch that hides it.
func VisibleEventID(ctx context.Context, s *store.Store, key store.Key, v fold.View, name string) (string, error) {
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
				return "", fmt.Errorf("session %s: %w: event %q is hidden by patch %d; revert patch %d first", key, store.ErrEventNotFound, id, place.HiddenBySeq, place.HiddenBySeq)
			}
		}
	}
	return "", fmt.Errorf("session %s: %w: event %q is not visible", key, store.ErrEventNotFound, id)
}

// Invocation identifies an invocation by one of its fields.
type Invocation struct {
	ID     string // its id, or a unique prefix of the id
	Turn   int    // its turn, from 1: see [Turns]
	Record uint64 // seq of any of its records
}

// Find returns the id of the invocation.
func (i Invocation) Find(ctx context.Context, s *store.Store, key store.Key) (string, error) {
	if i.ID != "" {
		return findID(ctx, s, key, "invocation", i.ID, false, func(r patch.Record) []string {
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
			return "", fmt.Errorf("session %s: record %d belongs to no turn", key, i.Record)
		case i.Record > 0 && r.Seq == i.Record:
			return id, nil
		}
	}
	if i.Turn > 0 {
		return "", errNoTurn(key, i.Turn, len(turns))
	}
	return "", fmt.Errorf("session %s: %w: there is no record %d", key, store.ErrNotFound, i.Record)
}

// Turns maps the id of each invocation to its turn number. Turns are numbered from 1, in the order of their
// first events.
type Turns map[string]int

// Add returns the turn of r, the next record of the log. If r has no event with an invocation, its turn is the
// newest turn, or 0 before the first.
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

// LastRecordOfTurn returns the seq of the last record before the next turn begins. Records before the first
// turn count as part of turn 1.
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
		return 0, errNoTurn(key, turn, len(turns))
	}
	return last, nil
}

func errNoTurn(key store.Key, turn, has int) error {
	return fmt.Errorf("session %s: %w: there is no turn %d; it has %d", key, store.ErrNotFound, turn, has)
}

// findID searches the log for name: as an id, as a seq if acceptSeq is true, or as a prefix of an id.
func findID(ctx context.Context, s *store.Store, key store.Key, what, name string, acceptSeq bool, ids func(patch.Record) []string) (string, error) {
	var prefixed, numbered []string // distinct ids with the prefix name; ids in the record with the seq name
	isRecord := false
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return "", err
		}
		recordIDs := ids(r)
		if acceptSeq && strconv.FormatUint(r.Seq, 10) == name {
			isRecord, numbered = true, recordIDs
		}
		for _, id := range recordIDs {
			if id == name {
				return name, nil
			}
			if name != "" && strings.HasPrefix(id, name) && !slices.Contains(prefixed, id) {
				prefixed = append(prefixed, id)
			}
		}
	}
	switch {
	case isRecord && len(numbered) == 0:
		return "", fmt.Errorf("session %s: record %s has no %s", key, name, what)
	case isRecord:
		return numbered[0], nil
	case len(prefixed) > 1:
		return "", fmt.Errorf("session %s: the ids of several %ss begin with %q: %q and %q, for example; type more of it", key, what, name, prefixed[0], prefixed[1])
	case len(prefixed) == 1:
		return prefixed[0], nil
	}
	return "", fmt.Errorf("session %s: %w: there is no %s %q", key, store.ErrNotFound, what, name)
}
