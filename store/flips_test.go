package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// With this flag each bit of the file is flipped, not one of every few bytes.
var allFlips = flag.Bool("flips.all", false, "flip every bit of the file")

// flipped is a small file in which one bit after the other is flipped, and what it holds.
type flipped struct {
	*testing.T
	n     int // events of a session
	path  string
	data  []byte
	keys  []store.Key
	texts map[store.Key]string // exports
	sees  map[store.Key]string // what Get shows
	list  string

	records map[string]string // by the keys of the file
	content map[int]bool      // offsets of keys and values, not of what pages say of them
	live    []int             // offsets that are in use, but those of the meta pages
}

var flipOptions = store.Options{
	Durability: store.Relaxed, LockTimeout: 100 * time.Millisecond,
	Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
}

// events are what each session holds.
func (f *flipped) events(k store.Key) []*patch.Event {
	events := says(k.Session, f.n-1)
	return append(events, sets(k.Session+fmt.Sprint(f.n), `{"own":"5","app:x":"x of `+k.App+`","user:y":"y of `+k.User+`"}`))
}

// newFlipped makes a file with three sessions of n events.
func newFlipped(t *testing.T, n int) *flipped {
	f := &flipped{
		T: t, n: n, path: filepath.Join(t.TempDir(), "log.db"), texts: map[store.Key]string{}, sees: map[store.Key]string{}, content: map[int]bool{},
		keys: []store.Key{{App: "app1", User: "ann", Session: "a"}, {App: "app1", User: "bob", Session: "b"}, {App: "app2", User: "cid", Session: "c"}},
	}
	s := f.open()
	for _, k := range f.keys {
		_, err := s.Create(ctx, k, map[string]any{"tenant": "of " + k.Session})
		f.no(err)
		for _, e := range f.events(k) {
			_, err := s.AppendEvents(ctx, k, store.AppendOptions{}, e)
			f.no(err)
		}
	}
	f.no(s.Close())
	for _, k := range f.keys { // one after the other, so that the file is the same each time
		withSnapshots := flipOptions
		withSnapshots.Snapshots = snapshot.Policy{Every: 4, Share: 1}
		s, err := store.Open(f.path, withSnapshots)
		f.no(err)
		_, err = s.Get(ctx, k)
		f.no(err)
		f.no(s.Close())
	}
	s = f.open()
	for _, k := range f.keys {
		f.texts[k], _ = exported(s, k)
		f.sees[k], _ = seen(s, k)
	}
	f.list = strings.Join(slices.Sorted(func(yield func(string) bool) {
		for i, err := range s.List(ctx, store.ListOptions{}) {
			f.no(err)
			if !yield(fmt.Sprint(i.Key, " ", i.Seq)) {
				return
			}
		}
	}), "\n")
	f.no(s.Close())
	f.compact()
	f.records = rowsOf(f.path)
	f.layout()
	return f
}

// compact puts the pages of the file in order, so that they are the same each time.
func (f *flipped) compact() {
	packed := f.path + ".packed"
	from, err := bbolt.Open(f.path, 0o600, nil)
	f.no(err)
	to, err := bbolt.Open(packed, 0o600, nil)
	f.no(err)
	f.no(errors.Join(bbolt.Compact(to, from, 0), to.Close(), from.Close(), os.Rename(packed, f.path)))
}

func (f *flipped) no(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *flipped) open() *store.Store {
	f.Helper()
	s, err := store.Open(f.path, flipOptions)
	f.no(err)
	return s
}

func exported(s *store.Store, k store.Key) (string, error) {
	var text bytes.Buffer
	err := s.Export(ctx, k, &text, store.ExportOptions{})
	return text.String(), err
}

func seen(s *store.Store, k store.Key) (string, error) {
	session, err := s.Get(ctx, k)
	if err != nil {
		return "", err
	}
	state := session.State()
	return fmt.Sprint(ids(session.View), state), nil
}

// layout finds out which bytes of the file are in use, and what for.
func (f *flipped) layout() {
	db, err := bbolt.Open(f.path, 0o600, nil)
	f.no(err)
	defer db.Close()
	f.no(db.View(func(tx *bbolt.Tx) error {
		pageSize := db.Info().PageSize
		data, err := os.ReadFile(f.path)
		f.no(err)
		f.data = data[:tx.Size()]
		var pages []int
		for id := 2; id < len(f.data)/pageSize; id++ {
			p, err := tx.Page(id)
			f.no(err)
			if p == nil || p.Type != "leaf" && p.Type != "branch" {
				continue
			}
			pages = append(pages, id)
			for at := range 16 + 16*p.Count {
				f.live = append(f.live, id*pageSize+at)
			}
		}
		note := func(b []byte) {
			for _, id := range pages {
				if i := bytes.Index(f.data[id*pageSize:(id+1)*pageSize], b); i >= 0 {
					for at := range len(b) {
						f.live = append(f.live, id*pageSize+i+at)
						f.content[id*pageSize+i+at] = true
					}
				}
			}
		}
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				note(append(bytes.Clone(k), v...))
				return nil
			})
		})
	}))
	// Small buckets stand in the root page with pages of their own; what is between their
	// keys and values says where those are.
	slices.Sort(f.live)
	f.live = slices.Compact(f.live)
	for i := range len(f.live) - 1 {
		for at := f.live[i] + 1; at < f.live[i+1] && at-f.live[i] < 512; at++ {
			if f.data[at] != 0 {
				f.live = append(f.live, at)
			}
		}
	}
	slices.Sort(f.live)
}

// Whatever bit of the file flips: what can be read is true, what cannot says so, and
// nothing that is written then makes it worse.
func TestAnyFlippedBit(t *testing.T) {
	f := newFlipped(t, 5)
	f.flips(f.live, 5)
}

// In a file of more pages, each bit of what says where pages and keys are.
func TestAnyFlippedBitOfTheTree(t *testing.T) {
	f := newFlipped(t, 60)
	f.flips(slices.DeleteFunc(slices.Clone(f.live), func(at int) bool { return f.content[at] }), 37)
}

// The key of a log's last record: the log's end was what it says.
func TestFlippedKeyOfTheLastRecord(t *testing.T) {
	f := newFlipped(t, 5)
	for _, k := range slices.Sorted(maps.Keys(f.records))[4:5] {
		at := bytes.Index(f.data, []byte(k+f.records[k]))
		for i := range 128 {
			f.flip(at+i/8, 1<<(i%8))
		}
	}
}

// A key that becomes one of another session, or of another record.
func TestFlippedKeyThatBecomesAnother(t *testing.T) {
	f := newFlipped(t, 5)
	for _, k := range slices.Sorted(maps.Keys(f.records)) {
		at := bytes.Index(f.data, []byte(k+f.records[k]))
		for bit := range 3 {
			f.flip(at+7, 1<<bit)
			f.flip(at+15, 1<<bit)
		}
	}
}

// A key that becomes one of another session, whose own record has another key by now: no search
// finds two of them.
func TestFlippedKeyThatTakesAPlace(t *testing.T) {
	f := newFlipped(t, 5)
	keys := slices.Sorted(maps.Keys(f.records))
	place := func(k string) int { return bytes.Index(f.data, []byte(k+f.records[k])) }
	for _, from := range keys {
		for _, to := range keys {
			if from[:8] != to[:8] && from[8:] == to[8:] {
				f.flipBoth(place(from)+7, from[7]^to[7], place(to)+6, 1)
			}
		}
	}
}

// flips flips a bit of one of so many bytes, or all bits of all.
func (f *flipped) flips(places []int, every int) {
	if testing.Short() {
		every = 4*every + 1
	}
	if testlog.Race { // it is code of one goroutine
		every = 4*every + 1
	}
	f.Helper()
	tried, changed := 0, 0
	for i, at := range places {
		for bit := range 8 {
			if *allFlips || i%every == 0 && bit == i/every%8 {
				tried++
				if f.flip(at, 1<<bit) {
					changed++
				}
			}
		}
	}
	if changed < tried/4 {
		f.Errorf("of %d flips only %d changed an answer; the test tests little", tried, changed)
	}
	f.Logf("%d bytes are in use; of %d flips in %d of them %d changed an answer", len(f.live), tried, len(places), changed)
}

// flip tries one flip, and reports whether it changed an answer.
func (f *flipped) flip(at int, mask byte) (changed bool) {
	f.Helper()
	return f.flipBoth(at, mask, at, 0)
}

func (f *flipped) flipBoth(at int, mask byte, second int, mask2 byte) (changed bool) {
	f.Helper()
	data := bytes.Clone(f.data)
	data[at] ^= mask
	data[second] ^= mask2
	f.no(os.WriteFile(f.path, data, 0o600))
	rows := rowsOf(f.path)
	s, err := store.Open(f.path, flipOptions)
	if err != nil {
		return true
	}
	c := &flipCase{flipped: f, s: s, what: fmt.Sprintf("byte %d (page %d) ^ %#x", at, at/os.Getpagesize(), mask)}
	c.rows, c.listed = rows, len(f.keys)-1
	if mask2 != 0 {
		c.listed--
	}
	c.read(f.content[at])
	c.write()
	c.bad(s.Close(), "Close")
	c.after()
	return c.damaged > 0
}

// flipCase is a store on a file with one bit flipped.
type flipCase struct {
	*flipped
	s       *store.Store
	what    string
	damaged int // answers that are errors
	listed  int // sessions that can be listed, at least
	rows    map[string]string
	added   map[store.Key]bool
}

func (c *flipCase) bad(err error, what string) {
	if err != nil {
		c.Errorf("%s: %s: %v", c.what, what, err)
	}
}

// corrupt reports whether there is an error, which must be that of damage.
func (c *flipCase) corrupt(err error, what string, k store.Key) bool {
	if err == nil {
		return false
	}
	if c.damaged++; !errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) || k != (store.Key{}) && !strings.Contains(err.Error(), k.String()) {
		c.Errorf("%s: %s of %s: %v", c.what, what, k, err)
	}
	return true
}

func (c *flipCase) read(content bool) {
	unreadable := 0
	for _, k := range c.keys {
		if sees, err := seen(c.s, k); !c.corrupt(err, "Get", k) && sees != c.sees[k] {
			c.Errorf("%s: %s shows %s, want %s", c.what, k, sees, c.sees[k])
		}
		text, err := exported(c.s, k)
		if c.corrupt(err, "Export", k) {
			unreadable++
		} else if text != c.texts[k] {
			c.Errorf("%s: %s exports\n%s, want\n%s", c.what, k, text, c.texts[k])
		}
		n := uint64(0)
		for r, err := range c.s.RawEvents(ctx, k, 1) {
			if c.corrupt(err, "RawEvents", k) {
				n = uint64(c.n)
				break
			}
			if n++; r.Seq != n || r.ID() != fmt.Sprint(k.Session, n) {
				c.Errorf("%s: record %d of %s is %d, %s", c.what, n, k, r.Seq, r.ID())
			}
		}
		if n != uint64(c.n) {
			c.Errorf("%s: %d records of %s, and no error", c.what, n, k)
		}
	}
	var listed []string
	errs := 0
	for i, err := range c.s.List(ctx, store.ListOptions{}) {
		if err != nil {
			c.corrupt(err, "List", i.Key)
			errs++
			continue
		}
		listed = append(listed, fmt.Sprint(i.Key, " ", i.Seq))
	}
	for _, line := range listed {
		if !strings.Contains(c.list, line) {
			c.Errorf("%s: %s is listed", c.what, line)
		}
	}
	if len(listed) < len(c.keys) && errs == 0 {
		c.Errorf("%s: only %s are listed, and no error", c.what, listed)
	}
	if content && (unreadable > c.atFault() || len(listed) < c.listed) {
		c.Errorf("%s: %d sessions cannot be read, %v can be listed", c.what, unreadable, listed)
	}
	found := 0
	for range c.s.Verify(ctx, store.VerifyOptions{}) {
		found++
	}
	if c.damaged > 0 && found == 0 {
		c.Errorf("%s: Verify finds nothing", c.what)
	}
}

// atFault returns how many sessions have a row that is not theirs, or lack one: two if a
// record has got a key of another session.
func (c *flipCase) atFault() int {
	for k, v := range c.rows {
		for own, record := range c.records {
			if v == record && k[:8] != own[:8] {
				return 2
			}
		}
	}
	return 1
}

// write does what a service would do that knows of no damage.
func (c *flipCase) write() {
	c.added = map[store.Key]bool{}
	for _, k := range c.keys {
		for i, e := range c.events(k) {
			done, err := c.s.AppendEvents(ctx, k, store.AppendOptions{}, e)
			if !c.corrupt(err, "a retry", k) && done.Records[0].Seq != uint64(i+1) {
				c.Errorf("%s: a retry of %s, event %d, landed at %d", c.what, k, i+1, done.Records[0].Seq)
			}
		}
		if _, err := c.s.Create(ctx, k, nil); !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrCorrupt) {
			c.Errorf("%s: Create of %s: %v", c.what, k, err)
		}
		imported, err := c.s.Import(ctx, k, strings.NewReader(c.texts[k]), store.ImportOptions{})
		if !c.corrupt(err, "Import", k) && (imported.Created || imported.Added != 0) {
			c.Errorf("%s: Import of %s: %+v", c.what, k, imported)
		}
		_, err = c.s.AppendEvents(ctx, k, store.AppendOptions{}, say(fmt.Sprint(k.Session, c.n+1)))
		c.added[k] = !c.corrupt(err, "AppendEvents", k)
	}
	other := store.Key{App: "app1", User: "ann", Session: "new"}
	_, err := c.s.Create(ctx, other, nil)
	if !c.corrupt(err, "Create", other) {
		_, err = c.s.AppendEvents(ctx, other, store.AppendOptions{}, say("a1"), say("a2"))
		c.corrupt(err, "AppendEvents", other)
	}
}

// after checks what the file holds when all has been written.
func (c *flipCase) after() {
	s, err := store.Open(c.path, flipOptions)
	if err != nil {
		c.Errorf("%s: it does not open again: %v", c.what, err)
		return
	}
	for _, k := range c.keys {
		n := 0
		var failure error
		for r, err := range s.RawEvents(ctx, k, 1) {
			if failure = err; err != nil {
				break
			}
			if n++; r.ID() != fmt.Sprint(k.Session, n) {
				c.Errorf("%s: afterwards record %d of %s is %s", c.what, n, k, r.ID())
			}
		}
		switch {
		case c.added[k] && (failure != nil || n != c.n+1):
			c.Errorf("%s: afterwards %d records of %s, %v, where one was added", c.what, n, k, failure)
		case failure == nil && n < c.n:
			c.Errorf("%s: afterwards %d records of %s, and no error", c.what, n, k)
		}
	}
	c.bad(s.Close(), "Close")
	rows := rowsOf(c.path)
	for k, v := range c.rows {
		if whole, ok := c.records[k]; ok && whole == v && rows[k] != v { // it was whole before
			c.Errorf("%s: record %x was %.60q and is %.60q", c.what, k, v, rows[k])
		}
	}
}

// rowsOf returns the records in a file that no store has open, as many as can be read. It
// reads the bytes itself: what bbolt would show of a damaged page is whatever its memory
// map happens to hold.
func rowsOf(path string) (rows map[string]string) {
	rows = map[string]string{}
	data, err := os.ReadFile(path)
	if err != nil {
		return rows
	}
	f := rawFile{data: data, size: os.Getpagesize(), seen: map[uint64]bool{}}
	var root, txid uint64
	for id := range 2 { // the newer meta page: magic 4, version 4, page size 4, flags 4, root 8, …, txid 8
		meta := data[id*f.size+16:]
		if n := binary.NativeEndian.Uint64(meta[48:]); id == 0 || n > txid {
			root, txid = binary.NativeEndian.Uint64(meta[16:]), n
		}
	}
	f.walk(root, func(key, value []byte) {
		if string(key) == "records" && len(value) >= 16 {
			if id := binary.NativeEndian.Uint64(value); id != 0 {
				f.walk(id, func(key, value []byte) { rows[string(key)] = string(value) })
			} else {
				f.page(value[16:], func(key, value []byte) { rows[string(key)] = string(value) })
			}
		}
	})
	return rows
}

// rawFile is the pages of a file, whatever they hold.
type rawFile struct {
	data []byte
	size int
	seen map[uint64]bool
}

func (f rawFile) walk(id uint64, visit func(key, value []byte)) {
	if at := id * uint64(f.size); id < 2 || f.seen[id] || at+16 > uint64(len(f.data)) {
		return
	} else {
		f.seen[id] = true
		f.page(f.data[at:], visit)
	}
}

func (f rawFile) page(page []byte, visit func(key, value []byte)) {
	if len(page) < 16 {
		return
	}
	flags, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	for i := range count {
		at := uint64(16 + 16*i)
		if at+16 > uint64(len(page)) {
			return
		}
		word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(page[at+uint64(4*i):])) }
		if flags == 1 { // a branch
			f.walk(binary.NativeEndian.Uint64(page[at+8:]), visit)
			continue
		}
		key, value := at+word(1), at+word(1)+word(2)
		if end := value + word(3); end <= uint64(len(page)) {
			visit(page[key:value], page[value:end])
		}
	}
}
