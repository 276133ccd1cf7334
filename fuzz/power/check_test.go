//go:build linux

package power

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// shows returns the logs that a store holds.
func shows(ctx context.Context, s *store.Store) (map[string][]patch.Record, error) {
	logs := map[string][]patch.Record{}
	for info, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		log := []patch.Record{}
		for r, err := range s.RawEvents(ctx, info.Key, 1) {
			if err != nil {
				return nil, err
			}
			log = append(log, r)
		}
		logs[info.Key.String()] = log
	}
	return logs, nil
}

// sound checks that nothing in a store is damaged. Some tries may be half done: those that erase; and
// so may be what was being erased when the power failed before.
func (m *model) sound(ctx context.Context, s *store.Store, pending ...*try) error {
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		receipts, receiptsErr := s.Receipts(ctx, p.Key)
		half := err == nil && receiptsErr == nil && slices.ContainsFunc(receipts, func(r patch.Record) bool {
			return r.Seq == p.Seq && (m.wasThere(r.ID()) || slices.ContainsFunc(pending, func(t *try) bool {
				return t.Kind == kindErase && r.ID() == t.receipt()
			}))
		})
		if !half {
			return errors.Join(fmt.Errorf("verify: %v", p), err)
		}
	}
	return nil
}

// wasThere reports whether a receipt was there at the start, of which there may be forks since.
func (m *model) wasThere(receipt string) bool {
	for _, lives := range m.sessions {
		for _, l := range lives {
			for _, t := range l.tries {
				if t.Kind == "start" && slices.ContainsFunc(t.offered, func(r patch.Record) bool { return r.ID() == receipt }) {
					return true
				}
			}
		}
	}
	return false
}

// holds checks that a store holds what it must, and nothing that it may not. It returns whose
// records are there.
func (m *model) holds(ctx context.Context, s *store.Store, b bounds) (there map[*try]bool, err error) {
	logs, err := shows(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := m.shows(logs, b); err != nil {
		return nil, err
	}
	there = map[*try]bool{}
	lives := map[string]*life{}
	for key := range m.sessions {
		l, seen, err := m.match(key, logs[key], b)
		if err != nil {
			return nil, err
		}
		lives[key] = l
		for t := range seen {
			if t.life == l {
				there[t] = true
			}
		}
		if l == nil {
			continue
		}
		if l.made != nil {
			there[l.made] = true
		}
		if err := m.began(ctx, s, l, key); err != nil {
			return nil, err
		}
	}
	for key := range logs {
		if m.sessions[key] == nil {
			return nil, fmt.Errorf("session %s is nobody's", key)
		}
	}
	return there, m.shares(ctx, s, lives, there, b)
}

// began checks that a session has the initial state that it was created with.
func (m *model) began(ctx context.Context, s *store.Store, l *life, key string) error {
	origin := l
	if l.from != nil {
		origin = l.from
	}
	if origin.made == nil || origin.made.Kind != kindCreate {
		return nil
	}
	state, err := s.InitialState(ctx, keyOf(key))
	if err != nil {
		return err
	}
	if v, ok := state["made"]; !ok || v.Any() != origin.made.Name {
		return fmt.Errorf("session %s: its initial state is %v, and it was made by %s", key, state, origin.made)
	}
	return nil
}

// shares checks that a value of a shared scope is there if, and only if, the commit is that wrote
// it.
func (m *model) shares(ctx context.Context, s *store.Store, lives map[string]*life, there map[*try]bool, b bounds) error {
	asked := map[string]store.Session{}
	for _, t := range m.tries {
		if t.Shared == "" {
			continue
		}
		user := userOf(t.Session)
		session, ok := asked[user]
		if !ok {
			for key, l := range lives {
				if l != nil && userOf(key) == user {
					var err error
					if session, err = s.Get(ctx, keyOf(key)); err != nil {
						return err
					}
					asked[user], ok = session, true
					break
				}
			}
		}
		if !ok {
			continue // nobody is there to be asked
		}
		v, has := session.Value(t.Shared)
		if has && v.Any() != t.Name {
			return fmt.Errorf("%s: %s is %v", t, t.Shared, v)
		}
		l := lives[t.Session]
		must, may := b.must(t) || there[t], b.may(t)
		if l == t.life { // else it may have been deleted since
			may = there[t]
		}
		if has && !may {
			return fmt.Errorf("%s: %s is there, and the commit that wrote it is not", t, t.Shared)
		}
		if !has && must {
			return fmt.Errorf("%s: %s is lost", t, t.Shared)
		}
	}
	return nil
}

// userOf is a session's key without the session.
func userOf(key string) string { return key[:strings.LastIndex(key, "/")] }

// check checks what a power failure has left in a directory: the file is there if it must be,
// opens, holds what it must and nothing else, can be written to, and what was under way lands
// once if it is tried again. How many tries were under way is returned.
func (m *model) check(ctx context.Context, dir string, b bounds, thorough bool) (under int, err error) {
	if err := m.checkBackups(ctx, dir, b); err != nil {
		return 0, err
	}
	path := filepath.Join(dir, fileName)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && m.opened < b.lo {
		return 0, errors.New("the file is lost")
	}
	if err := with(dir, func(s *opened) error {
		under, err = m.goOn(ctx, s, &b, thorough)
		return err
	}); err != nil || !thorough {
		return under, err
	}
	if err := with(dir, func(s *opened) error {
		if err := s.Vacuum(ctx); err != nil {
			return err
		}
		_, err := m.holds(ctx, s.Store, b)
		return err
	}); err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "."+fileName+".vacuum")); !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("after a vacuum its draft is there (%v)", err)
	}
	return under, with(dir, func(s *opened) error {
		if _, err := m.holds(ctx, s.Store, b); err != nil {
			return fmt.Errorf("after a vacuum: %w", err)
		}
		return m.sound(ctx, s.Store)
	})
}

// with opens the store for a function.
func with(dir string, f func(s *opened) error) error {
	s, err := open(dir, store.Synced)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// goOn checks what a store holds, tries again what was under way, writes something else, and checks
// what it holds then. It returns how much was under way.
func (m *model) goOn(ctx context.Context, s *opened, b *bounds, thorough bool) (under int, err error) {
	there, err := m.holds(ctx, s.Store, *b)
	pending := m.pending(*b)
	if err == nil && thorough {
		err = m.sound(ctx, s.Store, pending...)
	}
	if err != nil {
		return 0, err
	}
	b.settled = map[*try]bool{}
	var tried []string
	for _, t := range pending {
		if t.refused() || t.Session == "" {
			continue
		}
		d, err := s.do(ctx, t.op, true)
		tried = append(tried, fmt.Sprintf("%s: %q", t, d.No))
		switch {
		case err != nil:
			return 0, fmt.Errorf("tried again: %w", err)
		case d.No == "":
			b.settled[t] = true
		case there[t] && !t.draws():
			return 0, fmt.Errorf("%s landed, and is refused when it is tried again: %s", t, d.No)
		}
	}
	probe := &op{N: -1, Name: "probe", Kind: kindCreate, Session: "app/probe/s", Life: 1}
	if _, err := s.do(ctx, probe, true); err != nil {
		return 0, err
	}
	if err := s.Delete(ctx, probe.key()); err != nil {
		return 0, err
	}
	if _, err = m.holds(ctx, s.Store, *b); err == nil {
		err = m.sound(ctx, s.Store)
	}
	if err != nil {
		return 0, fmt.Errorf("after what was under way was tried again (%s): %w", strings.Join(tried, ", "), err)
	}
	return len(pending), nil
}

// checkBackups checks that a file that a backup was written to is there as a whole, or, if it was
// never acknowledged, not at all.
func (m *model) checkBackups(ctx context.Context, dir string, b bounds) error {
	for file, tries := range m.backups {
		var any, must bool
		for _, t := range tries {
			any, must = any || b.may(t), must || b.must(t)
		}
		path := filepath.Join(dir, file)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			if must {
				return fmt.Errorf("%s is lost", file)
			}
			continue
		}
		if !any {
			return fmt.Errorf("%s is there, and no backup has begun", file)
		}
		if err := m.checkBackup(ctx, path, tries, b); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (m *model) checkBackup(ctx context.Context, path string, tries []*try, b bounds) error {
	s, err := store.Open(path, store.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, t := range slices.Backward(tries) {
		if !b.may(t) {
			continue
		}
		if _, err = m.holds(ctx, s, bounds{lo: t.tried, hi: min(t.acked, b.hi)}); err == nil || b.must(t) {
			return err // those before have been replaced
		}
	}
	return err
}
