package damage

import (
	"bytes"
	"encoding/binary"
	"sort"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
)

// damageReport describes which used parts of a file are damaged.
type damageReport struct {
	current  bool // the pages that identify the newest commit are undamaged
	pages    bool // a used page is damaged outside its keys and values, the free list is damaged, or the file is truncated
	free     bool // the free list is damaged
	keys     bool // a key is damaged
	shared   bool // a shared value, or the path to a shared value, is damaged
	rows     int
	listing  bool // the path to the names of sessions is damaged
	sessions map[store.Key]bool
	records  map[store.Key][]uint64 // seqs of the records whose key is undamaged and whose form is damaged
}

// findDamage compares a damaged file with the file before the damage.
func (w *wreck) findDamage(data []byte) damageReport {
	h := damageReport{current: w.isCurrent(data), sessions: map[store.Key]bool{}, records: map[store.Key][]uint64{}}
	before, after := bytes.Clone(w.Data), make([]byte, len(w.Data))
	copy(after, data)
	changed := make([]bool, len(w.tree.rows))
	for i, row := range w.tree.rows {
		changed[i] = row.to > len(data) || !bytes.Equal(w.Data[row.from:row.to], data[row.from:row.to])
		clear(before[row.from:row.to])
		clear(after[row.from:row.to])
	}
	page := map[int]bool{}
	for p := range w.tree.pages {
		page[p] = !bytes.Equal(before[p*pageBytes:(p+1)*pageBytes], after[p*pageBytes:(p+1)*pageBytes])
		h.pages = h.pages || page[p]
	}
	free := w.tree.free * pageBytes
	h.free = !bytes.Equal(before[free:free+pageBytes], after[free:free+pageBytes])
	h.pages = h.pages || h.free || len(data) < len(w.Data)
	names := map[string]store.Key{}
	for _, row := range w.tree.rows {
		if row.bucket == "sessions" {
			names[row.key] = w.Keys[numberOf(row.value[min(rowHeader, len(row.value)):])]
		}
	}
	astray := w.unreachableRows(data)
	for i, row := range w.tree.rows {
		way := astray[i]
		for _, p := range row.way {
			way = way || page[p]
		}
		if changed[i] {
			h.rows++
			h.keys = h.keys || row.to > len(data) || row.bucket != "ends" && !strings.HasPrefix(string(data[row.from:row.to]), row.key)
		}
		if !changed[i] && !way {
			continue
		}
		switch row.bucket {
		case "sessions", "heads":
			h.sessions[names[row.key]] = true
			h.listing = h.listing || way
		case "shared", "sharednames":
			h.shared = true
		case "snapshots", "labels": // no read needs snapshots or labels
		case "ids", "ends": // the sorted ids, or the ids at the end of a record's row
			h.sessions[w.Keys[numberOf(row.key)]] = true
		case "records":
			if !w.Live[numberOf(row.key)] {
				break
			}
			key := w.Keys[numberOf(row.key)]
			h.sessions[key] = true
			if way || row.to > len(data) {
				break
			}
			now := string(data[row.from:row.to])
			if strings.HasPrefix(now, row.key) {
				h.records[key] = append(h.records[key], numberOf(row.key[8:]))
			}
			if w.Live[numberOf(now)] { // damage has turned the key into a key of another session
				h.sessions[w.Keys[numberOf(now)]] = true
			}
		default:
			h.pages = true
		}
	}
	return h
}

// unreachableRows returns the rows that a search in their page no longer finds, because the search compares a
// damaged key.
func (w *wreck) unreachableRows(data []byte) map[int]bool {
	leaves := map[int][]int{} // key: page; value: the rows in order
	for i, row := range w.tree.rows {
		if len(row.way) > 0 && row.bucket != "ends" { // rows of "ends" are parts of other rows
			page := row.way[len(row.way)-1]
			leaves[page] = append(leaves[page], i)
		}
	}
	astray := map[int]bool{}
	for _, leaf := range leaves {
		keys := make([]string, len(leaf))
		for at, i := range leaf {
			row := w.tree.rows[i]
			if end := row.from + len(row.key); end <= len(data) {
				keys[at] = string(data[row.from:end])
			}
		}
		for at, i := range leaf {
			key := w.tree.rows[i].key
			astray[i] = sort.Search(len(keys), func(n int) bool { return keys[n] >= key }) != at
		}
	}
	return astray
}

// hasPage reports whether a file still has a page of bbolt. A meta page is recognised by its magic number, and any
// other page by its own number. A file without such a page could belong to another program.
func hasPage(data []byte) bool {
	const magicAt, magic = 16, 0xED0CDAED
	for at := 0; at+magicAt+4 <= len(data); at += pageBytes {
		id := at / pageBytes
		if id < 2 && binary.NativeEndian.Uint32(data[at+magicAt:]) == magic || id >= 2 && binary.NativeEndian.Uint64(data[at:]) == uint64(id) {
			return true
		}
	}
	return false
}

func (h damageReport) none() bool { return h.current && !h.pages && h.rows == 0 }
