package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Content is what a store holds.
type Content struct {
	sessions map[string]*session
	counters map[string]int64 // by shared key
}

// session is what is known of a session.
type session struct {
	creation string
	initial  map[string]patch.Value
	records  []patch.Record
	sums     []Entry // of the records
}

// Read reads all that a store holds.
func Read(ctx context.Context, s *store.Store) (Content, error) {
	all := Content{sessions: map[string]*session{}, counters: map[string]int64{}}
	for info, err := range s.List(ctx, store.ListOptions{App: "kill"}) {
		if err != nil {
			return all, err
		}
		one := &session{creation: info.Creation}
		for r, err := range s.RawEvents(ctx, info.Key, 1) {
			if err != nil {
				return all, err
			}
			e, err := entryOf(r)
			if err != nil {
				return all, err
			}
			one.records, one.sums = append(one.records, r), append(one.sums, e)
		}
		var err error
		if one.initial, err = s.InitialState(ctx, info.Key); err != nil {
			return all, err
		}
		all.sessions[info.Key.Session] = one
		if len(all.counters) > 0 {
			continue
		}
		got, err := s.Get(ctx, info.Key)
		if err != nil {
			return all, err
		}
		for name, value := range got.Values() {
			if n, ok := value.Any().(int64); ok && patch.ScopeOf(name) != patch.ScopeSession {
				all.counters[name] = n
			}
		}
	}
	return all, nil
}

// Journal is what a process said: its calls, in the order in which they began, and what came of
// them. Each of both is a line.
type Journal struct {
	Calls   []Call
	Replies map[int]Reply // by call
	Lines   int

	began, ended map[int]int // lines, by call
}

// NewJournal returns an empty journal.
func NewJournal() *Journal {
	return &Journal{Replies: map[int]Reply{}, began: map[int]int{}, ended: map[int]int{}}
}

// Hear takes a line. One that says that something is wrong is an error.
func (j *Journal) Hear(l Line) error {
	switch {
	case l.Wrong != "":
		return errors.New(l.Wrong)
	case l.Try != nil:
		j.Calls = append(j.Calls, *l.Try)
		j.Lines++
		j.began[l.Try.N] = j.Lines
	case l.Reply != nil:
		j.End(*l.Reply)
	}
	return nil
}

// End takes what came of a call.
func (j *Journal) End(r Reply) {
	j.Replies[r.N] = r
	j.Lines++
	j.ended[r.N] = j.Lines
}

// Window returns between which lines a call was made.
func (j *Journal) Window(c Call) (from, to int) {
	to, ok := j.ended[c.N]
	if !ok {
		to = j.Lines
	}
	return j.began[c.N], to
}

// Pending returns the calls of which nobody knows what came.
func (j *Journal) Pending() []Call { return j.PendingAt(j.Lines, j.Lines) }

// PendingAt returns the calls that had begun by one line, and of which nobody knew by another
// what came.
func (j *Journal) PendingAt(from, to int) (calls []Call) {
	for _, c := range j.Calls {
		if j.began[c.N] <= to && !j.certain(c, from) {
			calls = append(calls, c)
		}
	}
	return calls
}

// certain reports whether it was known by a line what came of a call.
func (j *Journal) certain(c Call, line int) bool {
	at, ok := j.ended[c.N]
	kind := j.Replies[c.N].Kind
	return ok && at <= line && kind != "unknown" && (kind == "done" || c.Op != "erase") // which may end half way
}

// Cut returns the journal as it was by the given lines: of a call that had begun by to, it is
// known what came of it by from.
func (j *Journal) Cut(from, to int) *Journal {
	cut := NewJournal()
	cut.Lines = to
	for _, c := range j.Calls {
		if j.began[c.N] > to {
			break
		}
		cut.Calls = append(cut.Calls, c)
		cut.began[c.N] = j.began[c.N]
		if at, ok := j.ended[c.N]; ok && at <= from {
			cut.Replies[c.N], cut.ended[c.N] = j.Replies[c.N], at
		}
	}
	return cut
}

// judge is what [Judge] goes by.
type judge struct {
	*Journal
	before   Content
	now      Content
	from, to int

	problems []error
	by       map[string][]Call           // calls that have begun, by session
	erasing  map[string]*Call            // those that erase, by their receipts: of a session, its forks and what it is a fork of
	ledger   map[string]map[uint64]Entry // records that were acknowledged, by creation and seq
}

// Judge returns what is wrong with what a store has, if it had before what it is said to, and a
// process said since what is in the journal. What was acknowledged up to the line from of the
// journal must be there, and nothing that was begun after the line to.
func Judge(before Content, j *Journal, now Content, from, to int) error {
	return newJudge(before, j, now, from, to).judge()
}

func newJudge(before Content, j *Journal, now Content, from, to int) *judge {
	g := &judge{Journal: j, before: before, now: now, from: from, to: to, by: map[string][]Call{}, erasing: map[string]*Call{}, ledger: map[string]map[uint64]Entry{}}
	for _, s := range before.sessions {
		for _, e := range s.sums {
			g.note(s.creation, e)
		}
	}
	for _, c := range j.Calls {
		for _, e := range j.Replies[c.N].Records {
			g.note(c.Creation, e)
		}
		if j.began[c.N] <= to {
			g.by[c.Session] = append(g.by[c.Session], c)
			if c.Op == "erase" {
				g.erasing[c.Target] = &c
			}
		}
	}
	return g
}

func (g *judge) problem(session, format string, args ...any) {
	g.problems = append(g.problems, fmt.Errorf("%s: %s", session, fmt.Sprintf(format, args...)))
}

func (g *judge) note(creation string, e Entry) {
	if g.ledger[creation] == nil {
		g.ledger[creation] = map[uint64]Entry{}
	}
	if other, ok := g.ledger[creation][e.Seq]; ok && !other.same(e) {
		g.problem(creation, "two records were acknowledged as record %d", e.Seq)
	}
	g.ledger[creation][e.Seq] = e
}

// refused reports whether a call is known to have written nothing.
func (g *judge) refused(c Call) bool {
	r, ok := g.Replies[c.N]
	return ok && r.Kind != "done" && r.Kind != "unknown" && c.Op != "erase"
}

func (g *judge) judge() error {
	names := map[string]bool{}
	for name := range g.by {
		names[name] = true
	}
	for name := range maps.Keys(g.before.sessions) {
		names[name] = true
	}
	for name := range maps.Keys(g.now.sessions) {
		names[name] = true
	}
	for name := range names {
		if name != "" {
			g.session(name)
		}
	}
	for i := range Clients {
		for _, name := range counters(i) {
			g.counter(i, name)
		}
	}
	return join(g.problems)
}

// life is what a session may be: not there, or made by a call.
type life struct {
	creation string // "" if it is not known
	there    bool
	by       *Call // nil if it was there before
}

// may reports whether a session, or none, is what a life says. old are creations that are known.
func (l life) may(is *session, old map[string]bool) bool {
	if is == nil || !l.there {
		return l.there == (is != nil)
	}
	return l.creation == is.creation || l.creation == "" && !old[is.creation]
}

// lives follows what was done to a session's name, which is one client's matter. It returns what
// may be, and what is known to have been.
func (g *judge) lives(name string) (may []life, old map[string]bool) {
	may, old = []life{{}}, map[string]bool{}
	if s := g.before.sessions[name]; s != nil {
		may[0] = life{creation: s.creation, there: true}
		old[s.creation] = true
	}
	for _, c := range g.by[name] {
		var next life
		switch {
		case g.refused(c) || !c.makes() && c.Op != "delete":
			continue
		case c.makes():
			next = life{g.Replies[c.N].Creation, true, &c}
			old[next.creation] = true
		}
		if g.certain(c, g.from) {
			may = nil
		}
		may = append(may, next)
	}
	return may, old
}

func (g *judge) session(name string) {
	is := g.now.sessions[name]
	may, old := g.lives(name)
	i := slices.IndexFunc(may, func(l life) bool { return l.may(is, old) })
	switch {
	case i < 0 && is == nil:
		g.problem(name, "the session is lost, with %d records", len(g.ledger[may[0].creation]))
		return
	case i < 0:
		g.problem(name, "a session is there that is not to be: creation %s with %d records", is.creation, len(is.records))
		return
	case is == nil:
		return
	}
	from := g.whole(name, is, may[i])
	g.log(name, is, from)
}

// whole holds a session against the call that made it. It returns how many records it was made
// with.
func (g *judge) whole(name string, is *session, was life) int {
	c := was.by
	if c == nil {
		return len(g.before.sessions[name].records)
	}
	var offered []patch.Record
	n := len(c.Offered)
	switch c.Op {
	case "fork":
		n = int(c.At)
		for i, r := range is.records[:min(n, len(is.records))] {
			if e, ok := g.ledger[c.Of][r.Seq]; ok && !e.same(is.sums[i]) {
				g.problem(name, "record %d is not that of %s", r.Seq, c.Target)
			}
		}
		for n < len(is.records) && isReceipt(is.records[n]) { // of what had been erased before
			n++
		}
	default:
		var err error
		if offered, err = c.records(); err != nil {
			g.problem(name, "%v", err)
		}
	}
	if len(is.records) < n {
		g.problem(name, "it was made with %d records, and has %d", n, len(is.records))
		return len(is.records)
	}
	for i, o := range offered {
		if !patch.Same(is.records[i], o) {
			g.problem(name, "record %d is %v, and was to be %v", i+1, is.records[i], o)
		}
	}
	state, err := c.state()
	if err != nil {
		g.problem(name, "%v", err)
	}
	for key, value := range state {
		if patch.ScopeOf(key) == patch.ScopeSession && !value.(patch.Value).Equal(is.initial[key]) {
			g.problem(name, "its initial state has %v for %s, and not %v", is.initial[key], key, value)
		}
	}
	return n
}

// log holds a session's log against what was acknowledged and what was tried. The first records
// are those that it had at the beginning.
func (g *judge) log(name string, is *session, first int) {
	at := map[string]int{} // of records, by id
	ids := map[string]bool{}
	owned := make([]bool, len(is.records))
	for i, r := range is.records {
		if r.Seq != uint64(i)+1 {
			g.problem(name, "record %d is at place %d", r.Seq, i+1)
		}
		if e, ok := g.ledger[is.creation][r.Seq]; ok && !e.same(is.sums[i]) {
			g.problem(name, "record %d, which is %v, is not the one that was acknowledged", r.Seq, r)
		}
		for id := range r.IDs() {
			if ids[id] {
				g.problem(name, "id %s is there twice", id)
			}
			ids[id] = true
		}
		at[r.ID()] = i
		owned[i] = i < first || isReceipt(r) && g.erasing[r.ID()] != nil
		g.erased(name, is, i)
	}
	if s := g.before.sessions[name]; s != nil && s.creation == is.creation && len(is.records) < len(s.records) {
		g.problem(name, "of %d records that it had %d are left", len(s.records), len(is.records))
	}
	var drawn []Call // those whose ids are not known
	for _, c := range g.by[name] {
		if c.Op == "erase" {
			g.hasErased(name, c, is, at)
		}
		if c.Creation != is.creation || c.Creation == "" || c.adds() == 0 {
			continue
		}
		r, replied := g.Replies[c.N]
		places := g.places(name, c, is, at)
		switch {
		case g.refused(c) && len(places) > 0:
			g.problem(name, "call %d was refused (%s), and %d of its records are there", c.N, r.Err, len(places))
		case replied && r.Kind == "done":
			if len(r.Records) != c.adds() && c.Op != "import" && len(r.Records) != len(c.Offered) {
				g.problem(name, "call %d was acknowledged with %d records of %d", c.N, len(r.Records), c.adds())
			}
			places = places[:0]
			for _, e := range r.Records {
				if e.Seq <= uint64(len(is.records)) {
					places = append(places, int(e.Seq)-1)
				}
			}
			if len(r.Records) < c.adds() && len(places) == len(r.Records) { // a patch of its own stands behind
				for more := range c.adds() - len(r.Records) {
					if last := int(r.Records[len(r.Records)-1].Seq) + more; last < len(is.records) {
						places = append(places, last)
					}
				}
			}
			if n := len(places); n < c.adds() && (n > 0 || g.certain(c, g.from)) {
				g.problem(name, "call %d was acknowledged, and of its %d records %d are there", c.N, c.adds(), n)
			}
		case len(c.Offered) < c.adds() && !g.refused(c):
			drawn = append(drawn, c)
		}
		for k, i := range places {
			owned[i] = true
			if k > 0 && i != places[k-1]+1 {
				g.problem(name, "call %d: records %d and %d do not stand side by side", c.N, places[k-1]+1, i+1)
			}
		}
	}
	var left []int
	for i, one := range owned {
		if !one {
			left = append(left, i)
		}
	}
	switch {
	case len(left) == 0:
	case len(drawn) != 1:
		g.problem(name, "records are there that nobody wrote: %d of them, the first is %v", len(left), is.records[left[0]])
	case len(left) != drawn[0].adds() || left[0]+len(left) != len(is.records):
		g.problem(name, "of the %d records of call %d, a %s, there are %d, the first is record %d of %d",
			drawn[0].adds(), drawn[0].N, drawn[0].Op, len(left), left[0]+1, len(is.records))
	}
}

func isReceipt(r patch.Record) bool {
	if r.Patch == nil {
		return false
	}
	_, ok := r.Patch.Erasure()
	return ok
}

// erased holds a record that is erased, and was not before, against the call that erases it. With
// events go the patches that stand for them.
func (g *judge) erased(name string, is *session, i int) {
	r := is.records[i]
	receipt, gone := r.Erased()
	if before := g.before.sessions[name]; !gone || before != nil && before.creation == is.creation && i < len(before.sums) && before.sums[i].Gone {
		return
	}
	c := g.erasing[receipt]
	if r.Patch == nil && c != nil && !slices.Contains(c.Seqs, r.Seq) {
		g.problem(name, "record %d is erased, and call %d erases %v", r.Seq, c.N, c.Seqs)
	}
}

// hasErased holds a session against a call that erases: it has done all of that if it says so, and
// if there is no receipt, nothing.
func (g *judge) hasErased(name string, c Call, is *session, at map[string]int) {
	_, receipt := at[c.Target]
	if c.Creation != is.creation || !receipt && !g.certain(c, g.from) {
		return
	}
	for i, r := range is.records {
		by, gone := r.Erased()
		switch {
		case gone && by == c.Target && !receipt:
			g.problem(name, "record %d is erased by call %d, which has no receipt", r.Seq, c.N)
		case !gone && g.certain(c, g.from) && slices.Contains(c.Seqs, r.Seq) && !isReceipt(r):
			g.problem(name, "call %d has erased record %d, which is %v", c.N, r.Seq, is.records[i])
		}
	}
	if r := g.Replies[c.N]; g.certain(c, g.from) && len(r.Records) > 0 && !receipt {
		g.problem(name, "the receipt of call %d is lost", c.N)
	}
}

// places returns where the records are that a call has ids for: all of them or none, each with
// what was offered. Those of a call that draws more are left to it.
func (g *judge) places(name string, c Call, is *session, at map[string]int) (places []int) {
	offered, err := c.records()
	if err != nil {
		g.problem(name, "%v", err)
	}
	for _, o := range offered {
		i, ok := at[o.ID()]
		if !ok {
			continue
		}
		places = append(places, i)
		if !patch.Same(is.records[i], o) {
			g.problem(name, "record %d is %v, and was to be %v", i+1, is.records[i], o)
		}
	}
	if len(places) > 0 && len(places) < len(offered) {
		g.problem(name, "of the %d records of call %d there are %d", len(offered), c.N, len(places))
	}
	if len(offered) < c.adds() && !g.refused(c) {
		return nil
	}
	return places
}

// counter holds a shared value against the calls that set it: in the commit of the event that
// sets it, and never again.
func (g *judge) counter(client int, name string) {
	is := g.now.counters[name]
	least := g.before.counters[name]
	may := []int64{least}
	for _, c := range g.Calls {
		if c.Client != client || c.Counter == 0 || g.began[c.N] > g.to || g.refused(c) {
			continue
		}
		may = append(may, c.Counter)
		landed, known := g.landed(c)
		switch {
		case g.certain(c, g.from) || landed:
			least = c.Counter
		case known && is == c.Counter:
			g.problem(c.Session, "shared key %s is %d, but the record that sets it is not there", name, is)
		}
	}
	if is < least || !slices.Contains(may, is) {
		g.problem(name, "the shared value is %d, and was to be %d or one later of %v", is, least, may)
	}
}

// landed reports whether what a call offered is in the store, if its session tells.
func (g *judge) landed(c Call) (landed, known bool) {
	is := g.now.sessions[c.Session]
	switch {
	case is == nil:
		return false, false
	case c.makes():
		made := g.Replies[c.N].Creation
		return made != "" && made == is.creation, false
	case is.creation != c.Creation:
		return false, false
	}
	id := c.id()
	landed = slices.ContainsFunc(is.records, func(r patch.Record) bool { return r.ID() == id })
	return landed, true
}

// join makes one error of many, of which the first are shown.
func join(problems []error) error {
	if len(problems) > 12 {
		problems = append(slices.Clone(problems[:12]), fmt.Errorf("and %d more", len(problems)-12))
	}
	return errors.Join(problems...)
}
