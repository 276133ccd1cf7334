package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
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
	// ID is the receipt's id; "" means a new one. If the log has a receipt with this id, the call selects nothing
	// else: it finishes that erasure, in copies of the session too that were made since.
	ID string

	// Author is who erases, and Reason why, as the receipt says it.
	Author string
	Reason string

	// Values is what becomes of the state values that erased events set: "" and
	// [patch.KeepValues] keep them, and the state. [patch.NullValues] has null in their place;
	// so too in the session's initial state, for values that have Match, or for all of them
	// with All, and in the state that it shares with others, for values that have Match.
	// [Erasure.RemainingMatches] counts what is kept.
	Values patch.ValuePolicy

	// Summaries is what becomes of summaries that stand for erased events. They are erased too, but with
	// [patch.KeepSummaries]. Those that are visible are reverted, unless with [patch.BlankSummaries]: what is left of what they
	// stand for is visible again, and the next compaction summarises it. A summary stays blank if its group has
	// a patch that drops state or puts in something else, if nothing is left behind it, or if something stands on it.
	Summaries patch.SummaryPolicy

	// MaxGrowth is how many tokens, as estimated, the visible log may grow by when summaries are reverted; 0 means
	// 50,000. The first is reverted in any case, down to events. Summaries beyond the limit are reverted by the next
	// compaction.
	MaxGrowth int

	// Context, if not with [patch.KeepSummaries], has summaries erased too whose summarizer had been shown, as context, summaries
	// that are: those that compaction made, after these, of events of the same branch. They may
	// tell of what was erased, and few do.
	Context bool

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

	// RemainingMatches is how many events of the session, keys of its initial state and keys of the state that it
	// shares with others have values that the selection still finds, since the call keeps state values. The same
	// selection with [patch.NullValues] erases them.
	RemainingMatches int

	// OutOfReach says where else there may be something of what was erased.
	OutOfReach []string
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
	Why      string // in words: it was selected, stands for an erased event, is a copy of one, …
}

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
	e, err := s.newErasing(selection, opts)
	if err != nil {
		return Erasure{}, err
	}
	return e.erase(ctx, key)
}

// erasing is an Erase under way.
type erasing struct {
	store     *Store
	opts      EraseOptions
	selection EraseSelection
	given     bool                                             // the caller gave the receipt's id
	resumes   []erase.Receipt                                  // if not empty, what they cover is selected; the options are those of the first
	hidden    time.Time                                        // if not zero, the events hidden before this time are selected, in this session alone
	others    func(ctx context.Context) iter.Seq2[Info, error] // sessions that may have the same events
	leftOut   []string                                         // damaged sessions
	seen      map[string]bool                                  // creation ids of sessions that have been looked at for copies
	matches   int                                              // see [Erasure.RemainingMatches]; by the last planning
	shared    []string                                         // keys of shared values that are null now, or would be
}

func (s *Store) newErasing(selection EraseSelection, opts EraseOptions) (*erasing, error) {
	invalid := func(field, format string, value any) error {
		return &patch.FieldError{Field: "EraseOptions." + field, Problem: fmt.Sprintf(format, value)}
	}
	opts.Values = cmp.Or(opts.Values, patch.KeepValues)
	switch {
	case opts.Values != patch.KeepValues && opts.Values != patch.NullValues:
		return nil, invalid("Values", "%q is neither \"keep\" nor \"null\"", opts.Values)
	case !slices.Contains([]patch.SummaryPolicy{patch.RevertSummaries, patch.BlankSummaries, patch.KeepSummaries}, opts.Summaries):
		return nil, invalid("Summaries", "%q is neither \"\", \"blank\" nor \"keep\"", opts.Summaries)
	case opts.MaxGrowth < 0:
		return nil, invalid("MaxGrowth", "%d is below 0", opts.MaxGrowth)
	}
	e := &erasing{store: s, opts: opts, selection: selection, given: opts.ID != ""}
	e.others = func(ctx context.Context) iter.Seq2[Info, error] { return s.List(ctx, ListOptions{}) }
	if !e.given {
		e.opts.ID = s.opts.NewID()
	}
	return e, patch.NewErase(patch.Erasure{Reason: opts.Reason}).WithID(e.opts.ID).WithAuthor(opts.Author).Validate()
}

// retention is the author of receipts of [Store.Retain], which are about one session alone.
const retention = "retention"

// erase erases, or with DryRun reports what it would erase.
func (e *erasing) erase(ctx context.Context, key Key) (Erasure, error) {
	e, plans, err := e.begin(ctx, key)
	if plans == nil || e.opts.DryRun {
		return e.result(plans), err
	}
	if err == nil {
		err = e.carryOut(ctx, key, plans)
	}
	out := e.result(plans)
	if err == nil && (e.resumes != nil || len(out.Sessions) == 0 && e.hidden.IsZero()) {
		err = e.store.confirm(ctx) // an earlier call may have done it all
	}
	return out, err
}

// resumed returns the erasing that completes the receipt with the call's id, or e if the log has no such receipt.
func (e *erasing) resumed(ctx context.Context, key Key) (*erasing, error) {
	if !e.given {
		return e, nil
	}
	head, err := e.store.headOnly(ctx, key)
	if err != nil {
		return nil, err
	}
	seqs, err := e.store.backend.Lookup(ctx, key.name(), head.Creation, []string{e.opts.ID})
	if err != nil || seqs[0] == 0 {
		return e, fromBackend(key, err)
	}
	r, err := e.store.record(ctx, key, head.Creation, seqs[0])
	if err == nil && !erase.IsReceipt(r) {
		err = &DuplicateIDError{ID: e.opts.ID, Seq: r.Seq}
	}
	if err != nil {
		return nil, err
	}
	return e.resume(erase.ReceiptOf(r)), nil
}

// resume returns the erasing that completes receipts.
func (e *erasing) resume(receipts ...erase.Receipt) *erasing {
	again, r := *e, receipts[0]
	again.resumes, again.hidden = receipts, time.Time{}
	again.opts.ID, again.opts.Author, again.opts.Reason = r.ID(), r.Patch.Author(), r.Of.Reason
	again.opts.Values, again.opts.Summaries, again.opts.Context = r.Of.Values, r.Of.Summaries, false
	return &again
}

// begin plans, and logs the receipts, unless with DryRun. If the log has a receipt with the call's id, the erasing that it
// returns is the one that completes it.
func (e *erasing) begin(ctx context.Context, key Key) (*erasing, []*erasePlan, error) {
	if e.opts.DryRun {
		plans, err := e.plans(ctx, key)
		for _, p := range plans {
			if err == nil && !p.isEmpty() && e.opts.Summaries == patch.RevertSummaries {
				err = e.planReverts(ctx, p)
			}
		}
		return e, plans, err
	}
	again, err := e.resumed(ctx, key)
	if err != nil {
		return e, nil, err
	}
	e = again
	for try := 1; ; try++ {
		plans, err := e.plans(ctx, key)
		if err != nil {
			return e, nil, err
		}
		// First the shared values: once the receipts are there, a call that resumes selects nothing.
		if e.opts.Values == patch.NullValues && e.resumes == nil {
			names, err := e.eraseShared(ctx, key, false)
			if err != nil {
				return e, nil, err
			}
			e.shared = slices.Compact(slices.Sorted(slices.Values(append(e.shared, names...))))
		}
		plans, err = e.logReceipts(ctx, key, plans)
		if errors.Is(err, errReplan) && try < eraseTries {
			continue
		}
		for _, p := range plans { // views and scans are large
			p.view, p.scan = fold.New(p.view.Creation(), nil), nil
		}
		return e, plans, err
	}
}

// carryOut finishes the open receipts of sessions, with those of earlier calls. The first session, which the call is
// for, comes last: as long as it is not finished, a call that resumes finds the others by their common events.
func (e *erasing) carryOut(ctx context.Context, key Key, plans []*erasePlan) error {
	for _, r := range plans[0].open { // of earlier calls, which may be about other sessions too
		if r.ID() == e.opts.ID {
			continue
		}
		earlier, more, err := e.resume(r).begin(ctx, key)
		if err == nil {
			err = earlier.finishPlans(ctx, key, more)
		}
		e.leftOut = earlier.leftOut
		if err != nil {
			return err
		}
	}
	return e.finishPlans(ctx, key, plans)
}

// logReceipts logs the receipts of plans, the first last, and of forks that were made meanwhile. It returns
// with them when it finds no more: each session that has the events has a receipt, and what is forked of one
// from now on takes note of that (see [Store.Fork]).
func (e *erasing) logReceipts(ctx context.Context, key Key, plans []*erasePlan) (_ []*erasePlan, err error) {
	for more := plans; len(more) > 0; plans = append(plans, more...) {
		if err := eachPlan(key, more, func(p *erasePlan) error { return e.logReceipt(ctx, key, p) }); err != nil {
			return plans, err
		}
		if more, err = e.copies(ctx, plans[0]); err != nil {
			return plans, err
		}
	}
	return plans, nil
}

// finishPlans finishes the open receipts of plans, those of the first last.
func (e *erasing) finishPlans(ctx context.Context, key Key, plans []*erasePlan) error {
	return eachPlan(key, plans, func(p *erasePlan) error {
		if len(p.open) == 0 {
			return nil
		}
		return e.finish(ctx, p)
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

// result returns what plans erased, or would erase.
func (e *erasing) result(plans []*erasePlan) Erasure {
	out := Erasure{RemainingMatches: e.matches, Shared: e.shared, OutOfReach: slices.Concat(outOfReach, e.leftOut)}
	for i, p := range plans {
		if e.resumes != nil && i == 0 && p.receipt.Seq == 0 {
			p.receipt = e.resumes[0].Record
		}
		one := ErasedSession{Key: p.key, Receipt: p.receipt, Initial: p.of.Initial, Reverted: p.reverted, Blank: p.blank}
		for _, event := range p.events {
			one.Events = append(one.Events, ErasedEvent(event))
		}
		if !p.isEmpty() || p.receipt.Seq != 0 {
			out.Sessions = append(out.Sessions, one)
		}
		for _, r := range p.open {
			if r.ID() != p.receipt.ID() {
				out.Sessions = append(out.Sessions, ErasedSession{Key: p.key, Receipt: r.Record, Reverted: p.reverted, Blank: p.blank})
			}
		}
	}
	return out
}

// outOfReach is what no erasure reaches.
var outOfReach = []string{
	"exports, copies and backups that were made before",
	"replicas, archives and write-ahead logs of a database, and unused room in a file or a table until it is vacuumed",
	"what agents, tools, model providers and telemetry were given",
	"what was said again in later events, in summaries of other events, and in other sessions that were told of it",
	"keys of all state, session names, and values of shared state (app:, user:) other than those that are said to be null",
}

// damaged formats the reason why a session is left out.
func damaged(key Key, err error) string {
	return fmt.Sprintf("session %s, which is damaged: %v", key, err)
}

// eraseShared sets those of the shared values with the prefixes to null that are to be and are not, and returns
// their keys. which is given a value, or the error of one that cannot be read. A value that is written meanwhile
// is looked at again.
func (s *Store) eraseShared(ctx context.Context, prefixes []string, which func(patch.Value, error) bool, dryRun bool) ([]string, error) {
	data, err := erase.Null.MarshalBinary()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		news, err := s.backend.Fetch(ctx, backend.Query{Shared: prefixes})
		if err != nil {
			return nil, fromBackend(Key{}, err)
		}
		var names []string
		var changes []backend.SharedChange
		for i, prefix := range prefixes {
			for _, v := range news.Shared[i] {
				if value, err := sharedValue(v); err == nil && erase.IsNull(value) || !which(value, err) {
					continue
				}
				names = append(names, v.Name[len(prefix):])
				changes = append(changes, backend.SharedChange{Old: &v, Name: v.Name, Data: data})
			}
		}
		slices.Sort(names)
		switch {
		case dryRun:
			return names, nil
		case len(changes) == 0:
			return names, s.confirm(ctx) // an earlier call may have done it all
		}
		if err = s.backend.PutShared(ctx, changes); err == nil {
			return names, nil
		}
		if try == eraseTries || !errors.Is(err, backend.ErrMoved) {
			return nil, fromBackend(Key{}, err)
		}
	}
}
