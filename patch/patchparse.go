package patch

import (
	"math"
	"strconv"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// parsePatch makes a patch of a checked object's fields. Malformed fields of its own
// make a defect, not an error.
func parsePatch(id identity, typ string, others []byte) (*PatchEvent, error) {
	p := &PatchEvent{Envelope: Envelope{identity: id}, typ: Type(typ)}
	if err := id.check(); err != nil {
		return nil, err
	}
	var err error
	p.json = jsonvalue.Edit(others, func(name string, v []byte) []byte {
		if name == "replacement" {
			n := 0
			for range jsonvalue.Elements(v) {
				n++
			}
			if n > MaxReplacements {
				err = tooMany(name, "events", MaxReplacements)
				return v
			}
		}
		d, taken := p.takeField(name, v)
		if taken && d == nil {
			return nil
		}
		if p.defect == nil {
			p.defect = d
		}
		return v
	})
	if p.json = nilIfEmpty(p.json); err == nil {
		err = p.checkFields()
	}
	return p, err
}

// checkFields refuses more fields than a patch may have.
func (p *PatchEvent) checkFields() error {
	n := 0
	for range jsonvalue.Members(p.json) {
		n++
	}
	if n > MaxFields {
		return tooMany("", "fields", MaxFields)
	}
	return nil
}

// takeField reads one of the fields that a patch may have of its own. It says what is
// wrong with it, and whether the field is such a one.
func (p *PatchEvent) takeField(name string, v []byte) (d *FieldError, taken bool) {
	wrong := func(want string) (*FieldError, bool) {
		return &FieldError{name, "want " + want + ", not " + clip(v), WrongField}, true
	}
	if string(v) == "null" {
		return nil, false // as good as absent; kept as it came
	}
	switch name {
	case "start", "count":
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil || n > math.MaxInt || n < math.MinInt {
			return wrong("an integer")
		}
		i := int(n)
		if name == "start" {
			p.start = &i
		} else {
			p.count = &i
		}
	case "base":
		n, err := strconv.ParseUint(string(v), 10, 64)
		if err != nil {
			return wrong("an integer from 0 on")
		}
		p.base = &n
	case "eventId", "patchId", "group":
		if jsonvalue.KindOf(v) != jsonvalue.String {
			return wrong("a string")
		}
		id := jsonvalue.Unquote(v)
		switch name {
		case "eventId":
			p.eventID = &id
		case "patchId":
			p.patchID = &id
		default:
			p.group = &id
		}
	case "state":
		if jsonvalue.KindOf(v) != jsonvalue.String {
			return wrong(`"drop" or "keep"`)
		}
		s := StatePolicy(jsonvalue.Unquote(v))
		p.state = &s
	case "replacement":
		if jsonvalue.KindOf(v) != jsonvalue.Array {
			return wrong("an array of events")
		}
		events := []*Event{}
		for i, text := range jsonvalue.Elements(v) {
			e, d := nestedEvent(name+"/"+strconv.Itoa(i), text)
			if d != nil {
				return d, true
			}
			events = append(events, e)
		}
		p.replacement, p.replaces = events, true
	case "summaryEvent":
		e, d := nestedEvent(name, v)
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

// findDefect sets the defect to the first one among the fields of the patch's JSON.
func (p *PatchEvent) findDefect() {
	p.defect = nil
	for name, v := range jsonvalue.Members(p.json) {
		if d, _ := p.takeField(name, v); d != nil {
			p.defect = d
			return
		}
	}
}
