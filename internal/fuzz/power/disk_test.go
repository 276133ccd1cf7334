//go:build linux && (amd64 || arm64)

package power

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// disk models a directory. It has the content that the system shows to processes, and the content that is on the
// medium.
type disk struct {
	shown   map[string]*image // key: name; value: files as the system shows them
	durable map[string]*image
	entries []entry           // changes of names that are not durable
	inodes  map[uint64]*image // key: inode number, which the system may reuse
}

type entry struct {
	name     string // name of the system call
	from, to string
	file     *image
}

// image is a file. Changes of the file are not on the medium until a sync writes them.
type image struct {
	cache, medium content
	changes       []change
}

// content is the bytes of a file. If a page is missing, its bytes are zeros. Contents share pages, which are
// immutable.
type content struct {
	pages map[int64][]byte
	size  int64
}

const pageSize = 4096

// change is either a write or a truncation to a size.
type change struct {
	at       int64
	data     []byte
	truncate bool
}

func (c change) end() int64 { return c.at + int64(len(c.data)) }

func (c *content) apply(w change) {
	if w.truncate {
		c.truncate(w.at)
		return
	}
	if c.pages == nil {
		c.pages = map[int64][]byte{}
	}
	for p := range w.pieces(pageSize) {
		page := p.data
		if len(page) < pageSize {
			page = make([]byte, pageSize)
			copy(page, c.pages[p.at/pageSize])
			copy(page[p.at%pageSize:], p.data)
		}
		c.pages[p.at/pageSize] = page
	}
	c.size = max(c.size, w.end())
}

func (c *content) truncate(size int64) {
	c.size = size
	maps.DeleteFunc(c.pages, func(n int64, _ []byte) bool { return n*pageSize >= size })
	if page := c.pages[size/pageSize]; page != nil {
		c.pages[size/pageSize] = append(page[:size%pageSize:size%pageSize], make([]byte, pageSize-size%pageSize)...)
	}
}

func (c content) clone() content { return content{maps.Clone(c.pages), c.size} }

// bytes returns the content without trailing zeros.
func (c content) bytes() []byte {
	var data []byte
	for _, n := range slices.Sorted(maps.Keys(c.pages)) {
		data = append(data, make([]byte, n*pageSize-int64(len(data)))...)
		data = append(data, c.pages[n]...)
	}
	return bytes.TrimRight(data, "\x00")
}

func (i *image) write(w change) {
	i.cache.apply(w)
	i.changes = append(i.changes, w)
}

func (i *image) flush() {
	for _, w := range i.changes {
		i.medium.apply(w)
	}
	i.changes = nil
}

func newDisk() *disk {
	return &disk{shown: map[string]*image{}, durable: map[string]*image{}, inodes: map[uint64]*image{}}
}

// readDisk returns a disk with the files of a directory. All files are durable.
func readDisk(dir string) (*disk, error) {
	d := newDisk()
	names, err := os.ReadDir(dir)
	for _, name := range names {
		data, readErr := os.ReadFile(filepath.Join(dir, name.Name()))
		err = errors.Join(err, readErr)
		var c content
		c.apply(change{data: bytes.TrimRight(data, "\x00")})
		c.size = int64(len(data))
		i := &image{cache: c, medium: c.clone()}
		d.shown[name.Name()], d.durable[name.Name()] = i, i
	}
	return d, err
}

// clone returns a copy of a disk. All content of the copy is durable.
func (d *disk) clone() *disk {
	c := newDisk()
	for name, i := range d.shown {
		j := &image{cache: i.cache.clone(), medium: i.medium.clone()}
		c.shown[name], c.durable[name] = j, j
		for inode, is := range d.inodes {
			if is == i {
				c.inodes[inode] = j
			}
		}
	}
	return c
}

// writeTo writes the files of a disk into a directory.
func (d *disk) writeTo(dir string) error {
	clear(d.inodes)
	for name, i := range d.shown {
		var stat unix.Stat_t
		path := filepath.Join(dir, name)
		if err := errors.Join(i.cache.save(path), unix.Stat(path, &stat)); err != nil {
			return err
		}
		d.inodes[stat.Ino] = i
	}
	return nil
}

func (c content) save(path string) error {
	return errors.Join(os.WriteFile(path, c.bytes(), 0o600), os.Truncate(path, c.size))
}

// syncFailure is the effect of a failing sync on the data that should become durable.
type syncFailure int

const (
	syncNothing syncFailure = iota // no data is written, and the next sync does not try again
	syncSome                       // a part of the data is written, and the next sync does not try again
	syncAll
	syncLater // no data is written, and the next sync tries again
	numSyncFailures
)

func (d syncFailure) String() string { return [...]string{"nothing", "some", "all", "nothing yet"}[d] }

func (d *disk) apply(dir string, s step, doom syncFailure, random *rand.Rand) {
	base := func(path string) string { return strings.TrimPrefix(path, dir+"/") }
	switch s.name {
	case "write":
		d.imageOf(s.file, base(s.file.path)).write(change{at: s.at, data: s.data})
	case "truncate":
		d.imageOf(s.file, base(s.file.path)).write(change{at: s.at, truncate: true})
	case "sync", "fsync":
		switch {
		case s.skipped || s.file.dir && s.failed:
		case s.file.dir:
			for _, e := range d.entries {
				e.applyTo(d.durable)
			}
			d.entries = nil
		default:
			d.imageOf(s.file, base(s.file.path)).sync(s.failed, doom, random)
		}
	default:
		if i := d.shown[base(s.from)]; i != nil {
			d.addEntry(entry{s.name, base(s.from), base(s.to), i})
		}
	}
}

// imageOf returns the image of a file. If the disk does not have the file, imageOf creates it under its name.
func (d *disk) imageOf(f file, name string) *image {
	i := d.inodes[f.inode]
	if i == nil || !f.unlinked && d.shown[name] != i {
		i = &image{}
		d.inodes[f.inode] = i
		d.addEntry(entry{name: "link", to: name, file: i})
	}
	return i
}

func (i *image) sync(failed bool, doom syncFailure, random *rand.Rand) {
	switch {
	case !failed || doom == syncAll:
		i.flush()
	case doom != syncLater:
		i.changes = slices.DeleteFunc(i.changes, func(change) bool { return doom == syncNothing || random.IntN(2) == 0 })
		i.flush()
	}
}

func (d *disk) addEntry(e entry) {
	e.applyTo(d.shown)
	d.entries = append(d.entries, e)
}

func (e entry) applyTo(names map[string]*image) {
	if e.name != "link" {
		delete(names, e.from)
	}
	if e.name != "unlink" {
		names[e.to] = e.file
	}
}

// survival determines which of the changes that are not yet durable survive a power cut.
type survival struct {
	*rand.Rand
	unit     int64 // size of the units that a disk writes atomically; 0 means that every write is atomic
	survives func() bool
}

// cut writes into a directory what remains after a power cut. The result how describes which changes survived.
func (d *disk) cut(dir string, random *rand.Rand) (how string, err error) {
	l := survival{Rand: random, unit: []int64{0, 512, 4096}[random.IntN(3)]}
	n, units, one := 0, 0, 0
	for _, i := range d.inodes {
		for _, w := range i.changes {
			for range w.pieces(l.unit) {
				units++
			}
		}
	}
	if units > 0 {
		one = random.IntN(units)
	}
	way, percent := random.IntN(6), []int{0, 5, 30, 50, 70, 95, 100}[random.IntN(7)]
	l.survives = func() bool {
		n++
		switch way {
		case 0:
			return n <= one // the first units survive
		case 1:
			return n > one // the last units survive
		case 2:
			return n != one+1 // all units except one survive
		case 3:
			return n == one+1
		}
		return random.IntN(100) < percent
	}
	names := maps.Clone(d.durable)
	// Either the changes of names before one moment survive, or a random set of changes.
	moment, any := random.IntN(len(d.entries)+1), random.IntN(4) == 0
	for i, e := range d.entries {
		if any && random.IntN(2) == 0 || !any && i < moment {
			e.applyTo(names)
		}
	}
	left := map[*image]content{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		i := names[name]
		if _, ok := left[i]; !ok {
			left[i] = i.afterCut(l)
		}
		err = errors.Join(err, left[i].save(filepath.Join(dir, name)))
	}
	return fmt.Sprintf("%d units of %d bytes (0: whole writes), way %d of keeping some, %d, %d%%", units, l.unit, way, one, percent), err
}

// pieces splits a write into the units that a disk writes atomically.
func (c change) pieces(unit int64) func(yield func(change) bool) {
	return func(yield func(change) bool) {
		if c.truncate || unit == 0 {
			yield(c)
			return
		}
		for from := c.at; from < c.end(); {
			to := min((from/unit+1)*unit, c.end())
			if !yield(change{at: from, data: c.data[from-c.at : to-c.at]}) {
				return
			}
			from = to
		}
	}
}

// afterCut returns what remains of a file after a power cut.
func (i *image) afterCut(l survival) content {
	out := i.medium.clone()
	for _, w := range i.changes {
		for p := range w.pieces(l.unit) {
			switch {
			case l.survives():
				out.apply(p)
			case !p.truncate && l.IntN(20) == 0:
				out.size = max(out.size, p.end()) // the size has grown, but the data is missing
			}
		}
	}
	return out
}

// compareWith returns an error if the content of a directory differs from the disk. A difference means that the
// recording lacks a step. Empty files are ignored.
func (d *disk) compareWith(dir string) error {
	for name, i := range d.shown {
		got, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case err != nil:
			return err
		case i.cache.size != int64(len(got)):
			return fmt.Errorf("%s has %d bytes, and by the steps %d", name, len(got), i.cache.size)
		case !bytes.Equal(bytes.TrimRight(got, "\x00"), i.cache.bytes()):
			return fmt.Errorf("the content of %s differs from the recorded steps", name)
		}
	}
	names, err := os.ReadDir(dir)
	for _, name := range names {
		info, infoErr := name.Info()
		if d.shown[name.Name()] == nil && infoErr == nil && info.Size() > 0 {
			err = errors.Join(err, fmt.Errorf("%s exists, but not according to the steps", name.Name()))
		}
	}
	return err
}
