package salvage

import (
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

func scanned(seq uint64, sum uint32) bolt.ScannedRecord {
	return bolt.ScannedRecord{Number: 1, Seq: seq, Sum: sum, Rank: bolt.InUse, SumValid: true}
}

// headAt returns a head with the chain of records with these checksums.
func headAt(sums ...uint32) bolt.ScannedHead {
	h := bolt.ScannedHead{Number: 1, Name: "s", Last: uint64(len(sums)), Rank: bolt.InUse}
	for _, sum := range sums {
		h.Chain = h.Chain.Add(sum)
	}
	return h
}

// With the chain of a head, judge chooses between copies of a record, finds doubtful records and determines the end
// of the log.
func TestJudge(t *testing.T) {
	unsure := scanned(2, 22)
	unsure.SumValid = false
	for name, c := range map[string]struct {
		records []bolt.ScannedRecord
		heads   []bolt.ScannedHead
		sums    []uint32 // checksums of the chosen records
		doubt   []patch.Span
		spare   int
		last    uint64
		ended   bool
	}{
		"a whole log":                     {[]bolt.ScannedRecord{scanned(1, 11), scanned(2, 22)}, []bolt.ScannedHead{headAt(11, 22)}, []uint32{11, 22}, nil, 0, 2, true},
		"two copies, the second is right": {[]bolt.ScannedRecord{scanned(1, 10), scanned(1, 11), scanned(2, 22)}, []bolt.ScannedHead{headAt(11, 22)}, []uint32{11, 22}, nil, 1, 2, true},
		"two copies, and no head":         {[]bolt.ScannedRecord{scanned(1, 10), scanned(1, 11)}, nil, []uint32{10}, []patch.Span{{From: 1, To: 1}}, 1, 1, false},
		"a wrong record":                  {[]bolt.ScannedRecord{scanned(1, 11), scanned(2, 99)}, []bolt.ScannedHead{headAt(11, 22)}, []uint32{11, 99}, []patch.Span{{From: 1, To: 2}}, 0, 2, true},
		"a wrong record, and an older head": {[]bolt.ScannedRecord{scanned(1, 11), scanned(2, 99)}, []bolt.ScannedHead{headAt(11, 22), headAt(11)},
			[]uint32{11, 99}, []patch.Span{{From: 2, To: 2}}, 0, 2, true},
		"a record behind the end":       {[]bolt.ScannedRecord{scanned(1, 11), scanned(2, 22)}, []bolt.ScannedHead{headAt(11)}, []uint32{11, 22}, []patch.Span{{From: 2, To: 2}}, 0, 2, true},
		"a record whose key is damaged": {[]bolt.ScannedRecord{scanned(1, 11), unsure}, nil, []uint32{11, 22}, []patch.Span{{From: 2, To: 2}}, 0, 2, false},
		"a gap":                         {[]bolt.ScannedRecord{scanned(1, 11), scanned(3, 33)}, []bolt.ScannedHead{headAt(11, 22, 33)}, []uint32{11, 33}, nil, 0, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Log{Number: 1, Records: c.records, heads: c.heads}
			l.groupCandidates()
			l.findDoubtful()
			var sums []uint32
			for _, r := range l.Records {
				sums = append(sums, r.Sum)
			}
			testlog.Equal(t, "sums", sums, c.sums)
			testlog.Equal(t, "doubtful", l.doubtful, c.doubt)
			testlog.Equal(t, "spare", len(l.Alternatives), c.spare)
			testlog.Equal(t, "last", l.Last, c.last)
			testlog.Equal(t, "ended", l.EndKnown, c.ended)
			for _, s := range c.doubt {
				if !l.IsDoubtful(s.From) || !l.IsDoubtful(s.To) || l.IsDoubtful(s.To+1) {
					t.Errorf("in doubt: %v", l.doubtful)
				}
			}
		})
	}
}

// Sessions that certainly exist come first. If several sessions have a name, the newest is returned. Staged sessions
// are omitted.
func TestLogs(t *testing.T) {
	scan := &bolt.Scan{FreeKnown: true}
	for number, name := range map[uint64]string{1: "a", 2: "a", 3: "staged", 4: "b"} {
		scan.Entries = append(scan.Entries, bolt.ScannedEntry{Number: number, Name: name, Rank: bolt.InUse})
		scan.Heads = append(scan.Heads, bolt.ScannedHead{Number: number, Name: name, Last: 1, Chain: backend.Chain{}.Add(uint32(number)), Rank: bolt.InUse})
	}
	for number := uint64(1); number <= 5; number++ { // no entry or head names session 5
		scan.Records = append(scan.Records, bolt.ScannedRecord{Number: number, Seq: 1, Sum: uint32(number), Rank: bolt.InUse, SumValid: true})
	}
	v := &File{Scan: scan}
	logs := testlog.Must(v.Logs(t.Context(), func(string) bool { return true }, func(name string) bool { return name == "staged" }))(t)
	var found []uint64
	for _, l := range logs {
		found = append(found, l.Number)
	}
	testlog.Equal(t, "sessions", found, []uint64{2, 4, 5})
	testlog.Equal(t, "left out", []int{v.Deleted, v.DeletedRecords}, []int{2, 2})
	if slices.ContainsFunc(logs[:2], func(l *Log) bool { return l.MaybeDeleted || !l.Named }) || logs[2].Named {
		t.Errorf("%+v", logs)
	}
}

// If the list of deleted sessions cannot be read, rows in use may belong to a deleted session.
func TestLogsInDoubt(t *testing.T) {
	for metas, doubt := range []bool{false, true, true} { // without a complete meta page, no page is known to be in use
		v := &File{Scan: &bolt.Scan{Metas: metas, FreeKnown: true, Entries: []bolt.ScannedEntry{{Number: 1, Name: "a", Rank: bolt.InUse}}, Records: []bolt.ScannedRecord{scanned(1, 11)}}}
		logs := testlog.Must(v.Logs(t.Context(), func(string) bool { return true }, func(string) bool { return false }))(t)
		testlog.Equal(t, "in doubt", []bool{logs[0].MaybeDeleted, logs[0].HasDeletionMark}, []bool{doubt, false})
	}
}

// A session whose name is found without records is in doubt: its records are lost, or it was deleted.
func TestLogsWithoutRecords(t *testing.T) {
	v := &File{Scan: &bolt.Scan{Metas: 2, FreeKnown: true, Entries: []bolt.ScannedEntry{{Number: 1, Name: "s", Rank: bolt.InUse}}, Heads: []bolt.ScannedHead{headAt(11, 22)}}}
	logs := testlog.Must(v.Logs(t.Context(), func(string) bool { return true }, func(string) bool { return false }))(t)
	if v.Deleted > 0 || len(logs) != 1 || !logs[0].MaybeDeleted || logs[0].Last != 2 {
		t.Errorf("%d deleted, %+v", v.Deleted, logs)
	}
}
