package damage

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// intactRecords returns the places of the undamaged records.
func (w *wreck) intactRecords(data []byte) (out []place) {
	for _, p := range w.places() {
		if p.to <= len(data) && bytes.Equal(data[p.from:p.to], w.Data[p.from:p.to]) {
			out = append(out, p)
		}
	}
	return out
}

// isCurrent reports whether the pages that identify the newest commit are undamaged. If they are damaged, a store
// may open the file as of an earlier commit.
func (w *wreck) isCurrent(data []byte) bool {
	root := w.tree.root * pageBytes
	return len(data) >= root+pageBytes && bytes.Equal(data[:2*pageBytes], w.Data[:2*pageBytes]) &&
		bytes.Equal(data[root:root+pageBytes], w.Data[root:root+pageBytes])
}

// isBucketDamaged reports whether a page with rows of a bucket is damaged.
func (w *wreck) isBucketDamaged(data []byte, bucket string) bool {
	return slices.ContainsFunc(w.tree.rows, func(r row) bool {
		from := r.from / pageBytes * pageBytes
		to := min(from+pageBytes, len(w.Data))
		return r.bucket == bucket && (to > len(data) || !bytes.Equal(data[from:to], w.Data[from:to]))
	})
}

// salvageRecords salvages a damaged file. It returns the number of intact records that were recovered, and a
// description of each fault.
func (w *wreck) salvageRecords(data []byte, intact []place) (got int, wrong []string) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	s, err := store.OpenMemory(store.Options{MaxRecordBytes: patch.MaxRecordBytes, CacheBytes: -1})
	if err != nil {
		return 0, []string{err.Error()}
	}
	defer s.Close()
	out, err := store.Salvage(ctx, io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))), s, store.SalvageOptions{})
	if err != nil {
		return 0, []string{err.Error()}
	}
	numbers := map[store.Key][]uint64{} // key: session key; value: the numbers of all sessions that have had the key
	for n, key := range w.Keys {
		numbers[key] = append(numbers[key], n)
		named := store.Key{App: "salvaged", User: "unknown", Session: fmt.Sprint("session-", n)}
		numbers[named] = append(numbers[named], n)
	}
	saved, current, directoryLost := map[uint64]map[uint64]bool{}, w.isCurrent(data), w.isBucketDamaged(data, "sessions") && w.isBucketDamaged(data, "heads")
	for _, session := range out.Sessions {
		own := numbers[session.Key]
		if len(own) == 0 && !session.Nameless {
			fail("session %s was never there", session.Key)
		}
		if session.Nameless && w.hasIntactName(data, own) {
			fail("%s has no name, which the damage has not touched", session.Key)
		}
		marked := session.Nameless || session.MaybeDeleted || !current || directoryLost
		if !marked && !w.isLive(session.Key) {
			fail("session %s had been deleted", session.Key)
		}
		for _, part := range session.Parts {
			n := uint64(0)
			for rec, err := range s.RawEvents(ctx, part.Key, 1) {
				if err != nil {
					fail("read %s: %v", part.Key, err)
					break
				}
				n++
				if rec.Seq != n {
					fail("%s: record %d at place %d", part.Key, rec.Seq, n)
				}
				seq := part.From + n - 1
				of, ok := w.sessionOf(own, seq, rec, part.Log)
				switch {
				case ok:
					if saved[of] == nil {
						saved[of] = map[uint64]bool{}
					}
					saved[of][seq] = true
					if !marked && !w.Live[of] {
						fail("%s: record %d is of a session that was deleted", part.Key, seq)
					}
				case !session.Nameless && !part.Doubtful:
					fail("%s: record %d is not one that was written", part.Key, seq)
				}
			}
			if n != part.To-part.From+1 {
				fail("%s has %d records, the report says %v", part.Key, n, part.Span)
			}
		}
	}
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		fail("verify: %v %v", p, err)
	}
	for _, p := range intact {
		if saved[p.number][p.seq] {
			got++
		}
	}
	return got, wrong
}

// hasIntactName reports whether the name of one of the sessions is undamaged, either in the directory or in the
// label of the session's records.
func (w *wreck) hasIntactName(data []byte, numbers []uint64) bool {
	for _, row := range w.tree.rows {
		n := numberOf(row.key)
		if row.bucket == "sessions" {
			n = numberOf(row.value[min(rowHeader, len(row.value)):])
		} else if row.bucket != "labels" {
			continue
		}
		if slices.Contains(numbers, n) && row.to <= len(data) && bytes.Equal(data[row.from:row.to], w.Data[row.from:row.to]) {
			return true
		}
	}
	return false
}

func (w *wreck) isLive(key store.Key) bool {
	for n := range w.Live {
		if w.Keys[n] == key {
			return true
		}
	}
	return false
}

// sessionOf returns the number of the session that a record belongs to.
func (w *wreck) sessionOf(numbers []uint64, seq uint64, rec patch.Record, log bool) (uint64, bool) {
	got := rec
	got.Seq = seq
	text := textOf(got)
	var own struct {
		Patchlog struct {
			Salvaged struct {
				Seq  uint64
				Text string
			}
		}
	}
	if !log && rec.Event != nil {
		_ = rec.Event.Decode("customMetadata", &own)
	}
	saved := own.Patchlog.Salvaged
	for _, n := range numbers {
		want, ok := w.Logs[n][seq]
		if ok && (text == want || saved.Seq == seq && saved.Text == want && strings.Contains(want, fmt.Sprintf(`"id":%q`, rec.ID()))) {
			return n, true
		}
	}
	return 0, false
}

// salvageByTree simulates a salvage that relies on the tree and reads only the sessions that are listed. It returns
// the number of intact records that were recovered.
func (w *wreck) salvageByTree(dir string, data []byte, intact []place) (got int) {
	path := filepath.Join(dir, "trusting.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return 0
	}
	opts := storeOptions()
	opts.ReadOnly = true
	s, err := store.Open(path, opts)
	if err != nil {
		return 0
	}
	defer s.Close()
	saved := map[string]bool{}
	for info, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			continue
		}
		for rec, err := range s.RawEvents(ctx, info.Key, 1) {
			if err != nil {
				break
			}
			saved[fmt.Sprint(info.Key, rec.Seq)] = true
		}
	}
	for _, p := range intact {
		if saved[fmt.Sprint(w.Keys[p.number], p.seq)] {
			got++
		}
	}
	return got
}
