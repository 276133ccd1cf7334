package ops

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// EventID returns the id of the event that a person names: by its id, by the number of the record that
// brought it, or by the beginning of its id, if no other event begins so. Of beginnings, those of visible
// events count first. A name that nothing has is returned as it is, for the operation to refuse.
func EventID(ctx context.Context, s *store.Store, key store.Key, v fold.View, name string) (string, error) {
	if _, found := v.Find(name); found {
		return name, nil
	}
	found := finding{what: "event", name: name}
	if !isNumber(name) {
		for _, e := range v.Events() {
			found.add(e.ID())
		}
		if len(found.begin) > 0 {
			return found.id(key)
		}
	}
	return found.inLog(ctx, s, key, func(r patch.Record) []string {
		var ids []string
		for _, e := range r.Events() {
			ids = append(ids, e.ID())
		}
		return ids
	})
}

// PatchID returns the id of the patch that a person names: by its id, by the number of its record, or
// by the beginning of its id, if no other patch begins so.
func PatchID(ctx context.Context, s *store.Store, key store.Key, name string) (string, error) {
	found := finding{what: "patch", name: name}
	return found.inLog(ctx, s, key, func(r patch.Record) []string {
		if r.Patch == nil {
			return nil
		}
		return []string{r.ID()}
	})
}

// InvocationID returns the id of the invocation that a person names: by its id, by the number of one of
// its records, or by the beginning of its id, if no other invocation begins so.
func InvocationID(ctx context.Context, s *store.Store, key store.Key, name string) (string, error) {
	found := finding{what: "invocation", name: name}
	return found.inLog(ctx, s, key, func(r patch.Record) []string {
		if r.Event == nil || r.Event.InvocationID() == "" {
			return nil
		}
		return []string{r.Event.InvocationID()}
	})
}

// TurnEnd returns the seq of the last record of a turn: what a model saw at its end is the view after it. Turns are
// invocations, counted from 1 in the order in which they begin; the first one has what was logged before it.
func TurnEnd(ctx context.Context, s *store.Store, key store.Key, turn int) (uint64, error) {
	begun := map[string]bool{}
	last := uint64(0)
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return 0, err
		}
		if r.Event != nil && r.Event.InvocationID() != "" && !begun[r.Event.InvocationID()] {
			if begun[r.Event.InvocationID()] = true; len(begun) > turn {
				return last, nil
			}
		}
		last = r.Seq
	}
	if len(begun) < turn {
		return 0, fmt.Errorf("session %s: there is no turn %d; it has %d", key, turn, len(begun))
	}
	return last, nil
}

func isNumber(name string) bool {
	_, err := strconv.ParseUint(name, 10, 64)
	return err == nil
}

// finding looks for a name among ids.
type finding struct {
	what, name string
	exact      bool
	begin      []string // different ids that begin so, two at most
}

// add takes an id into account.
func (f *finding) add(id string) {
	switch {
	case id == f.name:
		f.exact = true
	case f.name != "" && strings.HasPrefix(id, f.name) && len(f.begin) < 2 && (len(f.begin) == 0 || f.begin[0] != id):
		f.begin = append(f.begin, id)
	}
}

// inLog reads the log until the name is found as an id.
func (f *finding) inLog(ctx context.Context, s *store.Store, key store.Key, ids func(patch.Record) []string) (string, error) {
	var numbered []string
	there := false
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return "", err
		}
		of := ids(r)
		for _, id := range of {
			f.add(id)
		}
		if f.exact {
			break
		}
		if strconv.FormatUint(r.Seq, 10) == f.name {
			there, numbered = true, of
		}
	}
	switch {
	case f.exact || !there:
		return f.id(key)
	case len(numbered) == 0:
		return "", fmt.Errorf("session %s: record %s has no %s", key, f.name, f.what)
	}
	return numbered[0], nil
}

// id returns the id that was found, or the name.
func (f *finding) id(key store.Key) (string, error) {
	switch {
	case f.exact || len(f.begin) == 0:
		return f.name, nil
	case len(f.begin) > 1:
		return "", fmt.Errorf("session %s: the ids of several %ss begin with %q: %q and %q, for example; type more of it", key, f.what, f.name, f.begin[0], f.begin[1])
	}
	return f.begin[0], nil
}
