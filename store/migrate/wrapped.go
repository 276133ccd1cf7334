package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fold/portable"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// carriedPatches returns the patches that an event carries. An event carries patches if package adk wrote the event
// to a service that it wraps.
func carriedPatches(e *patch.Event) (patches portable.Patches, ok bool) {
	value, ok := e.CustomMetadata()[portable.MetadataKey].(string)
	if !ok || e.SaysSomething() {
		return patches, false
	}
	return portable.Parse(e.ID(), value), true
}

// isWrapped reports whether package adk wrote the session to a service that it wraps. The source's state of such a
// session includes values that patches removed. The migration therefore computes the state from the events and
// patches.
func (s *Session) isWrapped() bool {
	_, created := s.State[portable.StateKey]
	return created || slices.ContainsFunc(s.Events, carriesPatches)
}

// wrappedInitialState returns the initial state that package adk stored in the wrapped service.
func wrappedInitialState(state map[string]patch.Value) (initial map[string]any, ok bool) {
	origin, ok := state[portable.StateKey]
	if !ok {
		return nil, false
	}
	initial = map[string]any{}
	for key, value := range origin.Members()["initial"].Members() {
		if statekey.ScopeOf(key) == statekey.Session {
			initial[key] = value
		}
	}
	return initial, true
}

func carriesPatches(e *patch.Event) bool {
	_, ok := carriedPatches(e)
	return ok
}

// withoutCarriedPatches returns the log without the patches that events carry. The result untranslated has the
// events whose patches are not in the log.
func withoutCarriedPatches(log []patch.Record, events []*patch.Event) (plainLog []patch.Record, untranslated []*patch.Event) {
	logged, ids := map[string]bool{}, map[string]bool{}
	for _, r := range log {
		logged[r.ID()] = r.Patch != nil
	}
	for _, e := range events {
		patches, _ := carriedPatches(e)
		anyLogged := false
		for _, id := range patches.IDs() {
			ids[id], anyLogged = true, anyLogged || logged[id]
		}
		if !anyLogged {
			untranslated = append(untranslated, e)
		}
	}
	return slices.DeleteFunc(slices.Clone(log), func(r patch.Record) bool { return r.Patch != nil && ids[r.ID()] }), untranslated
}

// UntranslatedError lists events of a wrapped service whose patches were omitted. The events that these patches
// should hide are visible.
type UntranslatedError struct {
	Key    store.Key
	Events []Difference
}

func (e *UntranslatedError) Error() string {
	texts := make([]string, len(e.Events))
	for i, d := range e.Events {
		texts[i] = d.String()
	}
	return fmt.Sprintf("session %s: patches of the wrapping service are not translated, so the events that they hide are visible: %s", e.Key, strings.Join(texts, "; "))
}

const patchesOmitted = "its patches are left out: the events that they name are not adjacent, or the patches have another version"

// lostPatches returns the events whose patches were omitted by an earlier run. It also returns events that seem to
// have carried patches that are missing in the source. The argument open has the events whose patches are not
// logged. If such an event is also in the argument missing, this run will translate its patches.
func lostPatches(s *Session, open, missing []*patch.Event) (lost []Difference) {
	_, created := s.State[portable.StateKey]
	for _, e := range open {
		switch {
		case carriesPatches(e) && slices.Contains(missing, e): // this run translates the patches
		case carriesPatches(e):
			lost = append(lost, Difference{Event: e.ID(), What: patchesOmitted})
		case created && e.Author() == "user" && !e.SaysSomething() && e.ID() == e.InvocationID():
			lost = append(lost, Difference{Event: e.ID(), What: "it seems to carry patches, but the source lacks them; read the database itself"})
		}
	}
	return lost
}

// translate logs the patches that an event carries, at the event's position.
func (b *builder) translate(ctx context.Context, e *patch.Event, patches portable.Patches) error {
	v, err := b.scratch.View(ctx, b.session.Key)
	if err != nil {
		return err
	}
	log, err := readLog(ctx, b.scratch, b.session.Key)
	if err != nil {
		return err
	}
	located, ok := patches.Resolve(v.WithRecords(log))
	if !ok {
		b.untranslated = append(b.untranslated, Difference{Event: e.ID(), What: patchesOmitted})
		return nil
	}
	if len(located) == 0 {
		return nil
	}
	if err = b.applyPatches(ctx, v, located); err != nil && ctx.Err() == nil {
		b.untranslated = append(b.untranslated, Difference{Event: e.ID(), What: fmt.Sprintf("its patches are left out: %v", err)})
		return nil
	}
	return err
}

// applyPatches logs patches without the checks for orphans, pins and waiting calls.
func (b *builder) applyPatches(ctx context.Context, v fold.View, patches []*patch.PatchEvent) error {
	_, err := b.scratch.ApplyPatch(ctx, b.session.Key, patches, store.PatchOptions{On: v, AllowOrphans: true, AllowPinned: true, AllowWaiting: true})
	return err
}
