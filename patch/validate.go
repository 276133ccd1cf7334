package patch

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Flaw is a reason why a patch is malformed, or why it cannot be applied.
type Flaw string

// Flaws of malformed patches.
const (
	UnknownType  Flaw = "unknown type"
	MissingField Flaw = "missing field"
	WrongField   Flaw = "wrong-typed field"
	ForeignField Flaw = "field of another patch type"
	NestedPatch  Flaw = "patch inside a replacement"
	SummaryDelta Flaw = "summary with a state delta"
	NoContent    Flaw = "summary without content"
	NoEffect     Flaw = "splice that neither removes nor adds"
)

// Reasons why a well-formed patch cannot be applied to a log.
const (
	OutOfRange    Flaw = "out of range"
	EventNotFound Flaw = "event not found"
	PatchNotFound Flaw = "patch not found" // no applied patch has the patch id
	RevertBlocked Flaw = "revert blocked"  // a later patch must be reverted first
)

// Skip describes a patch in a log that could not be applied. A skipped patch changes nothing.
type Skip struct {
	Seq    uint64
	Reason Flaw
}

// fieldsByType lists the specific fields of each type, and how many of them are required. The required fields come
// first.
var fieldsByType = map[Type]struct {
	fields   []string
	required int
}{
	Splice:         {[]string{"start", "count", "replacement"}, 2},
	TruncateBefore: {[]string{"eventId"}, 1},
	Summarise:      {[]string{"start", "count", "summaryEvent"}, 3},
	Pin:            {[]string{"eventId"}, 1},
	Unpin:          {[]string{"eventId"}, 1},
	Revert:         {[]string{"patchId"}, 1},
	Erase:          {nil, 0}, // the fields of a receipt are not in patchFields
}

// canHaveState reports whether patches of the type can have a state policy.
func (t Type) canHaveState() bool { return t == Splice || t == TruncateBefore || t == Summarise }

// Validate returns an error if the patch is malformed. It does not check whether indices and ids exist in a
// log; package fold does. The error is a *[FieldError].
func (p *PatchEvent) Validate() error {
	if d := p.validate(); d != nil {
		return d
	}
	return nil
}

func (p *PatchEvent) validate() *FieldError {
	if p == nil {
		return &FieldError{"patch", "the patch is nil", MissingField}
	}
	typeFields, ok := fieldsByType[p.typ]
	if !ok {
		return &FieldError{"patchType", fmt.Sprintf("unknown type %q; want splice, truncate_before, summarise, pin, unpin, revert or erase", clip(string(p.typ))), UnknownType}
	}
	if p.defect != nil {
		return p.defect
	}
	if err := p.identity.check(); err != nil {
		return &FieldError{err.Field, err.Problem, WrongField}
	}
	for _, f := range []struct{ name, value string }{{"eventId", p.EventID()}, {"patchId", p.PatchID()}, {"group", p.Group()}} {
		if !utf8.ValidString(f.value) {
			return &FieldError{f.name, "the text is not valid UTF-8", WrongField}
		}
	}
	for _, f := range patchFields {
		if f.name == "base" || f.name == "group" || f.name == "state" && p.typ.canHaveState() {
			continue
		}
		i := slices.Index(typeFields.fields, f.name)
		switch has := f.isSet(p); {
		case has && i < 0:
			return &FieldError{f.name, fmt.Sprintf("a patch of type %s has no such field", p.typ), ForeignField}
		case !has && i >= 0 && i < typeFields.required:
			return &FieldError{f.name, fmt.Sprintf("a patch of type %s requires this field", p.typ), MissingField}
		}
	}
	for _, name := range []string{"content", "actions", "partial"} {
		if p.field(name) != nil {
			return &FieldError{name, "a patch has no such field; it is never visible and sets no state", ForeignField}
		}
	}
	if p.group != nil && *p.group == "" {
		return &FieldError{"group", "the group is empty; omit the field if the patch has no group", WrongField}
	}
	if p.state != nil && p.StatePolicy() != Drop && p.StatePolicy() != Keep {
		return &FieldError{"state", fmt.Sprintf("%q is neither \"drop\" nor \"keep\"", clip(*p.state)), WrongField}
	}
	events := deref(p.replacement)
	if n := len(events); n > MaxReplacements {
		return &FieldError{"replacement", fmt.Sprintf("the replacement has %d events; the maximum is %d", n, MaxReplacements), WrongField}
	}
	for i, e := range events {
		if e.Partial() {
			return &FieldError{fmt.Sprintf("replacement/%d", i), "a partial event is never logged", WrongField}
		}
	}
	switch p.typ {
	case Splice:
		if *p.count == 0 && len(events) == 0 {
			return &FieldError{"count", "the count is 0 and there is no replacement, so the patch has no effect", NoEffect}
		}
	case Erase:
		if _, d := p.parseErasure(); d != nil {
			return d
		}
	case Summarise:
		switch {
		case p.summary.index.setsState():
			return &FieldError{"summaryEvent/actions/stateDelta", "a summary cannot change the state; use the patch's state policy", SummaryDelta}
		case !p.summary.SaysSomething():
			return &FieldError{"summaryEvent/content", "the summary has no content for the model", NoContent}
		case p.summary.Partial():
			return &FieldError{"summaryEvent/partial", "a partial event is never logged", WrongField}
		}
	}
	return nil
}
