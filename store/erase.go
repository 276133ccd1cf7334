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

// EraseSelection selects the events to erase. It selects each event that at least one field matches, whether the
// event is visible, hidden or inside a patch. The zero value selects nothing. Receipts are never erased.
type EraseSelection struct {
	// EventIDs are ids of events, in the log or inside patches, and ids of patches. If a patch is selected, all of
	// its content is erased.
	EventIDs []string

	// Seqs are seqs of events and patches. They select the same content as EventIDs.
	Seqs []uint64

	// Author, if not empty, selects the events and patches of this author.
	Author string

	// Match, if not empty, selects each event with this text in its content, arguments, results, metadata, data or
	// state values. It also selects each patch with this text outside the events of the patch. If an erased event
	// kept its state values, and these values contain the text, Match selects the event again. Match also finds
	// values of the initial state and of the shared state.
	Match string

	// IgnoreCase makes Match case-insensitive.
	IgnoreCase bool

	// All selects everything.
	All bool
}

// EraseOptions are options of [Store.Erase] and [Store.EraseUser]. The zero value selects the defaults.
type EraseOptions struct {
	// ID is the id of the erase, which all of its receipts name. "" means a new id. If the session already has an
	// erase with this id, the call only finishes that erase and ignores the selection. Two sessions may use the
	// same id for different erases.
	ID string

	// Author and Reason are stored in the receipt.
	Author string
	Reason string

	// Values is the policy for the state values that erased events set. "" and [patch.NullValues] replace these
	// values with null. They also replace each value of the initial or shared state that contains Match. If All is
	// set, they replace every value of the initial state. [patch.KeepValues] keeps all of these values, and
	// [Erasure.RemainingMatches] counts the kept values that the selection still finds.
	Values patch.ValuePolicy

	// Summaries is the policy for summaries of erased events. "" erases the summaries and reverts those that are
	// visible. The remaining events that such a summary covers are then visible again, until the next compaction
	// summarises them. [patch.BlankSummaries] erases the summaries without a revert. [patch.KeepSummaries] keeps
	// them.
	//
	// A blank summary stays visible if its group has a patch that drops state or inserts an event other than a
	// summary. It also stays visible if all events that it covers are blank, or if another patch depends on the
	// summary.
	Summaries patch.SummaryPolicy

	// MaxGrowth is the maximum growth of the visible log by reverts of summaries, in estimated tokens. 0 means
	// 50,000. Even if the limit is exceeded, Erase reverts one blank summary, then one blank summary that this
	// revert makes visible, and so on. The next compaction reverts the summaries that remain.
	MaxGrowth int

	// Context also erases each later summary that compaction made in the same branch with an erased summary as
	// context. Few of these later summaries repeat erased text. With [patch.KeepSummaries], Context has no effect.
	Context bool

	// DryRun reports what the call would do, and writes nothing.
	DryRun bool
}

// Erasure is the result of an erase. For a dry run, it describes what the erase would do.
type Erasure struct {
	// Sessions are the sessions with erased events: the session of the call, and related sessions (see
	// [Store.Erase]).
	Sessions []ErasedSession `json:"sessions"`

	// Shared are the keys of shared state whose values became null. For [Store.EraseUser] these are all keys of the
	// user. For [Store.Erase] these are the keys whose values contain Match.
	Shared []string `json:"shared"`

	// RemainingMatches is set if the call keeps state values. It is the number of events, keys of the initial state
	// and shared keys with kept values that the selection still finds. An erase with the same selection and
	// [patch.NullValues] erases these values.
	RemainingMatches int `json:"remainingMatches"`

	// OutOfReach describes other places that may still contain erased content.
	OutOfReach []string `json:"outOfReach"`
}

// ErasedSession describes the erased content of one session.
type ErasedSession struct {
	Key     Key           `json:"key"`
	Receipt patch.Record  `json:"receipt,omitzero"` // zero if nothing was logged
	Events  []ErasedEvent `json:"events"`           // events in log order, without those that an earlier call erased
	Initial []string      `json:"initial"`          // keys of the initial state whose values became null

	// Reverted are the ids of the blank summaries that were reverted. Blank are the ids of the blank summaries that
	// remain visible, newest last.
	Reverted []string `json:"reverted"`
	Blank    []string `json:"blank"`
}

// ErasedEvent is an event that was erased.
type ErasedEvent struct {
	fold.Ref        // Index is -1 for the content of a patch outside its events
	ID       string `json:"id"`               // id of the event, or of the patch
	Why      string `json:"why"`              // reason, such as: the event was selected, it replaces an erased event, it is a copy of an erased event
	Summary  bool   `json:"summary,omitzero"` // whether the event is a summary
}

// Erase replaces the selected events with blanks ([patch.Event.Blank]) and logs a receipt. An erase cannot be
// undone; with [EraseOptions.DryRun], Erase only reports what it would do. Erase also erases what was derived from
// the selected events:
//   - events that patches or groups inserted in their place, at any depth;
//   - copies, including those in the results of the tools of package recall;
//   - summaries whose summarizer was shown the events;
//   - the same events in related sessions of this store; each of these sessions gets its own receipt. Related
//     sessions are forks and copies of the session, the sessions that it was made from, and the relatives of these
//     sessions.
//
// Erase first logs the receipt, which is open until the erase of the session is complete. It then replaces the
// records, at most 64 records and about 256 KiB in one commit. The last commit closes the receipt and reverts
// visible blank summaries, see [EraseOptions.Summaries]. A [Store.Revert] of one of these reverts undoes all of
// them. Then Erase handles each related session in the same way.
//
// Other writes run between these commits. While the receipt is open, a patch to the session or a fork of the
// session first finishes the erase. A patch that was made from a view before the erase is refused as a conflict. A
// concurrent reader sees each record either whole or blank. After a successful Erase, no view, snapshot or index of
// this store contains the erased content. Another process drops its view when it next reads the session. In a file
// the bytes stay in free pages until [Store.Vacuum], and on PostgreSQL until VACUUM FULL.
//
// If Erase fails or the process ends, repeat the call with the same id to finish the work. The next Erase of the
// session also finishes it, whatever that call selects. [Store.Verify] reports unfinished erases.
//
// With [patch.KeepSummaries], Erase erases only the selected events, in this session and in related ones. A later
// Erase without KeepSummaries that selects these blanks also erases the content derived from the events.
//
// Erase does not cover events that are appended later. Erase also does not cover a summary whose summarizer was
// shown only another summary of the event. For such a summary, use Match or set [EraseOptions.Context].
//
// Erase fails with [ErrNotFound] if the session does not exist, and with [ErrCorrupt] if it is damaged. The error
// matches [ErrInvalid] if the key or an option is invalid. Erase skips a damaged related session and reports it in
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

// eraseOptions checks the options and converts them for package erase. If they have no id, it makes one.
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

// EraseUser erases all events of all sessions of a user of an app, as [Store.Erase] does with All. It also erases
// the same events in related sessions of other users. It sets the values of the user's shared state to null, unless
// opts.Values is [patch.KeepValues]. The sessions, their keys and their ids remain; [Store.Delete] removes them.
// All receipts name the same id.
//
// EraseUser erases one session after the other, in several commits, between which other writes run. It does not
// erase events that are appended to a session after the receipt of that session. Therefore, stop the user's agents
// first.
//
// Set opts.ID. If EraseUser fails or the process ends, repeat the call with the same id to continue. The next erase
// of the session in which EraseUser started also continues it, and [Store.Verify] reports that session. After
// success, a repeated call with the same id changes nothing.
//
// The error matches [ErrInvalid] if app or user is empty or an option is invalid. EraseUser skips a damaged session
// and reports it in [Erasure.OutOfReach].
func (s *Store) EraseUser(ctx context.Context, app, user string, opts EraseOptions) (Erasure, error) {
	if app == "" || user == "" {
		return Erasure{}, fmt.Errorf("%w: EraseUser needs an app and a user, and got app %q and user %q", ErrInvalid, app, user)
	}
	o, err := s.eraseOptions(opts)
	if err != nil {
		return Erasure{}, err
	}
	o.ForUser = true
	var shared []string
	u := s.userErasing(app, user, o, &shared)
	u.IDGiven = opts.ID != ""
	err = u.Run(ctx)
	out := erasureOf(opts.DryRun, u.Calls...)
	out.Shared = shared
	return out, err
}

// userErasing returns the erase of a user. When it runs, it adds to the slice shared the keys of shared state whose
// values become null.
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
				return fromBackend(Key{}, write.Confirm(ctx, s.backend)) // an earlier call may have set these values to null; make sure that the nulls are durable
			} else if o.Values != patch.NullValues {
				return nil
			}
			names, err := s.eraseShared(ctx, []string{prefix}, func(patch.Value, error) bool { return true }, o.DryRun)
			*shared = slices.Compact(slices.Sorted(slices.Values(append(*shared, names...))))
			return err
		},
	}
}

// eraseHidden erases the events of one session that were hidden before a time, and keeps their summaries. It
// returns the number of erased events. The result did reports whether anything changed, even if eraseHidden only
// finished an earlier erase.
func (s *Store) eraseHidden(ctx context.Context, key Key, before time.Time, reason string, dryRun bool) (events int, did bool, err error) {
	o, err := s.eraseOptions(EraseOptions{Author: erase.RetentionAuthor, Reason: reason, Values: patch.KeepValues, Summaries: patch.KeepSummaries, DryRun: dryRun})
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

// finishErasures finishes the open receipts of a session. If calls is true, it also finishes the erase calls of
// the session, which may have work left in other sessions.
func (s *Store) finishErasures(ctx context.Context, key Key, calls bool) error {
	did, err := erase.FinishPending(ctx, s.erasing(), key.name(), calls)
	if err != nil || len(did) > 0 {
		return err
	}
	head, err := s.head(ctx, key) // another process may have finished the erases
	if c := write.CountsOf(head); err == nil && (c.Open > 0 || calls && c.Calls > 0) {
		err = fmt.Errorf("session %s: %w: its head counts %d open receipts and %d unfinished erases, but the log has none", key, ErrCorrupt, c.Open, c.Calls)
	}
	return err
}

// erasureOf returns the result of erase calls.
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

// outOfReach describes the places that no erase reaches.
var outOfReach = []string{
	"exports, copies and backups that were made before",
	"replicas, archives and write-ahead logs of a database, and unused room in a file or a table until it is vacuumed",
	"what agents, tools, model providers and telemetry were given",
	"repetitions in later events, in summaries of other events, and in other sessions",
	"state keys, session names, and values of shared state (app:, user:) that are not listed as null",
}

// eraseShared sets shared values to null, and returns their keys. It selects the non-null values whose key has one
// of the prefixes and for which the function which returns true. If a value cannot be read, this function gets the
// error. If another write changes a selected value at the same time, eraseShared starts again.
func (s *Store) eraseShared(ctx context.Context, prefixes []string, which func(patch.Value, error) bool, dryRun bool) ([]string, error) {
	data, err := receipt.Null.MarshalBinary()
	if err != nil {
		return nil, err
	}
	for {
		fetched, err := s.backend.Fetch(ctx, backend.Query{Shared: prefixes})
		if err != nil {
			return nil, fromBackend(Key{}, err)
		}
		var names []string
		var changes []backend.SharedChange
		for i, prefix := range prefixes {
			for _, v := range fetched.Shared[i] {
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
			return names, fromBackend(Key{}, write.Confirm(ctx, s.backend)) // an earlier call may have set these values to null; make sure that the nulls are durable
		}
		if err = s.backend.PutShared(ctx, changes); err == nil {
			return names, nil
		}
		if !errors.Is(err, backend.ErrMoved) {
			return nil, fromBackend(Key{}, err)
		}
	}
}

// erasing returns the interface to the store that package erase uses.
func (s *Store) erasing() erase.Log { return erase.Log{Config: &s.writing, Store: eraseLog{s}} }

type eraseLog struct{ *Store }

func keyNamed(name string) Key {
	key, _ := keyOf(name) // cannot fail, because the name was made from a key
	return key
}

func (l eraseLog) Session(ctx context.Context, name string) (erase.Session, error) {
	head, m, err := l.headAndMeta(ctx, keyNamed(name))
	return erase.Session{Name: name, Head: head, Initial: m.initial, Lineage: m.lineage}, err
}

func (l eraseLog) IsNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

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

func (l eraseLog) ReadLog(ctx context.Context, s erase.Session, each func(patch.Record, backend.Record)) (fold.View, error) {
	key, v := keyNamed(s.Name), fold.New(s.Head.Creation, s.Initial).WithEdition(s.Head.Edition)
	for page, err := range l.pages(ctx, key, s.Head, 1, endOfLog) {
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

func (l eraseLog) ReadRecords(ctx context.Context, name, creation string, seqs []uint64) ([]patch.Record, []backend.Record, error) {
	p, err := l.readRawRecords(ctx, keyNamed(name), creation, seqs)
	return p.records, p.raw, err
}

// Replace commits a replacement with the session's lock held. It drops the view in memory, which contains the
// erased content.
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

func (l eraseLog) WrapError(name string, err error) error { return fromBackend(keyNamed(name), err) }

func (l eraseLog) ResumeUser(ctx context.Context, name string, o erase.Options) error {
	key := keyNamed(name)
	return l.userErasing(key.App, key.User, o, new([]string)).EraseOthers(ctx, name)
}

func (l eraseLog) EncodeMeta(s erase.Session) ([]byte, error) {
	m, err := decodeMeta(s.Head.Meta)
	if err != nil {
		return nil, err
	}
	m.initial = s.Initial
	return encodeMeta(m)
}
