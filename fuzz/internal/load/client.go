package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store"
)

// Clients is how many clients there are at most. The last one vacuums and makes backups too.
const Clients = 32

const shared = 4 // sessions that all clients write to

// A session is deleted, and made anew, when it has so many records.
const most = 80

func ownSession(client int) string    { return fmt.Sprint("own ", client) }
func sharedSession(client int) string { return fmt.Sprint("shared ", client%shared) }

// Line is what a process says: that it opens its store, that a call begins, or what came of one.
type Line struct {
	At    string `json:",omitempty"` // Opening, Opened
	Try   *Call  `json:",omitempty"`
	Reply *Reply `json:",omitempty"`
	Wrong string `json:",omitempty"` // something that must not be
}

// What a process says before its first call.
const (
	Opening = "opening"
	Opened  = "opened"
)

// Crowd is clients who write to a store at once.
type Crowd struct {
	Store *store.Store
	Round int    // ids are unique over rounds
	Seed  uint64 // what clients do follows from it
	Dir   string // for backups
	Say   func(Line)

	// Faulty, if not nil, says whether calls may fail for other reasons than what they ask for.
	Faulty func() bool

	mu      sync.Mutex
	n       int
	patches map[string][]string // ids of patches, by creation
}

// Client returns one of the clients, of which there are up to [Clients].
func (c *Crowd) Client(i int) *Client {
	random := rand.New(rand.NewPCG(c.Seed, uint64(c.Round*Clients+i)))
	return &Client{Crowd: c, i: i, random: random, last: map[string]uint64{}}
}

// A call whose outcome is unknown is repeated so often.
const tries = 50

// call makes a call, and says so before and after.
func (c *Crowd) call(ctx context.Context, one Call) Reply {
	c.mu.Lock()
	c.n++
	one.N = c.n
	c.Say(Line{Try: &one})
	c.mu.Unlock()
	r := Do(ctx, c.Store, one)
	for try := 0; r.Kind == "unknown" && try < tries; try++ {
		if r = c.again(ctx, one); r.Kind == "failed" { // this time, which says nothing of the first
			r.Kind = "unknown"
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.Op == "patch" && r.Kind == "done" {
		if c.patches == nil {
			c.patches = map[string][]string{}
		}
		c.patches[one.Creation] = append(c.patches[one.Creation], one.id())
	}
	c.Say(Line{Reply: &r})
	return r
}

// again makes a call whose outcome is not known. Nobody else makes or deletes its session, or
// writes to it if the call draws ids, so what is there tells.
func (c *Crowd) again(ctx context.Context, one Call) Reply {
	if !one.draws() {
		r := Do(ctx, c.Store, one)
		switch {
		case one.Op == "delete" && r.Kind == "not found":
			r = Reply{N: one.N, Kind: "done"}
		case one.makes() && r.Kind == "exists":
			info, err := c.Store.Info(ctx, Key(one.Session))
			r = Reply{N: one.N, Kind: "done", Creation: info.Creation}
			if err != nil {
				r = Reply{N: one.N, Kind: "unknown", Err: err.Error()}
			}
		}
		return r
	}
	r := Reply{N: one.N, Kind: "done"}
	for record, err := range c.Store.RawEvents(ctx, Key(one.Session), *one.IfSeq+1) {
		if err != nil {
			return Reply{N: one.N, Kind: "unknown", Err: err.Error()}
		}
		e, err := entryOf(record)
		if err != nil {
			return Reply{N: one.N, Kind: "failed", Err: err.Error()}
		}
		r.Records = append(r.Records, e)
	}
	if len(r.Records) > 0 {
		return r
	}
	return Do(ctx, c.Store, one)
}

// id is the id of the first record that the call offers.
func (c Call) id() string {
	var r struct{ ID string }
	if len(c.Offered) > 0 {
		_ = json.Unmarshal(c.Offered[0], &r)
	}
	return r.ID
}

// aPatch returns a patch of the session that was made in this process, if there is one.
func (c *Crowd) aPatch(creation string, random *rand.Rand) (id string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.patches[creation]
	if len(of) == 0 {
		return "", false
	}
	return of[len(of)-1-random.IntN(min(3, len(of)))], true
}

// Client makes one call after the other.
type Client struct {
	*Crowd
	i      int
	random *rand.Rand
	n      int               // numbers ids
	last   map[string]uint64 // the record of each creation that was acknowledged last
	set    int64             // the value of its shared keys that was acknowledged last
	made   []made            // calls that were acknowledged lately
}

// made is a call that was acknowledged.
type made struct {
	Call
	reply Reply
}

func (c *Client) chance(percent int) bool { return c.random.IntN(100) < percent }

func (c *Client) newID() string {
	c.n++
	return fmt.Sprintf("%d.%d.%d", c.Round, c.i, c.n)
}

// Step makes one call, mostly. It returns an error if something is not as it should be.
func (c *Client) Step(ctx context.Context) error {
	if err := c.step(ctx); !errors.Is(err, errFault) {
		return err
	}
	return nil
}

// errFault is an error of reading that may be.
var errFault = errors.New("a fault")

// readError returns what is to be said of an error of reading.
func (c *Client) readError(err error) error {
	if kind := kindOf(err); c.fails() && (kind == "failed" || kind == "unknown") {
		return errFault
	}
	return err
}

func (c *Client) step(ctx context.Context) error {
	if c.i == Clients-1 && c.chance(70) {
		return c.keep(ctx)
	}
	switch p := c.random.IntN(100); {
	case p < 45:
		return c.write(ctx, sharedSession(c.random.IntN(shared)), false)
	case p < 83:
		return c.write(ctx, ownSession(c.i), true)
	case p < 89:
		return c.whole(ctx, fmt.Sprint("fork ", c.i), c.fork)
	case p < 92:
		return c.whole(ctx, fmt.Sprint("import ", c.i), c.text("import"))
	case p < 94:
		return c.whole(ctx, fmt.Sprint("copy ", c.i), c.text("copy"))
	case p < 96:
		return c.done(c.call(ctx, Call{Client: c.i, Op: "lease", Session: sharedSession(c.i), Target: "work", At: uint64(c.random.IntN(3))}))
	case p < 97:
		return c.read(ctx)
	default:
		return c.repeat(ctx)
	}
}

// keep makes a call for the whole store.
func (c *Client) keep(ctx context.Context) error {
	one := Call{Client: c.i, Op: "vacuum"}
	if c.chance(50) {
		one = Call{Client: c.i, Op: "backup", File: filepath.Join(c.Dir, fmt.Sprint("backup ", c.n))}
		c.n++
	}
	return c.done(c.call(ctx, one), "unsupported")
}

// done returns an error if the call failed in a way that it must not.
func (c *Client) done(r Reply, fine ...string) error {
	if r.Kind == "done" || slices.Contains(fine, r.Kind) || c.fails() && (r.Kind == "failed" || r.Kind == "unknown") {
		return nil
	}
	return fmt.Errorf("call %d: %s: %s", r.N, r.Kind, r.Err)
}

func (c *Client) fails() bool { return c.Faulty != nil && c.Faulty() }

// view returns a session's newest view, which shows what this client was told of.
func (c *Client) view(ctx context.Context, session string) (v fold.View, there bool, err error) {
	s, err := c.Store.Get(ctx, Key(session))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return v, false, nil
	case err != nil:
		return v, false, c.readError(err)
	}
	for _, name := range counters(c.i) {
		value, _ := s.Value(name)
		if n, _ := value.Any().(int64); n < c.set {
			return v, true, fmt.Errorf("shared key %s is %d, after %d was acknowledged", name, n, c.set)
		}
	}
	if last := c.last[s.View.Creation()]; s.View.Seq() < last {
		err = fmt.Errorf("%s ends with record %d, after record %d was acknowledged", session, s.View.Seq(), last)
	}
	return s.View, true, err
}

// told keeps in mind what the client was told.
func (c *Client) told(one Call, r Reply) {
	for _, e := range r.Records {
		c.last[one.Creation] = max(c.last[one.Creation], e.Seq)
	}
	if r.Kind == "done" && one.Counter > 0 {
		c.set = one.Counter
	}
	if r.Kind == "done" && len(one.Offered) > 0 && one.Creation != "" {
		c.made = append(c.made[max(0, len(c.made)-7):], made{one, r})
	}
}

// repeat makes a call again that was acknowledged: it writes nothing, and finds what it wrote.
func (c *Client) repeat(ctx context.Context) error {
	if len(c.made) == 0 {
		return nil
	}
	was := c.made[c.random.IntN(len(c.made))]
	if was.Op == "import" { // which would make its session anew, if that was deleted
		if v, there, err := c.view(ctx, was.Session); err != nil || !there || v.Creation() != was.Creation {
			return err
		}
	}
	r := Do(ctx, c.Store, was.Call)
	if r.Kind == "done" && !slices.EqualFunc(r.Records, was.reply.Records, Entry.same) {
		return fmt.Errorf("call %v came to %+v, and made again it comes to %+v", was.Call, was.reply, r)
	}
	return c.done(r, "not found")
}

// write makes a call that writes to a session, whose lifecycle is the matter of one client.
func (c *Client) write(ctx context.Context, session string, own bool) error {
	mine := own || session == fmt.Sprint("shared ", c.i)
	v, there, err := c.view(ctx, session)
	switch {
	case err != nil:
		return err
	case !there && mine:
		return c.create(ctx, session)
	case !there:
		return nil
	case mine && (v.Seq() >= most || c.chance(4)):
		return c.done(c.call(ctx, Call{Client: c.i, Op: "delete", Session: session}))
	}
	one := Call{Client: c.i, Session: session, Creation: v.Creation()}
	fine := []string{"conflict", "refused"}
	seq := v.Seq()
	if !mine {
		fine = append(fine, "not found")
	}
	switch p := c.random.IntN(100); {
	case own && p < 8 && c.revert(ctx, &one):
	case own && p < 14 && c.rewind(ctx, &one, v):
	case own && p < 20:
		one.Op, one.Adds, one.Short = "append", 2, 200
		one.Offered = c.response()
	case own && p < 26 && seq > 0:
		c.erase(&one, seq)
	case p < 45 && v.Len() > 0:
		c.patch(&one, v)
	default:
		c.append(&one)
		if c.chance(5) {
			one.IfSeq = &seq
		}
	}
	if one.draws() {
		one.IfSeq = &seq
	}
	r := c.call(ctx, one)
	c.told(one, r)
	return c.done(r, fine...)
}

func (c *Client) create(ctx context.Context, session string) error {
	state := object{"k0": c.n}
	one := Call{Client: c.i, Op: "create", Session: session}
	if c.chance(30) {
		c.count(&one, state)
	}
	one.State = jsonOf(state)
	return c.done(c.call(ctx, one))
}

// whole makes, extends or deletes a session that is not created empty.
func (c *Client) whole(ctx context.Context, session string, fill func(context.Context, *Call) (bool, error)) error {
	v, there, err := c.view(ctx, session)
	if err != nil {
		return err
	}
	one := Call{Client: c.i, Session: session}
	switch {
	case !there:
		if ok, err := fill(ctx, &one); !ok {
			return err
		}
	case c.chance(50):
		one.Op = "delete"
	case c.chance(30) && v.Seq() > 0:
		one.Creation = v.Creation()
		c.erase(&one, v.Seq())
	case c.chance(50):
		one.Creation, one.Op = v.Creation(), "import"
		one.Offered = c.events()
	default:
		one.Creation = v.Creation()
		c.append(&one)
	}
	r := c.call(ctx, one)
	c.told(one, r)
	return c.done(r)
}

func (c *Client) fork(ctx context.Context, one *Call) (bool, error) {
	v, there, err := c.view(ctx, ownSession(c.i))
	if !there || err != nil {
		return false, err
	}
	one.Op, one.Target, one.Of, one.At = "fork", ownSession(c.i), v.Creation(), uint64(c.random.IntN(int(v.Seq())+1))
	return true, nil
}

// revert has the call take back a patch of the client's own session, with its group.
func (c *Client) revert(ctx context.Context, one *Call) bool {
	id, ok := c.aPatch(one.Creation, c.random)
	if !ok {
		return false
	}
	p, err := c.Store.PreviewRevert(ctx, Key(one.Session), store.BackOptions{AllowOrphans: true}, id)
	one.Op, one.Target, one.Adds = "revert", id, len(p.Patches)
	return err == nil && len(p.Patches) > 0
}

func (c *Client) rewind(ctx context.Context, one *Call, v fold.View) bool {
	if v.Len() == 0 {
		return false
	}
	to := v.At(c.random.IntN(v.Len())).InvocationID()
	p, err := c.Store.PreviewRewind(ctx, Key(one.Session), store.BackOptions{}, to)
	one.Op, one.Target, one.Adds = "rewind", to, len(p.Patches)
	return err == nil && len(p.Patches) > 0
}

// read reads what others do not write meanwhile.
func (c *Client) read(ctx context.Context) error {
	session := ownSession(c.i)
	v, there, err := c.view(ctx, session)
	if !there || err != nil {
		return err
	}
	n := uint64(0)
	for r, err := range c.Store.RawEvents(ctx, Key(session), 1) {
		if err != nil {
			return c.readError(err)
		}
		if n++; r.Seq != n {
			return fmt.Errorf("%s: record %d follows record %d", session, r.Seq, n-1)
		}
	}
	if n != v.Seq() {
		return fmt.Errorf("%s: %d records, and the view is at %d", session, n, v.Seq())
	}
	at, err := c.Store.ViewAt(ctx, Key(session), n)
	if err != nil {
		return c.readError(err)
	}
	if at.Len() != v.Len() {
		err = fmt.Errorf("%s: the view at %d shows %d events, the newest %d", session, n, at.Len(), v.Len())
	}
	return err
}

// What follows draws what calls offer.
