package inspector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// step is the effect of a record, with the session's totals after the record.
type step struct {
	Seq    uint64
	Kind   present.Kind
	Time   time.Time
	Tokens int // estimate for the record's event; 0 for a patch

	Events  int // number of visible events
	Visible int // estimated tokens of the visible events
	Raw     int // estimated tokens of all events logged so far
	Turn    int // turn of the record's invocation, or else the newest turn; 0 before the first turn

	Patch *patchStep // nil for an event
}

// patchStep is the effect of a patch.
type patchStep struct {
	ID      string
	Type    patch.Type
	Group   string
	Target  string // id of the patch that it reverts, or of the event that it pins
	Applied bool
	Pass    *compaction.Written // set if compaction logged the patch

	Hid, Added             int // numbers of hidden and added events
	HidTokens, AddedTokens int
	Summary, ClearsResults bool // whether the patch added a summary, and whether it added cleared copies
	RewoundTo              int  // the turn to whose end it rewound, or -1
}

// timeline has a step for each record of a log. It is extended as the log grows. Copies handed to pages do not
// change.
type timeline struct {
	info      store.Info // the info as of the first read
	view      fold.View
	steps     []step
	turns     ops.Turns // used only by add
	stepBytes int64     // approximate memory of the steps in bytes
	cache     *timelineCache
}

// timelineCache caches data for the pages of a session. It is safe for concurrent use.
type timelineCache struct {
	mu      sync.Mutex
	view    fold.View // the view that targets was computed for
	targets []target
	losses  map[lossKey]*summaryLoss
}

// targets returns the targets of a view's events. Until a patch is logged, it extends the cached targets.
func (t *timeline) targets(v fold.View) ([]target, error) {
	t.cache.mu.Lock()
	defer t.cache.mu.Unlock()
	n := &t.cache.targets
	if was := t.cache.view; was.Creation() == v.Creation() && was.Edition() == v.Edition() && was.PatchSeq() == v.PatchSeq() && was.Seq() <= v.Seq() && was.Seq() > 0 {
		for at, first := v.Len(), uint64(len(*n)); first < v.Seq(); first++ { // only events were appended
			*n = append(*n, target{Index: at - int(v.Seq()-first)})
		}
		t.cache.view = v
		return slices.Clip(*n), nil
	}
	found, err := findTargets(t, v)
	if err == nil && v.Seq() == t.last() {
		t.cache.view, *n = v, found
	}
	return found, err
}

// at returns the step of a record, or the zero step for seq 0.
func (t *timeline) at(seq uint64) step {
	if seq == 0 {
		return step{}
	}
	return t.steps[seq-1]
}

func (t *timeline) last() uint64 { return uint64(len(t.steps)) }

// footprint returns the approximate memory of the timeline in bytes.
func (t *timeline) footprint() int64 {
	size := int64(t.view.Footprint()) + t.stepBytes + int64(cap(t.steps))*int64(unsafe.Sizeof(step{}))
	if t.cache != nil {
		t.cache.mu.Lock()
		defer t.cache.mu.Unlock()
		size += int64(cap(t.cache.targets)) * int64(unsafe.Sizeof(target{}))
	}
	return size
}

// idBytes is the approximate memory of a map entry, without its key.
const idBytes = 48

// add adds the next record of the log. If the view needs records that it has not loaded, the error is a
// *[fold.MissingRecordsError].
func (t *timeline) add(r patch.Record) error {
	after, err := t.view.Apply(r)
	if err != nil {
		return err
	}
	s := t.at(t.last())
	s.Seq, s.Tokens, s.Patch = r.Seq, 0, nil
	turns := len(t.turns)
	s.Kind, s.Turn = present.KindOfRecord(r), t.turns.Add(r)
	if len(t.turns) > turns {
		t.stepBytes += idBytes + int64(len(r.Event.InvocationID()))
	}
	if e := r.Event; e != nil {
		s.Time, s.Tokens = e.Timestamp(), e.EstimatedTokens()
		s.Raw += s.Tokens
		s.Visible += s.Tokens
	} else if err := t.addPatch(&s, after, r); err != nil {
		return err
	}
	s.Events = after.Len()
	t.stepBytes += s.footprint()
	t.view, t.steps = after.WithRecords(nil), append(t.steps, s)
	return nil
}

func (t *timeline) addPatch(s *step, after fold.View, r patch.Record) error {
	f, err := present.EffectOf(t.view, after, r)
	if err != nil {
		return err
	}
	p := r.Patch
	s.Time = p.Timestamp()
	d := &patchStep{
		ID: p.ID(), Type: p.Type(), Group: p.Group(), Target: cmp.Or(p.PatchID(), p.EventID()), Applied: f.Applied, Pass: present.PassOf(p),
		Hid: len(f.Hidden), Added: len(f.Added), RewoundTo: -1,
	}
	for _, e := range f.Hidden {
		d.HidTokens += e.EstimatedTokens()
	}
	for _, e := range f.Added {
		d.AddedTokens += e.EstimatedTokens()
		d.Summary = d.Summary || d.Type == patch.Summarise || e.IsSummary()
		d.ClearsResults = d.ClearsResults || isClearedCopy(e)
	}
	s.Visible += d.AddedTokens - d.HidTokens
	if d.Type == patch.Splice && d.Hid > 0 && d.Added == 0 && p.StatePolicy() == patch.Drop && f.Start == after.Len() && f.Start > 0 {
		d.RewoundTo = max(t.at(t.view.Entry(f.Start).Seq).Turn-1, 0)
	}
	s.Patch = d
	return nil
}

// footprint returns the approximate memory that a step refers to, in bytes.
func (s *step) footprint() int64 {
	n := 0
	if p := s.Patch; p != nil {
		n += int(unsafe.Sizeof(*p)) + len(p.ID) + len(p.Group) + len(p.Target)
		if p.Pass != nil {
			n += int(unsafe.Sizeof(*p.Pass))
		}
	}
	return int64(n)
}

// timelines is an LRU cache of timelines. The most recently used one is first.
type timelines struct {
	mu     sync.Mutex
	cached []*cachedTimeline
}

type cachedTimeline struct {
	key      store.Key
	mu       sync.Mutex // locked while the timeline is extended
	timeline timeline
	size     int64 // in bytes, when it was last used
}

// timeline returns the session's timeline up to the newest record.
func (i *Inspector) timeline(ctx context.Context, key store.Key) (*timeline, error) {
	info, err := i.store.Info(ctx, key)
	if err != nil {
		return nil, err
	}
	now, err := i.store.View(ctx, key)
	if err != nil {
		return nil, err
	}
	k := i.timelines.get(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	defer i.timelines.updateSize(k, i.opts.CacheBytes)
	// Drop the cached timeline if the session was created again, or if contents were erased since then.
	if k.timeline.info.Creation != info.Creation || k.timeline.view.Edition() < now.Edition() {
		start, err := i.store.ViewAt(ctx, key, 0)
		if err != nil {
			return nil, err
		}
		k.timeline = timeline{info: info, view: start.WithEdition(now.Edition()), turns: ops.Turns{}, cache: &timelineCache{losses: map[lossKey]*summaryLoss{}}}
	}
	if k.timeline.last() < info.Seq {
		for r, err := range i.store.RawEvents(ctx, key, k.timeline.last()+1) {
			if err == nil {
				err = i.extend(ctx, key, &k.timeline, r)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if now.Seq() == k.timeline.last() {
		k.timeline.view = now // the store caches this view, so share it
	}
	result := k.timeline
	result.steps = result.steps[:len(result.steps):len(result.steps)]
	result.turns = nil
	return &result, nil
}

// extend adds a record. It loads the records that the view needs.
func (i *Inspector) extend(ctx context.Context, key store.Key, t *timeline, r patch.Record) error {
	err := t.add(r)
	for range 2 {
		need := (*fold.MissingRecordsError)(nil)
		if !errors.As(err, &need) {
			break
		}
		var needed []patch.Record
		if needed, err = i.records(ctx, key, need.Seqs); err == nil {
			t.view = t.view.WithRecords(needed)
			err = t.add(r)
		}
	}
	return err
}

// records returns the records with the given seqs, which must ascend. Missing records are omitted.
func (i *Inspector) records(ctx context.Context, key store.Key, seqs []uint64) (found []patch.Record, err error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	for r, err := range i.store.RawEvents(ctx, key, seqs[0]) {
		if err != nil {
			return nil, err
		}
		if r.Seq == seqs[0] {
			found, seqs = append(found, r), seqs[1:]
		}
		if len(seqs) == 0 {
			break
		}
	}
	return found, nil
}

// get returns the cached timeline of a session, or a new one, and moves it to the front.
func (t *timelines) get(key store.Key) *cachedTimeline {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &cachedTimeline{key: key}
	if n := slices.IndexFunc(t.cached, func(k *cachedTimeline) bool { return k.key == key }); n >= 0 {
		k = t.cached[n]
		t.cached = slices.Delete(t.cached, n, n+1)
	}
	t.cached = slices.Insert(t.cached, 0, k)
	return k
}

// updateSize updates the size of a timeline and evicts the least recently used timelines over the limit. The most
// recently used one is never evicted, unless a negative limit disables the cache. The caller must hold k.mu.
func (t *timelines) updateSize(k *cachedTimeline, limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.size = k.timeline.footprint()
	sum := int64(0)
	for n, k := range t.cached {
		if sum += k.size; limit < 0 || n > 0 && sum > limit {
			t.cached = slices.Delete(t.cached, n, len(t.cached))
			return
		}
	}
}

// erasureFacts says which receipt erased a record. It returns nil if the record is not erased.
func (t *timeline) erasureFacts(key store.Key, r patch.Record) []fact {
	by, erased := records.Envelope(r).ErasedBy()
	if !erased {
		return nil
	}
	what := "Erased"
	if r.Patch != nil {
		what = "Erased, the patch or events that it added"
	}
	for _, s := range t.steps {
		if s.Patch != nil && s.Patch.Type == patch.Erase && s.Patch.ID == by {
			return []fact{{Text: fmt.Sprintf("%s: the receipt is record %d", what, s.Seq), URL: recordURL(key, s.Seq, "")}}
		}
	}
	return []fact{{Text: "Erased; the receipt is not in this log"}}
}

// isErasable reports whether a record may have content to erase. If a record was erased but kept its state
// values, it can be erased again without them.
func isErasable(r patch.Record) bool {
	if r.Patch != nil {
		return r.Patch.Type() != patch.Erase
	}
	return !r.Event.IsBlank(patch.NullValues)
}
