//go:build linux

package power

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// model is what is known of a store by what was tried and what was acknowledged. Places are
// those of a record of both, in which the power fails somewhere.
type model struct {
	script   script
	tries    []*try             // by their number
	sessions map[string][]*life // by key, one after the other
	opened   int                // when the store was first said to be there
	shown    []shown
	backups  map[string][]*try // by file
}

const never = math.MaxInt

// shown is what a process saw that opened the store: how long the logs are.
type shown struct {
	at   int
	seqs map[string]uint64
}

// try is an op, and what became of it.
type try struct {
	*op
	life  *life
	tried int
	acked int
	done  done
	often int // tried
	known bool
}

// refused reports whether it wrote nothing.
func (t *try) refused() bool { return t.done.No != "" && !t.draws() }

// life is a session from its creation to its deletion.
type life struct {
	made, ended *try // nil if it was there at the start, or was not deleted
	from        *life
	tries       []*try // that log records
	byID        map[string]*try
}

// newModel is the model of a script on a store that holds the given logs.
func newModel(s script, start map[string][]patch.Record) *model {
	m := &model{script: s, sessions: map[string][]*life{}, opened: never, backups: map[string][]*try{}}
	if start != nil {
		m.opened = -1
	}
	for key, log := range start {
		l := newLife(nil)
		m.sessions[key] = []*life{l}
		if len(log) == 0 {
			continue
		}
		t := &try{op: &op{N: -1, Kind: "start", Session: key, offered: log}, life: l, tried: -1, acked: -1, known: true}
		t.done.First = 1
		for _, r := range log {
			t.done.Sums = append(t.done.Sums, sumOf(r))
		}
		l.add(t)
	}
	for _, o := range s.ops() {
		o.parse()
		t := &try{op: o, tried: never, acked: never}
		m.tries = append(m.tries, t)
		if o.Kind == kindBackup {
			m.backups[o.File] = append(m.backups[o.File], t)
		}
		if o.Session == "" {
			continue
		}
		lives := m.sessions[o.Session]
		if len(lives) < o.Life+m.offset(o.Session) {
			lives = append(lives, newLife(t))
			m.sessions[o.Session] = lives
		}
		t.life = lives[len(lives)-1]
		switch o.Kind {
		case kindDelete:
			t.life.ended = t
		case kindFork:
			from := m.sessions[o.From]
			t.life.from = from[len(from)-1]
		default:
			t.life.add(t)
		}
	}
	return m
}

// offset is how many of a key's sessions are older than the script's first.
func (m *model) offset(key string) int {
	if lives := m.sessions[key]; len(lives) > 0 && lives[0].made == nil {
		return 1
	}
	return 0
}

func newLife(made *try) *life { return &life{made: made, byID: map[string]*try{}} }

func (l *life) add(t *try) {
	l.tries = append(l.tries, t)
	for _, r := range t.offered {
		l.byID[r.ID()] = t
	}
	if t.draws() {
		l.byID[t.Name] = t
	}
}

// whose returns the try that logs a record, in the session or in the one that it was forked from.
func (l *life) whose(r patch.Record) *try {
	if l == nil {
		return nil
	}
	if t := l.byID[r.ID()]; t != nil {
		return t
	}
	name, _, _ := strings.Cut(r.ID(), "/")
	if t := l.byID[name]; t != nil && t.draws() {
		return t
	}
	return l.from.whose(r)
}

func (m *model) try(n, at int) {
	t := m.tries[n]
	t.tried = min(t.tried, at)
	t.often++
}

func (m *model) acknowledge(d done, at int) {
	if d.Op < 0 {
		m.opened = min(m.opened, at)
		m.shown = append(m.shown, shown{at, d.Shows})
		return
	}
	t := m.tries[d.Op]
	t.acked, t.done = at, d
	// Of what the store draws, a second try says nothing.
	t.known = !t.draws() || t.often == 1 && d.No == ""
}

// progress returns which ops were tried, and which are done.
func (m *model) progress() (tried, done []int) {
	for _, t := range m.tries {
		if t.tried != never {
			tried = append(tried, t.N)
		}
		if t.acked != never {
			done = append(done, t.N)
		}
	}
	return tried, done
}

// bounds are between which places a store was left: what was acknowledged before lo is there,
// and nothing is that was not tried before hi. Some tries have been settled since: they are done.
type bounds struct {
	lo, hi  int
	settled map[*try]bool
}

func (b bounds) must(t *try) bool { return !t.refused() && (t.acked < b.lo || b.settled[t]) }
func (b bounds) may(t *try) bool {
	return (!t.refused() && t.tried < b.hi) || b.settled[t]
}

// candidates are the sessions that may go by a key. nil stands for none.
func (m *model) candidates(key string, b bounds) []*life {
	out := []*life{nil}
	turn := func(t *try, l *life) {
		switch {
		case t == nil && l != nil || t != nil && b.must(t):
			out = []*life{l}
		case t != nil && b.may(t):
			out = append(out, l)
		}
	}
	for _, l := range m.sessions[key] {
		turn(l.made, l)
		turn(l.ended, nil)
	}
	return out
}

// run returns how many records at the beginning of a log are a try's: all of it, or it is an
// error.
func (t *try) run(log []patch.Record, l *life, b bounds) (n int, err error) {
	for n < len(log) && l.whose(log[n]) == t {
		n++
	}
	want := len(t.offered)
	if t.draws() {
		want = n
		if t.known && t.acked != never {
			want = len(t.done.Sums)
		}
	}
	if n != want {
		return n, fmt.Errorf("%s: %d of its %d records are there, from seq %d on", t, n, want, log[0].Seq)
	}
	for i, r := range log[:n] {
		if !t.draws() && !patch.Same(r, t.offered[i]) {
			return n, fmt.Errorf("%s: record %d is %.300v, and was offered as %.300v", t, r.Seq, r, t.offered[i])
		}
		if t.acked == never || !t.known || b.settled[t] {
			continue
		}
		if seq := t.done.First + uint64(i); r.Seq != seq {
			return n, fmt.Errorf("%s: record %q has seq %d, and was acknowledged as %d", t, r.ID(), r.Seq, seq)
		}
		if _, erased := r.Erased(); !erased && (i >= len(t.done.Sums) || sumOf(r) != t.done.Sums[i]) {
			return n, fmt.Errorf("%s: record %d is not what was acknowledged: %.300v", t, r.Seq, r)
		}
	}
	return n, nil
}

// matches reports whether a log is one that the session may have, and returns whose records
// it has.
func (l *life) matches(log []patch.Record, b bounds) (seen map[*try]bool, err error) {
	seen = map[*try]bool{}
	base := -1 // length of what was forked
	for i := 0; i < len(log); {
		if log[i].Seq != uint64(i+1) {
			return nil, fmt.Errorf("record %d follows %d", log[i].Seq, i)
		}
		t := l.whose(log[i])
		switch own := t != nil && t.life == l; {
		case t == nil:
			return nil, fmt.Errorf("record %d is nobody's: %.300v", i+1, log[i])
		case seen[t]:
			return nil, fmt.Errorf("%s: record %d is there a second time", t, i+1)
		case own && !b.may(t):
			return nil, fmt.Errorf("%s: record %d is there, and was refused or not tried yet", t, i+1)
		case own && base < 0:
			base = i
		case !own && base >= 0:
			return nil, fmt.Errorf("%s: record %d is not of this session", t, i+1)
		case !own && l.made.acked != never && t.tried > l.made.acked:
			return nil, fmt.Errorf("%s: record %d was tried after the fork", t, i+1)
		}
		n, err := t.run(log[i:], l, b)
		if err == nil {
			err = t.life.erased(log[i:i+n], b)
		}
		if err != nil {
			return nil, err
		}
		for _, before := range t.life.tries {
			if before.acked < t.tried && !seen[before] && logs(before) {
				return nil, fmt.Errorf("%s is there, and %s before it is not", t, before)
			}
		}
		seen[t] = true
		i += n
	}
	if base < 0 {
		base = len(log)
	}
	if l.from != nil {
		if seq := l.made.done.Seq; seq > 0 && base != int(seq) && !b.settled[l.made] {
			return nil, fmt.Errorf("%s: %d records are forked, of %d", l.made, base, seq)
		}
		for _, t := range l.from.tries {
			if t.acked < l.made.tried && logs(t) && !seen[t] {
				return nil, fmt.Errorf("%s: %s was before, and is not there", l.made, t)
			}
		}
	}
	for _, t := range l.tries {
		if b.must(t) && logs(t) && !seen[t] {
			return nil, fmt.Errorf("%s was acknowledged, and is lost", t)
		}
	}
	return seen, nil
}

// erased checks of records that those are erased which a try has erased, and no others, but for
// patches, which may stand for some of them.
func (l *life) erased(log []patch.Record, b bounds) error {
	for _, r := range log {
		by, erased := r.Erased()
		found := r.Patch != nil
		for _, t := range l.tries {
			if t.Kind == "start" {
				found = true
			}
			if t.Kind != kindErase || r.Event == nil || !slices.Contains(t.Erases, r.ID()) {
				continue
			}
			if b.must(t) && !erased {
				return fmt.Errorf("%s was acknowledged, and record %d is not erased: %.300v", t, r.Seq, r)
			}
			found = found || b.may(t) && by == t.receipt()
		}
		if erased && !found {
			return fmt.Errorf("record %d is erased by %q, which nobody asked for", r.Seq, by)
		}
	}
	return nil
}

// logs reports whether a try that is done has records for certain.
func logs(t *try) bool {
	return !t.refused() && (!t.draws() && len(t.offered) > 0 || t.draws() && t.known && len(t.done.Sums) > 0)
}

// match returns which of a key's sessions a log is, and whose records it has. log is nil if there
// is none.
func (m *model) match(key string, log []patch.Record, b bounds) (l *life, seen map[*try]bool, err error) {
	candidates := m.candidates(key, b)
	if log == nil {
		if !slices.Contains(candidates, nil) {
			return nil, nil, fmt.Errorf("session %s is lost: %v", key, candidates[0].made)
		}
		return nil, nil, nil
	}
	err = fmt.Errorf("session %s is there, and should not be", key)
	for _, c := range slices.Backward(candidates) {
		if c == nil {
			continue
		}
		if seen, err = c.matches(log, b); err == nil {
			return c, seen, nil
		}
		err = fmt.Errorf("session %s: %w", key, err)
	}
	return nil, nil, err
}

// shows checks that the logs have what any process saw that opened the store, unless their deletion
// was tried since.
func (m *model) shows(logs map[string][]patch.Record, b bounds) error {
	for _, s := range m.shown {
		if s.at >= b.lo {
			break
		}
		for key, seq := range s.seqs {
			ended := slices.ContainsFunc(m.sessions[key], func(l *life) bool {
				return l.ended != nil && l.ended.tried < b.hi && (l.ended.acked == never || l.ended.acked > s.at)
			})
			if (logs[key] == nil || uint64(len(logs[key])) < seq) && !ended {
				return fmt.Errorf("session %s has %d records, and had %d when it was opened", key, len(logs[key]), seq)
			}
		}
	}
	return nil
}

// pending are the tries that were under way when the power failed.
func (m *model) pending(b bounds) (out []*try) {
	for _, t := range m.tries {
		if t.tried < b.hi && t.acked >= b.lo && !b.settled[t] {
			out = append(out, t)
		}
	}
	return out
}
