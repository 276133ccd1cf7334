package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// erasePlan is what is to be erased of one session.
type erasePlan struct {
	key      Key
	creation string
	view     fold.View              // which knows what all patches did
	of       patch.Erasure          // what the receipt will say
	events   []ErasedEvent          // in the order of the log
	open     []patch.Record         // receipts in the log of which something is left to do
	receipts []patch.Record         // all receipts in the log
	receipt  patch.Record           // once it is logged
	initial  map[string]patch.Value // if some of it is to be null
	shares   bool                   // erased events have set keys that sessions share

	again map[fold.Ref]bool            // what is blank, and may be covered again, since what stands for it was kept
	first patch.Record                 // of those of which something is erased
	sums  map[uint64][sha256.Size]byte // of the records' canonical forms
}

func (p *erasePlan) isEmpty() bool { return len(p.of.Seqs) == 0 && len(p.of.Initial) == 0 }

// chooser says which events of a record are selected, and whether what a patch says besides.
type chooser func(r patch.Record) (own bool, which func(i int, e *patch.Event) bool)

func nothing(patch.Record) (bool, func(int, *patch.Event) bool) {
	return false, func(int, *patch.Event) bool { return false }
}

func (e EraseSelection) chooser() chooser {
	ids, seqs := map[string]bool{}, map[uint64]bool{}
	for _, id := range e.EventIDs {
		ids[id] = true
	}
	for _, seq := range e.Seqs {
		seqs[seq] = true
	}
	m := matcher{e.Match, e.IgnoreCase}
	return func(r patch.Record) (own bool, which func(int, *patch.Event) bool) {
		whole := e.All || seqs[r.Seq]
		if p := r.Patch; p != nil {
			whole = whole || ids[p.ID()] || e.Author != "" && p.Author() == e.Author
			own = whole || m.patch(p)
		}
		return own, func(_ int, event *patch.Event) bool {
			return whole || ids[event.ID()] || e.Author != "" && event.Author() == e.Author || m.event(event)
		}
	}
}

// plans plans the erasing of a session, and of the same events in others. The session that the
// call is for comes first.
func (e *erasing) plans(ctx context.Context, key Key, selection EraseSelection) ([]*erasePlan, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	e.leftOut, e.kept = nil, KeptValues{}
	choose := selection.chooser()
	if e.opts.Values == patch.KeepValues {
		choose = e.countKept(choose, selection)
	}
	own, err := e.plan(ctx, key, choose, nil, 0)
	if err != nil {
		return nil, err
	}
	if err := e.planInitial(ctx, own, selection); err != nil {
		return nil, err
	}
	if e.shared, err = e.eraseShared(ctx, key, selection, true); err != nil {
		return nil, err
	}
	if e.opts.Values == patch.KeepValues {
		e.kept.Shared, e.shared = e.shared, nil
	}
	return e.withCopies(ctx, own)
}

// withCopies adds to a session's plan those of other sessions that have the same events. A session whose
// initial state alone is erased is known by its first record.
func (e *erasing) withCopies(ctx context.Context, own *erasePlan) (plans []*erasePlan, err error) {
	e.seen = map[string]bool{own.view.Creation(): true}
	if own.isEmpty() || own.view.Seq() == 0 {
		return []*erasePlan{own}, nil
	}
	first := uint64(1)
	if len(own.of.Seqs) > 0 {
		first = own.of.Seqs[0].From
	}
	if own.first, err = e.store.record(ctx, own.key, own.view.Creation(), first); err != nil {
		return nil, err
	}
	copies, err := e.copies(ctx, own)
	return append([]*erasePlan{own}, copies...), err
}

// copies plans the erasing of the same events in sessions that have not been looked at. What is hidden
// here may be in sight there.
func (e *erasing) copies(ctx context.Context, own *erasePlan) (plans []*erasePlan, err error) {
	if !e.hidden.IsZero() || own.first.Seq == 0 {
		return nil, nil
	}
	for info, err := range e.others(ctx) {
		switch {
		case errors.Is(err, ErrCorrupt):
			e.leaveOut(info.Key, err)
			continue
		case err != nil:
			return nil, err
		case e.seen[info.Creation] || info.Seq < own.first.Seq:
			continue
		}
		e.seen[info.Creation] = true
		p, err := e.planCopy(ctx, info, own)
		switch {
		case errors.Is(err, ErrNotFound): // deleted meanwhile
		case errors.Is(err, ErrCorrupt):
			e.leaveOut(info.Key, err)
		case err != nil:
			return nil, err
		case p != nil:
			plans = append(plans, p)
		}
	}
	return plans, nil
}

// countKept counts the events that a chooser selects and that the selection still finds once they are
// erased with their state values kept.
func (e *erasing) countKept(choose chooser, selection EraseSelection) chooser {
	m := matcher{selection.Match, selection.IgnoreCase}
	return func(r patch.Record) (bool, func(int, *patch.Event) bool) {
		own, which := choose(r)
		return own, func(i int, event *patch.Event) bool {
			selected := which(i, event)
			if selected {
				blank := event.Blank("", patch.KeepValues)
				if m.event(blank) || m.text == "" && !blank.IsBlank(patch.NullValues) {
					e.kept.Events++
				}
			}
			return selected
		}
	}
}

// planInitial adds to a plan the values of the initial state that are to be null, or counts those that
// are kept.
func (e *erasing) planInitial(ctx context.Context, p *erasePlan, selection EraseSelection) error {
	initial, err := e.store.InitialState(ctx, p.key)
	if err != nil {
		return err
	}
	p.initial = initial
	m := matcher{selection.Match, selection.IgnoreCase}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		if !isNull(initial[name]) && (selection.All || m.value(initial[name])) {
			names = append(names, name)
		}
	}
	if e.opts.Values == patch.NullValues {
		p.of.Initial = names
	} else {
		e.kept.Initial = names
	}
	return nil
}

// eraseShared sets those of the values that the session shares with others to null that have the text, and
// returns their keys.
func (e *erasing) eraseShared(ctx context.Context, key Key, selection EraseSelection, dryRun bool) ([]string, error) {
	m := matcher{selection.Match, selection.IgnoreCase}
	if m.text == "" {
		return nil, nil
	}
	return e.store.eraseShared(ctx, scopePrefixes(key), func(v patch.Value, err error) bool { return err == nil && m.value(v) }, dryRun)
}

func isNull(v patch.Value) bool { return v.Any() == nil }

// planCopy plans the erasing of the events that another session has in common with the one
// that is planned. There is no plan if it has not the first of them at the same place.
func (e *erasing) planCopy(ctx context.Context, info Info, of *erasePlan) (*erasePlan, error) {
	first := of.first
	seqs, err := e.store.backend.Lookup(ctx, info.Key.name(), info.Creation, []string{first.ID()})
	if err != nil {
		return nil, fromBackend(info.Key, err)
	}
	if seqs[0] != first.Seq {
		return nil, nil
	}
	there, err := e.store.record(ctx, info.Key, info.Creation, first.Seq)
	if err != nil || !patch.Same(there, first) && !patch.Same(first, there) {
		return nil, err
	}
	chosen := map[fold.Ref]string{}
	for _, event := range of.events {
		chosen[event.Ref] = event.ID
	}
	p, err := e.planSame(ctx, info, func(r patch.Record) (bool, func(int, *patch.Event) bool) {
		sum, ok := of.sums[r.Seq]
		if ok {
			form, err := patch.AppendRecord(nil, r)
			ok = err == nil && sha256.Sum256(form) == sum
		}
		_, own := chosen[fold.Ref{Seq: r.Seq, Index: -1}]
		return ok && own, func(i int, event *patch.Event) bool {
			ref := fold.Ref{Seq: r.Seq, Index: i}
			id, is := chosen[ref]
			// Of one that is blank here or there the id must do.
			return is && (ok || id == event.ID() && (of.again[ref] || event.IsBlank(patch.KeepValues)))
		}
	})
	if err != nil {
		return nil, err
	}
	// Initial values are a fork's as they are the other session's.
	if len(of.of.Initial) > 0 {
		initial, err := e.store.InitialState(ctx, info.Key)
		if err != nil {
			return nil, err
		}
		for _, name := range of.of.Initial {
			if v, ok := initial[name]; ok && v.Equal(of.initial[name]) {
				p.of.Initial = append(p.of.Initial, name)
			}
		}
	}
	return p, nil
}

// planSame plans the erasing of events that another session has too.
func (e *erasing) planSame(ctx context.Context, info Info, same chooser) (*erasePlan, error) {
	p, err := e.plan(ctx, info.Key, same, nil, 0)
	if err != nil {
		return nil, err
	}
	for i := range p.events {
		if p.events[i].Why == ErasedSelected {
			p.events[i].Why = ErasedSame
		}
	}
	return p, nil
}

// scan is what one reading of a log finds.
type scan struct {
	set    map[fold.Ref]string  // what is erased, and why
	stands map[fold.Ref]bool    // of the set, what stands for other events in it
	id     map[fold.Ref]string  // of events inside patches, and of those in the set
	blank  map[fold.Ref]bool    // what is erased already; Index is -1 for what a patch says besides its events
	by     map[fold.Ref]erased  // what events say of their erasing
	puts   map[uint64]int       // how many events patches put in
	told   map[fold.Ref]telling // by the summaries that patches put in
	copies []copyOf
	copied map[fold.Ref]string // by what says that it is a copy with less of its results, the id of the other event
	traces recall.Traces
}

func newScan() *scan {
	return &scan{set: map[fold.Ref]string{}, stands: map[fold.Ref]bool{}, id: map[fold.Ref]string{}, blank: map[fold.Ref]bool{},
		by:   map[fold.Ref]erased{},
		puts: map[uint64]int{}, told: map[fold.Ref]telling{}, copied: map[fold.Ref]string{}}
}

// copyOf is an event that says that it is a copy of another one, or has some of its text.
type copyOf struct {
	ref fold.Ref
	of  string   // the id of the other; or
	at  fold.Ref // where it is, if it has not the zero Seq
	why string
}

// plan finds out what is to be erased of a session: what is chosen, and what stands for it, at
// any depth. sources, if not nil, names events that have been erased: only what comes after a
// record, and stands for them, is then planned.
func (e *erasing) plan(ctx context.Context, key Key, choose chooser, sources func(fold.Ref) bool, after uint64) (*erasePlan, error) {
	s := e.store
	v, err := s.View(ctx, key)
	if err != nil {
		return nil, err
	}
	p := &erasePlan{key: key, creation: v.Creation(), view: v, of: patch.Erasure{Values: e.opts.Values, Reason: e.opts.Reason, KeepsSummaries: e.opts.Summaries == KeepSummaries}}
	if !e.hidden.IsZero() && sources == nil {
		if choose, err = e.hiddenBefore(ctx, key, v); err != nil {
			return nil, err
		}
	}
	c := newScan()
	var receipts []patch.Record
	for page, err := range s.pages(ctx, key, logOf(v), 1, v.Seq()) {
		if err != nil {
			return nil, err
		}
		for _, r := range page.records {
			if isReceipt(r) {
				receipts = append(receipts, r)
				continue
			}
			c.record(r, choose, sources, e.opts.Values)
		}
	}
	p.receipts = receipts
	// A receipt is behind what it covers.
	if sources == nil && len(receipts) > 0 {
		if p.open, err = e.open(ctx, key, v.Creation(), receipts, c); err != nil {
			return nil, err
		}
	}
	said := receiptsOf(receipts)
	if sources == nil {
		e.settle(p, c, said)
	}
	var patches []*standing
	if len(c.set) > 0 && !p.of.KeepsSummaries {
		if patches, err = s.standings(ctx, key, v, c); err != nil {
			return nil, err
		}
		c.close(patches, e.opts.Context, said)
	}
	for ref, why := range c.set {
		if c.blank[ref] || sources != nil && (sources(ref) || ref.Seq <= after) {
			continue
		}
		p.events = append(p.events, ErasedEvent{ref, c.id[ref], why})
	}
	slices.SortFunc(p.events, func(a, b ErasedEvent) int { return byPlace(a.Ref, b.Ref) })
	p.cover(c.puts)
	if e.opts.Summaries == RemakeSummaries {
		if err := e.planRemade(ctx, p, c, patches); err != nil {
			return nil, err
		}
	}
	return p, e.digest(ctx, p)
}

// byPlace orders events as the log has them.
func byPlace(a, b fold.Ref) int {
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Index, b.Index))
}

// record looks at a record.
func (c *scan) record(r patch.Record, choose chooser, sources func(fold.Ref) bool, values patch.Values) {
	own, which := choose(r)
	events := r.Events()
	if r.Patch != nil {
		ref := fold.Ref{Seq: r.Seq, Index: -1}
		if _, erased := r.Patch.Erased(); erased {
			c.blank[ref] = true
		}
		if c.puts[r.Seq] = len(events); own {
			c.set[ref], c.id[ref] = ErasedSelected, r.ID()
		}
	}
	for i, e := range events {
		ref := fold.Ref{Seq: r.Seq, Index: i}
		if r.Patch != nil {
			c.id[ref] = e.ID()
		}
		blank := e.IsBlank(values)
		if blank {
			c.blank[ref] = true
		}
		if by, ok := e.Erased(); ok {
			c.by[ref] = erased{by, e.RemadeAfter() != nil}
		}
		if r.Patch != nil && (r.Patch.Type() == patch.Summarise || e.IsSummary()) {
			c.told[ref] = tellingOf(e)
		}
		switch {
		case sources != nil && sources(ref):
			c.set[ref], c.id[ref] = "", e.ID()
		case which(i, e):
			c.set[ref], c.id[ref] = ErasedSelected, e.ID()
		}
		before := len(c.copies)
		if o, ok := e.Origin(); ok {
			c.copies, c.copied[ref] = append(c.copies, copyOf{ref: ref, of: o.ID, why: ErasedCopy}), o.ID
		} else if of, ok := records.Recalled(e); ok {
			c.copies = append(c.copies, copyOf{ref: ref, of: of, why: ErasedCopy})
		}
		for _, h := range c.traces.Of(e) {
			c.copies = append(c.copies, copyOf{ref, h.ID, fold.Ref{Seq: h.Seq, Index: h.Index}, ErasedBrought})
		}
		if _, there := c.id[ref]; !there && len(c.copies) > before {
			c.id[ref] = e.ID()
		}
	}
}

// close adds to the set what stands for events in it, and copies of them, at any depth; and, as
// shown says, summaries whose summarizer was shown such.
func (c *scan) close(patches []*standing, shown bool, receipts []receipt) {
	ids := map[string]bool{}
	for ref := range c.set {
		ids[c.id[ref]] = true
	}
	more := true
	add := func(ref fold.Ref, why string) {
		if _, there := c.set[ref]; !there {
			c.set[ref] = why
			ids[c.id[ref]], more = true, true
		}
	}
	stand := func(ref fold.Ref, why string) {
		add(ref, why)
		c.stands[ref] = true
	}
	at := map[string]uint64{}
	for _, r := range receipts {
		at[r.ID()] = r.Seq
	}
	for more {
		more = false
		for _, u := range patches {
			for ref := range u.out() {
				if _, hit := c.set[ref]; !hit {
					continue
				}
				puts := u.puts
				if put, ok := u.of[ref]; ok {
					puts = []fold.Ref{put}
				}
				for _, put := range puts {
					// What stands in the place of one event says whose.
					if of, ok := c.copied[put]; (!ok || ids[of]) && !c.isWithout(put, ref, at) {
						stand(put, ErasedStandsFor)
					}
				}
			}
		}
		for _, copied := range c.copies {
			_, there := c.set[copied.at]
			if there || copied.at.Seq == 0 && ids[copied.of] {
				add(copied.ref, copied.why)
			}
		}
		if shown {
			first := map[branch]uint64{}
			for ref := range c.set {
				t, ok := c.told[ref]
				if before, known := first[t.of]; ok && (!known || ref.Seq < before) {
					first[t.of] = ref.Seq
				}
			}
			// Merging shows a summarizer nothing besides.
			for ref, t := range c.told {
				if before, ok := first[t.of]; ok && t.windows == 1 && before < ref.Seq {
					stand(ref, ErasedShown)
				}
			}
		}
	}
}

// cover writes into the plan which records its events are of.
func (p *erasePlan) cover(puts map[uint64]int) {
	for i := 0; i < len(p.events); {
		seq := p.events[i].Seq
		var within []int
		for ; i < len(p.events) && p.events[i].Seq == seq; i++ {
			if p.events[i].Index >= 0 {
				within = append(within, p.events[i].Index)
			}
		}
		if n, ok := puts[seq]; ok && len(within) < n {
			if p.of.Within == nil {
				p.of.Within = map[uint64][]int{}
			}
			p.of.Within[seq] = within
		}
		if last := len(p.of.Seqs) - 1; last >= 0 && p.of.Seqs[last].To+1 == seq {
			p.of.Seqs[last].To = seq
		} else {
			p.of.Seqs = append(p.of.Seqs, patch.Span{From: seq, To: seq})
		}
	}
}

// digest reads what is to be erased once more, and notes what it was.
func (e *erasing) digest(ctx context.Context, p *erasePlan) error {
	d := newDigest(e.opts.Salt)
	p.sums = map[uint64][sha256.Size]byte{}
	for seqs := range chunks(p.of.Seqs) {
		picked, err := e.store.pick(ctx, p.key, p.view.Creation(), seqs)
		if err != nil {
			return err
		}
		for _, r := range picked {
			form, err := d.add(r)
			if err != nil {
				return fmt.Errorf("session %s, record %d: %w", p.key, r.Seq, err)
			}
			p.sums[r.Seq] = sha256.Sum256(form)
			for range records.SharedChanges(r) {
				p.shares = true
				break
			}
		}
	}
	p.of.Digest = d.mac.Sum(nil)
	return nil
}

// chunks yields the seqs of spans, so many at a time as are replaced in one commit.
func chunks(spans []patch.Span) func(yield func([]uint64) bool) {
	return func(yield func([]uint64) bool) {
		var seqs []uint64
		for _, s := range spans {
			for seq := s.From; seq <= s.To; seq++ {
				if seqs = append(seqs, seq); len(seqs) == eraseRecords {
					if !yield(seqs) {
						return
					}
					seqs = nil
				}
			}
		}
		if len(seqs) > 0 {
			yield(seqs)
		}
	}
}
