// Package storage is the interface between package adk's service and its sessions, which are in a store or in another
// session service.
package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// Storage holds a service's sessions. Methods that [store.Store] has too behave the same, including their errors.
type Storage interface {
	View(ctx context.Context, key store.Key) (fold.View, error)
	ViewAt(ctx context.Context, key store.Key, seq uint64) (fold.View, error)

	// RecentView is View, and RawEvents is [store.Store.RawEvents], except that they may lack records newer than the
	// storage's last answer about the session.
	RecentView(ctx context.Context, key store.Key) (fold.View, error)
	RawEvents(ctx context.Context, key store.Key, fromSeq uint64) iter.Seq2[patch.Record, error]

	// Create is [store.Store.Create] with a creation time. A session without an id gets one.
	Create(ctx context.Context, req *session.CreateRequest, created time.Time) (Session, error)
	// Get is [store.Store.Get]. A storage that knows a session's other events may read only those that a filter asks
	// for.
	Get(ctx context.Context, key store.Key, filter session.GetRequest) (Session, error)
	HistoryPage(ctx context.Context, key store.Key, v fold.View, before string, limit int) ([]fold.Entry, error)
	List(ctx context.Context, opts store.ListOptions) iter.Seq2[store.Info, error]
	Info(ctx context.Context, key store.Key) (store.Info, error)
	Delete(ctx context.Context, key store.Key) error

	// Append is [store.Store.AppendEvents] of one event to the session of that creation. from is the ADK event that e
	// was made from, without temp: keys; Append does not keep it.
	Append(ctx context.Context, key store.Key, opts store.AppendOptions, e *patch.Event, from *session.Event) (store.Committed, error)
	ApplyPatch(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error)
	// ApplyNewest is ApplyPatch for patches made from a view that was read just before.
	ApplyNewest(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error)
	Preview(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Preview, error)
	// Revert and Rewind are those of [store.Store], with the user as author, who has seen the view on.
	Revert(ctx context.Context, key store.Key, patchID string, on fold.View, allowOrphans bool) (store.Committed, error)
	Rewind(ctx context.Context, key store.Key, invocationID string, on fold.View) (store.Committed, error)
	Lease(ctx context.Context, key store.Key, name string, ttl time.Duration) (held bool, err error)

	Fork(ctx context.Context, key, newKey store.Key, opts store.ForkOptions) (Session, error)
	Erase(ctx context.Context, key store.Key, selection store.EraseSelection, opts store.EraseOptions) (store.Erasure, error)

	recall.Log[store.Key]

	// CanLeaveOut reports whether a search over sessions may skip a session whose read gave this error.
	CanLeaveOut(err error) bool

	// Handle names an event for [recall.ReadTool], by its record and its index in that record. The name is valid as
	// long as the session exists.
	Handle(seq uint64, index int, e *patch.Event) string
}

// UserAuthor is the author of the user's events, of summaries, and of reverts and rewinds.
const UserAuthor = "user"

// IDHandle is the prefix of a handle that names an event by its id.
const IDHandle = "id="

// Newest is the filter of a caller that needs only a session's end.
var Newest = session.GetRequest{NumRecentEvents: 8}

// Session is a session as a storage read it.
type Session struct {
	Key     store.Key
	View    fold.View
	Shared  map[string]patch.Value // with prefix app: or user:
	Updated time.Time              // the time of the newest event appended, visible or not, or of the creation
}

// State is [store.Session.State].
func (s Session) State() map[string]any {
	state := s.View.State()
	for key, value := range s.Shared {
		state[key] = value.Any()
	}
	return state
}

// Value is [store.Session.Value].
func (s Session) Value(key string) (value patch.Value, ok bool) {
	if value, ok = s.Shared[key]; !ok && convert.IsOwn(key) {
		return s.View.Value(key)
	}
	return value, ok
}

// InStore is a storage on a store.
type InStore struct{ *store.Store }

// RecentView returns the newest view: the store has it cached, or needs one read.
func (s InStore) RecentView(ctx context.Context, key store.Key) (fold.View, error) {
	return s.View(ctx, key)
}

// Create creates the session, with a new id if the request has none.
func (s InStore) Create(ctx context.Context, req *session.CreateRequest, created time.Time) (Session, error) {
	key := store.Key{App: req.AppName, User: req.UserID, Session: req.SessionID}
	if key.Session == "" {
		key.Session = platform.NewUUID(ctx)
	}
	found, err := s.Store.Create(ctx, key, req.State, store.CreateOptions{Created: created})
	return s.stored(ctx, found, err)
}

// Get reads the whole session: the view is cached, or folded from a snapshot, so a filter would save nothing.
func (s InStore) Get(ctx context.Context, key store.Key, _ session.GetRequest) (Session, error) {
	found, err := s.Store.Get(ctx, key)
	return s.stored(ctx, found, err)
}

// Fork is [store.Store.Fork], and returns the new session.
func (s InStore) Fork(ctx context.Context, key, newKey store.Key, opts store.ForkOptions) (Session, error) {
	found, err := s.Store.Fork(ctx, key, newKey, opts)
	return s.stored(ctx, found, err)
}

// Append appends the event; the log does not need from.
func (s InStore) Append(ctx context.Context, key store.Key, opts store.AppendOptions, e *patch.Event, _ *session.Event) (store.Committed, error) {
	return s.Store.AppendEvents(ctx, key, []*patch.Event{e}, opts)
}

// ApplyNewest is [store.Store.ApplyPatch], which reads no more than it needs.
func (s InStore) ApplyNewest(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error) {
	return s.Store.ApplyPatch(ctx, key, patches, opts)
}

// Revert is [store.Store.Revert].
func (s InStore) Revert(ctx context.Context, key store.Key, patchID string, on fold.View, allowOrphans bool) (store.Committed, error) {
	return s.Store.Revert(ctx, key, patchID, store.UndoOptions{On: on, Author: UserAuthor, AllowOrphans: allowOrphans})
}

// Rewind is [store.Store.Rewind].
func (s InStore) Rewind(ctx context.Context, key store.Key, invocationID string, on fold.View) (store.Committed, error) {
	return s.Store.Rewind(ctx, key, invocationID, store.UndoOptions{On: on, Author: UserAuthor})
}

// CanLeaveOut reports whether the error says that the session is damaged, or was deleted.
func (s InStore) CanLeaveOut(err error) bool {
	return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound)
}

// Handle names an event by the seq of its record, which never changes, and by its index if that is not 0.
func (s InStore) Handle(seq uint64, index int, _ *patch.Event) string {
	if index == 0 {
		return strconv.FormatUint(seq, 10)
	}
	return fmt.Sprintf("%d.%d", seq, index)
}

// stored converts a session that the store returned, or passes on the store's error.
func (s InStore) stored(ctx context.Context, found store.Session, err error) (Session, error) {
	if err != nil {
		return Session{}, err
	}
	out := Session{Key: found.Key, View: found.View}
	if out.Updated, err = s.lastUpdate(ctx, found.Key, found.View); err != nil {
		return Session{}, err
	}
	found.View = fold.View{} // the rest of found is its shared scopes
	out.Shared = found.Values()
	return out, nil
}

// lastUpdate returns the time of the newest regular event, hidden or not, or of the session's creation. It reads the
// log from its end, a few records at a time.
func (s InStore) lastUpdate(ctx context.Context, key store.Key, v fold.View) (time.Time, error) {
	if n := v.Len(); n > 0 && v.Entry(n-1).Seq == v.Seq() && v.Seq() != v.PatchSeq() {
		return v.At(n - 1).Timestamp(), nil
	}
	const few = 8 // records at a time
	for last := v.Seq(); last > 0; last -= min(last, few) {
		var seqs []uint64
		for seq := last - min(last, few) + 1; seq <= last; seq++ {
			seqs = append(seqs, seq)
		}
		var newest *patch.Event
		for r, err := range s.Records(ctx, key, v, seqs) {
			if err != nil {
				return time.Time{}, err
			}
			newest = cmp.Or(r.Event, newest)
		}
		if newest != nil {
			return newest.Timestamp(), nil
		}
	}
	info, err := s.Info(ctx, key)
	return info.Created, err
}

var _ Storage = InStore{}
