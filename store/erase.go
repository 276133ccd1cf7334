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
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// EraseSelection selects the events to erase: each event that one of the fields matches, visible or hidden, including events inside
// patches. The zero value selects none. Receipts are never erased.
type EraseSelection struct {
	// EventIDs are ids of events (in the log or inside patches) and of patches. All content of a selected patch is
	// erased.
	EventIDs []string

	// Seqs are seqs of events and patches. They select as EventIDs do.
	Seqs []uint64

	// Author, if not empty, selects the events and patches of this author.
	Author string

	// Match, if not empty, selects each event that has this text in its content, arguments, results, metadata, data or
	// state values, and each patch that has the text outside its events. An erased event whose state values were kept
	// is selected again if these values contain the text. Match also finds values of the initial state and of the
	// shared state.
	Match string

	// IgnoreCase makes Match case-insensitive.
	IgnoreCase bool

	// All selects everything.
	All bool
}

// EraseOptions are options of [Store.Erase]. The zero value means the defaults.
type EraseOptions struct {
	// ID is the id of the erase, which its receipts name; "" means a new id. If the session already has an erase with
	// this id, the call only finishes that erase. Different sessions may use the same id.
	ID string

	// Author and Reason are stored in the receipt.
	Author string
	Reason string

	// Values says what happens to the state values that erased events set. "" and [patch.NullValues] replace them by
	// null. Values of the initial state become null too if they contain Match, or if All is set, and values of the
	// shared state if they contain Match. [patch.KeepValues] keeps all these values. [Erasure.RemainingMatches] counts
	// the kept values that the selection still finds.
	Values patch.ValuePolicy

	// Summaries says what happens to summaries of erased events. "" erases them and reverts the visible ones, so that
	// the remaining events that they cover are visible again, until the next compaction summarises them.
	// [patch.BlankSummaries] erases the summaries without a revert; [patch.KeepSummaries] keeps them. A blank summary
	// is not reverted if its group has a patch that drops state or inserts something else, if it covers no remaining
	// event, or if another patch depends on it.
	Summaries patch.SummaryPolicy

	// MaxGrowth is how many estimated tokens the visible log may grow by when summaries are reverted; 0 means 50,000.
	// The first summary is reverted in any case. The next compaction reverts the summaries beyond the limit.
	MaxGrowth int

	// Context also erases later summaries that compaction made in the same branch with an erased summary as context.
	// Few of these later summaries repeat erased text. It has no effect with [patch.KeepSummaries].
	Context bool

	// DryRun reports what the call would do, and writes nothing.
	DryRun bool
}

// Erasure is the result of an erase, or of a dry run.
type Erasure struct {
	// Sessions are the sessions with erased events: the session of the call, and related sessions (see [Store.Erase]).
	Sessions []ErasedSession `json:"sessions"`

	// Shared are the keys of shared state whose values became null: all keys of the user with [Store.EraseUser], the
	// keys whose values contain Match with [Store.Erase].
	Shared []string `json:"shared"`

	// RemainingMatches is set if the call keeps state values. It counts the events, the keys of the initial state and
	// the shared keys whose kept values the selection still finds. The same selection with [patch.NullValues] erases
	// these values.
	RemainingMatches int `json:"remainingMatches"`

	// OutOfReach names other places where erased content may be.
	OutOfReach []string `json:"outOfReach"`
}

// ErasedSession is the erased content of a session.
type ErasedSession struct {
	Key     Key           `json:"key"`
	Receipt patch.Record  `json:"receipt,omitzero"` // zero if nothing was logged
	Events  []ErasedEvent `json:"events"`           // in the order of the log, without events that an earlier call erased
	Initial []string      `json:"initial"`          // keys of the initial state whose values were set to null

	// Reverted are the ids of the blank summaries that were reverted, or would be. Blank are the ids of the blank
	// summaries that stay visible, the newest last.
	Reverted []string `json:"reverted"`
	Blank    []string `json:"blank"`
}

// ErasedEvent is an event that was erased.
type ErasedEvent struct {
	fold.Ref        // Index is -1 for content of a patch outside its events
	ID       string `json:"id"`  // of the event, or the patch
	Why      string `json:"why"` // in words: it was selected, replaces an erased event, is a copy of an erased event, …
}

// Erase replaces events by blanks ([patch.Event.Blank]) in the log and in everything else that the store keeps of the
// session, and logs a receipt. It also erases what was made from these events: events that patches or groups inserted
// in their place, at any depth; copies, also in results of the tools of package recall; and summaries whose summarizer
// was shown the events. The same events are erased in related sessions of this store, each with its own receipt. An
// erase cannot be undone; [EraseOptions.DryRun] reports what it would do.
//
// Erase first logs the receipt. Then it replaces the records, at most 64 and about 256 KiB in a commit. The last commit
// closes the receipt and reverts blank summaries that are visible ([EraseOptions.Summaries]); [Store.Revert] of one of
// these reverts undoes all of them. Then Erase does the same in each related session (a fork of this session, or a
// session that it was forked from) that has some of the erased content, and in their relatives. Other writers go on
// between the commits; a patch or a fork first finishes an open erase of its session. Patches made from a view before
// the erase conflict. Concurrent readers see each record either whole or blank. Once Erase has returned, no view,
// snapshot or index of this store has the content; another process drops it when it next reads the session. In a file
// the bytes stay in free pages until [Store.Vacuum], on PostgreSQL until VACUUM FULL.
//
// If Erase fails, or the process ends, the same call with the same id finishes the work. So does the next Erase of the
// session, whatever it selects; with an empty selection it does nothing more. [Store.Verify] reports unfinished
// erasures.
//
// With [patch.KeepSummaries] it erases only the selected events, in this session and its relatives. A later Erase
// without KeepSummaries that selects these blanks also erases what had been made from the events.
//
// Erase does not cover events that are appended later. Nor does it cover a summary whose summarizer knew an event only
// from another summary: select that summary by Match, or set [EraseOptions.Context].
//
// The error matches [ErrNotFound] if there is no such session, [ErrInvalid] if the options contradict each other, and
// [ErrCorrupt] if a record of the session cannot be read. A damaged related session is left out, and named in
// [Erasure.OutOfReach].
func (s *Store) Erase(ctx context.Context, key Key, selection EraseSelection, opts EraseOptions) (Erasure, error) {
	o, err := s.eraseOptions(opts)
	if err == nil {
		err = key.Validate()
	}
	if err != nil {
		return Erasure{}, err
	}
	m := selection.matcher()
	sel := erase.Selection{Choose: selection.choose(), Matcher: m, All: selection.All}
	matches := 0
	if m.Text != "" {
		kept := o.Values == patch.KeepValues
		o.Shared = func(ctx context.Context) ([]string, error) {
			names, err := s.eraseShared(ctx, scopePrefixes(key), func(v patch.Value, err error) bool { return err == nil && m.Value(v) }, opts.DryRun || kept)
			if kept {
				matches, names = len(names), nil
			}
			return names, err
		}
	}
	c, err := erase.Run(ctx, s.erasing(), key.name(), sel, o, opts.ID != "")
	out := erasureOf(opts.DryRun, c)
	out.RemainingMatches += matches
	return out, err
}

// eraseOptions checks options, and returns them with the id of the call.
func (s *Store) eraseOptions(opts EraseOptions) (erase.Options, error) {
	invalid := func(field, format string, value any) error {
		return &patch.FieldError{Field: "EraseOptions." + field, Problem: fmt.Sprintf(format, value)}
	}
	o := erase.Options{ID: opts.ID, Author: opts.Author, Reason: opts.Reason, Values: cmp.Or(opts.Values, patch.NullValues), Summaries: opts.Summaries,
		MaxGrowth: opts.MaxGrowth, Context: opts.Context, DryRun: opts.DryRun}
	switch {
	case o.Values != patch.KeepValues && o.Values != patch.NullValues:
		return o, invalid("Values", "%q is neither \"keep\" nor \"null\"", opts.Values)
	case !slices.Contains([]patch.SummaryPolicy{patch.RevertSummaries, patch.BlankSummaries, patch.KeepSummaries}, opts.Summaries):
		return o, invalid("Summaries", "%q is neither \"\", \"blank\" nor \"keep\"", opts.Summaries)
	case opts.MaxGrowth < 0:
		return o, invalid("MaxGrowth", "%d is below 0", opts.MaxGrowth)
	}
	if o.ID == "" {
		o.ID = s.opts.NewID()
	}
	return o, patch.NewErase(patch.Erasure{Reason: opts.Reason, CallID: o.ID}).WithID("receipt").WithAuthor(opts.Author).Validate()
}

func (e EraseSelection) matcher() erase.Matcher {
	return erase.Matcher{Text: e.Match, Folded: e.IgnoreCase}
}

func (e EraseSelection) choose() erase.Choose {
	ids, seqs := map[string]bool{}, map[uint64]bool{}
	for _, id := range e.EventIDs {
		ids[id] = true
	}
	for _, seq := range e.Seqs {
		seqs[seq] = true
	}
	m := e.matcher()
	return func(r patch.Record) (own bool, which func(int, *patch.Event) bool) {
		whole := e.All || seqs[r.Seq]
		if p := r.Patch; p != nil {
			whole = whole || ids[p.ID()] || e.Author != "" && p.Author() == e.Author
			own = whole || m.Patch(p)
		}
		return own, func(_ int, event *patch.Event) bool {
			return whole || ids[event.ID()] || e.Author != "" && event.Author() == e.Author || m.Event(event)
		}
	}
}

// EraseUser erases all events of all sessions of a user of an app, as [Store.Erase] does with All. It also erases the
// same events in related sessions of other users, and the values of the user's shared state. The sessions, their keys
// and their ids stay: [Store.Delete] removes them. All receipts name the same id.
//
// The sessions are erased one after the other, in bounded steps, and other calls write in between. Events that are
// appended to a session after its receipt are not erased: let the user's agents end first. Pass an id in opts: if
// EraseUser fails, or the process ends, the same call with the same id continues. So does the next erase of the session
// in which EraseUser began; [Store.Verify] reports that session. Once it has succeeded, the same call with the same id
// changes nothing.
//
// It fails with [ErrInvalid] if app or user are empty, or the options make no sense. A damaged session is left out, and
// named in [Erasure.OutOfReach].
func (s *Store) EraseUser(ctx context.Context, app, user string, opts EraseOptions) (Erasure, error) {
	if app == "" || user == "" {
		return Erasure{}, fmt.Errorf("%w: erasing a user takes an app and a user, and has %q and %q", ErrInvalid, app, user)
	}
	o, err := s.eraseOptions(opts)
	if err != nil {
		return Erasure{}, err
	}
	o.ForUser = true
	var shared []string
	u := s.userErasing(app, user, o, &shared)
	u.Given = opts.ID != ""
	err = u.Run(ctx)
	out := erasureOf(opts.DryRun, u.Calls...)
	out.Shared = shared
	return out, err
}

// userErasing prepares the erasure of a user. It adds the shared keys whose values become null to shared.
func (s *Store) userErasing(app, user string, o erase.Options, shared *[]string) *erase.User {
	prefix := prefixOf("user", app, user)
	return &erase.User{Log: s.erasing(), Options: o,
		Sessions: func(ctx context.Context) iter.Seq2[erase.Session, error] {
			return func(yield func(erase.Session, error) bool) {
				for info, err := range s.List(ctx, ListOptions{App: app, User: user}) {
					one := erase.Session{Name: info.Key.name()}
					if errors.Is(err, ErrCorrupt) {
						one.Err, err = err, nil
					}
					if !yield(one, err) {
						return
					}
				}
			}
		},
		Shared: func(ctx context.Context) error {
			if o.Values != patch.NullValues && !o.DryRun {
				return fromBackend(Key{}, write.Confirm(ctx, s.backend)) // an earlier call may have done it all
			} else if o.Values != patch.NullValues {
				return nil
			}
			names, err := s.eraseShared(ctx, []string{prefix}, func(patch.Value, error) bool { return true }, o.DryRun)
			*shared = slices.Compact(slices.Sorted(slices.Values(append(*shared, names...))))
			return err
		},
	}
}

// eraseHidden erases the events of one session that were hidden before a time, and keeps their summaries. events is how
// many it erased, or would erase. did reports any change: it may only finish an earlier erasure.
func (s *Store) eraseHidden(ctx context.Context, key Key, before time.Time, reason string, dryRun bool) (events int, did bool, err error) {
	o, err := s.eraseOptions(EraseOptions{Author: erase.Retention, Reason: reason, Values: patch.KeepValues, Summaries: patch.KeepSummaries, DryRun: dryRun})
	if err != nil {
		return 0, false, err
	}
	c, err := erase.Run(ctx, s.erasing(), key.name(), erase.Selection{Choose: EraseSelection{}.choose(), Hidden: before}, o, false)
	out := erasureOf(dryRun, c)
	for _, one := range out.Sessions {
		events += len(one.Events)
	}
	return events, len(out.Sessions) > 0, err
}

// finishErasures finishes the open receipts in a session and, with calls, the session's calls.
func (s *Store) finishErasures(ctx context.Context, key Key, calls bool) error {
	did, err := erase.Pending(ctx, s.erasing(), key.name(), calls)
	if err != nil || len(did) > 0 {
		return err
	}
	head, err := s.head(ctx, key) // another process may have finished them
	if c := write.CountsOf(head); err == nil && (c.Open > 0 || calls && c.Calls > 0) {
		err = fmt.Errorf("session %s: %w: its head counts %d open receipts and %d calls of erasures, and the log has none", key, ErrCorrupt, c.Open, c.Calls)
	}
	return err
}

// erasureOf returns what calls erased, or would erase.
func erasureOf(dryRun bool, calls ...*erase.Call) Erasure {
	out := Erasure{OutOfReach: slices.Clone(outOfReach)}
	var sessions []*erase.Erased
	for _, c := range calls {
		out.RemainingMatches += c.Matches
		out.Shared = append(out.Shared, c.Shared...)
		for _, d := range c.Damaged {
			if text := fmt.Sprintf("session %s, which is damaged: %v", keyNamed(d.Name), d.Err); !slices.Contains(out.OutOfReach, text) {
				out.OutOfReach = append(out.OutOfReach, text)
			}
		}
		for _, e := range slices.Concat(c.Earlier, c.Sessions) {
			if e.Receipt.Seq != 0 || dryRun && len(e.Events)+len(e.Initial) > 0 {
				sessions = append(sessions, e)
			}
		}
	}
	if len(calls) != 1 {
		sessions = erase.Merge(sessions)
	}
	for _, e := range sessions {
		one := ErasedSession{Key: keyNamed(e.Name), Receipt: e.Receipt, Initial: e.Initial, Reverted: e.Reverted, Blank: e.Blank}
		for _, event := range e.Events {
			one.Events = append(one.Events, ErasedEvent(event))
		}
		slices.SortFunc(one.Events, func(a, b ErasedEvent) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Index, b.Index)) })
		out.Sessions = append(out.Sessions, one)
	}
	return out
}

// outOfReach are the places that no erasure reaches.
var outOfReach = []string{
	"exports, copies and backups that were made before",
	"replicas, archives and write-ahead logs of a database, and unused room in a file or a table until it is vacuumed",
	"what agents, tools, model providers and telemetry were given",
	"what was said again in later events, in summaries of other events, and in other sessions that were told of it",
	"keys of all state, session names, and values of shared state (app:, user:) other than those that are said to be null",
}

// eraseShared sets shared values to null, and returns their keys. It takes the values with the prefixes that which
// selects and that are not null. which gets a value, or the error of an unreadable one. If a value is written
// meanwhile, it is read again.
func (s *Store) eraseShared(ctx context.Context, prefixes []string, which func(patch.Value, error) bool, dryRun bool) ([]string, error) {
	data, err := receipt.Null.MarshalBinary()
	if err != nil {
		return nil, err
	}
	for {
		news, err := s.backend.Fetch(ctx, backend.Query{Shared: prefixes})
		if err != nil {
			return nil, fromBackend(Key{}, err)
		}
		var names []string
		var changes []backend.SharedChange
		for i, prefix := range prefixes {
			for _, v := range news.Shared[i] {
				if value, err := sharedValue(v); err == nil && receipt.IsNull(value) || !which(value, err) {
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
			return names, fromBackend(Key{}, write.Confirm(ctx, s.backend)) // an earlier call may have done it all
		}
		if err = s.backend.PutShared(ctx, changes); err == nil {
			return names, nil
		}
		if !errors.Is(err, backend.ErrMoved) {
			return nil, fromBackend(Key{}, err)
		}
	}
}

// erasing returns the store in the form that package erase uses.
func (s *Store) erasing() erase.Log { return erase.Log{Config: &s.writing, Store: eraseLog{s}} }

type eraseLog struct{ *Store }

func keyNamed(name string) Key {
	key, _ := keyOf(name) // it was made of one
	return key
}

func (l eraseLog) Session(ctx context.Context, name string) (erase.Session, error) {
	head, m, err := l.headAndMeta(ctx, keyNamed(name))
	return erase.Session{Name: name, Head: head, Initial: m.initial, Lineage: m.lineage}, err
}

func (l eraseLog) IsGone(err error) bool { return errors.Is(err, ErrNotFound) }

func (l eraseLog) Relatives(ctx context.Context, family string) iter.Seq2[erase.Session, error] {
	page := func(after string) ([]backend.Listed, error) { return l.backend.Relatives(ctx, family, after, listPage) }
	return func(yield func(erase.Session, error) bool) {
		for one, err := range listAll(write.StagedEnd, page) {
			var m meta
			damage := one.Err
			if damage == nil && err == nil {
				m, damage = decodeMeta(one.Meta)
			}
			if !yield(erase.Session{Name: one.Session, Head: one.Head, Initial: m.initial, Lineage: m.lineage, Err: fromBackend(Key{}, damage)}, err) {
				return
			}
		}
	}
}

func (l eraseLog) Read(ctx context.Context, s erase.Session, each func(patch.Record, backend.Record)) (fold.View, error) {
	key, v := keyNamed(s.Name), fold.New(s.Head.Creation, s.Initial).WithEdition(s.Head.Edition)
	for page, err := range l.pages(ctx, key, s.Head, 1, newest) {
		if err == nil {
			v, err = l.foldRecords(ctx, key, s.Head.Creation, v, page.records)
		}
		if err != nil {
			return v, err
		}
		for i, r := range page.records {
			each(r, page.raw[i])
		}
	}
	return v, nil
}

func (l eraseLog) Pick(ctx context.Context, name, creation string, seqs []uint64) ([]patch.Record, []backend.Record, error) {
	p, err := l.pickRaw(ctx, keyNamed(name), creation, seqs)
	return p.records, p.raw, err
}

// Replace commits a replacement while it holds the session's lock, and drops the view, which has the erased content.
func (l eraseLog) Replace(ctx context.Context, name, creation string, plan func(backend.Head) (backend.Replacement, error)) error {
	key := keyNamed(name)
	h := l.cache.acquire(key)
	defer l.cache.release(h)
	if err := h.Lock(ctx); err != nil {
		return err
	}
	defer h.Unlock()
	defer l.changes.wake(key)
	defer h.snapshot.Store(nil)
	defer h.Drop()
	return l.backend.Replace(ctx, name, creation, func(head backend.Head) (backend.Replacement, error) {
		r, err := plan(head)
		r.Next = backend.NewToken()
		return r, err
	})
}

func (l eraseLog) Named(name string, err error) error { return fromBackend(keyNamed(name), err) }

func (l eraseLog) ResumeUser(ctx context.Context, name string, o erase.Options) error {
	key := keyNamed(name)
	return l.userErasing(key.App, key.User, o, new([]string)).Others(ctx, name)
}

func (l eraseLog) Meta(s erase.Session) ([]byte, error) {
	m, err := decodeMeta(s.Head.Meta)
	if err != nil {
		return nil, err
	}
	m.initial = s.Initial
	return encodeMeta(m)
}
