package erase

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

// Selection selects the content of a session that a call erases.
type Selection struct {
	Choose  Choose
	Matcher Matcher   // finds what Choose selects; used for events that are blank in the session but not in a relative
	All     bool      // also erase the whole initial state
	Hidden  time.Time // if not zero: select the events hidden since this time or longer, only in this session
}

// Options of a call.
type Options struct {
	ID, Author, Reason string
	Values             patch.ValuePolicy
	Summaries          patch.SummaryPolicy
	MaxGrowth          int
	Context            bool
	DryRun             bool
	ForUser            bool // the call is part of erasing a user

	// Shared, if not nil, sets the selected shared values to null and returns their keys. With DryRun it only returns
	// the keys.
	Shared func(ctx context.Context) ([]string, error)

	// User is set only for the call that represents the erasure of a user. User erases the user's other sessions and
	// shared values. The call runs User before it visits the relatives. The receipt records that User must run.
	User func(ctx context.Context) error
}

// Call erases content of a session, and then the same records in the session's relatives.
//
// The order of the commits makes the call correct. In this comment, a session is dirty if it still has content to erase
// and has no open receipt of the call.
//
//   - The receipt of the call's own session is logged first, so that session is never dirty. Until the call is done,
//     store.Store.Verify reports it.
//   - A fork commits only if its origin still has the edition that was copied and no open receipt. So only dirty
//     sessions can get new dirty forks.
//   - Suppose that all known receipts are closed, and that one round over all relatives then finds no dirty session. Then
//     no session is dirty, and no session can become dirty.
type Call struct {
	// Sessions are the sessions with erased content. The call's own session is first.
	Sessions []*Erased
	Earlier  []*Erased // sessions erased by earlier calls that this call had to finish first
	Damaged  []Damaged // sessions that cannot be read
	Shared   []string  // keys returned by Options.Shared
	Matches  int       // number of events and keys that still match, because state values are kept

	log      Log
	opts     Options
	sel      Selection
	initial  []string // keys of the initial state to erase
	own      *Erased
	found    map[string]*Erased // key: creation id
	resumed  bool
	idGiven  bool          // the caller supplied the id, so the call may have been made before
	previous *previousCall // nil if the call has no receipt yet
}

// previousCall is the first receipt of a call that was made before, and its session.
type previousCall struct {
	Session
	first receipt.Receipt
}

// Damaged is a session that cannot be read.
type Damaged struct {
	Name string
	Err  error
}

// Erased is a session and its erased content.
type Erased struct {
	Session
	Receipt         patch.Record // the zero Record if no receipt was logged
	Events          []Event      // events that were not blank before
	Initial         []string     // keys of the initial state whose values were not null before
	Reverted, Blank []string     // ids of summaries that were reverted, and of visible blank summaries that were not reverted

	toErase map[fold.Ref]bool // all content to erase, blank or not
	visited bool              // visited by a resumed call
}

// RetentionAuthor is the author of receipts that concern only one session.
const RetentionAuthor = "retention"

func (c *Call) keepsSummaries() bool { return c.opts.Summaries == patch.KeepSummaries }

// Run erases the selection of a call. With DryRun it only determines what the call would erase. If the session has a
// receipt of a call with this id, Run finishes that call and selects nothing.
func Run(ctx context.Context, log Log, name string, sel Selection, opts Options, given bool) (*Call, error) {
	for earlier, shared := []*Erased(nil), []string(nil); ; {
		c := newCall(log, sel, opts)
		c.Earlier, c.Shared, c.idGiven = earlier, shared, given && !opts.DryRun
		err := c.run(ctx, name)
		if c.previous != nil {
			return resume(ctx, log, c.previous.Session, c.previous.first, opts.User)
		}
		if earlier, shared = c.Earlier, c.Shared; !errors.Is(err, ErrLogChanged) {
			return c, err
		}
	}
}

func newCall(log Log, sel Selection, opts Options) *Call {
	return &Call{log: log, sel: sel, opts: opts, found: map[string]*Erased{}}
}

// receiptFields returns the fields that all receipts of the call share.
func (c *Call) receiptFields() patch.Erasure {
	return patch.Erasure{CallID: c.opts.ID, ForUser: c.opts.ForUser, CallSession: c.own.Head.Creation}
}

// receiptOfCall returns the receipt of the call that erased a session as part of erasing a user. The argument id is the
// id of the call. Without such a receipt, it returns the zero Receipt.
func receiptOfCall(ctx context.Context, log Log, name, id string) (receipt.Receipt, Session, error) {
	s, err := log.Session(ctx, name)
	if err != nil {
		return receipt.Receipt{}, s, err
	}
	of := patch.Erasure{CallID: id, ForUser: true, CallSession: s.Head.Creation, Session: s.Head.Creation}
	seqs, err := log.lookup(ctx, name, s.Head.Creation, receipt.ID(of, 0))
	if err != nil || seqs[0] == 0 {
		return receipt.Receipt{}, s, err
	}
	r, _, err := log.ReadRecords(ctx, name, s.Head.Creation, seqs)
	if err != nil {
		return receipt.Receipt{}, s, err
	}
	return receipt.Decode(r[0]), s, nil
}

// FinishPending finishes the open receipts of a session. If calls is set, it also finishes the session's own calls, which
// may have work left in other sessions.
func FinishPending(ctx context.Context, log Log, name string, calls bool) (finished []*Call, err error) {
	for {
		l, err := load(ctx, log, name, chooseBy(func(fold.Ref) bool { return false }), patch.KeepValues)
		if err == nil {
			finished, err = finishPending(ctx, log, l, calls)
		}
		if !errors.Is(err, ErrLogChanged) {
			return finished, err
		}
	}
}

func finishPending(ctx context.Context, log Log, l *loaded, calls bool) (finished []*Call, err error) {
	creation := l.Head.Creation
	for _, r := range l.scan.Receipts {
		switch {
		case calls && r.IsCall(creation) && !r.Erasure.Done && !isRunning(ctx, r.Erasure):
			c, err := resume(ctx, log, l.Session, r, nil)
			if finished = append(finished, c); err != nil {
				return finished, err
			}
		case r.IsOpen(creation):
			c := newCall(log, Selection{}, receiptOptions(r))
			e := &Erased{Session: l.Session, Receipt: r.Record, toErase: map[fold.Ref]bool{}}
			c.Sessions = append(c.Sessions, e)
			if finished, err = append(finished, c), c.finish(ctx, e, r, nil, false); err != nil {
				return finished, err
			}
		}
	}
	return finished, nil
}

func receiptOptions(r receipt.Receipt) Options {
	return Options{ID: r.Erasure.CallID, Author: r.Patch.Author(), Reason: r.Erasure.Reason, Values: r.Erasure.Values, Summaries: r.Erasure.Summaries,
		MaxGrowth: r.Erasure.MaxGrowth, Context: r.Erasure.Context, ForUser: r.Erasure.ForUser}
}

// resume continues a call whose first receipt was logged. The function user replaces Options.User, which a receipt
// cannot store.
func resume(ctx context.Context, log Log, s Session, r receipt.Receipt, user func(context.Context) error) (*Call, error) {
	c := newCall(log, Selection{}, receiptOptions(r))
	if isRunning(ctx, r.Erasure) {
		return c, nil
	}
	c.opts.User, c.initial = user, r.Erasure.Initial
	c.own = c.entryOf(s)
	c.own.Receipt = r.Record
	if r.Erasure.Done {
		if r.IsOpen(s.Head.Creation) {
			return c, c.finish(ctx, c.own, r, nil, true)
		}
		return c, log.confirm(ctx)
	}
	if c.resumed = true; r.Erasure.OfUser && user == nil {
		c.opts.User = func(ctx context.Context) error { return log.ResumeUser(ctx, s.Name, c.opts) }
	}
	if _, err := c.visit(ctx, s); err != nil && !errors.Is(err, patch.ErrCorrupt) {
		return c, err
	}
	return c, c.eraseElsewhere(ctx)
}

// entryOf returns the call's entry for a session and adds one if there is none.
func (c *Call) entryOf(s Session) *Erased {
	e := c.found[s.Head.Creation]
	if e == nil {
		e = &Erased{Session: s, toErase: map[fold.Ref]bool{}}
		c.found[s.Head.Creation] = e
		c.Sessions = append(c.Sessions, e)
	}
	e.Session = s
	return e
}

func (c *Call) run(ctx context.Context, name string) error {
	l, err := c.loadOwn(ctx, name)
	if err != nil || c.previous != nil {
		return err
	}
	known := len(c.Shared)
	if err := c.nullShared(ctx); err != nil { // shared values must be set to null before the receipt is logged, because a resumed call selects nothing
		return err
	}
	if len(c.Shared) > known && !c.opts.DryRun { // an event may have set one of these values meanwhile
		return c.run(ctx, name)
	}
	onlyThisSession := !c.sel.Hidden.IsZero()
	c.own = c.entryOf(l.Session)
	c.selectInitial(l.Initial, func(name string) bool { return c.sel.All || c.sel.Matcher.Value(l.Initial[name]) })
	if !onlyThisSession && c.sel.Matcher.Text != "" {
		if err := c.matchElsewhere(ctx, l); err != nil {
			return err
		}
	}
	due := c.collect(c.own, l)
	if c.opts.DryRun {
		c.own.add(due)
		if err := c.planReverts(ctx, c.own, l); err != nil || onlyThisSession {
			return err
		}
		_, err := c.visitRelatives(ctx)
		return err
	}
	if !due.isAny() {
		if onlyThisSession || len(c.own.toErase)+len(c.initial) == 0 {
			return c.log.confirm(ctx) // an earlier call may already have erased everything
		}
		c.opts.DryRun = true
		dirty, err := c.visitRelatives(ctx)
		c.opts.DryRun = false
		if err != nil || !dirty {
			return cmp.Or(err, c.log.confirm(ctx))
		}
		c.Sessions, c.found = nil, map[string]*Erased{} // the visits below find the sessions again
		c.own = c.entryOf(l.Session)
		due = c.collect(c.own, l)
	}
	r, err := c.logReceipt(ctx, c.own, l, onlyThisSession)
	if err != nil {
		return err
	}
	c.own.add(due)
	if err := c.nullShared(ctx); err != nil { // again, for values that events set before the receipt was logged
		return err
	}
	if !onlyThisSession && c.opts.User == nil {
		// A fork that commits from now on copies the erased session.
		relatives, err := c.relatives(ctx)
		if err != nil {
			return err
		}
		onlyThisSession = !slices.ContainsFunc(relatives, func(s Session) bool { return s.Head.Creation != c.own.Head.Creation })
	}
	if err := c.finish(ctx, c.own, r, l, onlyThisSession); err != nil || onlyThisSession {
		return err
	}
	return c.eraseElsewhere(ctx)
}

func (c *Call) nullShared(ctx context.Context) error {
	if c.opts.Shared == nil {
		return nil
	}
	names, err := c.opts.Shared(ctx)
	c.Shared = slices.Compact(slices.Sorted(slices.Values(append(c.Shared, names...))))
	return err
}

func (c *Call) selectInitial(initial map[string]patch.Value, selects func(name string) bool) {
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		switch {
		case !selects(name) || slices.Contains(c.initial, name):
		case c.opts.Values == patch.NullValues:
			c.initial = append(c.initial, name)
		case !receipt.IsNull(initial[name]):
			c.Matches++
		}
	}
}

// running is the context key of the running call. A call that the running call finishes must not finish the running
// call in turn.
type running struct {
	id, session string
	forUser     bool
}

func isRunning(ctx context.Context, of patch.Erasure) bool {
	return ctx.Value(running{of.CallID, of.CallSession, of.ForUser}) != nil
}

// eraseElsewhere erases in the other sessions and marks the call done.
func (c *Call) eraseElsewhere(ctx context.Context) error {
	ctx = context.WithValue(ctx, running{c.opts.ID, c.own.Head.Creation, c.opts.ForUser}, true)
	if c.opts.User != nil {
		if err := c.opts.User(ctx); err != nil {
			return err
		}
	}
	if _, err := c.visitRelatives(ctx); err != nil {
		return err
	}
	return c.markDone(ctx)
}

// loadOwn reads the call's session after it has finished earlier calls there.
func (c *Call) loadOwn(ctx context.Context, name string) (*loaded, error) {
	for {
		c.Matches = 0
		l, err := load(ctx, c.log, name, c.chooseAndCount, c.opts.Values)
		if err != nil {
			return nil, err
		}
		for _, r := range l.scan.Receipts {
			if c.idGiven && r.IsCall(l.Head.Creation) && r.Erasure.CallID == c.opts.ID && r.Erasure.ForUser == c.opts.ForUser {
				c.previous = &previousCall{l.Session, r}
				return l, nil
			}
		}
		var finished []*Call
		if !c.opts.DryRun {
			finished, err = finishPending(ctx, c.log, l, true)
		}
		if len(finished) == 0 && err == nil {
			if !c.sel.Hidden.IsZero() {
				err = l.scan.chooseHidden(l.view, c.sel.Hidden)
			}
			return l, err
		}
		for _, of := range finished {
			c.Damaged = append(c.Damaged, of.Damaged...)
			c.Earlier = append(c.Earlier, of.Sessions...)
		}
		if err != nil {
			return nil, err
		}
	}
}

// chooseAndCount returns the selection's choice. It also counts the events that a repeated call would select again.
func (c *Call) chooseAndCount(r patch.Record) (bool, func(int, *patch.Event) bool) {
	own, which := c.sel.Choose(r)
	if c.opts.Values == patch.NullValues {
		return own, which
	}
	return own, func(i int, event *patch.Event) bool {
		if !which(i, event) {
			return false
		}
		blank := event.Blank("", patch.KeepValues)
		if c.sel.Matcher.Event(blank) || c.sel.Matcher.Text == "" && !blank.IsBlank(patch.NullValues) {
			c.Matches++
		}
		return true
	}
}

// pendingContent is the content of a session that must be erased and is not blank yet.
type pendingContent struct {
	events  []Event
	initial []string
}

func (d pendingContent) isAny() bool { return len(d.events)+len(d.initial) > 0 }

// collect adds the content to erase in a session that was read.
func (c *Call) collect(e *Erased, l *loaded) (d pendingContent) {
	if e.Session = l.Session; !c.keepsSummaries() {
		_ = l.scan.Spread(l.view, c.opts.Context) // cannot fail: the view was read completely
	}
	for ref := range l.scan.Selected {
		e.toErase[ref] = true
	}
	for _, name := range c.initial {
		if v, found := l.Initial[name]; found && !receipt.IsNull(v) {
			d.initial = append(d.initial, name)
		}
	}
	if len(l.scan.Events(false)) > 0 && !c.keepsSummaries() {
		l.scan.coverWithSummaries() // this content is erased too, but is not a reason to log a receipt
	}
	for _, event := range l.scan.Events(false) {
		if event.Why == WhySelected && e != c.own {
			event.Why = WhySameEvent
		}
		d.events = append(d.events, event)
	}
	return d
}

func (e *Erased) add(d pendingContent) {
	for _, event := range d.events {
		if !slices.ContainsFunc(e.Events, func(other Event) bool { return other.Ref == event.Ref }) {
			e.Events = append(e.Events, event)
		}
	}
	for _, name := range d.initial {
		if !slices.Contains(e.Initial, name) {
			e.Initial = append(e.Initial, name)
		}
	}
}

// Merge merges the entries of sessions that several calls erased.
func Merge(all []*Erased) (merged []*Erased) {
	for _, e := range all {
		i := slices.IndexFunc(merged, func(first *Erased) bool { return first.Name == e.Name })
		if i < 0 {
			merged = append(merged, e)
			continue
		}
		first := merged[i]
		first.add(pendingContent{e.Events, e.Initial})
		first.Reverted, first.Blank = append(first.Reverted, e.Reverted...), append(first.Blank, e.Blank...)
	}
	return merged
}

// dirty reports whether the session has or had content to erase.
func (e *Erased) dirty() bool { return len(e.Events)+len(e.Initial) > 0 }

// matchElsewhere selects the events that are blank in the call's session but match in a relative.
func (c *Call) matchElsewhere(ctx context.Context, own *loaded) error {
	if len(own.scan.Blank) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(own.Initial)), receipt.IsNull) {
		return nil
	}
	relatives, err := c.relatives(ctx)
	if err != nil {
		return err
	}
	for _, s := range relatives {
		if c.opts.Values == patch.NullValues {
			c.selectInitial(s.Initial, func(name string) bool {
				return receipt.IsNull(own.Initial[name]) && c.sel.Matcher.Value(s.Initial[name])
			})
		}
		n, _ := CommonRecords(c.own.Session, s)
		if n == 0 || s.Head.Creation == c.own.Head.Creation {
			continue
		}
		l, err := load(ctx, c.log, s.Name, c.sel.Choose, c.opts.Values)
		if c.skips(s.Name, err) {
			continue
		}
		if err != nil {
			return err
		}
		for ref := range l.scan.Selected {
			if ref.Seq <= n && own.scan.Blank[ref] {
				own.scan.Selected[ref] = WhySelected
			}
		}
	}
	return nil
}

// skips reports whether to skip a session, because the session is gone or damaged and is not the call's own session.
func (c *Call) skips(name string, err error) bool {
	if errors.Is(err, patch.ErrCorrupt) {
		c.Damaged = append(c.Damaged, Damaged{name, err})
		return true
	}
	return c.log.IsNotFound(err)
}

// relatives returns the relatives of the call's session, and that session itself if it has relatives.
func (c *Call) relatives(ctx context.Context) (all []Session, err error) {
	for s, err := range c.log.Relatives(ctx, Family(c.own.Head.Creation, c.own.Lineage)) {
		if err != nil {
			return nil, err
		}
		if s.Err != nil {
			c.skips(s.Name, s.Err)
		} else if _, related := CommonRecords(c.own.Session, s); related {
			all = append(all, s)
		}
	}
	return all, nil
}

// visitRelatives visits all relatives repeatedly, until a round finds no dirty session and no more content to erase. It
// reports whether any session was dirty.
func (c *Call) visitRelatives(ctx context.Context) (dirty bool, err error) {
	for {
		c.Damaged = nil
		relatives, err := c.relatives(ctx)
		if err != nil {
			return dirty, err
		}
		repeat := false
		for _, s := range relatives {
			found, err := c.visit(ctx, s)
			if s.Head.Creation != c.own.Head.Creation && c.skips(s.Name, err) {
				continue
			}
			if err != nil {
				return dirty, err
			}
			repeat = repeat || found
			if e := c.found[s.Head.Creation]; e != c.own && e != nil {
				dirty = dirty || e.dirty()
			}
		}
		if !repeat {
			return dirty, nil
		}
	}
}

// seeds returns the records of a session that must be erased because they are erased in a relative or in the session
// itself.
func (c *Call) seeds(s Session) map[fold.Ref]bool {
	seeds := map[fold.Ref]bool{}
	for _, e := range c.found {
		n, _ := CommonRecords(s, e.Session)
		for ref := range e.toErase {
			if ref.Seq <= n {
				seeds[ref] = true
			}
		}
	}
	return seeds
}

// visit erases in a session. It reports whether it found more content to erase than before.
func (c *Call) visit(ctx context.Context, s Session) (found bool, err error) {
	for {
		found, err = c.visitOnce(ctx, s)
		if !errors.Is(err, ErrLogChanged) {
			return found, err
		}
	}
}

func (c *Call) visitOnce(ctx context.Context, s Session) (found bool, err error) {
	e, seeds := c.entryOf(s), c.seeds(s)
	initial := slices.ContainsFunc(c.initial, func(name string) bool {
		v, ok := s.Initial[name]
		return ok && !receipt.IsNull(v) && !slices.Contains(e.Initial, name)
	})
	if len(seeds) == len(e.toErase) && !initial && (!c.resumed || e.visited) {
		return false, nil
	}
	before := maps.Clone(e.toErase)
	for {
		l, err := load(ctx, c.log, s.Name, chooseBy(func(ref fold.Ref) bool { return seeds[ref] }), c.opts.Values)
		if err != nil {
			return false, err
		}
		creation := l.Head.Creation
		if creation != s.Head.Creation {
			return false, nil // the session was deleted and created again
		}
		if !c.opts.DryRun {
			if finished, err := finishPending(ctx, c.log, l, false); err != nil {
				return false, err
			} else if len(finished) > 0 {
				continue
			}
		}
		more := false
		for _, r := range l.scan.Receipts { // receipts of another process or an earlier attempt
			if r.IsOfCall(c.receiptFields(), creation) {
				for ref := range l.coveredRefs(r) {
					more = more || !seeds[ref]
					seeds[ref] = true
				}
			}
		}
		if more {
			continue
		}
		e.visited = true
		due := c.collect(e, l)
		found = len(e.toErase) > len(before)
		if c.opts.DryRun {
			e.add(due)
			return found, c.planReverts(ctx, e, l)
		}
		if !due.isAny() {
			return found, nil
		}
		r, err := c.logReceipt(ctx, e, l, false)
		if err != nil {
			e.toErase = before // the session is still dirty
			return false, err
		}
		e.add(due)
		return true, c.finish(ctx, e, r, l, false)
	}
}

// planReverts determines the reverts that the closing commit would log.
func (c *Call) planReverts(ctx context.Context, e *Erased, l *loaded) error {
	if c.opts.Summaries != patch.RevertSummaries || !e.dirty() {
		return nil
	}
	plan, err := c.reverts(ctx, l, e.ids())
	e.Reverted, e.Blank = plan.Summaries, plan.NotReverted
	return err
}

func (e *Erased) ids() map[string]bool {
	ids := map[string]bool{}
	for _, event := range e.Events {
		ids[event.ID] = true
	}
	return ids
}

// reverts plans the reverts of a session's blank summaries. Events with the given ids count as blank.
func (c *Call) reverts(ctx context.Context, l *loaded, erasedIDs map[string]bool) (blanks.Plan, error) {
	return blanks.PlanReverts(l.view, blanks.Options{MaxGrowth: cmp.Or(c.opts.MaxGrowth, blanks.DefaultMaxGrowth), ErasedIDs: erasedIDs, Read: func(seqs []uint64) ([]patch.Record, error) {
		if records, _, ok := l.cachedRecords(seqs); ok {
			return records, nil
		}
		records, _, err := c.log.ReadRecords(ctx, l.Name, l.Head.Creation, seqs)
		return records, err
	}})
}

// loaded is a session whose whole log was read without a commit of an erasure in between, that is, at one edition
// (see [backend.Head]).
type loaded struct {
	Session
	view fold.View
	scan *Scan
	raw  map[uint64]backend.Record // the stored records, up to maxCachedBytes in total
}

func load(ctx context.Context, log Log, name string, choose Choose, values patch.ValuePolicy) (*loaded, error) {
	for {
		s, err := log.Session(ctx, name)
		if err != nil {
			return nil, err
		}
		l := &loaded{Session: s, scan: NewScan(), raw: map[uint64]backend.Record{}}
		size := 0
		l.view, err = log.ReadLog(ctx, s, func(r patch.Record, raw backend.Record) {
			l.scan.Record(r, choose, values)
			if size += len(raw.Data); size <= maxCachedBytes {
				l.raw[r.Seq] = raw
			}
		})
		if !errors.Is(err, ErrLogChanged) {
			return l, err
		}
	}
}

// maxCachedBytes limits the stored records that are cached, so that they need not be read again.
const maxCachedBytes = 4 << 20

// cachedRecords returns cached records, decoded and in their stored form. ok is false if not all of them are cached.
func (l *loaded) cachedRecords(seqs []uint64) (records []patch.Record, raws []backend.Record, ok bool) {
	for _, seq := range seqs {
		raw, cached := l.raw[seq]
		r, err := patch.DecodeRecord(raw.Data)
		if !cached || err != nil {
			return nil, nil, false
		}
		records, raws = append(records, r), append(raws, raw)
	}
	return records, raws, true
}

// coveredRefs returns the events of the session that a receipt covers.
func (l *loaded) coveredRefs(r receipt.Receipt) map[fold.Ref]bool {
	refs := map[fold.Ref]bool{}
	for _, seq := range receipt.CoveredSeqs(r) {
		first, n := 0, 1
		if count, isPatch := l.scan.inserted[seq]; isPatch {
			first, n = -1, count
		}
		for i := first; i < n; i++ {
			if ref := (fold.Ref{Seq: seq, Index: i}); r.Covers(ref) {
				refs[ref] = true
			}
		}
	}
	return refs
}

// chooseBy returns a Choose that selects the events for which the function has returns true. It selects the other
// content of a patch if the function returns true for index -1.
func chooseBy(has func(fold.Ref) bool) Choose {
	return func(r patch.Record) (bool, func(int, *patch.Event) bool) {
		return r.Patch != nil && has(fold.Ref{Seq: r.Seq, Index: -1}), func(i int, _ *patch.Event) bool {
			return has(fold.Ref{Seq: r.Seq, Index: i})
		}
	}
}
