package linear

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Load is clients that make calls to a few sessions.
type Load struct {
	Callers []Caller // client i calls the one of this index, modulo how many there are
	Clients int
	Apps    int    // each with sessions of its own
	Name    string // begins the apps' names, so that those of several loads differ
	Seed    uint64

	// Calls is how many calls each client makes. More, if not nil, says in its stead whether
	// to go on.
	Calls int
	More  func() bool

	// Together has all clients go through the apps one after another, and not each to any.
	Together bool

	// Forks has clients fork sessions too, and take and give up leases: what leaves no way to
	// find out what came of it.
	Forks bool

	// Hurried is how many of a hundred writes have too little time.
	Hurried int

	mu      sync.Mutex
	began   time.Time
	history History
	known   map[string]*known
}

// known is what somebody was told of a session lately.
type known struct {
	patches, events []string
	text            string
}

// The sessions of an app. The last one is never deleted.
const (
	sessions = 4
	kept     = "kept"
)

func sessionName(i int) string {
	if i == sessions-1 {
		return kept
	}
	return fmt.Sprint("s", i)
}

func (l *Load) app(i int) string { return fmt.Sprintf("%s.%d", l.Name, i) }

// Since returns how long ago the load began.
func (l *Load) Since() time.Duration { return time.Since(l.began) }

// Run has the clients make their calls, and returns what they saw when all have ended.
func (l *Load) Run() History {
	l.began, l.history, l.known = time.Now(), nil, map[string]*known{}
	for app := range l.Apps {
		for i := range sessions {
			for range 100 {
				if r := l.call(l.Callers[0], Call{App: l.app(app), Session: sessionName(i), Op: Create}); r.Kind == Done || r.Kind == exists {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	var wg sync.WaitGroup
	for client := range l.Clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(l.Seed, uint64(client)))
			for n := 0; l.More == nil && n < l.Calls || l.More != nil && l.More(); n++ {
				app := random.IntN(l.Apps)
				if l.Together {
					app = n * l.Apps / l.Calls
				}
				l.client(client, n, l.app(app), random)
			}
		})
	}
	wg.Wait()
	return l.history
}

// End has the sessions read by a caller who has seen nothing of them, and returns the history
// with that.
func (l *Load) End(c Caller) History {
	for app := range l.Apps {
		for i := range sessions {
			for _, op := range []Op{Get, Raw} {
				l.call(c, Call{Client: l.Clients, App: l.app(app), Session: sessionName(i), Op: op})
			}
		}
	}
	return l.history
}

func (l *Load) call(caller Caller, c Call) Reply {
	from := l.Since()
	r := caller.Call(c)
	e := Seen{Call: c, Reply: r, From: from.Nanoseconds(), To: l.Since().Nanoseconds()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, e)
	k := l.of(c.App, c.Session)
	switch {
	case r.Kind != Done:
	case c.Op == Append && !isHot(c.IDs[0]):
		k.events = append(k.events, c.IDs...)
	case c.Op == Patch || c.Op == Revert || c.Op == Rewind:
		k.patches = append(k.patches, r.Logged...)
	case c.Op == Export:
		k.text = r.Exported
	}
	return r
}

// of returns what is known of a session. The caller holds the lock.
func (l *Load) of(app, session string) *known {
	name := app + " " + session
	if l.known[name] == nil {
		l.known[name] = &known{}
	}
	return l.known[name]
}

// client makes one call, and repeats it with the same ids until it knows the outcome.
func (l *Load) client(client, n int, app string, random *rand.Rand) {
	c := l.draw(client, n, app, random)
	if random.IntN(100) < l.Hurried && c.mayWrite() {
		c.Wait = time.Duration(1+random.IntN(10)) * time.Millisecond
	}
	unknown := false
	for range 100 {
		r := l.call(l.Callers[client%len(l.Callers)], c)
		c.Wait = 0
		if r.Kind == Failed || r.Kind == Unknown {
			time.Sleep(5 * time.Millisecond)
		}
		unknown = unknown || r.Kind == Unknown
		if !c.mayWrite() || !unknown || r.Kind != Unknown && r.Kind != Failed {
			return
		}
	}
}

func (l *Load) draw(client, n int, app string, random *rand.Rand) Call {
	at, id := random.IntN(sessions), fmt.Sprintf("%d.%d", client, n)
	c := Call{Client: client, App: app, Session: sessionName(at), IDs: []string{id}, Choice: random.IntN(1000)}
	l.mu.Lock()
	k := *l.of(app, c.Session)
	l.mu.Unlock()
	switch p := random.IntN(100); {
	case p < 24:
		c.Op = Get
	case p < 46:
		c.Op = Append
		switch random.IntN(6) {
		case 0:
			c.IDs = append(c.IDs, id+sibling)
		case 1:
			c.IDs[0] = Hot(id, c.Session)
		}
	case p < 54:
		c.Op, c.Guess = Append, true
	case p < 58:
		c.Op, c.IDs, c.Other = Append, []string{late(k.events, random)}, random.IntN(2) == 0
	case p < 69:
		c.Op, c.Now = Patch, random.IntN(3) == 0
	case p < 74:
		c.Op, c.IDs = Revert, []string{late(k.patches, random)}
	case p < 77:
		c.Op, c.IDs = Rewind, []string{late(k.events, random)}
	case p < 80:
		c.Op = At
	case p < 82:
		c.Op = Raw
	case p < 84:
		c.Op = Export
	case p < 87 && l.Forks && at < sessions-1:
		c.Op, c.Source = Fork, kept
	case p < 90:
		c.Op, c.Text = Import, text(id, id+sibling)
		l.mu.Lock()
		if other := l.of(app, sessionName(random.IntN(sessions))).text; other != "" && random.IntN(3) > 0 {
			c.Text = other
		}
		l.mu.Unlock()
	case p < 93 && l.Forks:
		c.Op = Lease
	case p < 97 && at < sessions-1:
		c.Op = Delete
	default:
		c.Op = Create
	}
	return c
}

// late returns one of the last ids, or one that nobody has.
func late(ids []string, random *rand.Rand) string {
	i := len(ids) - 1 - random.IntN(4)
	if i < 0 {
		return "nobody's"
	}
	return ids[i]
}
