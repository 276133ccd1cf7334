package patch

import (
	"slices"
	"strconv"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// patchField is a field that only patches have.
type patchField struct {
	name string
	want string                  // description of a valid value, for errors
	of   func(p *PatchEvent) any // returns a pointer to the value: **int, **uint64, **string, **Event or **[]*Event; nil means absent
}

// patchFields lists the fields in the order in which they are written.
var patchFields = []patchField{
	{"start", "an integer", func(p *PatchEvent) any { return &p.start }},
	{"count", "an integer", func(p *PatchEvent) any { return &p.count }},
	{"replacement", "an array of events", func(p *PatchEvent) any { return &p.replacement }},
	{"eventId", "a string", func(p *PatchEvent) any { return &p.eventID }},
	{"summaryEvent", "an event", func(p *PatchEvent) any { return &p.summary }},
	{"base", "an integer from 0 on", func(p *PatchEvent) any { return &p.base }},
	{"state", `"drop" or "keep"`, func(p *PatchEvent) any { return &p.state }},
	{"patchId", "a string", func(p *PatchEvent) any { return &p.patchID }},
	{"group", "a string", func(p *PatchEvent) any { return &p.group }},
}

func (f patchField) isSet(p *PatchEvent) bool {
	switch v := f.of(p).(type) {
	case **int:
		return *v != nil
	case **uint64:
		return *v != nil
	case **string:
		return *v != nil
	case **Event:
		return *v != nil
	default:
		return *v.(**[]*Event) != nil
	}
}

// appendTo appends the field to an unfinished JSON object. If the patch does not have the field, appendTo does
// nothing.
func (f patchField) appendTo(b []byte, p *PatchEvent) []byte {
	if !f.isSet(p) {
		return b
	}
	b = jsonvalue.AppendKey(b, f.name)
	switch v := f.of(p).(type) {
	case **int:
		return strconv.AppendInt(b, int64(**v), 10)
	case **uint64:
		return strconv.AppendUint(b, **v, 10)
	case **string:
		return jsonvalue.AppendQuote(b, **v)
	case **Event:
		return (*v).appendJSON(b)
	default:
		b = append(b, '[')
		for i, e := range **v.(**[]*Event) {
			if i > 0 {
				b = append(b, ',')
			}
			b = e.appendJSON(b)
		}
		return append(b, ']')
	}
}

// set sets the field from its JSON. If the JSON is valid, it returns nil.
func (f patchField) set(p *PatchEvent, text []byte) *FieldError {
	wrong := &FieldError{f.name, "want " + f.want + ", not " + clip(text), WrongField}
	switch v := f.of(p).(type) {
	case **int:
		n, err := strconv.Atoi(string(text))
		if err != nil {
			return wrong
		}
		*v = &n
	case **uint64:
		n, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil {
			return wrong
		}
		*v = &n
	case **string:
		if jsonvalue.KindOf(text) != jsonvalue.String {
			return wrong
		}
		s := jsonvalue.Unquote(text)
		*v = &s
	case **Event:
		e, d := nestedEvent(f.name, text)
		*v = e
		return d
	case **[]*Event:
		if jsonvalue.KindOf(text) != jsonvalue.Array {
			return wrong
		}
		events := []*Event{}
		for i, text := range jsonvalue.Elements(text) {
			e, d := nestedEvent(f.name+"/"+strconv.Itoa(i), text)
			if d != nil {
				return d
			}
			events = append(events, e)
		}
		*v = &events
	}
	return nil
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

// parsePatch makes a patch from the fields of a checked object. If a field that only patches have is malformed,
// the patch gets a defect. This is not an error.
func parsePatch(id identity, typ string, fields []byte) (*PatchEvent, error) {
	p := &PatchEvent{Envelope: Envelope{identity: id, json: fields}, typ: Type(typ)}
	if err := id.check(); err != nil {
		return nil, err
	}
	n := 0
	for name, v := range jsonvalue.Members(fields) {
		if n++; n > MaxFields+len(patchFields) {
			return nil, tooMany("", "fields", MaxFields)
		}
		if name == "replacement" {
			events := 0
			for range jsonvalue.Elements(v) {
				if events++; events > MaxReplacements {
					return nil, tooMany(name, "events", MaxReplacements)
				}
			}
		}
	}
	p.parseFields()
	return p, p.checkFields()
}

// parseFields parses the fields that only patches have. It removes the well-formed fields from the patch's JSON,
// and sets the defect to the first malformed field. A null field counts as absent and stays in the JSON.
func (p *PatchEvent) parseFields() {
	p.defect = nil
	p.json = nilIfEmpty(jsonvalue.Edit(p.json, func(name string, text []byte) []byte {
		i := slices.IndexFunc(patchFields, func(f patchField) bool { return f.name == name })
		if i < 0 || string(text) == "null" {
			return text
		}
		if d := patchFields[i].set(p, text); d != nil {
			if p.defect == nil {
				p.defect = d
			}
			return text
		}
		return nil
	}))
}

// checkFields returns an error if the patch has more than [MaxFields] fields.
func (p *PatchEvent) checkFields() error {
	n := 0
	for range p.Fields() {
		n++
	}
	if n > MaxFields {
		return tooMany("", "fields", MaxFields)
	}
	return nil
}
