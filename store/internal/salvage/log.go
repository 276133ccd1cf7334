package salvage

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

// Log is a session found in the file.
type Log struct {
	Number          uint64
	Name            string // set if Named
	Named           bool
	Entry           *bolt.ScannedEntry
	Records         []bolt.ScannedRecord // first all copies of all records, finally one record for each seq
	Alternatives    []bolt.ScannedRecord // rejected copies that may be the right ones
	MaybeDeleted    bool                 // the session may have been deleted
	HasDeletionMark bool                 // something in the file shows that the session was deleted or never completely created
	Last            uint64               // seq of the last record of the log
	EndKnown        bool                 // Last is known
	Receipts        []receipt.Receipt    // receipts of erasures

	entries      []bolt.ScannedEntry
	heads        []bolt.ScannedHead
	head         *bolt.ScannedHead            // the head that determines where the log ends, or nil
	candidates   map[int][]bolt.ScannedRecord // key: index in Records; value: all candidates, if there are several
	maybeForeign []uint64                     // seqs of records that may belong to another session
	doubtful     []patch.Span                 // spans of seqs; in each span, at least one record may be wrong
}

// Logs returns the sessions to write. Sessions that certainly exist come first. The function isName reports whether a
// string is a valid session name. The function isStaged reports whether a string is the name of a staged session.
func (v *File) Logs(ctx context.Context, isName, isStaged func(string) bool) ([]*Log, error) {
	byNumber := map[uint64]*Log{}
	of := func(number uint64) *Log {
		l := byNumber[number]
		if l == nil {
			l = &Log{Number: number}
			byNumber[number] = l
		}
		return l
	}
	for _, e := range v.Entries {
		l := of(e.Number)
		l.entries = append(l.entries, e)
	}
	for _, h := range v.Heads {
		l := of(h.Number)
		l.heads = append(l.heads, h)
	}
	for start, end := 0, 0; start < len(v.Records); start = end {
		l := of(v.Records[start].Number)
		for end < len(v.Records) && v.Records[end].Number == l.Number {
			end++
		}
		l.Records = v.Records[start:end:end]
	}
	newest := map[string]uint64{} // number of the newest session, by name
	for _, l := range byNumber {
		l.identify(isName)
		if l.Named {
			newest[l.Name] = max(newest[l.Name], l.Number)
		}
	}
	var logs []*Log
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l := byNumber[number]
		if isStaged(l.Name) || v.isDeleted(l, newest[l.Name]) {
			v.Deleted++
			v.DeletedRecords += len(slices.CompactFunc(slices.Clone(l.Records), func(a, b bolt.ScannedRecord) bool { return a.Seq == b.Seq }))
			continue
		}
		l.groupCandidates()
		if len(l.Records) == 0 && (l.HasDeletionMark || !l.Named) {
			v.Deleted++
			continue
		}
		l.findDoubtful()
		v.applyErasures(l)
		logs = append(logs, l)
	}
	slices.SortStableFunc(logs, func(a, b *Log) int { return cmp.Compare(a.order(), b.order()) })
	return logs, nil
}

func (l *Log) order() int {
	switch {
	case !l.Named:
		return 2
	case l.MaybeDeleted || l.Entry == nil:
		return 1
	}
	return 0
}

// identify determines the session's name and keeps only the entry and the heads with that name.
func (l *Log) identify(isName func(string) bool) {
	if len(l.entries) > 0 {
		l.Name, l.Named = l.entries[0].Name, true
		l.Entry = &l.entries[0]
	}
	if len(l.heads) > 0 && (l.Entry == nil || l.heads[0].Rank > l.Entry.Rank) { // a failed commit may have left another name for the session number
		l.Name, l.Named, l.Entry = l.heads[0].Name, true, nil
		if i := slices.IndexFunc(l.entries, func(e bolt.ScannedEntry) bool { return e.Name == l.Name }); i >= 0 {
			l.Entry = &l.entries[i]
		}
	}
	l.heads = slices.DeleteFunc(slices.Clone(l.heads), func(h bolt.ScannedHead) bool { return h.Name != l.Name })
	if l.Named && !isName(l.Name) {
		l.Named, l.Entry = false, nil
	}
}

// maxRank returns the highest rank of the entries, heads and records.
func (l *Log) maxRank() (rank bolt.Rank) {
	for _, e := range l.entries {
		rank = max(rank, e.Rank)
	}
	for _, h := range l.heads {
		rank = max(rank, h.Rank)
	}
	for _, r := range l.Records {
		rank = max(rank, r.Rank)
	}
	return rank
}

// isOnlyInFreePages reports whether all pages with records of the log are free, or may be free. If the directory
// nevertheless lists the session, the directory page may be of an earlier commit.
func (v *File) isOnlyInFreePages(l *Log) bool {
	rank := l.maxRank()
	switch {
	case len(l.Records) > 0:
		rank = slices.MaxFunc(l.Records, func(a, b bolt.ScannedRecord) int { return cmp.Compare(a.Rank, b.Rank) }).Rank
	case len(l.heads) == 0 || l.heads[0].Last == 0:
	case v.BrokenPages == 0 || l.heads[0].Rank < bolt.InUse || l.Entry == nil || l.Entry.Rank < bolt.InUse:
		rank = bolt.Free
	} // otherwise the records were in the broken pages
	return rank == bolt.Free || rank == bolt.Unknown && !v.FreeKnown
}

// hasFreeRecord reports whether some record of the log was found only in free pages.
func (l *Log) hasFreeRecord() bool {
	for i, r := range l.Records { // the first copy of a record has the highest rank
		if r.Rank == bolt.Free && (i == 0 || l.Records[i-1].Seq != r.Seq) {
			return true
		}
	}
	return false
}

// isDeleted reports whether the session was certainly deleted. If the session may have been deleted, isDeleted sets
// MaybeDeleted and HasDeletionMark. The argument newest is the highest number of a session with the same name.
func (v *File) isDeleted(l *Log, newest uint64) bool {
	recreated := l.Named && newest > l.Number // only one session at a time can have the name
	switch v.StateOf(l.Number) {
	case bolt.SessionExists:
		l.MaybeDeleted, l.HasDeletionMark = recreated || v.isOnlyInFreePages(l), recreated
		return false
	case bolt.SessionConflicting:
		l.MaybeDeleted = true
		return false
	case bolt.SessionUnassigned: // the commit that created the session is missing or failed
		l.MaybeDeleted = recreated || v.Metas == 2
		l.HasDeletionMark = l.MaybeDeleted
		return false
	case bolt.SessionDeleted:
		l.MaybeDeleted, l.HasDeletionMark = true, true
		return v.IsUnlinked(l.Number) || !slices.ContainsFunc(l.Records, func(r bolt.ScannedRecord) bool {
			return r.Rank == bolt.InUse || r.Rank == bolt.Unknown && v.FreeKnown
		})
	}
	if recreated || v.IsUnlinked(l.Number) {
		return true
	}
	// Rows of unknown rank are in a part of the tree that cannot be read. Rows in use may belong to a deleted session
	// whose rows are not removed yet. Rows in use may also be in a page of an earlier commit. Other pages of the
	// session are then in the free list.
	l.MaybeDeleted = v.isOnlyInFreePages(l) || l.hasFreeRecord() || !v.FreeKnown || !v.UnlinkedComplete()
	return false
}

// groupCandidates keeps one record for each seq and determines where the log ends.
func (l *Log) groupCandidates() {
	l.findEnd()
	var chosen []bolt.ScannedRecord
	l.candidates = map[int][]bolt.ScannedRecord{}
	for i := 0; i < len(l.Records); {
		r := l.Records[i]
		copies := []bolt.ScannedRecord{r}
		for i++; i < len(l.Records) && l.Records[i].Seq == r.Seq; i++ {
			same := func(o bolt.ScannedRecord) bool { return sameRecord(o, l.Records[i]) }
			if !slices.ContainsFunc(copies, same) {
				copies = append(copies, l.Records[i])
			}
		}
		if len(copies) > 1 {
			l.candidates[len(chosen)] = copies
		}
		chosen = append(chosen, r)
	}
	l.Records = chosen
}

func sameRecord(a, b bolt.ScannedRecord) bool { return a.Sum == b.Sum && a.Size == b.Size }

// findDoubtful determines which records may be wrong.
func (l *Log) findDoubtful() {
	l.preferSure()
	proved := l.head != nil && l.matchCandidates() // the chain proves that the records up to head.Last are right
	switch {
	case proved:
		l.doubtful = nil
		l.maybeForeign = slices.DeleteFunc(l.maybeForeign, func(seq uint64) bool { return seq <= l.Last })
	case l.head != nil:
		l.compareWithHeads()
	}
	for _, at := range slices.Sorted(maps.Keys(l.candidates)) {
		for _, r := range l.candidates[at] {
			if !sameRecord(r, l.Records[at]) && (!proved || r.Rank > bolt.Free) {
				l.Alternatives = append(l.Alternatives, r)
			}
		}
	}
	defer l.mergeDoubtful()
	n := len(l.Records)
	if n == 0 || l.Records[n-1].Seq <= l.Last {
		return
	}
	last := l.Records[n-1].Seq
	if l.head != nil && (l.head.Rank > bolt.Free || l.Records[n-1].Rank == bolt.Free) { // there should be no record after head.Last
		l.doubtful = append(l.doubtful, patch.Span{From: l.Last + 1, To: last})
	}
	l.Last = last
}

// preferSure chooses, among several records with the same seq, one with a valid row checksum. If no checksum is valid,
// preferSure adds the seq to maybeForeign, because the session number in the row's key may be wrong.
func (l *Log) preferSure() {
	for i, r := range l.Records {
		sure := 0
		for at, other := range l.candidates[i] {
			if other.SumValid {
				if sure++; sure == 1 {
					l.candidates[i][0], l.candidates[i][at] = l.candidates[i][at], l.candidates[i][0]
				}
			}
		}
		if l.candidates[i] != nil {
			r = l.candidates[i][0]
			l.Records[i] = r
		}
		if !r.SumValid {
			l.maybeForeign = append(l.maybeForeign, r.Seq)
		}
		if !r.SumValid || sure > 1 || sure == 0 && l.candidates[i] != nil { // any of the candidates may be right
			l.doubtful = append(l.doubtful, patch.Span{From: r.Seq, To: r.Seq})
		}
	}
}

// mergeDoubtful sorts the doubtful spans and joins adjacent and overlapping ones.
func (l *Log) mergeDoubtful() {
	slices.SortFunc(l.doubtful, func(a, b patch.Span) int { return cmp.Compare(a.From, b.From) })
	var merged []patch.Span
	for _, s := range l.doubtful {
		if n := len(merged); n > 0 && s.From <= merged[n-1].To+1 {
			merged[n-1].To = max(merged[n-1].To, s.To)
		} else {
			merged = append(merged, s)
		}
	}
	l.doubtful = merged
}

// IsDoubtful reports whether the record with this seq may be wrong.
func (l *Log) IsDoubtful(seq uint64) bool {
	i, found := slices.BinarySearchFunc(l.doubtful, seq, func(s patch.Span, seq uint64) int { return cmp.Compare(s.From, seq) })
	return found || i > 0 && seq <= l.doubtful[i-1].To
}

// findEnd determines where the log ends.
func (l *Log) findEnd() {
	if len(l.heads) > 0 { // heads with equal rank are in descending order of Last
		l.head = &l.heads[0]
		l.Last, l.EndKnown = l.head.Last, true
		return
	}
	for _, r := range l.Records {
		if r.Rank > bolt.Free {
			l.Last = max(l.Last, r.Seq)
		}
	}
	if l.Last == 0 && len(l.Records) > 0 {
		l.Last = l.Records[len(l.Records)-1].Seq
	}
}

// maxTries limits the combinations of candidates that are tried. maxTriedRecords limits the records in all these
// tries together.
const (
	maxTries        = 4096
	maxTriedRecords = 1 << 24
)

// matchCandidates looks for a combination of candidates that has the chain of the log's head. It reports whether
// there is such a combination.
func (l *Log) matchCandidates() bool {
	positions := slices.Sorted(maps.Keys(l.candidates))
	indices := make([]int, len(positions))
	for try := 0; try < maxTries && (try == 0 || try*len(l.Records) < maxTriedRecords); try++ {
		if l.matchesChain(*l.head) {
			return true
		}
		i := 0
		for carry := true; carry && i < len(positions); i++ {
			candidates := l.candidates[positions[i]]
			indices[i] = (indices[i] + 1) % len(candidates)
			l.Records[positions[i]] = candidates[indices[i]]
			carry = indices[i] == 0
		}
		if !slices.ContainsFunc(indices, func(n int) bool { return n > 0 }) { // all combinations have been tried
			return false
		}
	}
	for _, at := range positions {
		l.Records[at] = l.candidates[at][0]
	}
	return false
}

// matchesChain reports whether the log has every record up to head.Last and these records have the head's chain.
func (l *Log) matchesChain(head bolt.ScannedHead) bool {
	chain, next := backend.Chain{}, uint64(1)
	for _, r := range l.Records {
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

// compareWithHeads finds the spans of records between two heads that do not match the chain.
func (l *Log) compareWithHeads() {
	headsByLast := map[uint64]bolt.ScannedHead{} // key: Last; value: the head with the highest rank
	for _, h := range l.heads {
		if _, found := headsByLast[h.Last]; !found && h.Last > 0 {
			headsByLast[h.Last] = h
		}
	}
	chain, known, next, from := backend.Chain{}, true, uint64(1), uint64(1)
	var doubtful []patch.Span
	for _, r := range l.Records {
		if r.Seq < next {
			continue
		}
		if r.Seq > next { // after a gap, continue at the next head
			l.doubtful = append(l.doubtful, doubtful...)
			doubtful, known = nil, false
			if h, ok := headsByLast[r.Seq-1]; ok {
				chain, known, from = h.Chain, true, r.Seq
			}
		}
		if known {
			chain = chain.Add(r.Sum)
		}
		next = r.Seq + 1
		h, ok := headsByLast[r.Seq]
		switch {
		case !ok:
		case !known:
			chain, known, from = h.Chain, true, next
		case chain == h.Chain: // the chain proves all records since the previous matching head
			doubtful, from = nil, next
		default: // the head may come from a failed commit; try the next head
			doubtful = []patch.Span{{From: from, To: r.Seq}}
		}
	}
	l.doubtful = append(l.doubtful, doubtful...)
}
