package adk

import (
	"container/list"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// line is what a process knows of one session of a base. Whoever uses the session holds the
// lock, so that the process's own writers wait for each other.
type line struct {
	key     store.Key
	service string        // the id of the one that knows
	lock    chan struct{} // holds one value while it is locked
	known

	// Guarded by the lines' lock.
	size    int // of what is known, about
	element *list.Element
}

// known is what is known of a session's incarnation: one that was deleted and created again
// is another.
type known struct {
	incarnation int // 0: nothing is known

	// In another epoch records have other seqs: the base has given events in another order.
	epoch string

	// base is the base's own session, as the last read or append left it; nil: it is to be
	// read again.
	base    session.Session
	updated time.Time // what base said when it was read

	initial map[string]patch.Value
	read    folded // what the base has given
	own     folded // and what was appended since
	former  folded // own in the epoch before

	ids     map[string]uint64 // of own's records, and the events in them, as far as indexed
	indexed int
	warned  map[string]bool // of carriers that do not apply, by id

	bytes, measured int // the size of so many items
}

func (l *line) acquire(ctx context.Context) error {
	select {
	case l.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *line) release() { <-l.lock }

// creation names the service that knows the session, the incarnation, and the epoch.
func (l *line) creation() string {
	return fmt.Sprintf("%s %d %s", l.service, l.incarnation, l.epoch)
}

// sameSession reports whether a session that was seen under one creation is the one that is
// there under another. Of a service over a base that is so unless it has seen that the
// session was created again; what another service has seen, it does not know.
func sameSession(seen, now string) bool {
	x, y := strings.Fields(seen), strings.Fields(now)
	if len(x) != 3 || len(y) != 3 {
		return seen == now
	}
	before, err := strconv.Atoi(x[1])
	after, afterErr := strconv.Atoi(y[1])
	return x[0] != y[0] || err == nil && afterErr == nil && before >= after
}

// begin starts another incarnation.
func (l *line) begin() {
	l.known = known{incarnation: l.incarnation + 1, epoch: uuid.NewString(), warned: map[string]bool{}}
}

// empty is the view of the session without records.
func (l *line) empty() fold.View { return fold.New(l.creation(), l.initial) }

// adopt takes what the base has given. lossy is told of events that the log cannot carry.
// renamed says that what was appended has other ids there.
func (l *line) adopt(from session.Session, lossy func(id string, err error)) (renamed bool) {
	if l.incarnation == 0 {
		l.begin()
	}
	appended, confirmed := l.own.items[len(l.read.items):], len(l.read.items) > 0
	added, ok := news(from.Events(), l.read.items)
	if ok && len(appended) > 0 && !begins(added, appended) {
		ok = false // what was appended since is somewhere else
	}
	if !ok {
		list, _ := news(from.Events(), nil)
		if !holds(list, l.read.items) { // a base only adds
			l.begin()
			appended = nil
		}
		added = l.reread(inOrder(list, l.own.items))
	}
	l.base, l.updated = from, from.LastUpdateTime()
	items := make([]item, 0, len(added))
	for _, e := range added {
		it, err := itemOf(e)
		if err != nil {
			lossy(e.id, err)
		}
		items = append(items, it)
	}
	if l.initial == nil {
		l.initial = initialState(from.State(), items)
	}
	var late []item
	if !ok {
		late, renamed = missing(appended, items)
	}
	if !confirmed {
		late = nil // it may be another session
	}
	before := l.own
	var same int
	l.read, same = l.readFold().with(items, l.empty())
	if l.withLate(late) && l.own.continues(before, same) {
		return renamed
	}
	l.epochAfter(before)
	return renamed
}

// withLate makes own of what was read and the items that are late. It reports whether what
// was read is folded as before.
func (l *line) withLate(late []item) bool {
	l.own = l.read
	if len(late) == 0 {
		return true
	}
	var same int
	l.own, same = l.read.with(late, l.empty())
	return same > 0
}

// missing returns those of the items that were appended that a base has not given among
// others, which may be late. renamed says that some are there under other ids.
func missing(appended, given []item) (late []item, renamed bool) {
	ids := make(map[string]bool, len(given))
	for _, it := range given {
		ids[it.id] = true
	}
	for _, it := range appended {
		switch {
		case ids[it.id]:
		case slices.ContainsFunc(given, it.resembles):
			renamed = true
		default:
			late = append(late, it)
		}
	}
	return late, renamed
}

// resembles reports whether two items may be one, of which a base has changed the id.
func (it item) resembles(other item) bool {
	switch {
	case it.event != nil && other.event != nil:
		a, b := it.event, other.event
		return a.Author() == b.Author() && a.InvocationID() == b.InvocationID() && a.Branch() == b.Branch() &&
			a.Timestamp().Truncate(time.Microsecond).Equal(b.Timestamp().Truncate(time.Microsecond))
	case it.carrier != nil && other.carrier != nil:
		a, b := it.carrier.patches, other.carrier.patches
		return len(a) > 0 && len(b) > 0 && a[0].patch.ID() == b[0].patch.ID()
	}
	return false
}

// reread returns what a list has beyond what was read before, with which it may begin; if
// not, nothing has been read.
func (l *line) reread(list []listed) []listed {
	if begins(list, l.read.items) {
		return list[len(l.read.items):]
	}
	l.read = folded{}
	return list
}

// readFold is the fold of what the base has given.
func (l *line) readFold() folded {
	if len(l.read.items) == 0 {
		return folded{view: l.empty()}
	}
	return l.read
}

// epochAfter begins another epoch: what is known gives records other seqs than a fold before.
func (l *line) epochAfter(former folded) {
	l.former, l.epoch = former, uuid.NewString()
	l.ids, l.indexed = nil, 0
	late := l.own.items[len(l.read.items):]
	l.read = foldWhole(l.empty(), l.read.items)
	l.withLate(late)
}

// append takes items that were appended to the base.
func (l *line) append(items ...item) {
	next, ok := l.own.extend(items)
	if ok {
		l.own = next
		return
	}
	before := l.own
	l.own = foldWhole(l.empty(), slices.Concat(before.items, items))
	if !l.own.continues(before, 0) {
		l.epochAfter(before)
	}
}

// seqOf returns the seq of the record that takes an id, or 0.
func (l *line) seqOf(id string) uint64 {
	if l.ids == nil {
		l.ids, l.indexed = map[string]uint64{}, 0
	}
	for ; l.indexed < len(l.own.records); l.indexed++ {
		r := l.own.records[l.indexed]
		for id := range r.IDs() {
			if l.ids[id] == 0 {
				l.ids[id] = r.Seq
			}
		}
	}
	return l.ids[id]
}

// newestTime returns the newest time of an item.
func (l *line) newestTime() (newest time.Time) {
	for _, it := range l.own.items {
		t := it.time()
		if t.After(newest) {
			newest = t
		}
	}
	return newest
}

func (it item) time() time.Time {
	if it.event == nil {
		return it.carrier.time
	}
	return it.event.Timestamp()
}

// lastUpdate returns the time of the last event, or of the session's creation.
func (l *line) lastUpdate() time.Time {
	for _, it := range slices.Backward(l.own.items) {
		if it.event != nil {
			return it.event.Timestamp()
		}
	}
	return l.updated
}

// lines are the sessions of a base that are in use, and those that were in use last.
type lines struct {
	service string // its id
	limit   int    // about how many bytes those that nobody uses may take

	mu     sync.Mutex
	byKey  map[store.Key]weak.Pointer[line]
	recent list.List // of *line, the one that was used last first
	size   int
}

// So many sessions that nobody uses are kept at most.
const maxLines = 1024

// get returns the line of a session. There is one for as long as anybody has it.
func (s *lines) get(key store.Key) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.byKey[key].Value(); l != nil {
		return l
	}
	l := &line{key: key, service: s.service, lock: make(chan struct{}, 1)}
	if s.byKey == nil {
		s.byKey = map[store.Key]weak.Pointer[line]{}
	}
	s.byKey[key] = weak.Make(l)
	runtime.AddCleanup(l, s.forget, key)
	return l
}

// forget removes what is left of a line that is gone.
func (s *lines) forget(key store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, there := s.byKey[key]; there && p.Value() == nil {
		delete(s.byKey, key)
	}
}

// used says that a line was used and how large it is, and lets go of those that were not
// for longest.
func (s *lines) used(l *line, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.element == nil {
		l.element, l.size = s.recent.PushFront(l), 0
	} else {
		s.recent.MoveToFront(l.element)
	}
	s.size += size - l.size
	l.size = size
	for s.recent.Len() > 0 && (s.size > s.limit || s.recent.Len() > maxLines) {
		oldest := s.recent.Remove(s.recent.Back()).(*line)
		oldest.element = nil
		s.size -= oldest.size
	}
}

// footprint returns about how much memory what is known takes.
func (l *line) footprint() int {
	for ; l.measured < len(l.own.items); l.measured++ {
		if it := l.own.items[l.measured]; it.event != nil {
			l.bytes += it.event.Footprint()
		} else {
			for _, p := range it.carrier.patches {
				l.bytes += patch.Record{Patch: p.patch}.Size()
			}
		}
	}
	return 2 * l.bytes // the base's session has its own
}
