// Package storage defines the interface between package adk's service and the storage of its sessions. The storage
// is a store or another session service.
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

// Storage contains the sessions of a service. A method that [store.Store] also has behaves in the same way and
// returns the same errors.
type Storage interface {
	View(ctx context.Context, key store.Key) (fold.View, error)
	ViewAt(ctx context.Context, key store.Key, seq uint64) (fold.View, error)

	// RecentView and RawEvents are like [store.Store.View] and [store.Store.RawEvents]. But their results may lack
	// records that other writers added after the storage last read the session.
	RecentView(ctx context.Context, key store.Key) (fold.View, error)
	RawEvents(ctx context.Context, key store.Key, fromSeq uint64) iter.Seq2[patch.Record, error]

	// Create is like [store.Store.Create], and also takes a creation time. It generates an id if the request
	// has none.
	Create(ctx context.Context, req *session.CreateRequest, created time.Time) (Session, error)
	// Get is like [store.Store.Get]. If the storage has cached the session, it may read only the events that match
	// the filter.
	Get(ctx context.Context, key store.Key, filter session.GetRequest) (Session, error)
	HistoryPage(ctx context.Context, key store.Key, v fold.View, before string, limit int) ([]fold.Entry, error)
	List(ctx context.Context, opts store.ListOptions) iter.Seq2[store.Info, error]
	Info(ctx context.Context, key store.Key) (store.Info, error)
	Delete(ctx context.Context, key store.Key) error

	// Append is like [store.Store.AppendEvents], for one event. The argument from is the ADK event from which e was
	// converted, without its "temp:" keys. Append does not retain from.
	Append(ctx context.Context, key store.Key, opts store.AppendOptions, e *patch.Event, from *session.Event) (store.Committed, error)
	ApplyPatch(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error)
	// ApplyToRecentView is like ApplyPatch. It is for patches that were made from a view read directly before
	// the call.
	ApplyToRecentView(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error)
	Preview(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Preview, error)
	// Revert and Rewind are like the methods of [store.Store]. The patches have the author "user" and the base of
	// the view in the argument on.
	Revert(ctx context.Context, key store.Key, patchID string, on fold.View, allowOrphans bool) (store.Committed, error)
	Rewind(ctx context.Context, key store.Key, invocationID string, on fold.View) (store.Committed, error)
	Lease(ctx context.Context, key store.Key, name string, ttl time.Duration) (held bool, err error)

	Fork(ctx context.Context, key, newKey store.Key, opts store.ForkOptions) (Session, error)
	Erase(ctx context.Context, key store.Key, selection store.EraseSelection, opts store.EraseOptions) (store.Erasure, error)

	recall.Log[store.Key]

	// CanSkip reports whether a search over several sessions may skip a session that could not be read because of
	// err.
	CanSkip(err error) bool

	// Handle returns a name for an event, which [recall.ReadTool] accepts. The arguments seq and index are the seq of
	// the event's record and the event's index in the record. The name is valid until the session is deleted.
	Handle(seq uint64, index int, e *patch.Event) string
}

// UserAuthor is the author of the user's events, of summaries, of reverts and of rewinds.
const UserAuthor = "user"

// IDHandle is the prefix of a handle that contains an event's id.
const IDHandle = "id="

// NewestEvents is a filter that selects only the newest events of a session.
var NewestEvents = session.GetRequest{NumRecentEvents: 8}

// Session is a session as a storage has read it.
type Session struct {
	Key     store.Key
	View    fold.View
	Shared  map[string]patch.Value // values whose keys have the prefix "app:" or "user:"
	Updated time.Time              // time of the last appended event, even if the event is hidden; the creation time if there is no event
}

// State is like [store.Session.State].
func (s Session) State() map[string]any {
	state := s.View.State()
	for key, value := range s.Shared {
		state[key] = value.Any()
	}
	return state
}

// Value is like [store.Session.Value].
func (s Session) Value(key string) (value patch.Value, ok bool) {
	if value, ok = s.Shared[key]; !ok && convert.IsSessionKey(key) {
		return s.View.Value(key)
	}
	return value, ok
}

// StoreAdapter implements Storage with a store.
type StoreAdapter struct{ *store.Store }

// RecentView returns the newest view. If the view is not cached, the store reads it.
func (s StoreAdapter) RecentView(ctx context.Context, key store.Key) (fold.View, error) {
	return s.View(ctx, key)
}

// Create creates the session. It generates an id if the request has none.
func (s StoreAdapter) Create(ctx context.Context, req *session.CreateRequest, created time.Time) (Session, error) {
	key := store.Key{App: req.AppName, User: req.UserID, Session: req.SessionID}
	if key.Session == "" {
		key.Session = platform.NewUUID(ctx)
	}
	found, err := s.Store.Create(ctx, key, req.State, store.CreateOptions{Created: created})
	return s.toSession(ctx, found, err)
}

// Get ignores the filter. Reading fewer events would not be faster, because the view is cached or computed from
// a snapshot.
func (s StoreAdapter) Get(ctx context.Context, key store.Key, _ session.GetRequest) (Session, error) {
	found, err := s.Store.Get(ctx, key)
	return s.toSession(ctx, found, err)
}

// Fork is like [store.Store.Fork].
func (s StoreAdapter) Fork(ctx context.Context, key, newKey store.Key, opts store.ForkOptions) (Session, error) {
	found, err := s.Store.Fork(ctx, key, newKey, opts)
	return s.toSession(ctx, found, err)
}

// Append appends the event. It does not use the ADK event.
func (s StoreAdapter) Append(ctx context.Context, key store.Key, opts store.AppendOptions, e *patch.Event, _ *session.Event) (store.Committed, error) {
	return s.Store.AppendEvents(ctx, key, []*patch.Event{e}, opts)
}

// ApplyToRecentView calls [store.Store.ApplyPatch], which reads only the records that it needs.
func (s StoreAdapter) ApplyToRecentView(ctx context.Context, key store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error) {
	return s.Store.ApplyPatch(ctx, key, patches, opts)
}

// Revert implements Storage.
func (s StoreAdapter) Revert(ctx context.Context, key store.Key, patchID string, on fold.View, allowOrphans bool) (store.Committed, error) {
	return s.Store.Revert(ctx, key, patchID, store.UndoOptions{On: on, Author: UserAuthor, AllowOrphans: allowOrphans})
}

// Rewind implements Storage.
func (s StoreAdapter) Rewind(ctx context.Context, key store.Key, invocationID string, on fold.View) (store.Committed, error) {
	return s.Store.Rewind(ctx, key, invocationID, store.UndoOptions{On: on, Author: UserAuthor})
}

// CanSkip reports whether the session is damaged or was deleted.
func (s StoreAdapter) CanSkip(err error) bool {
	return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound)
}

// Handle returns the seq of the record, followed by the index if the index is not 0. The seq of a record never
// changes.
func (s StoreAdapter) Handle(seq uint64, index int, _ *patch.Event) string {
	if index == 0 {
		return strconv.FormatUint(seq, 10)
	}
	return fmt.Sprintf("%d.%d", seq, index)
}

func (s StoreAdapter) toSession(ctx context.Context, found store.Session, err error) (Session, error) {
	if err != nil {
		return Session{}, err
	}
	out := Session{Key: found.Key, View: found.View}
	if out.Updated, err = s.lastUpdate(ctx, found.Key, found.View); err != nil {
		return Session{}, err
	}
	found.View = fold.View{} // without a view, the method Values returns only the shared scopes
	out.Shared = found.Values()
	return out, nil
}

// lastUpdate returns the time of the newest regular event, even if hidden, or the creation time of the session. It
// reads the log backwards.
func (s StoreAdapter) lastUpdate(ctx context.Context, key store.Key, v fold.View) (time.Time, error) {
	if n := v.Len(); n > 0 && v.Entry(n-1).Seq == v.Seq() && v.Seq() != v.PatchSeq() {
		return v.At(n - 1).Timestamp(), nil
	}
	const batch = 8 // number of records per read
	for last := v.Seq(); last > 0; last -= min(last, batch) {
		var seqs []uint64
		for seq := last - min(last, batch) + 1; seq <= last; seq++ {
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

var _ Storage = StoreAdapter{}
