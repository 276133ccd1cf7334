package linear

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
)

// Load runs clients that execute operations on a few sessions.
type Load struct {
	Callers []ops.Caller // client i uses the caller with index i modulo len(Callers)
	Clients int
	Apps    int    // number of apps, whose sessions are separate
	Name    string // prefix of the names of apps, which distinguishes several loads
	Seed    uint64

	// Calls is the number of operations per client. If More is not nil, each client instead continues while More
	// returns true.
	Calls int
	More  func() bool

	// OneAppAtATime makes all clients use one app after another. If it is not set, each operation uses a random app.
	OneAppAtATime bool

	// Forks makes clients fork sessions, and Leases makes them take leases. Leases cannot be used with crashes,
	// because the outcome of a lease cannot be determined later.
	Forks, Leases bool

	// Backups is a directory for backups, or "". If it is not "", the last client often vacuums and writes backups,
	// and all clients also erase events.
	Backups string

	// ShortTimeouts is the percentage of writes whose time limit is too short.
	ShortTimeouts int

	mu           sync.Mutex
	start        time.Time
	history      History
	idsBySession map[string]*sessionIDs
	seen         map[string]ops.Reply // key: client and session; value: the last reply that showed the session
	random       []*rand.Rand         // random numbers of each client
	n            []int                // number of operations of each client
}

// sessionIDs has the ids of a session, and its exported text, that any client has seen.
type sessionIDs struct {
	patches, events []string
	text            string
}

// sessions is the number of sessions of an app. The last session is never deleted. Each client also has a session in
// which it erases, and a session that it imports as a whole. The names of these sessions begin with "erased " and
// "imported ".
const (
	sessions       = 4
	keptSession    = "kept"
	erasedPrefix   = "erased "
	ImportedPrefix = "imported "
)

func sessionName(i int) string {
	if i == sessions-1 {
		return keptSession
	}
	return fmt.Sprint("s", i)
}

func (l *Load) app(i int) string { return fmt.Sprintf("%s.%d", l.Name, i) }

// Since returns the time since the load began.
func (l *Load) Since() time.Duration { return time.Since(l.start) }

// History returns the history so far, in the order in which the operations ended.
func (l *Load) History() History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.history)
}

// Begin starts the load's clock.
func (l *Load) Begin() {
	l.start, l.history, l.idsBySession, l.seen = time.Now(), nil, map[string]*sessionIDs{}, map[string]ops.Reply{}
	l.random, l.n = nil, make([]int, l.Clients)
	for client := range l.Clients {
		l.random = append(l.random, rand.New(rand.NewPCG(l.Seed, uint64(client))))
	}
}

// Create creates the sessions.
func (l *Load) Create() {
	for app := range l.Apps {
		for i := range sessions {
			for range 100 {
				if r := l.Call(l.Callers[0], ops.Op{App: l.app(app), Session: sessionName(i), Kind: ops.Create}); r.Outcome == ops.Done || r.Outcome == ops.Exists || r.Outcome == ops.Gone {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}

// Run creates the sessions, runs the clients, and returns the history.
func (l *Load) Run() History {
	l.Begin()
	l.Create()
	return l.Work()
}

// Work runs the clients concurrently until all have ended, and returns the history.
func (l *Load) Work() History {
	var wg sync.WaitGroup
	for client := range l.Clients {
		wg.Go(func() {
			for l.hasMore(client) && l.Step(client) {
			}
		})
	}
	wg.Wait()
	return l.History()
}

// Until returns a load with the history up to a moment of this load's clock. Both loads use the same clock.
func (l *Load) Until(at int64) *Load {
	return &Load{
		Callers: l.Callers, Clients: l.Clients, Apps: l.Apps, Name: l.Name, Seed: l.Seed, Forks: l.Forks, Backups: l.Backups,
		start: l.start, history: l.History().Until(at), idsBySession: map[string]*sessionIDs{}, seen: map[string]ops.Reply{}, random: l.random, n: l.n,
	}
}

func (l *Load) hasMore(client int) bool {
	if l.More != nil {
		return l.More()
	}
	return l.n[client] < l.Calls
}

// Step executes the next operation of a client. It repeats the operation with the same ids until the outcome is
// known. If the called process has ended, Step returns false.
func (l *Load) Step(client int) bool {
	n, random := l.n[client], l.random[client]
	l.n[client]++
	app := random.IntN(l.Apps)
	if l.OneAppAtATime {
		app = n * l.Apps / l.Calls
	}
	o := l.draw(client, n, l.app(app), random)
	if random.IntN(100) < l.ShortTimeouts && o.Changes() {
		o.Wait = time.Duration(1+random.IntN(10)) * time.Millisecond
	}
	unknown := false
	for range 100 {
		r := l.Call(l.Callers[client%len(l.Callers)], o)
		o.Wait = 0
		if r.Outcome == ops.Gone {
			return false
		}
		if r.Outcome == ops.Failed || r.Outcome == ops.Unknown {
			time.Sleep(5 * time.Millisecond)
		}
		unknown = unknown || r.Outcome == ops.Unknown
		if !o.Changes() || !unknown || r.Outcome != ops.Unknown && r.Outcome != ops.Failed {
			break
		}
	}
	return true
}

// End reads all sessions of the history as a new client. It returns the history including these reads.
func (l *Load) End(c ops.Caller) History {
	type session struct{ app, name string }
	done := map[session]bool{}
	for _, e := range l.History() {
		s := session{e.App, e.Session}
		if s.name == "" || e.Kind == ops.Lease || done[s] {
			continue
		}
		done[s] = true
		for _, kind := range []ops.Kind{ops.Get, ops.Raw} {
			l.Call(c, ops.Op{Client: l.Clients, App: s.app, Session: s.name, Kind: kind})
		}
	}
	return l.History()
}

// MarkGoneAfter sets the outcome of operations that failed after a moment of the load's clock to [ops.Gone]. Such
// operations failed because the disk was gone.
func (l *Load) MarkGoneAfter(at int64) {
	for i, e := range l.history {
		if e.To > at && (e.Outcome == ops.Corrupt || e.Outcome == ops.Failed || e.Outcome == ops.Unknown) {
			l.history[i].Reply = ops.Reply{Outcome: ops.Gone, Err: e.Err}
		}
	}
}

// ReadDuring reads the sessions. In the history, these reads take place between the start and the end of operation
// e.
func (l *Load) ReadDuring(c ops.Caller, e Call) {
	n := len(l.history)
	l.End(c)
	for i := n; i < len(l.history); i++ {
		l.history[i].From, l.history[i].To = e.From, e.To
	}
}

// Repeat repeats, as a new client, the operations whose outcome is unknown. It repeats deletions last. It skips
// appends, patches and deletions that an earlier Repeat has settled. If a session was deleted since then, a repeated
// append would add the events again.
func (l *Load) Repeat(c ops.Caller) {
	history := l.History()
	for _, deletions := range []bool{false, true} {
		for i, e := range history {
			unknown := (e.Outcome == ops.Gone || e.Outcome == ops.Unknown) && effectiveUntil(e, history[i:]) == math.MaxInt64
			if !unknown || !e.Changes() || (e.Kind == ops.Delete) != deletions {
				continue
			}
			o := e.Op
			o.Client = l.Clients + 1
			l.Call(c, o)
		}
	}
}

// Call executes an operation through a caller. It adds the operation to the history with its reply.
func (l *Load) Call(caller ops.Caller, o ops.Op) ops.Reply {
	from := l.Since()
	r := caller.Call(o)
	e := Call{Op: o, Reply: r, From: from.Nanoseconds(), To: l.Since().Nanoseconds()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, e)
	if e.showsSession() {
		l.seen[fmt.Sprint(o.Client, o.App, o.Session)] = r
	}
	k := l.known(o.App, o.Session)
	switch {
	case r.Outcome != ops.Done:
	case o.Kind == ops.Append && !ops.IsHot(o.IDs[0]):
		k.events = append(k.events, o.IDs...)
	case o.Kind == ops.Patch || o.Kind == ops.Revert || o.Kind == ops.Rewind:
		k.patches = append(k.patches, r.Logged...)
	case o.Kind == ops.Export:
		k.text = r.Exported
	}
	return r
}

// known returns the ids and the text that clients have seen of a session. The caller must hold l.mu.
func (l *Load) known(app, session string) *sessionIDs {
	name := app + " " + session
	if l.idsBySession[name] == nil {
		l.idsBySession[name] = &sessionIDs{}
	}
	return l.idsBySession[name]
}

// lastSeen returns the ids and the text that clients have seen of a session, and the last reply that showed the
// session to this client.
func (l *Load) lastSeen(client int, app, session string) (sessionIDs, ops.Reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.known(app, session), l.seen[fmt.Sprint(client, app, session)]
}

func (l *Load) draw(client, n int, app string, random *rand.Rand) ops.Op {
	at, id := random.IntN(sessions), fmt.Sprintf("%d.%d", client, n)
	o := ops.Op{Client: client, App: app, Session: sessionName(at), IDs: []string{id}, Choice: random.IntN(1000)}
	if l.Backups != "" {
		switch p := random.IntN(100); {
		case client == l.Clients-1 && p < 35:
			return ops.Op{Client: client, App: app, Kind: ops.Vacuum}
		case client == l.Clients-1 && p < 70:
			return ops.Op{Client: client, App: app, Kind: ops.Backup, File: filepath.Join(l.Backups, l.Name+id)}
		case p < 10:
			return l.drawErase(o, random)
		case p < 11:
			return l.drawImport(o, random)
		}
	}
	k, seen := l.lastSeen(client, app, o.Session)
	switch p := random.IntN(100); {
	case p < 24:
		o.Kind = ops.Get
	case p < 46:
		o.Kind = ops.Append
		switch random.IntN(5) {
		case 0:
			o.IDs = append(o.IDs, id+ops.Sibling)
		case 1:
			o.IDs[0] = ops.Hot(id, o.Session)
		}
	case p < 54:
		o.Kind = ops.Append
		if seen.Creation != "" {
			o.IfSeq = &seen.Seq
			if o.Choice%2 == 0 {
				o.On = seen.Creation
			}
		}
	case p < 58:
		o.Kind, o.IDs, o.OtherContent = ops.Append, []string{drawRecentID(k.events, random)}, random.IntN(2) == 0
	case p < 69:
		o.Kind = ops.Patch
		o.Start, o.Count = o.Choice%3, 1+o.Choice%2
		o.AsOfNow = true
		if visible := len(seen.Visible); random.IntN(3) > 0 && visible > 0 {
			o.AsOfNow = false
			o.On, o.Base = seen.Creation, seen.PatchSeq
			o.Start = o.Choice % visible
			o.Count = min(o.Count, visible-o.Start)
			o.Event = seen.Visible[o.Start]
		}
	case p < 74:
		o.Kind, o.IDs = ops.Revert, []string{drawRecentID(k.patches, random)}
	case p < 77:
		o.Kind, o.IDs = ops.Rewind, []string{drawRecentID(k.events, random)}
	case p < 80:
		o.Kind, o.At = ops.At, drawSeq(seen, o.Choice)
	case p < 82:
		o.Kind = ops.Raw
	case p < 84:
		o.Kind = ops.Export
	case p < 87 && l.Forks && at < sessions-1:
		o.Kind, o.Source = ops.Fork, keptSession
		_, source := l.lastSeen(client, app, keptSession)
		o.At = drawSeq(source, o.Choice)
	case p < 90:
		o.Kind, o.Text = ops.Import, ops.Text(id, id+ops.Sibling)
		if other, _ := l.lastSeen(client, app, sessionName(random.IntN(sessions))); other.text != "" && random.IntN(3) > 0 {
			o.Text = other.text
		}
	case p < 93 && l.Leases:
		o.Kind = ops.Lease
	case p < 97 && at < sessions-1:
		o.Kind = ops.Delete
	default:
		o.Kind = ops.Create
	}
	return o
}

// drawErase draws an operation on the session in which the client erases. The ids are used in no other app.
// Otherwise, the store would treat sessions with the same first event as copies, and an erasure in one session would
// also erase in its copies.
func (l *Load) drawErase(o ops.Op, random *rand.Rand) ops.Op {
	id := o.App + " " + o.IDs[0]
	o.Session = fmt.Sprint(erasedPrefix, o.Client)
	k, seen := l.lastSeen(o.Client, o.App, o.Session)
	switch p := random.IntN(100); {
	case seen.Creation == "":
		o.Kind = ops.Create
	case p < 40 && len(k.events) > 1:
		first := random.IntN(len(k.events))
		o.Kind, o.Text, o.IDs = ops.Erase, "receipt "+id, slices.Clone(k.events[first:min(len(k.events), first+1+random.IntN(4))])
	case p < 60 && len(k.events) > 2:
		o.Kind, o.AsOfNow, o.Count, o.Choice = ops.Patch, true, 2, 8 // the patch is a summary
	default:
		o.Kind, o.IDs = ops.Append, []string{id, id + ops.Sibling}
	}
	return o
}

// drawImport draws an import of a session that needs several commits, or a deletion of the imported session.
func (l *Load) drawImport(o ops.Op, random *rand.Rand) ops.Op {
	id := o.IDs[0]
	o.Session, o.Kind = fmt.Sprint(ImportedPrefix, o.Client), ops.Import
	if _, seen := l.lastSeen(o.Client, o.App, o.Session); seen.Creation != "" && random.IntN(2) == 0 {
		o.Kind = ops.Delete
		return o
	}
	var ids []string
	for i := range 520 + random.IntN(200) {
		ids = append(ids, fmt.Sprint(id, ".", i))
	}
	o.Text = ops.Text(ids...)
	return o
}

// drawSeq returns a seq that is at most the last seq that the client has seen, which may be 0.
func drawSeq(seen ops.Reply, choice int) *uint64 {
	seq := uint64(choice) % (seen.Seq + 1)
	return &seq
}

// drawRecentID returns one of the last ids, or an id that no record has.
func drawRecentID(ids []string, random *rand.Rand) string {
	i := len(ids) - 1 - random.IntN(4)
	if i < 0 {
		return "unknown id"
	}
	return ids[i]
}
