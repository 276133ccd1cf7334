// Package memory implements [backend.Backend] in memory, for tests and for sessions that end with the process.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Backend keeps sessions in memory. The zero value is an empty backend that is ready to use.
type Backend struct {
	first  sync.Once
	closed bool // guarded by content.mu
	*content
}

// content is the data that a backend shares with its peers.
type content struct {
	mu        sync.RWMutex
	open      int // the number of open backends
	sessions  map[string]*session
	names     []string // sorted session names
	shared    map[string][]byte
	versions  map[string]backend.Token // key: scope of the shared values
	fenced    map[string]bool          // creation ids that can no longer be used
	deletions recentDeletions
	leases    map[string]lease
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Leaser  = (*Backend)(nil)
)

// Peer returns another backend with the same sessions, like another process on the same database. The caller must
// close each backend. Closing the last backend discards the sessions.
func (b *Backend) Peer() *Backend {
	b.lock()
	defer b.mu.Unlock()
	b.open++
	p := &Backend{content: b.content}
	p.first.Do(func() {})
	return p
}

func (b *Backend) lock() {
	b.init()
	b.mu.Lock()
}

func (b *Backend) rlock() {
	b.init()
	b.mu.RLock()
}

func (b *Backend) init() {
	b.first.Do(func() {
		b.content = &content{open: 1, sessions: map[string]*session{}, shared: map[string][]byte{}, versions: map[string]backend.Token{}, fenced: map[string]bool{}, leases: map[string]lease{}}
	})
}

type lease struct {
	owner string
	until time.Time
}

// recentDeletions has the creation ids of the most recently deleted sessions. An unknown outcome must be resolved before
// the session's creation id is overwritten here.
type recentDeletions struct {
	last [1024]string
	n    int
}

func (d *recentDeletions) add(creation string) {
	d.last[d.n%len(d.last)] = creation
	d.n++
}

func (d *recentDeletions) has(creation string) bool {
	return slices.Contains(d.last[:min(d.n, len(d.last))], creation)
}

type session struct {
	creation string
	family   string
	token    backend.Token
	meta     []byte
	counts   []byte
	records  [][]byte
	edition  uint64
	chain    backend.Chain
	snapshot backend.Snapshot
	ids      map[string]uint64
}

// check returns an error if the backend is closed or ctx has ended. The caller has locked content.mu.
func (b *Backend) check(ctx context.Context) error {
	if b.closed {
		return backend.ErrClosed
	}
	return ctx.Err()
}

// find returns the session with this name. The caller has locked content.mu.
func (b *Backend) find(ctx context.Context, name string) (*session, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	s, ok := b.sessions[name]
	if !ok {
		return nil, backend.ErrNotFound
	}
	return s, nil
}

// findCreation is find, but returns ErrNotFound if the session has another creation id.
func (b *Backend) findCreation(ctx context.Context, name, creation string) (*session, error) {
	s, err := b.find(ctx, name)
	if err == nil && s.creation != creation {
		return nil, backend.ErrNotFound
	}
	return s, err
}

func (s *session) head() backend.Head {
	return backend.Head{Creation: s.creation, Last: uint64(len(s.records)), Token: s.token, Chain: s.chain, Counts: bytes.Clone(s.counts), Edition: s.edition}
}

// Fetch implements [backend.Backend].
func (b *Backend) Fetch(ctx context.Context, q backend.Query) (fetched backend.Fetched, err error) {
	b.rlock()
	defer b.mu.RUnlock()
	if err := b.check(ctx); err != nil {
		return fetched, err
	}
	if q.Session != "" {
		s, err := b.find(ctx, q.Session)
		if err != nil {
			return fetched, err
		}
		known := q.UpTo == 0 && q.Creation != "" && s.creation == q.Creation
		fetched.Head = s.head()
		if !known && !q.NoMeta {
			fetched.Meta = bytes.Clone(s.meta)
		}
		if q.UpTo != 0 && s.snapshot.Seq <= q.UpTo {
			fetched.Snapshot = s.snapshot
			fetched.Snapshot.Data = bytes.Clone(s.snapshot.Data)
		}
		if _, most := q.Limits(); known || q.UpTo != 0 {
			fetched.Records = s.read(q.Seqs(fetched.Last, fetched.Snapshot), most)
		}
	}
	for i, prefix := range q.Shared {
		version := b.versions[prefix]
		var values []backend.Value
		if !q.HasKnown(i, version) {
			values = b.sharedValues(prefix)
		}
		fetched.Shared, fetched.Versions = append(fetched.Shared, values), append(fetched.Versions, version)
	}
	return fetched, nil
}

// Append implements [backend.Backend].
func (b *Backend) Append(ctx context.Context, name string, batch backend.Batch) error {
	if err := batch.Validate(name); err != nil {
		return err
	}
	b.lock()
	defer b.mu.Unlock()
	s, err := b.find(ctx, name)
	switch {
	case batch.Create && err == nil:
		return backend.ErrExists
	case batch.Create && err == backend.ErrNotFound && b.fenced[batch.Creation]:
		return backend.ErrMoved
	case batch.Create && err == backend.ErrNotFound && batch.RenameFrom != "":
		s = b.sessions[batch.RenameFrom]
		if s == nil || s.creation != batch.Creation || s.token != batch.ExpectedToken {
			return backend.ErrMoved
		}
	case batch.Create && err == backend.ErrNotFound:
		s = &session{creation: batch.Creation, ids: map[string]uint64{}}
	case err != nil:
		return err
	case s.creation != batch.Creation:
		return backend.ErrNotFound
	case s.token != batch.ExpectedToken:
		return backend.ErrMoved
	}
	if w := batch.ExpectedSource; w != nil {
		other := b.sessions[w.Session]
		if other == nil || other.creation != w.Creation || other.edition != w.Edition {
			return backend.ErrMoved
		}
	}
	if err := s.append(batch.ExpectedLast, batch.Records); err != nil {
		return err
	}
	if batch.Create {
		s.meta = bytes.Clone(batch.Meta)
		delete(b.sessions, batch.RenameFrom)
		b.sessions[name] = s
		if i, found := slices.BinarySearch(b.names, batch.RenameFrom); found {
			b.names = slices.Delete(b.names, i, i+1)
		}
		i, _ := slices.BinarySearch(b.names, name)
		b.names = slices.Insert(b.names, i, name)
		s.family = cmp.Or(batch.Family, batch.Creation)
	}
	s.token = batch.Next
	if batch.Counts != nil {
		s.counts = bytes.Clone(batch.Counts)
	}
	b.putShared(batch.Shared)
	return nil
}

// append adds all records to the log, or none.
func (s *session) append(after uint64, records []backend.Record) error {
	if uint64(len(s.records)) != after {
		return backend.ErrMoved
	}
	for _, r := range records {
		for _, id := range r.IDs {
			if s.ids[id] != 0 {
				return backend.ErrTaken
			}
		}
	}
	for _, r := range records {
		s.records = append(s.records, bytes.Clone(r.Data))
		s.chain = s.chain.Add(r.Sum)
		for _, id := range r.IDs {
			s.ids[id] = r.Seq
		}
	}
	return nil
}

// Replace implements [backend.Backend].
func (b *Backend) Replace(ctx context.Context, name, creation string, plan func(backend.Head) (backend.Replacement, error)) error {
	if err := backend.CheckName("a session name", name, 1); err != nil {
		return err
	}
	b.lock()
	defer b.mu.Unlock()
	s, err := b.findCreation(ctx, name, creation)
	if err != nil {
		return err
	}
	head := s.head()
	head.Meta = nil
	r, err := plan(head)
	if err == nil {
		err = r.Batch(creation, head).Validate(name)
	}
	if err != nil {
		return err
	}
	for _, x := range r.Records {
		if x.Seq == 0 || x.Seq > head.Last || !bytes.Equal(s.records[x.Seq-1], x.Old) {
			return backend.ErrMoved
		}
	}
	if r.Meta != nil && !bytes.Equal(s.meta, r.OldMeta) {
		return backend.ErrMoved
	}
	s.chain = r.ReplacedChain(head)
	if err := s.append(head.Last, r.Appended); err != nil {
		s.chain = head.Chain
		return err
	}
	for _, x := range r.Records {
		s.records[x.Seq-1] = bytes.Clone(x.Data)
	}
	if r.Meta != nil {
		s.meta = bytes.Clone(r.Meta)
	}
	if r.Counts != nil {
		s.counts = bytes.Clone(r.Counts)
	}
	s.snapshot = backend.Snapshot{}
	s.token, s.edition = r.Next, s.edition+1
	return nil
}

// Read implements [backend.Backend].
func (b *Backend) Read(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	b.rlock()
	defer b.mu.RUnlock()
	s, err := b.findCreation(ctx, name, creation)
	if err != nil {
		return nil, err
	}
	return s.read(seqs, maxBytes), nil
}

func (s *session) read(seqs []uint64, maxBytes int) (out []backend.Record) {
	size := 0
	for _, seq := range seqs {
		if seq == 0 || seq > uint64(len(s.records)) {
			break
		}
		data := s.records[seq-1]
		if size += len(data); len(out) > 0 && size > maxBytes {
			break
		}
		out = append(out, backend.Record{Seq: seq, Data: bytes.Clone(data)})
	}
	return out
}

// Lookup implements [backend.Backend].
func (b *Backend) Lookup(ctx context.Context, name, creation string, ids []string) ([]uint64, error) {
	b.rlock()
	defer b.mu.RUnlock()
	s, err := b.findCreation(ctx, name, creation)
	if err != nil {
		return nil, err
	}
	seqs := make([]uint64, len(ids))
	for i, id := range ids {
		seqs[i] = s.ids[id]
	}
	return seqs, nil
}

// PutSnapshot implements [backend.Backend].
func (b *Backend) PutSnapshot(ctx context.Context, name, creation string, snap backend.Snapshot) error {
	b.lock()
	defer b.mu.Unlock()
	s, err := b.findCreation(ctx, name, creation)
	if err == nil && snap.Edition != s.edition {
		err = backend.ErrMoved
	}
	if err == nil && snap.Seq >= s.snapshot.Seq {
		snap.Edition, snap.Spans, snap.Data = 0, slices.Clone(snap.Spans), append([]byte{}, snap.Data...)
		s.snapshot = snap
	}
	return err
}

// PutShared implements [backend.Backend].
func (b *Backend) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	b.lock()
	defer b.mu.Unlock()
	if err := b.check(ctx); err != nil {
		return err
	}
	for _, c := range changes {
		if err := backend.CheckName("a shared name", c.Name, 1); err != nil {
			return err
		}
		var now *backend.Value
		if data, found := b.shared[c.Name]; found {
			now = &backend.Value{Name: c.Name, Data: data}
		}
		if !c.Matches(now) {
			return backend.ErrMoved
		}
	}
	var values []backend.Value
	for _, c := range changes {
		values = append(values, backend.Value{Name: c.Name, Data: c.Data})
	}
	b.putShared(values)
	return nil
}

func (c *content) putShared(values []backend.Value) {
	for _, v := range values {
		c.shared[v.Name] = bytes.Clone(v.Data)
	}
	for _, scope := range backend.Scopes(values) {
		c.versions[scope] = backend.NewToken()
	}
}

func (c *content) sharedValues(prefix string) (out []backend.Value) {
	for _, name := range slices.Sorted(maps.Keys(c.shared)) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, backend.Value{Name: name, Data: bytes.Clone(c.shared[name])})
		}
	}
	return out
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	b.rlock()
	defer b.mu.RUnlock()
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	first, _ := slices.BinarySearch(b.names, max(prefix, after))
	var out []backend.Listed
	for _, name := range b.names[first:] {
		if len(out) == limit || !strings.HasPrefix(name, prefix) {
			break
		}
		if name > after {
			out = append(out, backend.Listed{Session: name, Head: b.sessions[name].head()})
		}
	}
	return out, nil
}

// Relatives implements [backend.Backend].
func (b *Backend) Relatives(ctx context.Context, family, after string, limit int) ([]backend.Listed, error) {
	b.rlock()
	defer b.mu.RUnlock()
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	var out []backend.Listed
	for _, name := range b.names {
		if s := b.sessions[name]; s.family == family && name > after && len(out) < limit {
			l := backend.Listed{Session: name, Head: s.head()}
			l.Meta = bytes.Clone(s.meta)
			out = append(out, l)
		}
	}
	return out, nil
}

// Delete implements [backend.Backend].
func (b *Backend) Delete(ctx context.Context, name, creation string, seen *backend.Head) error {
	b.lock()
	defer b.mu.Unlock()
	s, err := b.findCreation(ctx, name, creation)
	switch {
	case err != nil:
		return err
	case seen != nil && seen.Moved(s.head()):
		return backend.ErrMoved
	}
	delete(b.sessions, name)
	b.names = slices.DeleteFunc(b.names, func(other string) bool { return other == name })
	b.deletions.add(creation)
	return nil
}

// Fence implements [backend.Backend].
func (b *Backend) Fence(ctx context.Context, name, creation string, seen, next backend.Token) (fenced bool, err error) {
	b.lock()
	defer b.mu.Unlock()
	s, err := b.find(ctx, name)
	switch {
	case err != nil && err != backend.ErrNotFound:
		return false, err
	case seen == 0 && !b.deletions.has(creation) && (err != nil || s.creation != creation):
		b.fenced[creation] = true
		return true, nil
	case err == nil && s.creation == creation && (s.token == seen || s.token == next):
		s.token = next
		return true, nil
	}
	return false, nil
}

// Lease implements [backend.Leaser].
func (b *Backend) Lease(ctx context.Context, name, owner string, ttl time.Duration) (held bool, err error) {
	b.lock()
	defer b.mu.Unlock()
	if err := b.check(ctx); err != nil {
		return false, err
	}
	now := time.Now()
	maps.DeleteFunc(b.leases, func(_ string, l lease) bool { return !now.Before(l.until) })
	switch other, taken := b.leases[name]; {
	case taken && other.owner != owner:
		return false, nil
	case ttl == 0:
		delete(b.leases, name)
	case ttl > 0:
		b.leases[name] = lease{owner, now.Add(ttl)}
	}
	return ttl != 0, nil
}

// Close implements [backend.Backend].
func (b *Backend) Close() error {
	b.lock()
	defer b.mu.Unlock()
	if b.closed {
		return backend.ErrClosed
	}
	b.closed = true
	if b.open--; b.open == 0 {
		b.sessions, b.names, b.shared, b.versions, b.fenced = nil, nil, nil, nil, nil
	}
	return nil
}
