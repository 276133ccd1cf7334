//go:build linux && (amd64 || arm64)

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A disk writes sectors, and the system pages.
const sector, pageSize = 512, 4096

// disk is a directory: what the system shows of it, and what of that is on the medium.
type disk struct {
	shown   map[string]*image // by name
	durable map[string]*image
	entries []entry           // changes of names that are not durable
	inodes  map[uint64]*image // the system gives a number again when a file is gone
}

// entry is a change of names.
type entry struct {
	name     string // of the call
	from, to string
	file     *image
}

// image is a file. Pages without a byte are left out; no page is changed once it is there.
type image struct {
	cache, medium map[int64][]byte
	dirty         map[int64]bool
	size, written int64 // as shown, and on the medium
}

func newImage() *image {
	return &image{cache: map[int64][]byte{}, medium: map[int64][]byte{}, dirty: map[int64]bool{}}
}

// step is a call that was made, or said to be.
type step struct {
	syscall
	failed bool // of a sync: so the system has said
	lied   bool // it was not made, though the system has said so
	line   int  // of the journal, when the call was made
}

// read returns a disk that has what is in a directory, all of it durable.
func read(dir string) (*disk, error) {
	d := &disk{shown: map[string]*image{}, durable: map[string]*image{}, inodes: map[uint64]*image{}}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name.Name()))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		var stat unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
			return nil, err
		}
		i := newImage()
		if err := i.read(f, stat.Size); err != nil {
			return nil, err
		}
		i.flush(func(int64) bool { return true })
		d.inodes[stat.Ino], d.shown[name.Name()], d.durable[name.Name()] = i, i, i
	}
	return d, nil
}

// read takes what is in a file, holes left out.
func (i *image) read(f *os.File, size int64) error {
	for at := int64(0); at < size; {
		from, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		to, endErr := f.Seek(from, unix.SEEK_HOLE)
		if err := errors.Join(err, endErr); err != nil {
			return err
		}
		data := make([]byte, to-from)
		if _, err := f.ReadAt(data, from); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		i.write(from, data)
		at = to
	}
	i.truncate(size)
	return nil
}

func (i *image) write(at int64, data []byte) {
	i.size = max(i.size, at+int64(len(data)))
	for len(data) > 0 {
		page, in := at/pageSize, at%pageSize
		now := slices.Clone(orZero(i.cache[page]))
		n := copy(now[in:], data)
		i.cache[page], i.dirty[page] = now, true
		at, data = at+int64(n), data[n:]
	}
}

func (i *image) truncate(size int64) {
	i.size = size
	for page := range i.cache {
		switch keep := size - page*pageSize; {
		case keep <= 0:
			delete(i.cache, page)
			i.dirty[page] = true
		case keep < pageSize:
			now := make([]byte, pageSize)
			copy(now, i.cache[page][:keep])
			i.cache[page], i.dirty[page] = now, true
		}
	}
}

// flush has dirty pages on the medium, those that reaches says, and none is dirty any more.
func (i *image) flush(reaches func(page int64) bool) {
	for page := range i.dirty {
		if !reaches(page) {
			continue
		}
		if data := i.cache[page]; data != nil {
			i.medium[page] = data
		} else {
			delete(i.medium, page)
		}
	}
	clear(i.dirty)
	i.written = i.size
}

// clone returns a copy of a disk on which all is durable.
func (d *disk) clone() *disk {
	c := &disk{shown: map[string]*image{}, durable: map[string]*image{}, inodes: map[uint64]*image{}}
	for name, i := range d.shown {
		j := &image{cache: maps.Clone(i.cache), medium: maps.Clone(i.medium), dirty: map[int64]bool{}, size: i.size, written: i.written}
		c.shown[name], c.durable[name] = j, j
		for inode, is := range d.inodes {
			if is == i {
				c.inodes[inode] = j
			}
		}
	}
	return c
}

// lay writes the files of a disk, on which all is durable, into a directory.
func (d *disk) lay(dir string) error {
	clear(d.inodes)
	for name, i := range d.shown {
		path := filepath.Join(dir, name)
		if err := i.save(path); err != nil {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err != nil {
			return err
		}
		d.inodes[stat.Ino] = i
	}
	return nil
}

// doom says what a sync that fails has written.
type doom int

const (
	nothing doom = iota // and the next one will not try again
	some                // of it, and the same
	all
	later // nothing, and the next one will
	dooms
)

func (d doom) String() string { return [...]string{"nothing", "some", "all", "nothing yet"}[d] }

// apply takes a step.
func (d *disk) apply(dir string, s step, doom doom, random *rand.Rand) {
	base := func(path string) string { return strings.TrimPrefix(path, dir+"/") }
	switch s.name {
	case "write":
		d.of(s.file, base(s.file.path)).write(s.at, s.data)
	case "truncate":
		d.of(s.file, base(s.file.path)).truncate(s.at)
	case "sync", "fsync":
		if s.file.dir {
			d.syncNames(s)
		} else if !s.lied {
			d.of(s.file, base(s.file.path)).sync(s, doom, random)
		}
	default:
		if i := d.shown[base(s.from)]; i != nil {
			d.enter(entry{s.name, base(s.from), base(s.to), i})
		}
	}
}

// of returns a file. One of which nothing is known was made under its name.
func (d *disk) of(f file, name string) *image {
	i := d.inodes[f.inode]
	if i == nil || !f.gone && d.shown[name] != i {
		i = newImage()
		d.inodes[f.inode] = i
		d.enter(entry{name: "link", to: name, file: i})
	}
	return i
}

func (i *image) sync(s step, doom doom, random *rand.Rand) {
	switch {
	case !s.failed || doom == all:
		i.flush(func(int64) bool { return true })
	case doom != later:
		written := i.written
		i.flush(func(int64) bool { return doom == some && random.IntN(2) == 0 })
		i.written = written
	}
}

// syncNames makes names durable. One that fails may be tried again.
func (d *disk) syncNames(s step) {
	if s.failed || s.lied {
		return
	}
	for _, e := range d.entries {
		e.change(d.durable)
	}
	d.entries = nil
}

func (d *disk) enter(e entry) {
	e.change(d.shown)
	d.entries = append(d.entries, e)
}

func (e entry) change(names map[string]*image) {
	if e.name != "link" {
		delete(names, e.from)
	}
	if e.name != "unlink" {
		names[e.to] = e.file
	}
}

// cut writes into a directory what a power failure leaves: what is on the medium, and of the rest
// what happened to be written.
func (d *disk) cut(dir string, random *rand.Rand) error {
	names := maps.Clone(d.durable)
	for _, e := range d.entries[:random.IntN(len(d.entries)+1)] {
		e.change(names)
	}
	keeps := []int{0, 0, 50, 90, 100}[random.IntN(5)]
	for _, name := range slices.Sorted(maps.Keys(names)) {
		i, left := names[name], newImage()
		maps.Copy(left.medium, i.medium)
		left.written = i.written
		if random.IntN(2) == 0 {
			left.written = i.size
		}
		for _, page := range slices.Sorted(maps.Keys(i.dirty)) {
			torn := slices.Clone(orZero(i.medium[page]))
			for at := 0; at < pageSize; at += sector {
				if random.IntN(100) >= keeps {
					continue
				}
				if data := i.cache[page]; data != nil {
					copy(torn[at:at+sector], data[at:])
				} else {
					clear(torn[at : at+sector])
				}
			}
			left.medium[page] = torn
		}
		if err := left.save(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// save writes what is on the medium of a file.
func (i *image) save(path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	pages := slices.Sorted(maps.Keys(i.medium))
	for len(pages) > 0 { // those side by side at once
		n, data := 0, []byte(nil)
		for n < len(pages) && pages[n] == pages[0]+int64(n) {
			data = append(data, i.medium[pages[n]]...)
			n++
		}
		if _, err := unix.Pwritev(int(f.Fd()), [][]byte{data}, pages[0]*pageSize); err != nil {
			return err
		}
		pages = pages[n:]
	}
	return f.Truncate(i.written)
}

// same reports whether a directory has what the disk shows, empty files apart: whether no step
// is missing.
func (d *disk) same(dir string) error {
	for name, i := range d.shown {
		got, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		defer got.Close()
		info, err := got.Stat()
		if err != nil {
			return err
		}
		there := newImage()
		if err := there.read(got, info.Size()); err != nil {
			return err
		}
		if i.size != info.Size() {
			return fmt.Errorf("%s has %d bytes, and by the steps %d", name, info.Size(), i.size)
		}
		for page := range maps.Keys(merged(i.cache, there.cache)) {
			if !bytes.Equal(orZero(i.cache[page]), orZero(there.cache[page])) {
				return fmt.Errorf("page %d of %s is not what the steps say", page, name)
			}
		}
	}
	names, err := os.ReadDir(dir)
	for _, name := range names {
		info, infoErr := name.Info()
		if d.shown[name.Name()] == nil && infoErr == nil && info.Size() > 0 {
			err = errors.Join(err, fmt.Errorf("%s is there, and by the steps it is not", name.Name()))
		}
	}
	return err
}

func merged(a, b map[int64][]byte) map[int64][]byte {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

var zero = make([]byte, pageSize)

func orZero(page []byte) []byte {
	if page == nil {
		return zero
	}
	return page
}
