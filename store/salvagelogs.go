package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// foundLog is what was found of a session.
type foundLog struct {
	number  uint64
	entries []bolt.ScannedEntry
	heads   []bolt.ScannedHead
	records []bolt.ScannedRecord // all copies; after choose one of each seq

	name     string
	named    bool
	key      Key
	entry    *bolt.ScannedEntry
	head     *bolt.ScannedHead            // that says where the log ends, or nil
	choices  map[int][]bolt.ScannedRecord // by index in records: all that stand at its place, if several do
	spare    []bolt.ScannedRecord         // those of them that are not in the log
	proved   bool                         // that the records up to the head's last are those that were written
	doubt    bool                         // whether it had been deleted
	last     uint64                       // seq of the log's last record
	ended    bool                         // that is known
	foreign  []uint64                     // seqs of records that seem to be another session's
	receipts []erase.Receipt              // of what was erased
	doubtful []Span                       // of which a chain says that one is not the one that was written
}

// logs returns the sessions that are to be written, those that are sure to be there first.
func (v *salvage) logs(ctx context.Context) ([]*foundLog, error) {
	byNumber := map[uint64]*foundLog{}
	of := func(number uint64) *foundLog {
		l := byNumber[number]
		if l == nil {
			l = &foundLog{number: number}
			byNumber[number] = l
		}
		return l
	}
	for _, e := range v.scan.Entries {
		l := of(e.Number)
		l.entries = append(l.entries, e)
	}
	for _, h := range v.scan.Heads {
		l := of(h.Number)
		l.heads = append(l.heads, h)
	}
	for rest := v.scan.Records; len(rest) > 0; {
		n := len(rest)
		for i, r := range rest {
			if r.Number != rest[0].Number {
				n = i
				break
			}
		}
		of(rest[0].Number).records = rest[:n:n]
		rest = rest[n:]
	}
	newest := map[string]uint64{} // session by name
	for _, l := range byNumber {
		l.identify()
		if l.named {
			newest[l.name] = max(newest[l.name], l.number)
		}
	}
	var logs []*foundLog
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		l := byNumber[number]
		if v.deleted(l, newest[l.name]) {
			v.out.Deleted++
			v.out.DeletedRecords += seqs(l.records)
			continue
		}
		l.choose()
		if len(l.records) == 0 && (l.doubt || !l.named) {
			v.out.Deleted++
			continue
		}
		logs = append(logs, l)
	}
	for _, l := range logs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l.judge()
		v.erase(l)
	}
	slices.SortStableFunc(logs, func(a, b *foundLog) int { return cmp.Compare(a.order(), b.order()) })
	return logs, nil
}

func (l *foundLog) order() int {
	switch {
	case !l.named:
		return 2
	case l.doubt || l.entry == nil:
		return 1
	}
	return 0
}

// seqs returns of how many seqs there are copies of records, which are in their order.
func seqs(copies []bolt.ScannedRecord) (n int) {
	for i, r := range copies {
		if i == 0 || r.Seq != copies[i-1].Seq {
			n++
		}
	}
	return n
}

// identify finds out the session's name, and the entry and the heads that are of it.
func (l *foundLog) identify() {
	if len(l.entries) > 0 {
		l.name, l.named = l.entries[0].Name, true
		l.entry = &l.entries[0]
	}
	if len(l.heads) > 0 && (l.entry == nil || l.heads[0].Rank > l.entry.Rank) { // a commit that failed may leave the number with another name
		l.name, l.named, l.entry = l.heads[0].Name, true, nil
		if i := slices.IndexFunc(l.entries, func(e bolt.ScannedEntry) bool { return e.Name == l.name }); i >= 0 {
			l.entry = &l.entries[i]
		}
	}
	l.heads = slices.DeleteFunc(slices.Clone(l.heads), func(h bolt.ScannedHead) bool { return h.Name != l.name })
	if !l.named {
		return
	}
	key, err := keyOf(l.name)
	if err != nil || key.Validate() != nil || key.name() != l.name {
		l.named, l.entry = false, nil
		return
	}
	l.key = key
}

// rank returns the highest rank of what was found.
func (l *foundLog) rank() (rank bolt.Rank) {
	for _, e := range l.entries {
		rank = max(rank, e.Rank)
	}
	for _, h := range l.heads {
		rank = max(rank, h.Rank)
	}
	for _, r := range l.records {
		rank = max(rank, r.Rank)
	}
	return rank
}

// deleted reports whether the session is known to have been deleted, and takes note if
// that is in doubt. newest is the highest number of a session of its name.
func (v *salvage) deleted(l *foundLog, newest uint64) bool {
	if strings.HasPrefix(l.name, stagedPrefix) { // it was never created
		return true
	}
	recreated := l.named && newest > l.number // a name has one session at a time
	switch v.scan.Standing(l.number) {
	case bolt.There:
		l.doubt = recreated
		return false
	case bolt.Disputed:
		l.doubt = true
		return false
	case bolt.Later: // of a commit that is missing, or of one that never took place
		l.doubt = recreated || v.scan.Metas == 2
		return false
	case bolt.Gone:
		l.doubt = true
		return v.scan.Swept(l.number) || !slices.ContainsFunc(l.records, func(r bolt.ScannedRecord) bool {
			return r.Rank == bolt.InUse || r.Rank == bolt.Unknown && v.scan.FreeKnown
		})
	}
	if recreated || v.scan.Swept(l.number) {
		return true
	}
	// What is neither free nor in use is of the part of the tree that cannot be read.
	l.doubt = l.rank() == bolt.Free || l.rank() == bolt.Unknown && !v.scan.FreeKnown
	return false
}

// choose leaves one record of each seq, and finds out where the log ends.
func (l *foundLog) choose() {
	l.end()
	var chosen []bolt.ScannedRecord
	l.choices = map[int][]bolt.ScannedRecord{}
	for i := 0; i < len(l.records); {
		r := l.records[i]
		more := []bolt.ScannedRecord{r}
		for i++; i < len(l.records) && l.records[i].Seq == r.Seq; i++ {
			same := func(o bolt.ScannedRecord) bool { return sameRecord(o, l.records[i]) }
			if !slices.ContainsFunc(more, same) {
				more = append(more, l.records[i])
			}
		}
		if len(more) > 1 {
			l.choices[len(chosen)] = more
		}
		chosen = append(chosen, r)
	}
	l.records = chosen
	l.proved = l.head != nil && l.prove()
}

func sameRecord(a, b bolt.ScannedRecord) bool { return a.Sum == b.Sum && a.Size == b.Size }

// judge finds out which of the records are in doubt.
func (l *foundLog) judge() {
	l.prefer()
	switch {
	case l.head == nil:
	case l.proved || l.prove():
		l.proved, l.doubtful = true, nil
	default:
		l.stretches()
	}
	for _, at := range slices.Sorted(maps.Keys(l.choices)) {
		for _, r := range l.choices[at] {
			if !sameRecord(r, l.records[at]) && (!l.proved || r.Rank > bolt.Free) {
				l.spare = append(l.spare, r)
			}
		}
	}
	defer l.unite()
	n := len(l.records)
	if n == 0 || l.records[n-1].Seq <= l.last {
		return
	}
	last := l.records[n-1].Seq
	if l.head != nil && (l.head.Rank > bolt.Free || l.records[n-1].Rank == bolt.Free) { // there should be no such record
		l.doubtful = append(l.doubtful, Span{l.last + 1, last})
	}
	l.last = last
}

// prefer takes, where no chain proves the log, of several records with one seq the one whose checksum says
// that it is the session's. It takes note of records that no checksum says this of: the number in their
// key, or the checksum, is damaged.
func (l *foundLog) prefer() {
	for i, r := range l.records {
		if l.proved && r.Seq <= l.last {
			continue
		}
		sure := 0
		for at, other := range l.choices[i] {
			if other.Sure {
				if sure++; sure == 1 {
					l.choices[i][0], l.choices[i][at] = l.choices[i][at], l.choices[i][0]
				}
			}
		}
		if l.choices[i] != nil {
			r = l.choices[i][0]
			l.records[i] = r
		}
		if !r.Sure {
			l.foreign = append(l.foreign, r.Seq)
		}
		if !r.Sure || sure > 1 || sure == 0 && l.choices[i] != nil { // any may be the right one
			l.doubtful = append(l.doubtful, Span{r.Seq, r.Seq})
		}
	}
}

// unite puts the stretches that are in doubt in order, and makes one of those that meet.
func (l *foundLog) unite() {
	slices.SortFunc(l.doubtful, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	var united []Span
	for _, s := range l.doubtful {
		if n := len(united); n > 0 && s.From <= united[n-1].To+1 {
			united[n-1].To = max(united[n-1].To, s.To)
		} else {
			united = append(united, s)
		}
	}
	l.doubtful = united
}

// inDoubt reports whether a record is in a stretch that is in doubt.
func (l *foundLog) inDoubt(seq uint64) bool {
	i, found := slices.BinarySearchFunc(l.doubtful, seq, func(s Span, seq uint64) int { return cmp.Compare(s.From, seq) })
	return found || i > 0 && seq <= l.doubtful[i-1].To
}

// end finds out where the log ends.
func (l *foundLog) end() {
	if len(l.heads) > 0 { // of the same rank, the one with the highest seq is first
		l.head = &l.heads[0]
		l.last, l.ended = l.head.Last, true
		return
	}
	for _, r := range l.records {
		if r.Rank > bolt.Free {
			l.last = max(l.last, r.Seq)
		}
	}
	if l.last == 0 && len(l.records) > 0 {
		l.last = l.records[len(l.records)-1].Seq
	}
}

// maxTries is how many ways of choosing among records are tried, and maxTriedRecords how
// many records are looked at for it.
const (
	maxTries        = 4096
	maxTriedRecords = 1 << 24
)

// prove holds the records against the chain of the log's head, tries others where there are
// some, and reports whether they make it.
func (l *foundLog) prove() bool {
	places := slices.Sorted(maps.Keys(l.choices))
	turns := make([]int, len(places))
	for try := 0; try < maxTries && (try == 0 || try*len(l.records) < maxTriedRecords); try++ {
		if l.fits(*l.head) {
			return true
		}
		i := 0
		for carry := true; carry && i < len(places); i++ {
			choices := l.choices[places[i]]
			turns[i] = (turns[i] + 1) % len(choices)
			l.records[places[i]] = choices[turns[i]]
			carry = turns[i] == 0
		}
		if !slices.ContainsFunc(turns, func(n int) bool { return n > 0 }) { // all have been tried
			return false
		}
	}
	for _, at := range places {
		l.records[at] = l.choices[at][0]
	}
	return false
}

// fits reports whether the records are all there, and make the chain of a head.
func (l *foundLog) fits(head bolt.ScannedHead) bool {
	chain, next := backend.Chain{}, uint64(1)
	for _, r := range l.records {
		switch {
		case r.Seq < next:
			continue
		case r.Seq > head.Last:
		case r.Seq != next:
			return false
		default:
			chain = chain.Add(r.Sum)
			next++
		}
	}
	return next == head.Last+1 && chain == head.Chain
}

// stretches finds the stretches between the ends of commits that are not what the chain
// says of them.
func (l *foundLog) stretches() {
	marks := map[uint64]bolt.ScannedHead{} // of the highest rank
	for _, h := range l.heads {
		if _, there := marks[h.Last]; !there && h.Last > 0 {
			marks[h.Last] = h
		}
	}
	chain, known, next, from := backend.Chain{}, true, uint64(1), uint64(1)
	var doubtful []Span
	for _, r := range l.records {
		if r.Seq < next {
			continue
		}
		if r.Seq > next { // a gap; the next mark says how it goes on
			l.doubtful = append(l.doubtful, doubtful...)
			doubtful, known = nil, false
			if h, ok := marks[r.Seq-1]; ok {
				chain, known, from = h.Chain, true, r.Seq
			}
		}
		if known {
			chain = chain.Add(r.Sum)
		}
		next = r.Seq + 1
		h, ok := marks[r.Seq]
		switch {
		case !ok:
		case !known:
			chain, known, from = h.Chain, true, next
		case chain == h.Chain: // which says the same of all before, since the last mark that fitted
			doubtful, from = nil, next
		default: // unless a later mark fits: a commit that failed may leave one that does not
			doubtful = []Span{{from, r.Seq}}
		}
	}
	l.doubtful = append(l.doubtful, doubtful...)
}
