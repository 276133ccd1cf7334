package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// planRemade adds to a plan which summaries are to be made anew: those that go since they stand
// for something else that goes, if something is left of what they stand for.
func (e *erasing) planRemade(ctx context.Context, p *erasePlan, c *scan, patches []*standing) error {
	remade := map[fold.Ref]bool{}
	of := putBy(patches)
	for _, event := range p.events { // of those inside others first
		if _, summary := c.told[event.Ref]; !summary || !c.stands[event.Ref] {
			continue
		}
		refs, known := of[event.Ref].standsFor(event.Ref)
		if !known {
			continue
		}
		left := slices.ContainsFunc(refs, func(ref fold.Ref) bool { return remade[ref] })
		refs = slices.DeleteFunc(refs, func(ref fold.Ref) bool { _, goes := c.set[ref]; return goes })
		for some := range slices.Chunk(refs, eraseRecords) {
			if left {
				break
			}
			events, err := e.store.eventsAt(ctx, p.key, p.view.Creation(), some)
			if err != nil {
				return err
			}
			for _, there := range events {
				left = left || !there.IsBlank(patch.KeepValues)
			}
		}
		if !left {
			continue
		}
		if p.of.Remade == nil {
			p.of.Remade = map[uint64][]int{}
		}
		p.of.Remade[event.Seq] = append(p.of.Remade[event.Seq], event.Index)
		remade[event.Ref] = true
	}
	return nil
}

// remade returns the ids of the summaries that are to be made anew.
func (p *erasePlan) remade() (ids []string) {
	for _, event := range p.events {
		if slices.Contains(p.of.Remade[event.Seq], event.Index) {
			ids = append(ids, event.ID)
		}
	}
	return ids
}

func putBy(patches []*standing) map[fold.Ref]*standing {
	of := map[fold.Ref]*standing{}
	for _, u := range patches {
		for _, put := range u.puts {
			of[put] = u
		}
	}
	return of
}

// open returns the receipts of a log of which something is left to do, as far as the call does it.
func (e *erasing) open(ctx context.Context, key Key, creation string, receipts []patch.Record, c *scan) ([]patch.Record, error) {
	open, err := e.store.unfinished(ctx, key, creation, receipts)
	if err != nil || e.opts.Summaries != RemakeSummaries {
		return open, err
	}
	toRemake := map[string]bool{}
	for _, by := range c.toRemake(receiptsOf(receipts)) {
		toRemake[by.ID()] = true
	}
	return slices.DeleteFunc(slices.Clone(receipts), func(r patch.Record) bool {
		return !toRemake[r.ID()] && !slices.ContainsFunc(open, func(o patch.Record) bool { return o.Seq == r.Seq })
	}), nil
}

// toRemake returns the summaries that are blank and to be made anew, with the receipts that say so:
// in each case the newest that is about it.
func (c *scan) toRemake(receipts []receipt) map[fold.Ref]receipt {
	out := map[fold.Ref]receipt{}
	for i, r := range receipts {
		for seq, indices := range r.of.Remade {
			for _, index := range indices {
				ref := fold.Ref{Seq: seq, Index: index}
				later := slices.ContainsFunc(receipts[i+1:], func(l receipt) bool { return l.of.CoversEvent(seq, index) })
				if _, summary := c.told[ref]; summary && c.blank[ref] && !later && r.of.CoversEvent(seq, index) {
					out[ref] = r
				}
			}
		}
	}
	return out
}

// remakeAll makes anew, in the sessions that the call has worked on, the summaries that are to be,
// and says in the list what came of it.
func (e *erasing) remakeAll(ctx context.Context, sessions []ErasedSession) (_ []ErasedSession, failed error) {
	if e.opts.Summaries != RemakeSummaries {
		return sessions, nil
	}
	for i := range sessions {
		sessions[i].Remade = nil
	}
	for len(e.worked) > 0 {
		key := e.worked[0]
		e.worked = slices.DeleteFunc(e.worked, func(k Key) bool { return k == key })
		made, blank, err := e.remake(ctx, key)
		at := slices.IndexFunc(sessions, func(s ErasedSession) bool { return s.Key == key })
		if at < 0 && len(made)+len(blank) > 0 {
			at, sessions = len(sessions), append(sessions, ErasedSession{Key: key})
		}
		if at >= 0 {
			sessions[at].Remade, sessions[at].Blank = made, blank
		}
		switch {
		case errors.Is(err, ErrNotRemade):
			failed = errors.Join(failed, err)
		case err != nil && !errors.Is(err, ErrNotFound): // deleted meanwhile
			return sessions, err
		}
	}
	return sessions, failed
}

// remaking is the work on a session's summaries that are to be made anew.
type remaking struct {
	*erasing
	f        finishing
	failed   map[fold.Ref]error
	made     []string
	scan     *scan
	of       map[fold.Ref]*standing
	receipts []receipt
	seq      uint64 // up to this record the receipts are known
}

// remake makes a session's summaries anew, and returns their ids, and those of others that stay
// blank and should not.
func (e *erasing) remake(ctx context.Context, key Key) (made, blank []string, err error) {
	h := e.store.cache.acquire(key)
	defer e.store.cache.release(h)
	m := remaking{erasing: e, f: finishing{store: e.store, opts: e.opts, h: h}, failed: map[fold.Ref]error{}}
	defer func() {
		if len(m.made) > 0 {
			m.f.end(ctx)
		}
	}()
	for try := 0; try < eraseTries; try++ {
		again, before := false, len(m.made)
		if blank, again, err = m.pass(ctx, key); err != nil || !again {
			return m.made, blank, err
		}
		if len(m.made) > before {
			try = 0
		}
	}
	return m.made, blank, fmt.Errorf("session %s: %w: others are erasing", key, ErrConflict)
}

// pass makes summaries anew, those inside others first, until none is left or somebody else erases
// too. Whoever erases what a summary is made of has planned that after it was made, and
// erases it too, or his receipt is found here before it is.
func (m *remaking) pass(ctx context.Context, key Key) (blank []string, again bool, err error) {
	todo, err := m.look(ctx, key)
	if err != nil {
		return nil, false, err
	}
	for _, ref := range todo {
		var text string
		if m.failed[ref] == nil {
			text, err = m.text(ctx, key, ref)
			if ctx.Err() != nil {
				return nil, false, ctx.Err()
			}
			if err != nil && !errors.Is(err, ErrNotRemade) {
				return nil, false, err
			}
			m.failed[ref] = err
		}
		if text == "" {
			blank = append(blank, m.scan.id[ref])
			continue
		}
		done, err := m.write(ctx, ref, text)
		switch {
		case errors.Is(err, ErrNotRemade):
			m.failed[ref] = err
			blank = append(blank, m.scan.id[ref])
		case err != nil || !done:
			return blank, err == nil, err
		default:
			m.made = append(m.made, m.scan.id[ref])
		}
	}
	err = nil
	for _, ref := range todo {
		err = errors.Join(err, m.failed[ref])
	}
	return blank, false, err
}

// look reads the log, and returns the summaries that are to be made anew, in its order.
func (m *remaking) look(ctx context.Context, key Key) (todo []fold.Ref, err error) {
	s := m.store
	v, err := s.View(ctx, key)
	if err != nil {
		return nil, err
	}
	m.scan, m.receipts, m.seq, m.f.creation = newScan(), nil, v.Seq(), v.Creation()
	for page, err := range s.pages(ctx, key, logOf(v), 1, v.Seq()) {
		if err != nil {
			return nil, err
		}
		for _, r := range page.records {
			if isReceipt(r) {
				m.receipts = append(m.receipts, receiptOf(r))
				continue
			}
			m.scan.record(r, nothing, nil, patch.KeepValues)
		}
	}
	for ref := range m.scan.toRemake(m.receipts) {
		todo = append(todo, ref)
	}
	if len(todo) == 0 {
		return nil, nil
	}
	slices.SortFunc(todo, byPlace)
	patches, err := s.standings(ctx, key, v, m.scan)
	m.of = putBy(patches)
	return todo, err
}

func isReceipt(r patch.Record) bool {
	if r.Patch == nil {
		return false
	}
	_, ok := r.Patch.Erasure()
	return ok
}

// about returns the ids of the receipts that are about an event, in the order of the log.
func (m *remaking) about(ref fold.Ref) (ids []string) {
	for _, r := range m.receipts {
		if r.of.CoversEvent(ref.Seq, ref.Index) {
			ids = append(ids, r.ID())
		}
	}
	return ids
}

// isLeft reports whether no receipt is about what an event says, be it done or not.
func (m *remaking) isLeft(ref fold.Ref, e *patch.Event) bool {
	after := e.RemadeAfter()
	return !slices.ContainsFunc(m.about(ref), func(id string) bool { return !slices.Contains(after, id) })
}

// text returns what a summary is to say, or "" if it stays blank. Errors that match
// [ErrNotRemade] are about this summary alone.
func (m *remaking) text(ctx context.Context, key Key, ref fold.Ref) (string, error) {
	refs, known := m.of[ref].standsFor(ref)
	if !known {
		return "", nil
	}
	for _, of := range refs {
		if m.failed[of] != nil {
			return "", m.notRemade(key, ref, fmt.Errorf("it stands for %q, which was not", m.scan.id[of]))
		}
	}
	at, err := m.store.eventsAt(ctx, key, m.f.creation, append(refs, ref))
	if err != nil {
		return "", err
	}
	var left []*patch.Event
	sum := sha256.New()
	for _, of := range refs {
		if there := at[of]; there != nil && m.isLeft(of, there) {
			e, err := m.asLogged(ctx, key, of, there)
			if err != nil {
				return "", err
			}
			if e != nil {
				left = append(left, e)
				fmt.Fprintln(sum, e)
			}
		}
	}
	summary := at[ref]
	if len(left) == 0 || summary == nil {
		return "", nil
	}
	fmt.Fprintln(sum, summary.ID())
	made := [sha256.Size]byte(sum.Sum(nil))
	text, known := m.texts[made]
	if !known {
		if text, err = m.opts.Resummarise(ctx, summary, left); err != nil {
			return "", m.notRemade(key, ref, err)
		}
		text = strings.TrimSpace(text)
		m.texts[made] = text
	}
	return text, nil
}

func (m *remaking) notRemade(key Key, ref fold.Ref, err error) error {
	return fmt.Errorf("session %s, record %d: %w: %q stays blank: %w", key, ref.Seq, ErrNotRemade, m.scan.id[ref], err)
}

// asLogged returns what was logged of an event before results in it were cleared, or nil if that is
// erased.
func (m *remaking) asLogged(ctx context.Context, key Key, ref fold.Ref, e *patch.Event) (*patch.Event, error) {
	for {
		o, ok := e.Origin()
		if !ok || o.Seq >= ref.Seq || o.Seq == 0 {
			return e, nil
		}
		r, err := m.store.record(ctx, key, m.f.creation, o.Seq)
		if err != nil {
			return nil, err
		}
		events := r.Events()
		i := slices.IndexFunc(events, func(e *patch.Event) bool { return e.ID() == o.ID })
		if i < 0 {
			return e, nil
		}
		if ref, e = (fold.Ref{Seq: o.Seq, Index: i}), events[i]; !m.isLeft(ref, e) {
			return nil, nil
		}
	}
}

// write puts a text into a summary that is blank, and reports whether it could: nobody has logged a
// receipt since the log was looked at, or made it anew.
func (m *remaking) write(ctx context.Context, ref fold.Ref, text string) (done bool, err error) {
	s, key := m.store, m.f.h.key
	_, err = m.f.locked(ctx, func() (int, error) {
		head, _, err := m.f.head(ctx)
		if err != nil {
			return 0, err
		}
		for page, err := range s.pages(ctx, key, &head, m.seq+1, newest) {
			if err != nil || slices.ContainsFunc(page.records, isReceipt) {
				return 0, err
			}
		}
		m.seq = head.Last
		raw, err := s.backend.Pick(ctx, key.name(), m.f.creation, []uint64{ref.Seq}, eraseBytes)
		if err == nil && len(raw) == 0 {
			err = errMissing(key, ref.Seq)
		}
		if err != nil {
			return 0, err
		}
		is, err := decode(key, ref.Seq, raw[0])
		if err != nil || !is.Events()[ref.Index].IsBlank(patch.KeepValues) {
			return 0, err
		}
		is.Patch = is.Patch.Remade(ref.Index, text, m.about(ref)...)
		data, err := patch.AppendRecord(nil, is)
		if most := s.opts.MaxRecordBytes; err == nil && len(data) > most {
			err = fmt.Errorf("%w: the record would take %d bytes, and may take %d", ErrTooLarge, len(data), most)
		}
		if err != nil {
			return 0, m.notRemade(key, ref, err)
		}
		err = m.f.commit(ctx, backend.Replacement{Creation: m.f.creation, Last: head.Last, Seen: head.Token, Next: newToken(), Chain: head.Chain,
			Records: []backend.Replaced{s.replaced(raw[0], data)}})
		if done = err == nil; done && !s.shared {
			m.f.h.edited(head.Edition + 1)
		}
		return 0, err
	})
	return done, err
}
