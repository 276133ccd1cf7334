package patch

import (
	"math"
	"strconv"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// parsePatch makes a patch of a checked object's fields. Malformed fields of its own
// make a defect, not an error.
func parsePatch(id identity, typ string, members []member) (*PatchEvent, error) {
	p := &PatchEvent{Envelope: Envelope{identity: id}, typ: Type(typ)}
	if err := id.check(); err != nil {
		return nil, err
	}
	for _, m := range members {
		if m.name == "replacement" && jsontext.KindOf(m.text) == jsontext.Array {
			n := 0
			for range jsontext.Elements(m.text) {
				n++
			}
			if n > MaxReplacements {
				return nil, tooMany(m.name, "events", MaxReplacements)
			}
		}
		if d, taken := p.takeField(m); !taken || d != nil {
			p.members = append(p.members, m)
			if p.defect == nil {
				p.defect = d
			}
		}
	}
	return p, nil
}

// takeField reads one of the fields that a patch may have of its own. It says what is
// wrong with it, and whether the field is such a one.
func (p *PatchEvent) takeField(m member) (d *FieldError, taken bool) {
	wrong := func(want string) (*FieldError, bool) {
		return &FieldError{m.name, "want " + want + ", not " + clip(m.text), WrongField}, true
	}
	if string(m.text) == "null" {
		return nil, false // as good as absent; kept as it came
	}
	switch m.name {
	case "start", "count":
		n, err := strconv.ParseInt(string(m.text), 10, 64)
		if err != nil || n > math.MaxInt || n < math.MinInt {
			return wrong("an integer")
		}
		i := int(n)
		if m.name == "start" {
			p.start = &i
		} else {
			p.count = &i
		}
	case "base":
		n, err := strconv.ParseUint(string(m.text), 10, 64)
		if err != nil {
			return wrong("an integer from 0 on")
		}
		p.base = &n
	case "eventId", "patchId", "group":
		if jsontext.KindOf(m.text) != jsontext.String {
			return wrong("a string")
		}
		id := jsontext.Unquote(m.text)
		switch m.name {
		case "eventId":
			p.eventID = &id
		case "patchId":
			p.patchID = &id
		default:
			p.group = &id
		}
	case "state":
		if jsontext.KindOf(m.text) != jsontext.String {
			return wrong(`"drop" or "keep"`)
		}
		s := StatePolicy(jsontext.Unquote(m.text))
		p.state = &s
	case "replacement":
		if jsontext.KindOf(m.text) != jsontext.Array {
			return wrong("an array of events")
		}
		events := []*Event{}
		for i, text := range jsontext.Elements(m.text) {
			e, d := nestedEvent(m.name+"/"+strconv.Itoa(i), text)
			if d != nil {
				return d, true
			}
			events = append(events, e)
		}
		p.replacement, p.replaces = events, true
	case "summaryEvent":
		e, d := nestedEvent(m.name, m.text)
		if d != nil {
			return d, true
		}
		p.summary = e
	default:
		return nil, false
	}
	return nil, true
}

func nestedEvent(field string, text []byte) (*Event, *FieldError) {
	rec, err := parseChecked(text)
	switch {
	case err != nil:
		return nil, &FieldError{field, err.Error(), WrongField}
	case rec.Patch != nil:
		return nil, &FieldError{field, "a patch cannot be put into the visible log", NestedPatch}
	case rec.Seq != 0:
		return nil, &FieldError{field, "an event inside a patch has no seq", WrongField}
	}
	return rec.Event, nil
}

// findDefect sets the defect to the first one among the members.
func (p *PatchEvent) findDefect() {
	p.defect = nil
	for _, m := range p.members {
		if d, _ := p.takeField(m); d != nil {
			p.defect = d
			return
		}
	}
}
