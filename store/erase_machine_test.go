package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// machine has sessions of two users that are forks of each other. Simulated processes erase, fork, patch, retain
// and delete these sessions at the same time. Each backend call is a step. A random draw chooses the process that
// makes the next step, or kills one. A seed therefore reproduces each failure.
type machine struct {
	*testing.T
	draw    *rand.Rand
	shared  *memory.Backend
	flaw    func(backend.Backend) backend.Backend
	control bool
	calls   []*eraseCall
	kills   int
	forks   int
	steps   int
	n       int
}

// eraseCall is an erase, and the texts that it selects.
type eraseCall struct {
	run   func(s *store.Store) error
	texts []string
	of    []store.Key // sessions of the erase
}

// process is a simulated process. It makes a step when the machine tells it to.
type process struct {
	ready chan bool // receives true if the process is ready for a step, and false if it has ended
	step  chan error
}

func (m *machine) open(b backend.Backend) *store.Store {
	return newStore(m.T, b, store.Options{Snapshots: snapshot.Policy{Every: -1}, Logger: slog.New(slog.DiscardHandler)})
}

func (m *machine) start(do func(s *store.Store)) *process {
	p := &process{ready: make(chan bool), step: make(chan error)}
	var killed error
	b := &hooked{Backend: m.flaw(m.shared.Peer()), serve: func(context.Context, string) (backend.Backend, error) {
		if killed == nil {
			p.ready <- true
			killed = <-p.step
		}
		return nil, killed
	}}
	s := m.open(b)
	go func() {
		do(s)
		p.ready <- false
	}()
	return p
}

// run makes all steps of the processes in a random order, and kills some processes.
func (m *machine) run(processes []*process) {
	processes = slices.DeleteFunc(processes, func(p *process) bool { return !<-p.ready })
	for len(processes) > 0 {
		i := m.draw.IntN(len(processes))
		m.steps++
		var kill error
		if m.draw.IntN(120) == 0 {
			kill, m.kills = storetest.ErrInjected, m.kills+1
		}
		processes[i].step <- kill
		if !<-processes[i].ready {
			processes = slices.Delete(processes, i, i+1)
		}
	}
}

func (m *machine) keys(s *store.Store) (keys []store.Key) {
	for info, err := range s.List(ctx, store.ListOptions{}) {
		testlog.NoError(m, err)
		keys = append(keys, info.Key)
	}
	return keys
}

func (m *machine) some(keys []store.Key) store.Key { return keys[m.draw.IntN(len(keys))] }

func (m *machine) newKey() store.Key {
	m.n++
	return store.Key{App: "a", User: []string{"ann", "bob"}[m.draw.IntN(2)], Session: fmt.Sprint("s", m.n)}
}

func (m *machine) build(s *store.Store) {
	root := m.newKey()
	must(m)(s.Create(ctx, root, map[string]any{"k": "initial"}, store.CreateOptions{}))
	keys := []store.Key{root}
	for range 8 + m.draw.IntN(8) {
		key := m.some(keys)
		switch m.draw.IntN(6) {
		case 0, 1, 2:
			m.n++
			must(m)(s.AppendEvents(ctx, key, []*patch.Event{said(fmt.Sprint("e", m.n), fmt.Sprintf("it is <%d>", m.n))}, store.AppendOptions{}))
		case 3:
			to, at := m.newKey(), uint64(m.draw.IntN(int(infoOf(m, s, key).Seq)+1))
			must(m)(s.Fork(ctx, key, to, store.ForkOptions{At: &at}))
			keys = append(keys, to)
		case 4:
			m.summarise(s, key, fmt.Sprint("p", m.n))
		case 5: // erases only in this session; the forks keep the event
			if v := viewOf(m, s, key); v.Len() > 0 {
				at := m.draw.IntN(v.Len())
				must(m)(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(at, 1)}, asOfNow))
				for _, err := range s.Retain(ctx, map[string]store.Retention{"": {EraseHiddenAfter: 1}}, store.RetainOptions{}) {
					testlog.NoError(m, err)
				}
			}
		}
	}
}

// summarise logs a summary whose text contains the texts of its events. The summary is made from one view. Its base
// comes from a later view, as if its author had refreshed only the base.
func (m *machine) summarise(s *store.Store, key store.Key, id string) {
	v, err := s.View(ctx, key)
	if err != nil || v.Len() < 2 {
		return
	}
	at := v.Len() / 3
	p := patch.NewSummarise(at, 2, said(id, "told: "+testlog.FirstText(v.At(at))+testlog.FirstText(v.At(at+1))))
	if now, err := s.View(ctx, key); err == nil {
		_, _ = s.ApplyPatch(ctx, key, []*patch.PatchEvent{p.WithBase(now.PatchSeq())}, store.PatchOptions{On: v, AllowOrphans: true})
	}
}

func (m *machine) newEraseCall(s *store.Store, keys []store.Key, id string) *eraseCall {
	key := m.some(keys)
	textsOf := func(key store.Key) (texts, ids []string) {
		for _, r := range recordsOf(m, s, key) {
			if r.Event != nil {
				ids = append(ids, r.ID())
				texts = append(texts, "<"+strings.TrimPrefix(r.ID(), "e")+">")
			}
		}
		return texts, ids
	}
	if m.draw.IntN(4) == 0 {
		c := &eraseCall{run: func(s *store.Store) error { return errOf(s.EraseUser(ctx, "a", key.User, store.EraseOptions{ID: id})) }}
		for _, other := range keys {
			if texts, _ := textsOf(other); other.User == key.User {
				c.of, c.texts = append(c.of, other), append(c.texts, texts...)
			}
		}
		return c
	}
	texts, ids := textsOf(key)
	c := &eraseCall{}
	var of store.EraseSelection
	for i := range ids {
		if m.draw.IntN(3) == 0 {
			c.texts, of.EventIDs = append(c.texts, texts[i]), append(of.EventIDs, ids[i])
		}
	}
	// The text of a blank event may remain in summaries alone, and Match finds only those of this session. So the
	// test uses Match only for the text of a raw event.
	if len(c.texts) > 0 && m.draw.IntN(3) == 0 && m.raw(s)[key.Session+" "+c.texts[0]] {
		c.texts, of = c.texts[:1], store.EraseSelection{Match: c.texts[0]}
	}
	c.of = []store.Key{key}
	c.run = func(s *store.Store) error { return errOf(s.Erase(ctx, key, of, store.EraseOptions{ID: id})) }
	return c
}

// left returns the selected texts that sessions still contain.
func (m *machine) left(s *store.Store, calls ...*eraseCall) (left []string) {
	for _, key := range m.keys(s) {
		text := exportOf(m, s, key, store.ExportOptions{})
		for _, c := range calls {
			for _, t := range c.texts {
				if strings.Contains(text, t) {
					left = append(left, key.Session+" says "+t)
				}
			}
		}
	}
	return left
}

// raw returns the texts of raw events in each session.
func (m *machine) raw(s *store.Store) map[string]bool {
	says := map[string]bool{}
	for _, key := range m.keys(s) {
		for _, r := range recordsOf(m, s, key) {
			if r.Event != nil && strings.Contains(testlog.FirstText(r.Event), "<") {
				says[key.Session+" <"+strings.TrimPrefix(r.ID(), "e")+">"] = true
			}
		}
	}
	return says
}

// live runs processes at the same time. It returns the selected texts that sessions still contained, either
// directly after an erase succeeded or after its repetition.
func (m *machine) live() (left []string) {
	s := m.open(m.flaw(m.shared.Peer()))
	m.build(s)
	keys := m.keys(s)
	before := m.raw(s)
	a := m.newEraseCall(s, keys, "A")
	b := a
	if m.draw.IntN(3) > 0 {
		b = m.newEraseCall(s, keys, []string{"A", "B"}[m.draw.IntN(2)])
		if slices.Equal(a.of, b.of) { // a session uses an id for only one call
			b = a
		}
	}
	m.calls = []*eraseCall{a, b}
	var processes []*process
	for _, c := range []*eraseCall{a, b} {
		processes = append(processes, m.start(func(p *store.Store) {
			err := c.run(p)
			if err == nil { // directly after success
				left = append(left, m.left(s, c)...)
			} else if !m.control && !errors.Is(err, storetest.ErrInjected) && !errors.Is(err, store.ErrNotFound) { // the session was deleted
				m.Errorf("an erase fails: %v", err)
			}
		}))
	}
	deleted := map[string]bool{}
	for i := range 2 {
		key, to, at, what := m.some(keys), m.newKey(), m.draw.Uint64N(6), m.draw.IntN(5)
		to.User = "eve"                                                   // no call erases this user
		if what == 4 && slices.Contains(slices.Concat(a.of, b.of), key) { // an erase of a deleted session does not reach the session's forks
			what = 0
		} else if what == 4 {
			deleted[key.Session] = true
		}
		processes = append(processes, m.start(func(p *store.Store) {
			switch what {
			case 0, 1:
				if info, err := p.Info(ctx, key); err == nil {
					at = min(at, info.Seq)
					if _, err := p.Fork(ctx, key, to, store.ForkOptions{At: &at}); err == nil {
						m.forks++
					}
				}
			case 2:
				m.summarise(p, key, fmt.Sprint("late", i))
			case 3:
				_, _ = p.Revert(ctx, key, "none", store.UndoOptions{AllowOrphans: true})
				for range p.Retain(ctx, map[string]store.Retention{"": {EraseHiddenAfter: 1}}, store.RetainOptions{}) {
					break
				}
			case 4:
				_ = p.Delete(ctx, key)
			}
		}))
	}
	m.run(processes)
	for _, c := range []*eraseCall{a, b, a, b} {
		switch err := c.run(s); {
		case err == nil:
			left = append(left, m.left(s, c)...)
		case !errors.Is(err, store.ErrNotFound) && !m.control:
			m.Errorf("an erase that is repeated fails: %v", err)
		}
	}
	if len(left) > 0 || m.control {
		return left
	}
	for _, key := range m.keys(s) { // a retention may have been killed
		must(m)(s.Erase(ctx, key, store.EraseSelection{}, store.EraseOptions{}))
	}
	verified(m, s)
	n := m.length(s)
	for _, c := range m.calls {
		_ = c.run(s)
	}
	if again := m.length(s); again != n {
		m.Errorf("once more logs %d records", again-n)
	}
	after := m.raw(s)
	for at := range before {
		session, text, _ := strings.Cut(at, " ")
		if !after[at] && !deleted[session] && !slices.Contains(a.texts, text) && !slices.Contains(b.texts, text) && !m.hidden(s, session, text) {
			m.Errorf("%s is gone of %s", text, session)
		}
	}
	return nil
}

// hidden reports whether retention has erased a text in a session.
func (m *machine) hidden(s *store.Store, session, text string) bool {
	for _, key := range m.keys(s) {
		if key.Session != session {
			continue
		}
		receipts := testlog.Must(s.Receipts(ctx, key))(m)
		for _, r := range recordsOf(m, s, key) {
			if r.ID() != "e"+strings.Trim(text, "<>") || r.Event == nil {
				continue
			}
			by, _ := r.Event.ErasedBy()
			for _, receipt := range receipts {
				if receipt.ID() == by && receipt.Patch.Author() == "retention" {
					return true
				}
			}
		}
	}
	return false
}

func (m *machine) length(s *store.Store) (n uint64) {
	for _, key := range m.keys(s) {
		n += infoOf(m, s, key).Seq
	}
	return n
}

func lives(t *testing.T, n int, flaw func(backend.Backend) backend.Backend) (leaks int) {
	steps, kills, forks := 0, 0, 0
	for seed := range uint64(n) {
		m := &machine{T: t, draw: rand.New(rand.NewPCG(seed, 41)), shared: new(memory.Backend), flaw: flaw}
		m.control = flaw(m.shared) != backend.Backend(m.shared)
		if left := m.live(); len(left) > 0 {
			if leaks++; !m.control {
				t.Fatalf("seed %d: %v", seed, left)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		steps, kills, forks = steps+m.steps, kills+m.kills, forks+m.forks
	}
	t.Logf("%d lives, %d steps, %d kills, %d forks, %d leaks", n, steps, kills, forks, leaks)
	return leaks
}

// This test checks the rules in docs/SEMANTICS.md, section "Erasure". After an erase has succeeded, no session
// contains the selected text, even if processes were killed or ran at the same time. Other content stays. A repeated call
// changes nothing. Verify then finds no problem.
func TestMachineErase(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 150
	}
	lives(t, n, func(b backend.Backend) backend.Backend { return b })
}

// If a backend finds no related sessions or reports no editions, erases leave text behind, and the machine detects
// it.
func TestMachineEraseControls(t *testing.T) {
	for name, flaw := range map[string]func(backend.Backend) backend.Backend{
		"no looks":   func(b backend.Backend) backend.Backend { return withoutRelatives{b} },
		"no edition": func(b backend.Backend) backend.Backend { return editionless{b} },
	} {
		t.Run(name, func(t *testing.T) {
			if lives(t, 300, flaw) == 0 {
				t.Error("nothing leaks")
			}
		})
	}
}

// withoutRelatives is a backend that finds no related sessions.
type withoutRelatives struct{ backend.Backend }

func (withoutRelatives) Relatives(context.Context, string, string, int) ([]backend.Listed, error) {
	return nil, nil
}

// editionless is a backend that reports the same edition for all logs.
type editionless struct{ backend.Backend }

func (b editionless) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	news, err := b.Backend.Fetch(ctx, q)
	news.Edition = 0
	return news, err
}

func (b editionless) Replace(ctx context.Context, session, creation string, make func(backend.Head) (backend.Replacement, error)) error {
	return b.Backend.Replace(ctx, session, creation, func(head backend.Head) (backend.Replacement, error) {
		head.Edition = 0
		return make(head)
	})
}

func (b editionless) Append(ctx context.Context, session string, batch backend.Batch) error {
	batch.ExpectedSource = nil
	return b.Backend.Append(ctx, session, batch)
}

func (b editionless) Delete(ctx context.Context, session, creation string, _ *backend.Head) error {
	return b.Backend.Delete(ctx, session, creation, nil)
}
