//go:build linux

package power

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// script is what processes do, one after another if they are killed.
type script struct {
	Durability store.Durability
	Phases     []phase
}

// phase is what goroutines do beside each other, on one opening of the store.
type phase struct {
	Lanes  [][]*op
	Closed []*op // afterwards, with the store closed; if there are any, it is opened anew
	Reopen bool
}

func (s *script) ops() (out []*op) {
	for _, p := range s.Phases {
		for _, lane := range p.Lanes {
			out = append(out, lane...)
		}
		out = append(out, p.Closed...)
	}
	slices.SortFunc(out, func(a, b *op) int { return a.N - b.N })
	return out
}

// drawn is a session as far as a script has got.
type drawn struct {
	key         string
	life        int
	live, fork  bool
	patches     []string // their ids
	invocations []string
	events      []string
}

// writing draws a script.
type writing struct {
	*rand.Rand
	tag      string // unique; names begin with it
	n        int
	sessions []*drawn
	files    []string
}

// write draws a script for a store that has the given sessions.
func write(random *rand.Rand, tag string, there []string) script {
	w := &writing{Rand: random, tag: tag}
	for _, key := range there {
		w.sessions = append(w.sessions, &drawn{key: key, live: true})
	}
	first := phase{Lanes: [][]*op{nil}}
	for range 2 {
		s := w.session()
		first.Lanes[0] = append(first.Lanes[0], w.create(s), w.append(s))
	}
	out := script{Phases: []phase{first}}
	for range 2 + w.IntN(3) {
		out.Phases = append(out.Phases, w.phase())
	}
	return out
}

func (w *writing) chance(percent int) bool { return w.IntN(100) < percent }

func (w *writing) phase() (p phase) {
	var shared []*drawn
	for _, s := range w.sessions {
		if s.live {
			shared = append(shared, s)
		}
	}
	w.Shuffle(len(shared), func(i, j int) { shared[i], shared[j] = shared[j], shared[i] })
	if len(shared) > 2 { // one that is this lane's own
		p.Lanes = append(p.Lanes, w.end(shared[0]))
		shared = shared[1:]
	}
	for range 1 + w.IntN(4) {
		p.Lanes = append(p.Lanes, w.crowd(shared))
	}
	p.Lanes = append(p.Lanes, w.life(shared))
	if w.chance(50) {
		p.Lanes = append(p.Lanes, w.back())
	}
	if w.chance(50) {
		p.Lanes = append(p.Lanes, w.erase())
	}
	if w.chance(8) {
		p.Lanes = append(p.Lanes, w.long())
	}
	if w.IntN(400) == 0 {
		p.Lanes = append(p.Lanes, w.large())
	}
	var rest []*op
	for _, kind := range []string{kindVacuum, kindCopy} {
		if w.chance(35) {
			rest = append(rest, w.op(kind, nil))
		}
	}
	if rest != nil {
		p.Lanes = append(p.Lanes, rest)
	}
	p.Reopen = w.chance(30)
	if w.chance(25) {
		o := w.op(kindBackup, nil)
		if o.File = fmt.Sprint("backup", w.IntN(2), ".db"); !slices.Contains(w.files, o.File) {
			w.files = append(w.files, o.File)
		}
		p.Closed = append(p.Closed, o)
	}
	if w.chance(10) {
		p.Closed = append(p.Closed, w.op(kindCommand, nil))
	}
	return p
}

// op makes an op on a session. Ops on one session that are not of one kind of lane have
// their numbers in the order in which they are made.
func (w *writing) op(kind string, s *drawn) *op {
	o := &op{N: w.n, Name: fmt.Sprintf("%s.%d", w.tag, w.n), Kind: kind}
	if s != nil {
		o.Session, o.Life = s.key, s.life
	}
	w.n++
	return o
}

func (w *writing) session() *drawn {
	s := &drawn{key: fmt.Sprintf("app/user/%s-s%d", w.tag, len(w.sessions))}
	w.sessions = append(w.sessions, s)
	return s
}

func (w *writing) begin(s *drawn) {
	*s = drawn{key: s.key, life: s.life + 1, live: true}
}

func (w *writing) create(s *drawn) *op {
	w.begin(s)
	o := w.op(kindCreate, s)
	if w.chance(30) {
		o.Shared = w.scope() + o.Name
	}
	return o
}

func (w *writing) scope() string {
	if w.chance(50) {
		return "app:"
	}
	return "user:"
}

func (w *writing) delete(s *drawn) *op {
	s.live = false
	return w.op(kindDelete, s)
}

func (w *writing) fork(from, to *drawn) *op {
	w.begin(to)
	to.fork = true
	to.events = slices.Clone(from.events)
	o := w.op(kindFork, to)
	o.From = from.key
	return o
}

// size draws how long a text is: short, of some pages, or of many.
func (w *writing) size() int {
	switch n := w.IntN(100); {
	case n < 70:
		return w.IntN(300)
	case n < 92:
		return w.IntN(2000)
	case n < 99:
		return w.IntN(9000)
	}
	return w.IntN(40_000)
}

func (w *writing) text(size int) string {
	b := make([]byte, size*3/4)
	for i := range b {
		b[i] = byte(w.Uint32())
	}
	return base64.StdEncoding.EncodeToString(b)
}

func (w *writing) event(o *op, s *drawn, size int, state map[string]any) *patch.Event {
	f := patch.Fields{
		ID: fmt.Sprintf("%s/e%d", o.Name, len(s.events)), Author: "user", Timestamp: clock,
		Content: patch.Text("user", w.text(size)), Actions: patch.Actions{StateDelta: state},
	}
	if s.invocations != nil {
		f.InvocationID = s.invocations[len(s.invocations)-1]
	}
	e, err := patch.NewEvent(f)
	if err != nil {
		panic(err)
	}
	s.events = append(s.events, f.ID)
	return e
}

func textOf(v json.Marshaler) json.RawMessage {
	text, err := v.MarshalJSON()
	if err != nil {
		panic(err)
	}
	return text
}

func (w *writing) append(s *drawn) *op {
	o := w.op(kindAppend, s)
	if w.chance(30) {
		o.Shared = w.scope() + o.Name
	}
	for i := range 1 + w.IntN(4) {
		state := map[string]any{"k": o.Name}
		if i == 0 && o.Shared != "" {
			state[o.Shared] = o.Name
		}
		o.Records = append(o.Records, textOf(w.event(o, s, w.size(), state)))
	}
	return o
}

func (w *writing) imports(s *drawn, n, size int) *op {
	o := w.op(kindImport, s)
	for range n {
		o.Records = append(o.Records, textOf(w.event(o, s, w.IntN(size+1), nil)))
	}
	return o
}

func (w *writing) patch(s *drawn) *op {
	o := w.op(kindPatch, s)
	var patches []*patch.PatchEvent
	switch n := w.IntN(10); {
	case n < 3:
		patches = append(patches, patch.NewSplice(0, 1, w.event(o, s, w.size(), nil)))
	case n < 5:
		patches = append(patches, patch.NewSummarise(0, 2, w.event(o, s, w.size(), nil)))
	case n < 7 && len(s.events) > 0:
		patches = append(patches, patch.NewPin(s.events[w.IntN(len(s.events))]))
	case n < 8 && len(s.patches) > 0:
		patches = append(patches, patch.NewRevert(s.patches[w.IntN(len(s.patches))]))
	default:
		patches = append(patches, patch.NewSplice(1, 1).WithState(patch.Keep), patch.NewSummarise(0, 1, w.event(o, s, w.size(), nil)))
	}
	for i, p := range patches {
		p = p.WithID(fmt.Sprintf("%s/p%d", o.Name, i)).WithTimestamp(clock)
		if len(patches) > 1 {
			p = p.WithGroup(o.Name)
		}
		s.patches = append(s.patches, p.ID())
		o.Records = append(o.Records, textOf(p))
	}
	return o
}

// crowd writes to sessions to which others write too.
func (w *writing) crowd(shared []*drawn) (out []*op) {
	for range 1 + w.IntN(5) {
		s := shared[w.IntN(len(shared))]
		switch n := w.IntN(10); {
		case n < 7:
			out = append(out, w.append(s))
		case n < 9:
			out = append(out, w.patch(s))
		default:
			out = append(out, w.imports(s, 1+w.IntN(3), 500))
		}
	}
	return out
}

// life makes sessions, forks and deletes them, and makes them again.
func (w *writing) life(shared []*drawn) (out []*op) {
	s := w.session()
	if w.chance(50) {
		out = append(out, w.create(s), w.append(s))
	} else {
		w.begin(s)
		out = append(out, w.imports(s, 1+w.IntN(20), 400))
	}
	out = append(out, w.patch(s))
	from := s
	if other := shared[w.IntN(len(shared))]; w.chance(50) && !other.fork {
		from = other
	}
	fork := w.session()
	out = append(out, w.fork(from, fork), w.append(fork))
	for _, s := range []*drawn{s, fork} {
		if !w.chance(50) {
			continue
		}
		if out = append(out, w.delete(s)); w.chance(50) {
			out = append(out, w.create(s), w.append(s))
		}
	}
	return out
}

// end deletes a session, which it may write to before and create again.
func (w *writing) end(s *drawn) (out []*op) {
	if w.chance(50) {
		out = append(out, w.append(s))
	}
	if out = append(out, w.delete(s)); w.chance(50) {
		out = append(out, w.create(s), w.append(s))
	}
	return out
}

// back takes patches back, and rewinds.
func (w *writing) back() []*op {
	s := w.session()
	out := []*op{w.create(s)}
	for range 3 {
		s.invocations = append(s.invocations, fmt.Sprintf("%s-i%d", s.key, len(s.invocations)))
		out = append(out, w.append(s))
	}
	back := func(kind, of string) *op {
		o := w.op(kind, s)
		o.Of = of
		return o
	}
	out = append(out, w.patch(s), back(kindTakeBack, s.patches[len(s.patches)-1]), w.patch(s))
	return append(out, back(kindRewind, s.invocations[1+w.IntN(2)]), w.append(s))
}

// erase erases some of what it writes, which now and then takes more than one commit.
func (w *writing) erase() []*op {
	s := w.session()
	out := []*op{w.create(s), w.append(s), w.append(s)}
	if w.chance(20) {
		out = append(out, w.imports(s, 70+w.IntN(100), 200))
	}
	out = append(out, w.patch(s))
	for range 1 + w.IntN(2) {
		o := w.op(kindErase, s)
		from := w.IntN(len(s.events))
		o.Erases = slices.Clone(s.events[from:])
		out = append(out, o, w.append(s))
	}
	return out
}

// long makes sessions that take more than one commit to copy and to delete.
func (w *writing) long() []*op {
	s, fork := w.session(), w.session()
	w.begin(s)
	out := []*op{w.imports(s, 1100+w.IntN(400), 30), w.fork(s, fork), w.delete(s)}
	if w.chance(50) {
		out = append(out, w.delete(fork))
	}
	return out
}

// large makes the file grow more than once.
func (w *writing) large() []*op {
	s := w.session()
	out := []*op{w.create(s)}
	for range 3 {
		o := w.op(kindAppend, s)
		o.Records = append(o.Records, textOf(w.event(o, s, 6<<20, nil)))
		out = append(out, o)
	}
	return append(out, w.delete(s))
}
