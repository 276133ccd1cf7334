//go:build linux

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
)

// disk is a directory, of which some is durable and the rest is in the system's cache.
type disk struct {
	files   map[*file]*content
	names   map[string]*file // that are durable
	entries []step           // changes of names that are not
}

type content struct {
	data    []byte // up to the last byte that was written; zeros follow
	size    int64
	changes []change // that are not durable
}

func newDisk(names map[string]*file) *disk {
	d := &disk{files: map[*file]*content{}, names: map[string]*file{}}
	for name, f := range names {
		d.names[name] = f
		d.files[f] = &content{data: slices.Clone(f.data), size: f.size}
	}
	return d
}

func (d *disk) of(f *file) *content {
	c := d.files[f]
	if c == nil {
		c = &content{}
		d.files[f] = c
	}
	return c
}

// apply takes a step.
func (d *disk) apply(s step) {
	switch s.kind {
	case stepChange:
		c := d.of(s.file)
		c.changes = append(c.changes, s.change)
	case stepSync:
		c := d.of(s.file)
		c.changes = slices.DeleteFunc(c.changes, func(w change) bool {
			if w.returned >= s.began {
				return false
			}
			c.put(w)
			return true
		})
	case stepLink, stepRename, stepUnlink:
		d.entries = append(d.entries, s)
	case stepSyncDir:
		for _, e := range d.entries {
			enter(d.names, e)
		}
		d.entries = nil
	}
}

// enter makes a change of names.
func enter(names map[string]*file, s step) {
	switch s.kind {
	case stepLink:
		names[s.to] = s.file
	case stepUnlink:
		delete(names, s.name)
	case stepRename:
		if names[s.name] == s.file {
			delete(names, s.name)
		}
		names[s.to] = s.file
	}
}

// put makes a change of a file.
func (c *content) put(w change) {
	if w.resizes {
		c.size = w.size
		c.data = c.data[:min(int64(len(c.data)), w.size)]
		return
	}
	c.write(w.at, w.data)
	c.size = max(c.size, w.end())
}

func (c *content) write(at int64, data []byte) {
	if end := at + int64(len(data)); end > int64(len(c.data)) {
		c.data = append(c.data, make([]byte, end-int64(len(c.data)))...)
	}
	copy(c.data[at:], data)
}

// state is a directory as a power failure may leave it.
type state struct {
	how   string
	files map[string]*content
}

// loss says which of the changes that are not durable are there.
type loss struct {
	*rand.Rand
	unit  int64 // that a write is torn into; 0 is none
	keeps func() bool
}

func (l loss) String() string { return fmt.Sprintf("torn into units of %d", l.unit) }

// draw draws what a power failure leaves.
func (d *disk) draw(random *rand.Rand) state {
	l := loss{Rand: random, unit: []int64{0, 512, 4096}[random.IntN(3)]}
	out := state{files: map[string]*content{}}
	n, all := 0, d.units(l.unit)
	percent := []int{0, 5, 30, 50, 70, 95, 100}[random.IntN(7)]
	one := 0
	if all > 0 {
		one = random.IntN(all)
	}
	how := random.IntN(6)
	l.keeps = func() bool {
		n++
		switch how {
		case 0:
			return n <= one // in order
		case 1:
			return n > one // the last are there, and the first are not
		case 2:
			return n != one+1 // all but one
		case 3:
			return n == one+1
		}
		return random.IntN(100) < percent
	}
	out.how = fmt.Sprintf("%d units of %d bytes (0: whole writes), way %d of keeping some, %d, %d%%", all, l.unit, how, one, percent)
	names := maps.Clone(d.names)
	// The names are those of some moment; or of none.
	moment, any := random.IntN(len(d.entries)+1), random.IntN(4) == 0
	for i, e := range d.entries {
		if any && random.IntN(2) == 0 || !any && i < moment {
			enter(names, e)
		}
	}
	contents := map[*file]*content{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f := names[name]
		if contents[f] == nil {
			contents[f] = d.of(f).leave(l)
		}
		out.files[name] = contents[f]
	}
	return out
}

// units are how many pieces may be lost, each by itself.
func (d *disk) units(unit int64) (n int) {
	for _, c := range d.files {
		for _, w := range c.changes {
			for range w.pieces(unit) {
				n++
			}
		}
	}
	return n
}

// pieces yields the parts of a write that the disk writes as one.
func (w change) pieces(unit int64) func(yield func(change) bool) {
	return func(yield func(change) bool) {
		if w.resizes || unit == 0 {
			yield(w)
			return
		}
		for from := w.at; from < w.end(); {
			to := min((from/unit+1)*unit, w.end())
			if !yield(change{at: from, data: w.data[from-w.at : to-w.at]}) {
				return
			}
			from = to
		}
	}
}

// leave returns what is left of a file.
func (c *content) leave(l loss) *content {
	out := &content{data: slices.Clone(c.data), size: c.size}
	for _, w := range c.changes {
		for p := range w.pieces(l.unit) {
			switch {
			case l.keeps():
				out.put(p)
			case !p.resizes && l.IntN(20) == 0:
				out.size = max(out.size, p.end()) // the size without what was written
			}
		}
	}
	if int64(len(out.data)) > out.size {
		out.data = out.data[:out.size]
	}
	return out
}

// write writes the state into a directory.
func (s state) write(dir string) error {
	for name, c := range s.files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, c.data, 0o600), os.Truncate(path, c.size)); err != nil {
			return err
		}
	}
	return nil
}

// shown are the names that processes see.
func (d *disk) shown() map[string]*file {
	names := maps.Clone(d.names)
	for _, e := range d.entries {
		enter(names, e)
	}
	return names
}

// same reports whether all that the processes did leaves what is in the directory.
func (d *disk) same(dir string) error {
	names := d.shown()
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(there) != len(names) {
		return fmt.Errorf("the directory has %v, and the record %v", there, names)
	}
	for name, f := range names {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		want := d.of(f).leave(loss{keeps: func() bool { return true }})
		if int64(len(got)) != want.size || !bytes.Equal(bytes.TrimRight(got, "\x00"), bytes.TrimRight(want.data, "\x00")) {
			return fmt.Errorf("%s has other content than the record says", name)
		}
	}
	return nil
}
