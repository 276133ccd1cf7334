package damage

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

type damageKind struct {
	name string
	do   func(r *rand.Rand, w *wreck, data []byte) []byte
}

const sector = 512

func randomBlock(r *rand.Rand, data []byte, size int) []byte {
	if len(data) < size {
		return data
	}
	at := r.IntN(len(data)/size) * size
	return data[at : at+size]
}

func scramble(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// randomRecord returns a random record of the tree.
func randomRecord(r *rand.Rand, w *wreck) row {
	for {
		if row := w.tree.rows[r.IntN(len(w.tree.rows))]; row.bucket == "records" {
			return row
		}
	}
}

func repeat(r *rand.Rand, f func()) {
	for range 1 + r.IntN(8) {
		f()
	}
}

func inPlace(do func(r *rand.Rand, w *wreck, data []byte)) func(r *rand.Rand, w *wreck, data []byte) []byte {
	return func(r *rand.Rand, w *wreck, data []byte) []byte {
		do(r, w, data)
		return data
	}
}

var clearMetaPages = inPlace(func(_ *rand.Rand, _ *wreck, data []byte) { clear(data[:min(len(data), 2*pageBytes)]) })

var kinds = []damageKind{
	{"bits", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() { data[r.IntN(len(data))] ^= 1 << r.IntN(8) })
	})},
	{"bits of headers and elements", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() { randomBlock(r, data, pageBytes)[r.IntN(64)] ^= 1 << r.IntN(8) })
	})},
	{"bits of keys", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		repeat(r, func() {
			if at := randomRecord(r, w).from + 6 + r.IntN(10); at < len(data) {
				data[at] ^= 1 << r.IntN(4)
			}
		})
	})},
	{"bits of records", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		repeat(r, func() {
			row := randomRecord(r, w)
			if at := row.from + 16 + r.IntN(len(row.value)); at < len(data) {
				data[at] ^= 1 << r.IntN(8)
			}
		})
	})},
	{"bits of a row", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		row := w.tree.rows[r.IntN(len(w.tree.rows))]
		if at := row.from + r.IntN(row.to-row.from); at < len(data) {
			data[at] ^= 1 << r.IntN(8)
		}
	})},
	{"rows swapped", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		a, b := w.tree.rows[r.IntN(len(w.tree.rows))], w.tree.rows[r.IntN(len(w.tree.rows))]
		if len(a.value) == len(b.value) && max(a.to, b.to) <= len(data) {
			copy(data[a.to-len(a.value):], b.value)
			copy(data[b.to-len(b.value):], a.value)
		}
	})},
	{"bytes", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() { data[r.IntN(len(data))] = byte(r.Uint32()) })
	})},
	{"sectors zeroed", inPlace(func(r *rand.Rand, _ *wreck, data []byte) { repeat(r, func() { clear(randomBlock(r, data, sector)) }) })},
	{"sectors scrambled", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() { scramble(r, randomBlock(r, data, sector)) })
	})},
	{"pages zeroed", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() { clear(randomBlock(r, data, pageBytes)) })
	})},
	{"pages scrambled", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() { scramble(r, randomBlock(r, data, pageBytes)) })
	})},
	{"pages swapped", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() {
			a, b := randomBlock(r, data, pageBytes), randomBlock(r, data, pageBytes)
			before := bytes.Clone(a)
			copy(a, b)
			copy(b, before)
		})
	})},
	{"pages copied", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() { copy(randomBlock(r, data, pageBytes), bytes.Clone(randomBlock(r, data, pageBytes))) })
	})},
	{"pages stale", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		repeat(r, func() {
			older := w.Older[r.IntN(len(w.Older))]
			at := r.IntN(min(len(older), len(data))/pageBytes) * pageBytes
			copy(data[at:at+pageBytes], older[at:])
		})
	})},
	{"a page stale, and those that are new since", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		older := w.Older[len(w.Older)-1-r.IntN(min(3, len(w.Older)))]
		for at := 2 * pageBytes; at+pageBytes <= min(len(older), len(data)); at += pageBytes {
			if r.IntN(3) == 0 {
				copy(data[at:at+pageBytes], older[at:])
			}
		}
	})},
	{"cut off", func(r *rand.Rand, _ *wreck, data []byte) []byte { return data[:r.IntN(len(data))] }},
	{"meta pages swapped", inPlace(func(_ *rand.Rand, _ *wreck, data []byte) {
		if len(data) >= 2*pageBytes {
			first := bytes.Clone(data[:pageBytes])
			copy(data, data[pageBytes:2*pageBytes])
			copy(data[pageBytes:], first)
		}
	})},
	{"bits of meta pages", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		repeat(r, func() {
			if at := r.IntN(2)*pageBytes + r.IntN(80); at < len(data) {
				data[at] ^= 1 << r.IntN(8)
			}
		})
	})},
	{"bits of the list of free pages", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		repeat(r, func() {
			if at := w.tree.free*pageBytes + r.IntN(64); at < len(data) {
				data[at] ^= 1 << r.IntN(8)
			}
		})
	})},
	{"a page in use on the list of free pages", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		list := w.tree.free * pageBytes
		if len(data) < list+pageBytes {
			return
		}
		// Replace a page number in the free list by another one between its neighbours, so that the list stays
		// sorted.
		count := min(int(binary.NativeEndian.Uint16(data[list+10:])), (pageBytes-16)/8) // the count may already be damaged
		id := func(i int) uint64 { return binary.NativeEndian.Uint64(data[list+16+8*i:]) }
		for range 100 {
			i, page := r.IntN(max(1, count)), uint64(2+r.IntN(len(data)/pageBytes-2))
			if i < count && w.tree.pages[int(page)] && (i == 0 || id(i-1) < page) && (i+1 == count || page < id(i+1)) {
				binary.NativeEndian.PutUint64(data[list+16+8*i:], page)
				return
			}
		}
	})},
	{"both meta pages zeroed", clearMetaPages},
	{"one meta page zeroed", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		at := r.IntN(2) * pageBytes
		clear(data[at : at+pageBytes])
	})},
	{"all headers zeroed", inPlace(func(_ *rand.Rand, _ *wreck, data []byte) {
		for at := 0; at+pageBytes <= len(data); at += pageBytes {
			clear(data[at : at+16])
		}
	})},
	{"the last 0.2 % cut off", func(_ *rand.Rand, _ *wreck, data []byte) []byte { return data[:len(data)-len(data)/500-1] }},
	{"cut off, and no meta pages", func(r *rand.Rand, w *wreck, data []byte) []byte {
		return clearMetaPages(r, w, data[:r.IntN(len(data))])
	}},
}
