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

// carried returns the patches that an event carries. Such an event was written by package adk to a service that it
// wraps.
func carried(e *patch.Event) (patches portable.Patches, ok bool) {
	said, ok := e.CustomMetadata()[portable.MetadataKey].(string)
	if !ok || e.SaysSomething() {
		return patches, false
	}
	return portable.Parse(e.ID(), said), true
}

// wrapped reports whether package adk wrote the session to a service that it wraps. The state of such a session is
// computed from its events and patches, because the source's state includes values that patches removed.
func (s *Session) wrapped() bool {
	_, created := s.State[portable.StateKey]
	return created || slices.ContainsFunc(s.Events, isCarrier)
}

// wrappedInitial returns the initial state that package adk stored in the wrapped service.
func wrappedInitial(state map[string]patch.Value) (initial map[string]any, ok bool) {
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

func isCarrier(e *patch.Event) bool {
	_, ok := carried(e)
	return ok
}

// splitCarried returns the log without the patches carried by events, and the events whose patches are not in the
// log.
func splitCarried(have []patch.Record, events []*patch.Event) (rest []patch.Record, open []*patch.Event) {
	logged, ids := map[string]bool{}, map[string]bool{}
	for _, r := range have {
		logged[r.ID()] = r.Patch != nil
	}
	for _, e := range events {
		patches, _ := carried(e)
		held := false
		for _, id := range patches.IDs() {
			ids[id], held = true, held || logged[id]
		}
		if !held {
			open = append(open, e)
		}
	}
	return slices.DeleteFunc(slices.Clone(have), func(r patch.Record) bool { return r.Patch != nil && ids[r.ID()] }), open
}

// UntranslatedError lists events of a wrapped service whose patches were omitted. Events that these patches hide are
// visible.
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

const leftOut = "its patches are left out: the events that they name are not adjacent, or they are of another version"

// lostPatches returns the events whose patches were omitted by an earlier run. It also returns events that seem to
// have carried patches missing in the source. The argument open contains the events whose patches are not logged. If
// such an event is in the argument missing, this run will translate its patches.
func lostPatches(s *Session, open, missing []*patch.Event) (lost []Difference) {
	_, created := s.State[portable.StateKey]
	for _, e := range open {
		switch {
		case isCarrier(e) && slices.Contains(missing, e): // translated by this run
		case isCarrier(e):
			lost = append(lost, Difference{Event: e.ID(), What: leftOut})
		case created && e.Author() == "user" && !e.SaysSomething() && e.ID() == e.InvocationID():
			lost = append(lost, Difference{Event: e.ID(), What: "it seems to carry patches, which the source does not say; read the database itself"})
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
	log, err := logOf(ctx, b.scratch, b.session.Key)
	if err != nil {
		return err
	}
	located, ok := patches.Resolve(v.WithRecords(log))
	if !ok {
		b.untranslated = append(b.untranslated, Difference{Event: e.ID(), What: leftOut})
		return nil
	}
	if len(located) == 0 {
		return nil
	}
	if err = b.apply(ctx, v, located); err != nil && ctx.Err() == nil {
		b.untranslated = append(b.untranslated, Difference{Event: e.ID(), What: fmt.Sprintf("its patches are left out: %v", err)})
		return nil
	}
	return err
}

// apply logs patches without the checks for orphans, pins and waiting calls.
func (b *builder) apply(ctx context.Context, v fold.View, patches []*patch.PatchEvent) error {
	_, err := b.scratch.ApplyPatch(ctx, b.session.Key, patches, store.PatchOptions{On: v, AllowOrphans: true, AllowPinned: true, AllowWaiting: true})
	return err
}
