package adk

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Keys of custom metadata in an event that carries patches: the patches, as one text, since
// bases make floats of integers; and what a compaction says of itself, under ADK's name,
// with the figures beside it, since ADK's form has no room for them.
const (
	carrierKey = "_patchlog"
	figuresKey = "patchlog"
)

// carrierVersion is of the form and the meaning of what a carrier says.
const carrierVersion = 1

// carrier is an event of a base that carries patches of one call: all of them apply, or
// none.
type carrier struct {
	id      string
	time    time.Time
	patches []carriedPatch
	unknown bool // of a newer version, or with a patch of a type that is not known
}

// carriedPatch is a patch, and where it applies. Its indices are those that its author saw.
type carriedPatch struct {
	patch *patch.PatchEvent
	place *place // nil: the patch names what it is about by id
}

// carrierText is the text form of a carrier's patches.
type carrierText struct {
	Version int           `json:"version"`
	Patches []carriedText `json:"patches"`
}

type carriedText struct {
	Patch json.RawMessage `json:"patch"`
	Place *place          `json:"place,omitempty"`
}

// compare orders carriers by what they say alone, so that whoever reads a base in whatever
// order has the same order of patches.
func (c *carrier) compare(d *carrier) int {
	return cmp.Or(c.time.Compare(d.time), strings.Compare(c.id, d.id))
}

// names reports whether the carrier cannot be judged without the event with the id.
func (c *carrier) names(id string) bool {
	for _, p := range c.patches {
		if p.patch.EventID() == id || p.place != nil && p.place.names(id) {
			return true
		}
	}
	return false
}

// carry makes the event that carries patches which were made from a view, one after the
// other. shared is state that the patches' events set in the scopes that sessions share.
func carry(v fold.View, id string, at time.Time, patches []*patch.PatchEvent) (*session.Event, error) {
	text := carrierText{Version: carrierVersion}
	shared := map[string]any{}
	for i, p := range patches {
		raw, err := p.MarshalJSON()
		if err != nil {
			return nil, err
		}
		place, err := placeOf(v, p)
		if err != nil {
			return nil, err
		}
		text.Patches = append(text.Patches, carriedText{raw, place})
		r := patch.Record{Seq: v.Seq() + 1, Patch: p}
		for _, e := range r.Events() {
			for c := range e.SharedChanges() {
				shared[c.Key] = c.Value.Any()
			}
		}
		if i == len(patches)-1 {
			break // nobody asks what the last one leaves
		}
		if v, err = v.Apply(r); err != nil {
			return nil, err
		}
	}
	metadata := map[string]any{}
	if c, figures := summarised(patches); c != nil {
		metadata[metadataRecord] = c
		if figures != nil {
			metadata[figuresKey] = figures
		}
	}
	said, err := jsonOf(text)
	if err != nil {
		return nil, err
	}
	metadata[carrierKey] = string(said)
	e := &session.Event{
		// ADK takes the author of the newest event that is not the user's for the agent
		// to go on with, and says so where it knows none of that name.
		ID: id, InvocationID: id, Author: userAuthor, Timestamp: at,
		LLMResponse: model.LLMResponse{CustomMetadata: metadata},
	}
	if len(shared) > 0 {
		e.Actions.StateDelta = shared
	}
	return e, nil
}

// summarised returns what patches of compaction say of themselves, if they put in one
// summary, as ADK writes it, and their figures.
func summarised(patches []*patch.PatchEvent) (compaction map[string]any, figures any) {
	for _, p := range patches {
		for _, e := range p.NewEvents() {
			c, err := e.Compaction()
			if err != nil || c == nil {
				continue
			}
			if compaction != nil {
				return nil, nil
			}
			raw, err := json.Marshal(c)
			if err != nil || json.Unmarshal(raw, &compaction) != nil {
				return nil, nil
			}
		}
		if own := p.CustomMetadata()[figuresKey]; own != nil && figures == nil {
			figures = own
		}
	}
	return compaction, figures
}

// carrierOf returns the carrier that an event of a base is, or nil if it is none. An event
// with content is none, so that nothing that was said can be lost.
func carrierOf(e *session.Event) *carrier {
	said, ok := e.CustomMetadata[carrierKey].(string)
	if !ok || e.Content != nil {
		return nil
	}
	c := &carrier{id: e.ID, time: e.Timestamp}
	var text carrierText
	if err := json.Unmarshal([]byte(said), &text); err != nil || text.Version != carrierVersion {
		c.unknown = true
		c.patches = []carriedPatch{{patch: unknownPatch(e.ID, text.Version)}}
		return c
	}
	for _, t := range text.Patches {
		r, err := patch.ParseRecord(t.Patch)
		if err != nil || r.Patch == nil {
			c.unknown = true
			c.patches = []carriedPatch{{patch: unknownPatch(e.ID, text.Version)}}
			return c
		}
		var defect *patch.FieldError
		if errors.As(r.Patch.Validate(), &defect) && defect.Flaw == patch.UnknownType {
			c.unknown = true
		}
		c.patches = append(c.patches, carriedPatch{r.Patch, t.Place})
	}
	return c
}

// unknownPatch stands for patches that cannot be read.
func unknownPatch(id string, version int) *patch.PatchEvent {
	text, _ := json.Marshal(map[string]string{"id": id, "patchType": fmt.Sprintf("carried by version %d", version)})
	r, _ := patch.ParseRecord(text)
	return r.Patch
}

// on returns the patches as they apply to a view, one after the other, and the view after
// them. ok is false if one of them does not.
func (c *carrier) on(v fold.View) (patches []*patch.PatchEvent, after fold.View, ok bool) {
	if c.unknown {
		return nil, v, false
	}
	for _, cp := range c.patches {
		p, ok := cp.on(v)
		if !ok {
			return nil, v, false
		}
		next, err := v.Apply(patch.Record{Seq: v.Seq() + 1, Patch: p})
		if err != nil || next.SkippedCount() > v.SkippedCount() {
			return nil, v, false
		}
		patches, v = append(patches, p), next
	}
	return patches, v, true
}

// on returns the patch with its indices as they are in a view.
func (c carriedPatch) on(v fold.View) (*patch.PatchEvent, bool) {
	p := c.patch.WithBase(v.PatchSeq())
	switch p.Type() {
	case patch.Splice, patch.Summarise:
		if c.place == nil || p.Count() != len(c.place.Events) {
			return nil, false
		}
		start, ok := c.place.in(v)
		there := true
		if start != p.Start() {
			p, there = withStart(p, start)
		}
		return p, ok && there
	case patch.TruncateBefore:
		if c.place == nil || c.place.After != p.EventID() {
			return nil, false
		}
		start, ok := c.place.in(v)
		first, there := v.Find(p.EventID())
		return p, ok && there && start == 0 && first == len(c.place.Events)
	}
	return p, true
}

// skipped returns the patches in a form that a fold skips, whatever the view: one that does
// not stand where it says must not apply to what stands there.
func (c *carrier) skipped() []*patch.PatchEvent {
	var out []*patch.PatchEvent
	for _, cp := range c.patches {
		p := cp.patch
		if !c.unknown || p.Validate() == nil {
			var ok bool
			if p, ok = withStart(cp.patch, -1); !ok || p.Type() != patch.Splice && p.Type() != patch.Summarise {
				p = patch.NewSplice(-1, 1).WithID(p.ID()).WithAuthor(p.Author()).WithTimestamp(p.Timestamp()).WithGroup(p.Group())
			}
		}
		out = append(out, p)
	}
	return out
}

// withStart returns the patch with another start, and p and false if it is not one that a carrier can
// hold.
func withStart(p *patch.PatchEvent, start int) (*patch.PatchEvent, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(p.String()), &fields) != nil {
		return p, false
	}
	fields["start"] = json.RawMessage(strconv.Itoa(start))
	text, err := jsonOf(fields)
	if err != nil {
		return p, false
	}
	r, err := patch.ParseRecord(text)
	if err != nil {
		return p, false
	}
	return r.Patch, true
}

// jsonOf returns the JSON of a value, without escapes that only HTML needs.
func jsonOf(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
