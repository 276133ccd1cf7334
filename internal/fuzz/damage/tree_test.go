package damage

import (
	"encoding/binary"
	"hash/fnv"
	"os"
)

var pageBytes = os.Getpagesize()

// rowHeader is the number of bytes before the value of a row.
const rowHeader = 13

// row is a key and a value of a bucket in the file.
type row struct {
	bucket     string
	key, value string
	from, to   int   // offsets where the key begins and the value ends
	way        []int // numbers of the pages on the path to the row, including the row's page
}

// tree is the content of a file that can be reached from the root. It is parsed from the bytes, without bbolt,
// because the content of a damaged page in bbolt depends on the memory map.
type tree struct {
	data  []byte
	pages map[int]bool    // pages in use
	seen  map[uint64]bool // pages of the tree that is being read
	rows  []row
	root  int // number of the page of the bucket tree
	free  int // number of the first page of the free list
}

// treeOf parses a file. It uses the newer of the intact meta pages.
func treeOf(data []byte) *tree {
	f := &tree{data: data, pages: map[int]bool{}, seen: map[uint64]bool{}}
	newest := uint64(0)
	for id := range 2 { // magic 4, version 4, page size 4, flags 4, root 8, sequence 8, free pages 8, pages 8, transaction 8, checksum 8
		at := id*pageBytes + 16
		if at+64 > len(data) {
			break
		}
		meta, sum := data[at:], fnv.New64a()
		_, _ = sum.Write(meta[:56])
		if txid := binary.NativeEndian.Uint64(meta[48:]); binary.NativeEndian.Uint64(meta[56:]) == sum.Sum64() && txid >= newest {
			newest = txid
			f.root, f.free = int(binary.NativeEndian.Uint64(meta[16:])), int(binary.NativeEndian.Uint64(meta[32:]))
		}
	}
	f.walk(uint64(f.root), nil, func(key []byte, value span, way []int) {
		bucket := string(key)
		top := f.seen
		defer func() { f.seen = top }()
		f.seen = map[uint64]bool{} // damage may lead from here into another bucket
		visit := func(key []byte, v span, way []int) {
			bucket := bucket
			if bucket == "records" && len(key) == 16 && binary.BigEndian.Uint64(key[8:]) == 0 {
				bucket = "labels" // a label has the name and the entry of a session, next to the session's records
			}
			// A row has a header, the record, the hashes of ids (16 bytes each), the number of ids (4) and a
			// checksum (4).
			if bucket == "records" && len(key) == 16 {
				if n := v.to - v.from; n >= rowHeader+8 {
					if ids := 8 + 16*int(binary.BigEndian.Uint32(data[v.to-8:])); ids <= n-rowHeader {
						f.rows = append(f.rows, row{"ends", string(key), string(data[v.to-ids : v.to]), v.to - ids, v.to, way})
						v.to -= ids
					}
				}
			}
			f.rows = append(f.rows, row{bucket, string(key), string(data[v.from:v.to]), v.from - len(key), v.to, way})
		}
		switch v := data[value.from:value.to]; {
		case len(v) < 16:
		case binary.NativeEndian.Uint64(v) != 0:
			f.walk(binary.NativeEndian.Uint64(v), way, visit)
		default:
			f.page(value.from+16, value.to, way, visit)
		}
	})
	return f
}

type span struct{ from, to int }

func (f *tree) walk(id uint64, path []int, visit func(key []byte, value span, way []int)) {
	count := uint64(len(f.data) / pageBytes)
	if id < 2 || id >= count || f.seen[id] {
		return
	}
	f.seen[id] = true
	at := int(id) * pageBytes
	own, more := binary.NativeEndian.Uint64(f.data[at:]), uint64(binary.NativeEndian.Uint32(f.data[at+12:]))
	if own != id || more >= count-id { // the page is another page or is malformed
		return
	}
	path = path[:len(path):len(path)]
	for page := int(id); page <= int(id+more); page++ {
		f.pages[page] = true
		path = append(path, page)
	}
	f.page(at, at+int(more+1)*pageBytes, path, visit)
}

func (f *tree) page(from, end int, path []int, visit func(key []byte, value span, way []int)) {
	if end-from < 16 {
		return
	}
	page := f.data[from:end]
	flags, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	for i := range count {
		at := 16 + 16*i
		if at+16 > len(page) {
			return
		}
		word := func(i int) int { return int(binary.NativeEndian.Uint32(page[at+4*i:])) }
		if flags == 1 { // the page is a branch
			f.walk(binary.NativeEndian.Uint64(page[at+8:]), path, visit)
			continue
		}
		key, value := at+word(1), at+word(1)+word(2)
		if end := value + word(3); flags == 2 && end <= len(page) {
			visit(page[key:value], span{from + value, from + end}, path)
		}
	}
}

// used returns the file up to the last used page. If the file was copied during a write, later pages may follow that
// no commit uses.
func (t *tree) used(data []byte) []byte {
	end := max(4, highWater(data))
	for page := range t.pages {
		end = max(end, page+1)
	}
	for _, row := range t.rows {
		end = max(end, (row.to+pageBytes-1)/pageBytes)
	}
	return data[:min(len(data), end*pageBytes)]
}
