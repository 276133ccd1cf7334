// Package portable writes patches whose positions are ids of events, not indices. They can be stored in a
// service in which seqs and indices are not stable. docs/FORMAT.md describes the form.
package portable

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Keys under which another service's session stores patchlog's data.
const (
	MetadataKey = "_patchlog" // key in an event's custom metadata, for the result of [Patches.Text]
	StateKey    = "_patchlog" // key in the session's state, for an [Origin]
)

// Origin is the value of [StateKey] in the session's state. It consists of the session's creation id and
// initial state.
type Origin struct {
	Creation string         `json:"creation"`
	Initial  map[string]any `json:"initial,omitempty"` // the session's own state, without "app:" and "user:" keys
}

const version = 1

// Patches is a list of patches that are applied together or not at all.
type Patches struct {
	list    []placedPatch
	unknown bool // whether the form has another version or contains a patch of unknown type
}

// placedPatch is a patch with its place. The indices in the patch refer to its author's view.
type placedPatch struct {
	patch *patch.PatchEvent
	place *place // nil if the patch has no indices
}

// place identifies the position of a patch by ids of events.
type place struct {
	Before string   `json:"before,omitempty"` // if Events is empty, the event before the position, or "" at the beginning of the log
	Events []string `json:"events,omitempty"` // the events that the patch removes
}

type textForm struct {
	Version int         `json:"version"`
	Patches []patchText `json:"patches"`
}

type patchText struct {
	Patch json.RawMessage `json:"patch"`
	Place *place          `json:"place,omitempty"`
}

// New returns the portable form of patches that are applied to a view one after the other. If a revert restores
// events, the view needs their records, which the caller supplies with [fold.View.WithRecords]. If an id occurs
// twice among the visible events, so that ids do not determine where a patch applies, the error matches
// [patch.ErrInvalid].
func New(v fold.View, patches ...*patch.PatchEvent) (Patches, error) {
	var out Patches
	before := v
	var records []patch.Record
	for _, p := range patches {
		at := placeOf(v, p)
		if at != nil {
			if start, ok := at.startIn(v); !ok || start != startOf(p) {
				return Patches{}, fmt.Errorf("%w: an event id occurs twice in the visible log, so ids do not determine where patch %q applies", patch.ErrInvalid, p.ID())
			}
		}
		out.list = append(out.list, placedPatch{p, at})
		records = append(records, patch.Record{Seq: v.Seq() + 1, Patch: p})
		var err error
		if v, err = before.Apply(records...); err != nil {
			return Patches{}, err
		}
	}
	return out, nil
}

// Text returns the text form, which [Parse] reads.
func (p Patches) Text() (string, error) {
	out := textForm{Version: version}
	for _, l := range p.list {
		raw, err := l.patch.MarshalJSON()
		if err != nil {
			return "", err
		}
		out.Patches = append(out.Patches, patchText{raw, l.place})
	}
	b, err := json.Marshal(out)
	return string(b), err
}

func startOf(p *patch.PatchEvent) int {
	if p.Type() == patch.TruncateBefore {
		return 0
	}
	return p.Start()
}

func placeOf(v fold.View, p *patch.PatchEvent) *place {
	start, count := startOf(p), p.Count()
	switch p.Type() {
	case patch.Splice, patch.Summarise:
	case patch.TruncateBefore:
		count, _ = v.Find(p.EventID())
	default:
		return nil
	}
	out := &place{}
	if count == 0 && start > 0 {
		out.Before = v.At(start - 1).ID()
	}
	for i := start; i < start+count; i++ {
		out.Events = append(out.Events, v.At(i).ID())
	}
	return out
}

// startIn returns the index of the first of the place's events in a view. The events may be in any order, but they
// must be adjacent.
func (p *place) startIn(v fold.View) (start int, ok bool) {
	if len(p.Events) == 0 {
		if p.Before == "" {
			return 0, true
		}
		i, ok := v.Find(p.Before)
		return i + 1, ok
	}
	missing := make(map[string]bool, len(p.Events))
	for _, id := range p.Events {
		missing[id] = true
	}
	start = -1
	for i, e := range v.Events() {
		if !missing[e.ID()] {
			if start >= 0 {
				break
			}
			continue
		}
		if start < 0 {
			start = i
		}
		delete(missing, e.ID())
		if len(missing) == 0 {
			return start, i-start+1 == len(p.Events)
		}
	}
	return 0, false
}

// Parse reads the text form in the event with the given id. If the text is malformed or has another version,
// the result is one patch of unknown type, which every view skips.
func Parse(id, form string) Patches {
	var t textForm
	err := json.Unmarshal([]byte(form), &t)
	if err == nil && t.Version != version {
		err = errors.New("another version")
	}
	var out Patches
	for _, p := range t.Patches {
		r, parseErr := patch.ParseRecord(p.Patch)
		if parseErr != nil || r.Patch == nil {
			err = errors.New("not a patch")
			break
		}
		var defect *patch.FieldError
		if errors.As(r.Patch.Validate(), &defect) && defect.Flaw == patch.UnknownType {
			out.unknown = true
		}
		out.list = append(out.list, placedPatch{r.Patch, p.Place})
	}
	if err != nil {
		unknown, _ := json.Marshal(map[string]string{"id": id, "patchType": fmt.Sprintf("portable, version %d", t.Version)})
		r, _ := patch.ParseRecord(unknown)
		return Patches{list: []placedPatch{{patch: r.Patch}}, unknown: true}
	}
	return out
}

// IDs returns the ids of the patches.
func (p Patches) IDs() (ids []string) {
	for _, l := range p.list {
		ids = append(ids, l.patch.ID())
	}
	return ids
}

// Resolve returns the patches with their indices in a view. The indices of a patch refer to the view after the
// preceding patches. If a revert restores events, the view needs their records, which the caller supplies with
// [fold.View.WithRecords].
//
// If a patch cannot be applied, ok is false. The result then contains placeholders with the same ids, which
// every view skips.
func (p Patches) Resolve(v fold.View) (patches []*patch.PatchEvent, ok bool) {
	if p.unknown {
		return p.placeholders(), false
	}
	before := v
	var records []patch.Record
	for _, l := range p.list {
		resolved, valid := l.resolve(v)
		if !valid {
			return p.placeholders(), false
		}
		records = append(records, patch.Record{Seq: v.Seq() + 1, Patch: resolved})
		next, err := before.Apply(records...)
		if err != nil || next.SkippedCount() > v.SkippedCount() {
			return p.placeholders(), false
		}
		patches, v = append(patches, resolved), next
	}
	return patches, true
}

func (l placedPatch) resolve(v fold.View) (_ *patch.PatchEvent, ok bool) {
	p := l.patch.WithBase(v.PatchSeq())
	switch p.Type() {
	case patch.Splice, patch.Summarise:
		if l.place == nil || p.Count() != len(l.place.Events) {
			return nil, false
		}
		start, ok := l.place.startIn(v)
		if ok && start != p.Start() {
			p, ok = withStart(p, start)
		}
		return p, ok
	case patch.TruncateBefore:
		if l.place == nil {
			return nil, false
		}
		start, ok := l.place.startIn(v)
		first, found := v.Find(p.EventID())
		return p, ok && found && start == 0 && first == len(l.place.Events)
	}
	return p, true
}

func withStart(p *patch.PatchEvent, start int) (*patch.PatchEvent, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(p.String()), &fields) != nil {
		return nil, false
	}
	fields["start"] = json.RawMessage(strconv.Itoa(start))
	moved, err := json.Marshal(fields)
	if err != nil {
		return nil, false
	}
	r, err := patch.ParseRecord(moved)
	return r.Patch, err == nil
}

// placeholders returns patches with the same ids that no view can apply.
func (p Patches) placeholders() (out []*patch.PatchEvent) {
	for _, l := range p.list {
		skipped := l.patch
		if !p.unknown || skipped.Validate() == nil {
			skipped = patch.NewSplice(-1, 1).WithID(skipped.ID()).WithAuthor(skipped.Author()).WithTimestamp(skipped.Timestamp()).WithGroup(skipped.Group())
		}
		out = append(out, skipped)
	}
	return out
}
