package store

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// EraseSelection says which events to erase: each that one of the fields names, whether it is
// in sight or not, those inside patches too. The zero value names none. Receipts are never
// erased.
type EraseSelection struct {
	// EventIDs are ids of events, in the log or inside patches, and of patches: of those all
	// that they say and put in.
	EventIDs []string

	// Seqs are records: an event, or a patch as by its id.
	Seqs []uint64

	// Author, if not empty, names the events by this author, and patches as by their ids.
	Author string

	// Match, if not empty, names the events that have this text in a place that an erase with
	// [patch.NullValues] removes: content, arguments, results, metadata, data, or values of state
	// keys; of a patch, the places besides its events. So an event that was erased with its state values kept is
	// named again if these have the text. Values of the initial state, and of the state that the session
	// shares with others, match too.
	Match string

	// IgnoreCase has Match not tell upper from lower case.
	IgnoreCase bool

	// All names everything.
	All bool
}

// EraseOptions are options of [Store.Erase]. The zero value means the defaults.
type EraseOptions struct {
	// ID is that of the receipt, "" means a new one. If the log has a receipt of this id,
	// the call selects nothing, and finishes what that says.
	ID string

	// Author is who erases, and Reason why, as the receipt says it.
	Author string
	Reason string

	// Values is what becomes of the state values that erased events set: "" and
	// [patch.KeepValues] keep them, and the state. [patch.NullValues] has null in their place;
	// so too in the session's initial state, for values that have Match, or for all of them
	// with All, and in the state that it shares with others, for values that have Match.
	// [Erasure.Kept] says what is kept.
	Values patch.Values

	// Summaries is what becomes of summaries that stand for erased events. They are erased too, but with
	// [patch.KeepSummaries]. Those that are visible are reverted, unless with [patch.BlankSummaries]: what is left of what they
	// stand for is visible again, and the next compaction summarises it. A summary stays blank if its group has
	// a patch that drops state or puts in something else, if nothing is left behind it, or if something stands on it.
	Summaries patch.Summaries

	// Room is how many tokens the visible log may grow by, as estimated, when summaries are reverted; 0 means
	// 50,000. The first is reverted in any case, down to events. What stays for want of room is reverted by the next
	// compaction.
	Room int

	// Context, if not with [patch.KeepSummaries], has summaries erased too whose summarizer had been shown, as context, summaries
	// that are: those that compaction made, after these, of events of the same branch. They may
	// tell of what was erased, and few do.
	Context bool

	// Salt is the key of the receipt's digest; nil means 32 random bytes. It is not stored.
	Salt []byte

	// DryRun reports what the call would do, and writes nothing.
	DryRun bool
}

// Erasure is what an erasing did, or would do.
type Erasure struct {
	// Sessions are those of which something was erased: the one that the call was for, and
	// others that have the same events, since they are forks or copies of each other.
	Sessions []ErasedSession

	// Shared are keys of the state that sessions share whose values were set to null: by
	// [Store.EraseUser], and for values that have the text of a selection with Match.
	Shared []string

	// Kept is what the selection still finds, since the call keeps state values. The same selection with
	// [patch.NullValues] erases it.
	Kept KeptValues

	// Salt is the key of the receipts' digests. With it and a copy of
	// the content, [ErasureDigest] proves what was erased; without it the digest reveals nothing. Keep it
	// apart from the store, or discard it. It is nil if the call finished what an earlier one
	// had begun.
	Salt []byte

	// OutOfReach says where else there may be something of what was erased.
	OutOfReach []string
}

// KeptValues says which of the selected state values an erase keeps: with [EraseSelection.Match] those that
// have the text, else those of all selected events. Copies of the session in the store, which have the same events,
// are not counted.
type KeptValues struct {
	Events  int      // events of the session that set such a value, erased by this call or before
	Initial []string // keys of the session's initial state
	Shared  []string // keys of the state that the session shares with others, with Match
}

// ErasedSession is what was erased of a session.
type ErasedSession struct {
	Key     Key
	Receipt patch.Record  // zero if nothing was logged
	Events  []ErasedEvent // in the order of the log; none of what an earlier call had begun
	Initial []string      // keys of the initial state whose values were set to null

	// Reverted are the ids of blank summaries that made way for what is left behind them, or would. Blank are
	// those that are visible and stay, the newest last.
	Reverted, Blank []string
}

// ErasedEvent is an event that was erased.
type ErasedEvent struct {
	fold.Ref        // Index is -1 for what a patch says besides its events
	ID       string // of the event, or the patch
	Why      string // one of the reasons below
}

// Why an event is erased.
const (
	ErasedSelected  = erase.Selected
	ErasedStandsFor = erase.StandsFor // a summary or another event that a patch put in its place
	ErasedCopy      = erase.Copy      // with results cleared or shortened, or of a call that came back
	ErasedBrought   = erase.Brought
	ErasedShown     = erase.Shown // an event before its own, or with [EraseOptions.Context] a summary
	ErasedSame      = erase.Same
)

// Erase replaces events by blanks ([patch.Event.Blank]) in the log and in all that the store keeps of the session, and
// logs a receipt. With the events it erases what was made of them: the events that patches or groups
// inserted for them, at any depth; copies, also those that [recall.SearchTool] and [recall.ReadTool]
// returned; summaries whose summarizer was shown them; and the same events in forks and other copies
// of the session in this store, each with a receipt of its own. It cannot be undone.
// [EraseOptions.DryRun] reports what it would do.
//
// It first logs the receipts, so that patches made before conflict. It then replaces the records, at most
// 64 and about 256 KiB in a commit; other writers go on in between. The closing commit completes the
// receipts, invalidates views and caches of the log, and reverts visible summaries that are blank
// ([EraseOptions.Summaries]); [Store.Revert] of one of these reverts undoes all of them. Concurrent
// readers see each record either whole or blank. Once Erase has returned, no view, snapshot or index of this store
// has the content; another process notices when it next looks at the session. In a file the bytes stay in
// free pages until [Store.Vacuum], on PostgreSQL until VACUUM FULL.
//
// If Erase fails, or the process ends, the next Erase of the session finishes the work first, whatever
// it selects; with an empty selection, or with the receipt's id, it does nothing else.
// [Store.Verify] reports unfinished erasures.
//
// With [patch.KeepSummaries] it erases only the selected events, here and in copies of the session. A
// later Erase with another choice that selects such a blank also erases what was made of it before.
//
// Erase does not cover events that are appended later, nor a summary whose summarizer knew of an event
// from another summary only: select by Match, or set [EraseOptions.Context].
//
// The error matches [ErrNotFound] if there is no such session, [ErrInvalid] if the options contradict
// each other, [ErrDuplicateID] if another record has the receipt's id, and [ErrCorrupt] if a
// record cannot be read; then nothing is erased.
func (s *Store) Erase(ctx context.Context, key Key, selection EraseSelection, opts EraseOptions) (Erasure, error) {
	e, err := s.newErasing(opts)
	if err != nil {
		return Erasure{}, err
	}
	return e.do(ctx, key, selection)
}

// do erases, or reports what that would do.
func (e *erasing) do(ctx context.Context, key Key, selection EraseSelection) (Erasure, error) {
	if !e.opts.DryRun {
		return e.run(ctx, key, selection)
	}
	plans, err := e.plans(ctx, key, selection)
	for _, p := range plans {
		if err == nil && !p.isEmpty() && e.opts.Summaries == patch.RevertSummaries {
			var would blanks.Plan
			would, err = e.planReverts(ctx, p)
			e.ended[p.key] = reverted{would.Summaries, would.Left}
		}
	}
	if err != nil {
		return Erasure{}, err
	}
	return e.result(plans), nil
}

// ErasureDigest returns what a receipt's digest is if the salt is right and the records are
// those that were erased, in the order of the log, as they were: all that the receipt covers.
func ErasureDigest(salt []byte, records ...patch.Record) ([]byte, error) {
	d := newDigest(salt)
	for _, r := range records {
		if _, err := d.add(r); err != nil {
			return nil, err
		}
	}
	return d.mac.Sum(nil), nil
}

// digest is a digest in the making.
type digest struct {
	mac interface {
		Write([]byte) (int, error)
		Sum([]byte) []byte
	}
}

func newDigest(salt []byte) digest { return digest{hmac.New(sha256.New, salt)} }

// add adds a record, and returns its canonical form.
func (d digest) add(r patch.Record) ([]byte, error) {
	form, err := patch.AppendRecord(nil, r)
	if err != nil {
		return nil, err
	}
	d.mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(form))))
	d.mac.Write(form)
	return form, nil
}

// erasing is an Erase under way.
type erasing struct {
	store   *Store
	opts    EraseOptions
	given   bool      // the caller gave the receipt's id
	hidden  time.Time // if not zero, what was hidden before is selected, and of this session alone
	leftOut []string
	others  func(ctx context.Context) iter.Seq2[Info, error] // sessions that may have the same events
	seen    map[string]bool                                  // creation ids of sessions that have been looked at for copies
	ended   map[Key]reverted                                 // what came of the summaries
	kept    KeptValues                                       // by the last planning
	shared  []string                                         // keys of shared values that are null now, or would be
}

func (s *Store) newErasing(opts EraseOptions) (*erasing, error) {
	switch opts.Values {
	case "":
		opts.Values = patch.KeepValues
	case patch.KeepValues, patch.NullValues:
	default:
		return nil, &patch.FieldError{Field: "EraseOptions.Values", Problem: fmt.Sprintf("%q is neither \"keep\" nor \"null\"", opts.Values)}
	}
	switch opts.Summaries {
	case patch.RevertSummaries, patch.BlankSummaries, patch.KeepSummaries:
	default:
		return nil, &patch.FieldError{Field: "EraseOptions.Summaries", Problem: fmt.Sprintf("%q is neither \"\", \"blank\" nor \"keep\"", opts.Summaries)}
	}
	if opts.Room < 0 {
		return nil, &patch.FieldError{Field: "EraseOptions.Room", Problem: fmt.Sprintf("%d is below 0", opts.Room)}
	}
	e := &erasing{store: s, opts: opts, ended: map[Key]reverted{}, given: opts.ID != "", others: func(ctx context.Context) iter.Seq2[Info, error] { return s.List(ctx, ListOptions{}) }}
	if !e.given {
		e.opts.ID = s.opts.NewID()
	}
	if opts.Salt == nil {
		e.opts.Salt = make([]byte, 32)
		if _, err := rand.Read(e.opts.Salt); err != nil {
			return nil, err
		}
	}
	if err := patch.NewErase(patch.Erasure{Reason: opts.Reason}).WithID(e.opts.ID).WithAuthor(opts.Author).Validate(); err != nil {
		return nil, err
	}
	return e, nil
}

// errReplan: a patch was logged, or something erased, since an erasing was planned.
var errReplan = fmt.Errorf("%w: the log has got a patch since the erasing was planned", ErrConflict)

// run plans and carries out.
func (e *erasing) run(ctx context.Context, key Key, selection EraseSelection) (Erasure, error) {
	if err := key.Validate(); err != nil {
		return Erasure{}, err
	}
	if e.given {
		sessions, err := e.finishAll(ctx, key, e.opts.ID)
		if err != nil || sessions != nil {
			out := e.result(nil)
			out.Sessions, out.Salt = e.withReverted(sessions), nil
			if err == nil { // an earlier call may have done it all
				err = e.store.confirm(ctx, key)
			}
			return out, err
		}
	}
	plans, err := e.begin(ctx, key, selection)
	if plans == nil {
		return Erasure{}, err
	}
	if err == nil {
		err = e.carryOut(ctx, key, plans)
	}
	out := e.result(plans)
	if err == nil && len(out.Sessions) == 0 && e.hidden.IsZero() {
		err = e.store.confirm(ctx, key) // an earlier call may have done it all
	}
	return out, err
}

// begin plans, and logs the receipts.
func (e *erasing) begin(ctx context.Context, key Key, selection EraseSelection) ([]*erasePlan, error) {
	var shared []string
	for try := 1; ; try++ {
		plans, err := e.plans(ctx, key, selection)
		if err != nil {
			return nil, err
		}
		// First the shared values: once the receipts are there, a call that resumes selects nothing.
		if e.opts.Values == patch.NullValues {
			done, err := e.eraseShared(ctx, key, selection, false)
			if err != nil {
				return nil, err
			}
			shared = append(shared, done...)
			slices.Sort(shared)
			e.shared = slices.Compact(shared)
		}
		plans, err = e.logReceipts(ctx, key, plans)
		if !errors.Is(err, errReplan) || try == eraseTries {
			return plans, err
		}
	}
}

// carryOut does what the receipts say that are open in sessions, with those of earlier calls. The first
// session, which the call is for, comes last: as long as it is not finished, a call that resumes finds the
// others by what they have in common.
func (e *erasing) carryOut(ctx context.Context, key Key, plans []*erasePlan) error {
	for _, r := range plans[0].open { // of earlier calls, which may be about other sessions too
		if r.ID() == e.opts.ID {
			continue
		}
		if _, err := e.finishAll(ctx, plans[0].key, r.ID()); err != nil && (plans[0].key == key || !errors.Is(err, ErrNotFound)) {
			return err
		}
	}
	return e.finishPlans(ctx, key, plans)
}

// logReceipts logs the receipts of plans, the first last, and of forks that were made meanwhile. It returns
// with them when it finds no more: each session that has the events has a receipt, and what is forked of one
// from now on takes note of that (see [Store.Fork]).
func (e *erasing) logReceipts(ctx context.Context, key Key, plans []*erasePlan) (_ []*erasePlan, err error) {
	for more := plans; len(more) > 0; {
		if err := eachPlan(key, more, func(p *erasePlan) error { return e.logReceipt(ctx, key, p) }); err != nil {
			return plans, err
		}
		if more, err = e.copies(ctx, plans[0]); err != nil {
			return plans, err
		}
		plans = append(plans, more...)
	}
	return plans, nil
}

// finishPlans finishes the open receipts of plans, those of the first last.
func (e *erasing) finishPlans(ctx context.Context, key Key, plans []*erasePlan) error {
	return eachPlan(key, plans, func(p *erasePlan) error {
		if len(p.open) == 0 {
			return nil
		}
		return e.finish(ctx, p.key, p.view.Creation(), p.open)
	})
}

// eachPlan calls do for plans, the first last. Of sessions other than key that were deleted meanwhile nothing is left.
func eachPlan(key Key, plans []*erasePlan, do func(p *erasePlan) error) error {
	for _, p := range slices.Backward(plans) {
		err := do(p)
		if errors.Is(err, ErrNotFound) && p.key != key {
			*p, err = erasePlan{key: p.key, view: p.view}, nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *erasing) result(plans []*erasePlan) Erasure {
	out := Erasure{Salt: e.opts.Salt, OutOfReach: slices.Clone(outOfReach), Kept: e.kept, Shared: e.shared}
	shared := false
	for _, p := range plans {
		if !p.isEmpty() {
			one := ErasedSession{Key: p.key, Receipt: p.receipt, Initial: p.of.Initial}
			for _, event := range p.events {
				one.Events = append(one.Events, ErasedEvent(event))
			}
			out.Sessions = append(out.Sessions, one)
		}
		for _, r := range p.open {
			if r.ID() != p.receipt.ID() {
				out.Sessions = append(out.Sessions, ErasedSession{Key: p.key, Receipt: r.Record})
			}
		}
		shared = shared || p.shares
	}
	if shared {
		out.OutOfReach = append(out.OutOfReach, "values of state keys that sessions share (app:, user:) which erased events had set")
	}
	out.OutOfReach = append(out.OutOfReach, e.leftOut...)
	out.Sessions = e.withReverted(out.Sessions)
	return out
}

// reverted is what came of a session's blank summaries, by their ids.
type reverted struct{ reverted, left []string }

// withReverted adds to sessions what came of their blank summaries.
func (e *erasing) withReverted(sessions []ErasedSession) []ErasedSession {
	for i, s := range sessions {
		sessions[i].Reverted, sessions[i].Blank = e.ended[s.Key].reverted, e.ended[s.Key].left
	}
	return sessions
}

// outOfReach is what no erasing reaches.
var outOfReach = []string{
	"exports, copies and backups that were made before",
	"replicas, archives and write-ahead logs of a database, and unused room in a file or a table until it is vacuumed",
	"what agents, tools, model providers and telemetry were given",
	"what was said again in later events, in summaries of other events, and in other sessions that were told of it",
}

// logReceipt logs the receipt of a plan, unless there is nothing to erase or an open receipt says it. If the log
// has a receipt of the call's id already, or another session's copy any record, the receipt gets an id of its own.
func (e *erasing) logReceipt(ctx context.Context, key Key, p *erasePlan) error {
	if p.isEmpty() {
		return nil
	}
	id := e.opts.ID
	if slices.ContainsFunc(p.receipts, func(r erase.Receipt) bool { return r.ID() == id }) {
		for _, r := range p.open {
			if says(r, p) {
				p.receipt = r.Record
				return nil
			}
		}
		id = e.store.opts.NewID()
	}
	for {
		receipt := patch.NewErase(p.of).WithID(id).WithAuthor(e.opts.Author)
		done, err := e.store.commit(ctx, p.key, p.view.Creation(), erasePlanned{receipt, p.view.PatchSeq(), p.view.Edition()})
		if errors.Is(err, ErrDuplicateID) && p.key != key && id == e.opts.ID {
			id = e.store.opts.NewID()
			continue
		}
		if err != nil {
			return err
		}
		p.receipt = done.Records[0]
		p.open = append(p.open, erase.ReceiptOf(p.receipt))
		return nil
	}
}

// says reports whether a receipt says all that the receipt of a plan would say.
func says(r erase.Receipt, p *erasePlan) bool {
	return r.Of.Values == p.of.Values && r.Keeps() == (p.of.Summaries == patch.KeepSummaries) &&
		!slices.ContainsFunc(p.events, func(event erase.Event) bool { return !r.Covers(event.Ref) }) &&
		!slices.ContainsFunc(p.of.Initial, func(name string) bool { return !slices.Contains(r.Of.Initial, name) })
}

// erasePlanned is the plan to log a receipt of what was planned on a view.
type erasePlanned struct {
	receipt  *patch.PatchEvent
	patchSeq uint64
	edition  uint64
}

func (p erasePlanned) offers() []patch.Record { return []patch.Record{{Patch: p.receipt}} }

func (p erasePlanned) draft(d *draft) error {
	if err := d.match(); err != nil {
		return err
	}
	if len(d.missing) > 0 && (d.view.PatchSeq() != p.patchSeq || d.view.Edition() != p.edition) {
		return errReplan
	}
	return d.addMissing()
}

// finishAll finishes what the receipt with an id says, if the session's log has it, in all sessions that have
// it or copies of what it covers, with all other receipts there that are not finished; and returns the sessions.
//
// If the erase was interrupted before it worked on this session, the last, a copy may have its receipt under
// another id: it is found by what the receipt covers here. With [KeepSummaries] it may not be: what retention erases here may be
// visible there.
func (e *erasing) finishAll(ctx context.Context, key Key, id string) ([]ErasedSession, error) {
	again, sessions, plans, err := e.resume(ctx, key, id)
	if err == nil && sessions != nil {
		err = again.finishPlans(ctx, key, plans)
		e.leftOut = again.leftOut
	}
	return sessions, err
}

// resume does what [erasing.begin] does, by what the receipt with an id says, if the session's log has it. It
// returns the sessions, their plans, and the erasing that these are of.
func (e *erasing) resume(ctx context.Context, key Key, id string) (again erasing, sessions []ErasedSession, plans []*erasePlan, err error) {
	for try := 1; ; try++ {
		again = *e
		sessions, plans, err = again.tryResume(ctx, key, id)
		if !errors.Is(err, errReplan) || try == eraseTries {
			return again, sessions, plans, err
		}
	}
}

func (e *erasing) tryResume(ctx context.Context, key Key, id string) (sessions []ErasedSession, plans []*erasePlan, err error) {
	own, there, err := e.receiptIn(ctx, key, id)
	if err != nil || !there {
		return nil, nil, err
	}
	r := erase.ReceiptOf(own.Receipt)
	of := r.Of
	e.hidden, e.opts.ID, e.opts.Author, e.opts.Reason = time.Time{}, id, own.Receipt.Patch.Author(), of.Reason
	e.opts.Values, e.opts.Summaries, e.opts.Context = of.Values, of.Summaries, false
	p, err := e.plan(ctx, key, left(r))
	if err != nil {
		return nil, nil, err
	}
	if p.initial, err = e.store.InitialState(ctx, key); err != nil {
		return nil, nil, err
	}
	for _, name := range of.Initial {
		if v, there := p.initial[name]; there && !erase.IsNull(v) {
			p.of.Initial = append(p.of.Initial, name)
		}
	}
	plans = []*erasePlan{p}
	if !r.Keeps() {
		if plans, err = e.withCopies(ctx, p); err != nil {
			return nil, nil, err
		}
	}
	sessions = []ErasedSession{own}
	for info, err := range e.others(ctx) {
		switch {
		case errors.Is(err, ErrCorrupt):
			e.leaveOut(info.Key, err)
			continue
		case err != nil:
			return nil, nil, err
		case info.Key == key:
			continue
		}
		one, there, err := e.receiptIn(ctx, info.Key, id)
		if err == nil && there {
			sessions = append(sessions, one)
			if !slices.ContainsFunc(plans, func(p *erasePlan) bool { return p.key == info.Key }) {
				if p, err = e.plan(ctx, info.Key, erase.Nothing); err == nil {
					plans = append(plans, p)
				}
			}
		}
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrDuplicateID) {
			return nil, nil, err
		}
	}
	plans, err = e.logReceipts(ctx, key, plans)
	return sessions, plans, err
}

// left chooses what a receipt covers that is not erased yet.
func left(r erase.Receipt) erase.Choose {
	none := func(int) bool { return false }
	return func(record patch.Record) (bool, func(int, *patch.Event) bool) {
		own := r.Of.CoversEvent(record.Seq, -1) && record.Patch != nil && record.Patch.Blank(r.ID(), r.Of.Values, none) != record.Patch
		return own, func(i int, e *patch.Event) bool {
			return r.Of.CoversEvent(record.Seq, i) && e.Blank(r.ID(), r.Of.Values) != e
		}
	}
}

func (e *erasing) leaveOut(key Key, err error) {
	e.leftOut = append(e.leftOut, fmt.Sprintf("session %s, which is damaged: %v", key, err))
}

// receiptIn returns the receipt that a session has under the id. It fails with
// [ErrDuplicateID] if another record has the id.
func (e *erasing) receiptIn(ctx context.Context, key Key, id string) (out ErasedSession, there bool, err error) {
	head, _, err := e.store.head(ctx, key)
	if err != nil {
		return out, false, err
	}
	seqs, err := e.store.backend.Lookup(ctx, key.name(), head.Creation, []string{id})
	if err != nil || seqs[0] == 0 {
		return out, false, fromBackend(key, err)
	}
	r, err := e.store.record(ctx, key, head.Creation, seqs[0])
	if err != nil {
		return out, false, err
	}
	if r.Patch != nil {
		if of, ok := r.Patch.Erasure(); ok {
			return ErasedSession{Key: key, Receipt: r, Initial: of.Initial}, true, nil
		}
	}
	return out, false, &DuplicateIDError{ID: id, Seq: r.Seq}
}

// Receipts returns the receipts of erasures in a session's log, in its order. Errors are as
// those of [Store.RawEvents].
func (s *Store) Receipts(ctx context.Context, key Key) ([]patch.Record, error) {
	var receipts []patch.Record
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return nil, err
		}
		if erase.IsReceipt(r) {
			receipts = append(receipts, r)
		}
	}
	return receipts, nil
}
