package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/patchlog-dev/patchlog/store/bolt"
)

// The number in a record's key has no checksum. If a bit of it flips, the record seems to be
// of another session. Where no chain says that this is not so, the index of ids does: it has
// the session's number once more, with a hash of the record's id.

// witnessed is a record about which the index of ids is asked.
type witnessed struct {
	hash   [16]byte
	log    *foundLog
	record bolt.ScannedRecord
	own    bool // the index has the id under the record's own number
	other  bool // it has it under another number
}

// witness asks the index of ids about the records that no chain proves, takes note of those
// that it says are of another session, and takes of several with one seq the one that it
// knows.
func (v *salvage) witness(ctx context.Context, logs []*foundLog) error {
	var asked []witnessed
	ask := func(l *foundLog, r bolt.ScannedRecord) {
		if rec, _, ok := v.read(r); ok {
			asked = append(asked, witnessed{hash: bolt.HashID(rec.ID()), log: l, record: r})
		}
	}
	for _, l := range logs {
		for i, r := range l.records {
			if l.proved && r.Seq <= l.last {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if choices := l.choices[i]; choices != nil {
				for _, r := range choices {
					ask(l, r)
				}
				continue
			}
			ask(l, r)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	slices.SortFunc(asked, func(a, b witnessed) int {
		return cmp.Or(bytes.Compare(a.hash[:], b.hash[:]), cmp.Compare(a.log.number, b.log.number), cmp.Compare(a.record.Seq, b.record.Seq), cmp.Compare(a.record.At, b.record.At))
	})
	err := bolt.ScanIDs(ctx, v.file, v.size, func(number uint64, hash [16]byte, seq uint64) {
		i, _ := slices.BinarySearchFunc(asked, hash, func(w witnessed, hash [16]byte) int { return bytes.Compare(w.hash[:], hash[:]) })
		for ; i < len(asked) && asked[i].hash == hash; i++ {
			switch w := &asked[i]; {
			case w.record.Seq != seq:
			case w.log.number == number:
				w.own = true
			default:
				w.other = true
			}
		}
	})
	if err != nil {
		return err
	}
	type place struct {
		log *foundLog
		at  int
	}
	known := map[place]bool{} // of several records, to which the index leads
	for _, w := range asked {
		at, _ := w.log.find(w.record.Seq)
		choices := w.log.choices[at]
		if !w.own || choices == nil || known[place{w.log, at}] && !sameRecord(w.record, choices[0]) {
			continue
		}
		i := slices.IndexFunc(choices, func(r bolt.ScannedRecord) bool { return sameRecord(r, w.record) })
		choices[0], choices[i] = choices[i], choices[0]
		w.log.records[at], known[place{w.log, at}] = w.record, true
	}
	for _, w := range asked {
		at, _ := w.log.find(w.record.Seq)
		if !w.own && w.other {
			w.log.foreign = append(w.log.foreign, w.record.Seq)
		}
		switch {
		case !sameRecord(w.log.records[at], w.record):
		case w.log.choices[at] != nil && !known[place{w.log, at}], // any may be the right one
			!w.own && w.other,     // a number is damaged, in the record's key or in the index
			!w.own && w.log.doubt: // what is left of what had been deleted
			w.log.doubtful = append(w.log.doubtful, Span{w.record.Seq, w.record.Seq})
		}
	}
	return nil
}

func (l *foundLog) find(seq uint64) (i int, there bool) {
	return slices.BinarySearchFunc(l.records, seq, func(r bolt.ScannedRecord, seq uint64) int { return cmp.Compare(r.Seq, seq) })
}
