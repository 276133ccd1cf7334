package adk

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// Wrap returns a service over another session service, the base, such as ADK's in memory,
// on SQL or on Vertex AI. Sessions stay where they are and as they are: the base is the
// audit log, and a patch is one more event in it, without content, which ADK passes over.
// docs/ADK.md says what that promises, and what not.
//
// The base is the caller's to close, after the service's last use and, where compaction is
// on, after [Service.Close]. One process should wrap a base once, since a session's writers
// wait for each other within a service. The error matches [patch.ErrInvalid] if there is no
// base, or if it is a [Service], or is that of [NewService].
func Wrap(base session.Service, opts Options) (*Service, error) {
	switch v := reflect.ValueOf(base); {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		return nil, fmt.Errorf("%w: the session service to wrap is nil", patch.ErrInvalid)
	case v.Type() == reflect.TypeFor[*Service]():
		return nil, fmt.Errorf("%w: the session service to wrap is one of this package's already", patch.ErrInvalid)
	}
	b := &based{service: base, logger: opts.Logger, lines: lines{service: uuid.NewString(), limit: maxLineBytes}}
	if b.logger == nil {
		b.logger = slog.Default()
	}
	if opts.CacheBytes < 0 {
		b.lines.limit = 0
	}
	b.finder = recall.NewFinder(searched{b}, min(opts.CacheBytes, 0))
	return newService(b, opts)
}

// About so much memory may be taken by what is known of sessions that nobody uses.
const maxLineBytes = 64 << 20

// based is a storage that is a session service.
type based struct {
	service session.Service
	logger  *slog.Logger
	lines   lines
	finder  *recall.Finder[store.Key]
	renames atomic.Bool // it gives events ids of its own
}

// with calls do with the line of a session, locked.
func (b *based) with(ctx context.Context, key store.Key, do func(*line) error) error {
	l := b.lines.get(key)
	if err := l.acquire(ctx); err != nil {
		return err
	}
	defer func() {
		known, size := l.incarnation > 0, l.footprint()
		l.release()
		if known {
			b.lines.used(l, size)
		}
	}()
	return do(l)
}

// withKnown is with for a session of which something is known: if need be, the base is asked.
func (b *based) withKnown(ctx context.Context, key store.Key, do func(*line) error) error {
	return b.with(ctx, key, func(l *line) error {
		if l.base == nil {
			if err := b.read(ctx, l); err != nil {
				return b.missing(ctx, l, err)
			}
		}
		return do(l)
	})
}

// withNewest is with for a session as it is in the base.
func (b *based) withNewest(ctx context.Context, key store.Key, do func(*line) error) error {
	return b.with(ctx, key, func(l *line) error {
		if err := b.read(ctx, l); err != nil {
			return b.missing(ctx, l, err)
		}
		return do(l)
	})
}

// read gets the session from the base. After an error nothing is known of how the base has it.
func (b *based) read(ctx context.Context, l *line) error {
	l.base = nil
	resp, err := b.service.Get(ctx, &session.GetRequest{AppName: l.key.App, UserID: l.key.User, SessionID: l.key.Session})
	if err != nil {
		return err
	}
	if resp == nil || resp.Session == nil {
		return fmt.Errorf("session %s: the wrapped service returned none", l.key)
	}
	b.adopt(l, resp.Session)
	return nil
}

// adopt takes a session as the base gave it.
func (b *based) adopt(l *line, from session.Session) {
	renamed := l.adopt(from, func(id string, err error) {
		b.logger.Warn("patchlog: an event has values that JSON cannot carry; the session shows their text", "session", l.key.String(), "event", id, "error", err)
	})
	if renamed {
		b.renames.Store(true)
	}
	b.warn(l)
}

// stored is the session as the base gave it last.
func (l *line) stored() stored {
	return stored{Key: l.key, View: l.own.view, shared: sharedState(l.base.State()), updated: l.lastUpdate(), line: l}
}

// warn reports patches that do not apply.
func (b *based) warn(l *line) {
	for _, c := range l.own.left {
		if !l.warned[c.id] {
			l.warned[c.id] = true
			b.logger.Warn("patchlog: patches are skipped, since the events that they name do not stand together in the session, or they are of a newer version",
				"session", l.key.String(), "event", c.id)
		}
	}
}

// Create creates the session in the base, with a record of the state that it begins with.
func (b *based) Create(ctx context.Context, key store.Key, state map[string]any, _ time.Time) (out stored, err error) {
	own := make(map[string]any, len(state))
	for name, v := range state {
		value, err := patch.NewValue(v)
		if err != nil {
			return stored{}, fmt.Errorf("state key %q: %w", name, err)
		}
		own[name] = value.Any()
	}
	if _, there := state[initialKey]; there {
		return stored{}, reserved()
	}
	create := func(l *line) (stored, error) {
		resp, err := b.service.Create(ctx, &session.CreateRequest{AppName: key.App, UserID: key.User, SessionID: key.Session, State: recorded(own)})
		switch {
		case err != nil:
			return stored{}, err
		case resp == nil || resp.Session == nil:
			return stored{}, fmt.Errorf("session %s: the wrapped service returned none", key)
		case l == nil: // nobody else knows its id yet
			key.Session = resp.Session.ID()
			l = b.lines.get(key)
		}
		l.begin()
		b.adopt(l, resp.Session)
		return l.stored(), nil
	}
	if key.Session == "" {
		return create(nil)
	}
	err = b.with(ctx, key, func(l *line) error {
		out, err = create(l)
		return err
	})
	if err != nil {
		if there, _ := b.exists(ctx, key); there {
			err = fmt.Errorf("%w: %w", store.ErrExists, err)
		}
	}
	return out, err
}

func reserved() error {
	return &patch.FieldError{Field: initialKey, Problem: "this state key is patchlog's own; take another"}
}

// Get reads the session from the base, whose error says whether it is there.
func (b *based) Get(ctx context.Context, key store.Key) (out stored, err error) {
	err = b.with(ctx, key, func(l *line) error {
		if err := b.read(ctx, l); err != nil {
			return err
		}
		out = l.stored()
		return nil
	})
	return out, err
}

// List yields the base's sessions, without seqs and creations.
func (b *based) List(ctx context.Context, opts store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		resp, err := b.service.List(ctx, &session.ListRequest{AppName: opts.App, UserID: opts.User})
		if err != nil {
			yield(store.Info{}, err)
			return
		}
		for _, s := range resp.Sessions {
			if !yield(store.Info{Key: store.Key{App: s.AppName(), User: s.UserID(), Session: s.ID()}}, nil) {
				return
			}
		}
	}
}

// Info reads the session from the base.
func (b *based) Info(ctx context.Context, key store.Key) (out store.Info, err error) {
	err = b.withNewest(ctx, key, func(l *line) error {
		out = store.Info{Key: key, Creation: l.creation(), Created: l.updated, Seq: l.own.view.Seq()}
		return nil
	})
	return out, err
}

// exists reports whether the base lists a session.
func (b *based) exists(ctx context.Context, key store.Key) (bool, error) {
	for info, err := range b.List(ctx, store.ListOptions{App: key.App, User: key.User}) {
		if err != nil || info.Key == key {
			return err == nil, err
		}
	}
	return false, nil
}

// missing says of an error about a session whether it is that there is none. Services have
// no error in common for that.
func (b *based) missing(ctx context.Context, l *line, err error) error {
	if there, listErr := b.exists(ctx, l.key); there || listErr != nil {
		return err
	}
	l.begin()
	return fmt.Errorf("session %s: %w: %w", l.key, store.ErrNotFound, err)
}

// Delete deletes the session in the base.
func (b *based) Delete(ctx context.Context, key store.Key) error {
	return b.with(ctx, key, func(l *line) error {
		l.base = nil
		err := b.service.Delete(ctx, &session.DeleteRequest{AppName: key.App, UserID: key.User, SessionID: key.Session})
		if err == nil {
			l.begin()
			b.finder.Forget(key)
		}
		return err
	})
}

// View is the view of the session as it is known. What others have appended since, whoever
// patches learns then. Where the base gives events other ids than they were appended with, a
// patch can only be made from what was read.
func (b *based) View(ctx context.Context, key store.Key) (v fold.View, err error) {
	with := b.withKnown
	if b.renames.Load() {
		with = b.withNewest
	}
	err = with(ctx, key, func(l *line) error {
		v = l.own.view
		return nil
	})
	return v, err
}

// ViewAt folds what is known of the session, which is where seqs come from.
func (b *based) ViewAt(ctx context.Context, key store.Key, seq uint64) (v fold.View, err error) {
	err = b.withKnown(ctx, key, func(l *line) error {
		switch records := l.own.records; {
		case seq == uint64(len(records)):
			v = l.own.view
		case seq < uint64(len(records)):
			v, err = fold.Fold(l.empty(), records[:seq])
		default:
			err = fmt.Errorf("session %s: %w: it has no record %d yet", key, store.ErrNotFound, seq)
		}
		return err
	})
	return v, err
}

// RawEvents yields what is known of the session.
func (b *based) RawEvents(ctx context.Context, key store.Key, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		var records []patch.Record
		err := b.withKnown(ctx, key, func(l *line) error {
			records = l.own.records
			return nil
		})
		if err != nil {
			yield(patch.Record{}, err)
			return
		}
		for i := max(fromSeq, 1) - 1; i < uint64(len(records)); i++ {
			if err := ctx.Err(); err != nil {
				yield(patch.Record{}, err)
				return
			}
			if !yield(records[i], nil) {
				return
			}
		}
	}
}

// History is the view's own: the view has all that it hides.
func (b *based) History(_ context.Context, _ store.Key, v fold.View) ([]fold.Entry, error) {
	return v.History()
}

// Lease says that it is held: a base knows no leases.
func (b *based) Lease(context.Context, store.Key, string, time.Duration) (bool, error) {
	return true, nil
}

var _ storage = (*based)(nil)
