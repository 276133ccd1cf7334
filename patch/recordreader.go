package patch

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/patchlog-dev/patchlog/patch/internal/jsontext"
)

// recordReader reads what Scan has passed. After its first error it reads zeros.
type recordReader struct {
	dec *msgpack.Decoder
	err error
}

func (r *recordReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func read[T any](r *recordReader, decode func() (T, error)) T {
	var zero T
	if r.err != nil {
		return zero
	}
	v, err := decode()
	if err != nil {
		r.fail("%w", err)
		return zero
	}
	return v
}

func (r *recordReader) array() int   { return read(r, r.dec.DecodeArrayLen) }
func (r *recordReader) uint() uint64 { return read(r, r.dec.DecodeUint64) }
func (r *recordReader) int() int64   { return read(r, r.dec.DecodeInt64) }

func (r *recordReader) str() string {
	s := read(r, r.dec.DecodeString)
	if !utf8.ValidString(s) {
		r.fail("text %.40q is not UTF-8", s)
	}
	return s
}

// null reports whether a nil comes next, and passes it.
func (r *recordReader) null() bool {
	code := read(r, r.dec.PeekCode)
	if r.err != nil || code != 0xc0 {
		return false
	}
	if err := r.dec.DecodeNil(); err != nil {
		r.fail("%w", err)
	}
	return true
}

func readOptional[T any](r *recordReader, read func() T) *T {
	if r.null() || r.err != nil {
		return nil
	}
	v := read()
	return &v
}

func (r *recordReader) record() Record {
	if n := r.array(); n != 3 {
		r.fail("%d fields, want 3", n)
	}
	rec := Record{Seq: r.uint()}
	switch kind := r.uint(); {
	case r.err != nil:
	case kind == kindEvent:
		rec.Event = r.event()
	case kind == kindPatch:
		rec.Patch = r.patch()
	default:
		r.fail("unknown kind %d", kind)
	}
	return rec
}

func (r *recordReader) identity() identity {
	e := identity{id: r.str(), invocationID: r.str(), author: r.str(), branch: r.str(), scope: r.str()}
	if !r.null() {
		if n := r.array(); n != 2 {
			r.fail("%d fields in a time, want 2", n)
		}
		e.time, e.timed = time.Unix(r.int(), r.int()).UTC(), true
	}
	if err := e.check(); err != nil {
		r.fail("%w", err)
	}
	return e
}

// members reads the fields of an event, a patch or a value beside its identity.
func (r *recordReader) members(of *identity) (members []member, types []goType) {
	n := r.array()
	if n%2 != 0 {
		r.fail("a field without a value")
	}
	seen := map[string]bool{}
	for range n / 2 {
		m := member{r.str(), read(r, r.dec.DecodeBytes)}
		if r.err != nil {
			return nil, nil
		}
		if err := jsontext.CheckCompact(m.text); err != nil {
			r.fail("field %q: %s", clip(m.name), clip(err.Error()))
			return nil, nil
		}
		if seen[m.name] || of.has(m) {
			r.fail("field %q is there twice", clip(m.name))
		}
		seen[m.name] = true
		members = append(members, m)
	}
	n = r.array()
	if n%2 != 0 {
		r.fail("a Go type without a place")
	}
	for range n / 2 {
		types = append(types, goType{r.str(), r.str()})
		if r.err != nil {
			return nil, nil
		}
	}
	if err := checkTypes(members, types); err != nil {
		r.fail("%w", err)
	}
	return members, types
}

// has reports whether a record of this identity cannot have such a member: it would be
// read back as, or stand beside, a field that the record has already.
func (e *identity) has(m member) bool {
	switch m.name {
	case "id", "timestamp", "seq", "patchType":
		return true
	}
	for _, f := range e.texts() {
		if f.name == m.name {
			return f.value != "" || string(m.text) != "null" && string(m.text) != `""`
		}
	}
	return slices.Contains(snakeSpellings, m.name)
}

// checkTypes reports whether each Go type fits what is at its place.
func checkTypes(members []member, types []goType) error {
	n := notes{types: types}
	for _, m := range members {
		if inside := n.take(m.name); len(inside.types) > 0 {
			if _, err := decodeAny(jsontext.NewCursor(m.text), inside, numberAsFloat); err != nil {
				return err
			}
		}
	}
	return n.end()
}

func (r *recordReader) event() *Event {
	if n := r.array(); n != eventFields {
		r.fail("%d fields in an event, want %d", n, eventFields)
	}
	e := &Event{identity: r.identity()}
	e.members, e.types = r.members(&e.identity)
	if r.err != nil {
		return nil
	}
	if err := e.derive(); err != nil {
		r.fail("%w", err)
	}
	return e
}

func (r *recordReader) patch() *PatchEvent {
	if n := r.array(); n != patchFields {
		r.fail("%d fields in a patch, want %d", n, patchFields)
	}
	p := &PatchEvent{identity: r.identity(), typ: Type(r.str())}
	integer := func() int { return int(r.int()) }
	p.start = readOptional(r, integer)
	p.count = readOptional(r, integer)
	if !r.null() && r.err == nil {
		p.replacement, p.replaces = []*Event{}, true
		for range r.array() {
			e := r.event()
			if r.err != nil {
				return nil
			}
			p.replacement = append(p.replacement, e)
		}
	}
	p.eventID = readOptional(r, r.str)
	if !r.null() && r.err == nil {
		p.summary = r.event()
	}
	p.base = readOptional(r, r.uint)
	p.state = readOptional(r, func() StatePolicy { return StatePolicy(r.str()) })
	p.members, p.types = r.members(&p.identity)
	for _, m := range p.members {
		twice := slices.Contains(patchNames, m.name) && p.has(m.name) && m.name != "patchId"
		if d, taken := p.takeField(m); twice || taken && d == nil {
			r.fail("field %q is there twice", clip(m.name))
			return nil
		}
	}
	p.findDefect()
	return p
}
