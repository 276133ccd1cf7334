package bolt_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// longRecords returns n records that are long. A file with these records has more pages and more rows than one
// transaction of Check reads.
func longRecords(after uint64, n int) (out []backend.Record) {
	for i := range uint64(n) {
		seq := after + i + 1
		out = append(out, backend.Record{Seq: seq, IDs: []string{fmt.Sprint("id", seq)}, Data: fmt.Appendf(nil, "record %0400d", seq)})
	}
	return out
}

// fillPages creates a file with two sessions of n long records each.
func fillPages(t *testing.T, n int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log.db")
	b := open(t, path)
	for _, name := range []string{"a", "b"} {
		testlog.NoError(t, b.Append(ctx, name, backend.Batch{Creation: "c", Create: true, Shared: []backend.Value{{Name: "shared by " + name, Data: []byte("value")}}}))
		for after := 0; after < n; after += 500 {
			testlog.NoError(t, b.Append(ctx, name, backend.Batch{Creation: "c", ExpectedLast: uint64(after), Records: longRecords(uint64(after), min(500, n-after))}))
		}
		testlog.NoError(t, b.PutSnapshot(ctx, name, "c", backend.Snapshot{Seq: 1, Data: bytes.Repeat([]byte("s"), 9000)}))
	}
	var values []backend.Value
	for i := range 300 {
		values = append(values, backend.Value{Name: fmt.Sprintf("value %0100d", i), Data: []byte("value")})
	}
	testlog.NoError(t, b.Append(ctx, "c", backend.Batch{Creation: "c", Create: true, Shared: values}))
	testlog.NoError(t, b.Append(ctx, "gone", backend.Batch{Creation: "c", Create: true, Records: longRecords(0, 500)}))
	testlog.NoError(t, b.Delete(ctx, "gone", "c", nil))
	testlog.NoError(t, b.Close())
	return path
}

// hookContext is a context that calls onCheck on each call of Done or Err. Check holds no transaction at these
// moments. The argument acquiring is true on a call of Done, which means that Check is about to acquire a lock.
type hookContext struct {
	context.Context
	onCheck func(acquiring bool)
}

func (p hookContext) Done() <-chan struct{} { p.onCheck(true); return p.Context.Done() }
func (p hookContext) Err() error            { p.onCheck(false); return p.Context.Err() }

// Check reports no inconsistency while other calls write, delete and create sessions. Check releases the writer lock
// between its transactions.
func TestCheckDuringWrites(t *testing.T) {
	t.Parallel()
	path := fillPages(t, 6000)
	b := open(t, path)
	defer func() { testlog.NoError(t, b.Close()) }()
	for i := range 40 {
		name := fmt.Sprint("new", i+1)
		testlog.NoError(t, errors.Join(appendStaged(b, name, 0, longRecords(0, 1)),
			b.Append(ctx, "old "+name, backend.Batch{Creation: "c", Create: true, Records: longRecords(0, 1)})))
	}
	last, steps := uint64(6000), 0
	step := func(bool) {
		// Writing returns true only at the beginning, while Check has the writer lock.
		if steps == 40 || b.Writing() {
			return
		}
		steps++
		name := fmt.Sprint("new", steps)
		testlog.NoError(t, errors.Join(
			b.Append(ctx, "a", backend.Batch{Creation: "c", ExpectedLast: last, Records: longRecords(last, 3), Shared: []backend.Value{{Name: name, Data: []byte(name)}}}),
			b.Append(ctx, name, backend.Batch{Creation: "c", Create: true, Records: longRecords(0, 2)}),
			b.PutSnapshot(ctx, name, "c", backend.Snapshot{Seq: 1, Data: []byte("snapshot")}),
			appendStaged(b, "staged", uint64(steps-1), longRecords(uint64(steps-1), 1)),
			// This Append makes the staged session visible, and the next line deletes an existing session.
			b.Append(ctx, "was "+name, backend.Batch{Creation: name, Create: true, RenameFrom: "staged " + name, ExpectedLast: 1, Records: longRecords(1, 1)}),
			b.Delete(ctx, "old "+name, "c", nil),
		))
		last += 3
		switch {
		case steps == 5:
			testlog.NoError(t, b.Delete(ctx, "b", "c", nil))
			testlog.NoError(t, b.Append(ctx, "b", backend.Batch{Creation: "again", Create: true, Records: longRecords(0, 1)}))
		case steps%2 == 0:
			testlog.NoError(t, b.Delete(ctx, name, "c", nil))
		}
	}
	failIfHangs(t, "Check", func() {
		testlog.WantNil(t, b.Check(hookContext{ctx, step}))
	})
	if steps < 40 {
		t.Errorf("%d steps, want at least 40, or the test proves nothing", steps)
	}
	testlog.NoError(t, b.Check(ctx))
}

// If a session is deleted during a check, its rows stay until the check ends. If the check is cancelled, they are
// removed then.
func TestCheckCancelled(t *testing.T) {
	b := open(t, fillPages(t, 3000))
	defer func() { testlog.NoError(t, b.Close()) }()
	countRows := func() (rows int) {
		inReadTx(t, b, func(tx *bbolt.Tx) { rows = rowsOf(tx) })
		return rows
	}
	const perSession = 3000 + 1 // the records and a snapshot
	cancelled, cancel := context.WithCancel(ctx)
	locks, reads := 0, 0
	err := b.Check(hookContext{cancelled, func(acquiring bool) {
		if acquiring {
			locks++
			return
		}
		if locks < 2 {
			return
		}
		if reads++; reads == 5 { // Check now begins its fifth read transaction
			testlog.NoError(t, b.Delete(ctx, "a", "c", nil))
			testlog.Equal(t, "rows during the check", countRows(), 2*perSession)
			cancel()
		}
	}})
	testlog.ErrorIs(t, err, context.Canceled, "Check")
	testlog.Equal(t, "rows after the check", countRows(), perSession)
	testlog.NoError(t, b.Check(ctx))
}

// layout describes where the pages of a file are.
type layout struct {
	file     []byte
	page     int
	root     int            // the page whose elements are the buckets
	freelist int            // the first page of the free list
	branches map[string]int // key: bucket; value: the number of a branch page, if the bucket has branch pages
	leaves   map[string][]int
}

func readLayout(t *testing.T, path string) *layout {
	t.Helper()
	l := &layout{page: os.Getpagesize(), branches: map[string]int{}, leaves: map[string][]int{}}
	db := testlog.Must(bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true}))(t)
	testlog.NoError(t, errors.Join(db.View(func(tx *bbolt.Tx) error {
		l.file = make([]byte, tx.Size())
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			l.branches[string(name)] = -int(bucket.Root())
			return nil
		})
	}), db.Close()))
	content := testlog.Must(os.ReadFile(path))(t)
	copy(l.file, content)
	for name, root := range l.branches {
		delete(l.branches, name)
		if root != 0 {
			l.addPages(name, -root)
		}
	}
	meta := l.file[16:]
	if other := l.file[l.page+16:]; binary.NativeEndian.Uint64(other[48:]) > binary.NativeEndian.Uint64(meta[48:]) {
		meta = other
	}
	l.root, l.freelist = int(binary.NativeEndian.Uint64(meta[16:])), int(binary.NativeEndian.Uint64(meta[32:]))
	return l
}

func (l *layout) at(id int) []byte    { return l.file[id*l.page : (id+1)*l.page] }
func (l *layout) count(id int) int    { return int(binary.NativeEndian.Uint16(l.at(id)[10:])) }
func (l *layout) child(id, i int) int { return int(binary.NativeEndian.Uint64(l.at(id)[16+16*i+8:])) }
func (l *layout) setChild(id, i, to int) {
	binary.NativeEndian.PutUint64(l.at(id)[16+16*i+8:], uint64(to))
}
func (l *layout) freeEntry(i int) []byte { return l.at(l.freelist)[16+8*i:] }
func (l *layout) freePage(i int) int     { return int(binary.NativeEndian.Uint64(l.freeEntry(i))) }
func (l *layout) setFreePage(i int, id int) {
	binary.NativeEndian.PutUint64(l.freeEntry(i), uint64(id))
}

// key returns the key of an element of a leaf.
func (l *layout) key(id, i int) string {
	element := l.file[id*l.page+16+16*i:]
	key := element[binary.NativeEndian.Uint32(element[4:]):]
	return string(key[:binary.NativeEndian.Uint32(element[8:])])
}

func (l *layout) addPages(name string, id int) {
	if binary.NativeEndian.Uint16(l.at(id)[8:]) != 1 {
		l.leaves[name] = append(l.leaves[name], id)
		return
	}
	l.branches[name] = id // the branch page stored last is the parent of leaves
	for i := range l.count(id) {
		l.addPages(name, l.child(id, i))
	}
}

// bucket finds the first bucket that is not inline. It returns the root page and two offsets in that page, the
// offset of the bucket's element and the offset of its value.
func (l *layout) bucket() (root []byte, pos, value int) {
	root = l.at(l.root)
	for pos = 16 + 4; value == 0 || binary.NativeEndian.Uint64(root[value:]) == 0; pos += 16 {
		value = pos - 4 + int(binary.NativeEndian.Uint32(root[pos:])) + int(binary.NativeEndian.Uint32(root[pos+4:]))
	}
	return root, pos - 16, value
}

// Check reports every damaged page, except that damage of the root page is detected when the file is opened.
func TestCheckPages(t *testing.T) {
	t.Parallel()
	path := fillPages(t, 3000)
	original := testlog.Must(os.ReadFile(path))(t)
	for name, c := range map[string]struct {
		damage  func(l *layout)
		wantErr string
	}{
		"none": {func(l *layout) {}, ""},
		"a leaf referenced twice": {func(l *layout) {
			b := l.branches["records"]
			l.setChild(b, 1, l.child(b, 0))
		}, "is referenced twice"},
		"a leaf of another bucket": {func(l *layout) { l.setChild(l.branches["records"], 1, l.leaves["shared"][0]) }, "is referenced twice"},
		"leaves exchanged": {func(l *layout) {
			b := l.branches["shared"]
			one, two := l.child(b, 0), l.child(b, 1)
			l.setChild(b, 0, two)
			l.setChild(b, 1, one)
		}, "its first key is"},
		"a circle": {func(l *layout) {
			for _, bucket := range []string{"records", "shared"} {
				b := l.branches[bucket]
				l.setChild(b, l.count(b)/2, b)
			}
		}, "damaged"},
		"a circle of all children": {func(l *layout) {
			b := l.branches["records"]
			for i := range l.count(b) {
				l.setChild(b, i, b)
			}
		}, "damaged"},
		"beyond the end": {func(l *layout) { l.setChild(l.branches["shared"], 0, 1<<30) }, "the file has only pages 2 to"},
		"another number": {func(l *layout) {
			at := l.at(l.leaves["records"][700])
			binary.NativeEndian.PutUint64(at, 7)
		}, "its header has page number 7"},
		"too long": {func(l *layout) {
			binary.NativeEndian.PutUint32(l.at(l.leaves["records"][700])[12:], 1<<30)
		}, "overflow pages, in a file of"},
		"keys out of order": {func(l *layout) {
			leaf := l.at(l.leaves["records"][700])
			at := 16 + 16 + int(binary.NativeEndian.Uint32(leaf[16+16+4:])) // offset of the second element's key
			leaf[at+8] = 0xff
		}, "out of order"},
		"a key beyond its parent's": {func(l *layout) {
			id := l.leaves["records"][700]
			leaf, last := l.at(id), 16+16*(l.count(id)-1)
			leaf[last+int(binary.NativeEndian.Uint32(leaf[last+4:]))+8] = 0xff
		}, "out of order"},
		"an empty leaf": {func(l *layout) {
			leaf := l.at(l.leaves["records"][700])
			clear(leaf[10:12])
			clear(leaf[16:])
		}, "it is empty"},
		"a row marked as a bucket":                   {func(l *layout) { l.at(l.leaves["records"][700])[16] = 1 }, "has the flags 0x1"},
		"a bucket amid a session's rows":             {func(l *layout) { l.at(l.leaves["records"][300])[16] ^= 1 }, "has the flags 0x1"},
		"a bucket in the last leaf of a transaction": {func(l *layout) { l.at(l.leaves["records"][511])[16] ^= 1 }, "has the flags 0x1"},
		"a bucket in the first leaf of the next one": {func(l *layout) { l.at(l.leaves["records"][512])[16] ^= 1 }, "has the flags 0x1"},
		"a free page in use": {func(l *layout) {
			for i, n := 0, l.count(l.freelist); i < n; i++ { // replace an entry of the free list by a page in use, so that the list still ascends
				for _, id := range l.leaves["records"] {
					if (i == 0 || id > l.freePage(i-1)) && (i+1 == n || id < l.freePage(i+1)) {
						l.setFreePage(i, id)
						return
					}
				}
			}
			t.Error("no page in use is between two free ones")
		}, "in the list of free pages"},
		"a page freed twice":             {func(l *layout) { copy(l.freeEntry(1)[:8], l.freeEntry(0)) }, "the list of free pages: page"},
		"a free page beyond the end":     {func(l *layout) { l.setFreePage(l.count(l.freelist)-1, 1<<30) }, "the list of free pages: page"},
		"a list that is no list":         {func(l *layout) { l.at(l.freelist)[8] = 2 }, "its flags are 0x2"},
		"a list of another number":       {func(l *layout) { l.at(l.freelist)[0]++ }, "the list of free pages: its header has page number"},
		"a list that counts too many":    {func(l *layout) { l.at(l.freelist)[10], l.at(l.freelist)[11] = 0xff, 0xff }, "the list of free pages: it counts"},
		"a list that goes on for a page": {func(l *layout) { l.at(l.freelist)[12] = 1 }, "the list of free pages"},
		"root: a bucket in a free page": {func(l *layout) {
			root, _, value := l.bucket()
			copy(root[value:], l.freeEntry(0)[:8])
		}, "damaged"},
		"root: two buckets in a page": {func(l *layout) {
			root, _, value := l.bucket()
			copy(root[value:], root[:8])
		}, "damaged"},
		"root: a bucket elsewhere": {func(l *layout) {
			root, pos, _ := l.bucket()
			root[pos]++
		}, "damaged"},
		"root: it goes on for a page":  {func(l *layout) { l.at(l.root)[12] = 1 }, "damaged"},
		"a list that goes on for ever": {func(l *layout) { l.at(l.freelist)[15] = 0x7f }, "overflow pages, in a file of"},
	} {
		t.Run(name, func(t *testing.T) {
			testlog.NoError(t, os.WriteFile(path, original, 0o600))
			l := readLayout(t, path)
			c.damage(l)
			file := testlog.Must(os.OpenFile(path, os.O_WRONLY, 0))(t)
			testlog.NoError(t, errors.Join(testlog.ErrorOf(file.WriteAt(l.file[2*l.page:], int64(2*l.page))), file.Close()))
			failIfHangs(t, "Check", func() {
				b, err := bolt.Open(path, bolt.Options{Logger: discardLogger})
				if err == nil { // Open did not detect the damage, so Check must
					defer b.Close()
					if strings.HasPrefix(name, "root: ") {
						t.Error("the file was opened")
					}
					err = b.Check(ctx)
				}
				switch {
				case c.wantErr == "" && err != nil:
					t.Errorf("Check: %v", err)
				case strings.HasPrefix(c.wantErr, "has the flags") && err != nil && strings.Count(err.Error(), "has the flags") != 1:
					t.Errorf("Check reports it more than once: %v", err)
				case c.wantErr != "" && (!errors.Is(err, backend.ErrDamaged) || !strings.Contains(err.Error(), c.wantErr)):
					t.Errorf("Check: error %v, want one with %q", err, c.wantErr)
				}
			})
		})
	}
}

// A write is refused if the first key of its branch page was changed, even if the key to write is less than all keys
// of the page.
func TestWriteBeforeFirstKey(t *testing.T) {
	t.Parallel()
	b, path := openWithSession(t)
	testlog.NoError(t, b.Append(ctx, "b", backend.Batch{Creation: "c", Create: true, Records: longRecords(0, 20)}))
	testlog.NoError(t, b.Close())
	l := readLayout(t, path)
	branch := l.at(l.branches["records"])
	key := 16 + int(binary.NativeEndian.Uint32(branch[16:]))
	branch[key+15] = 0x80 // turn the seq in the key into another seq of session "a"
	testlog.NoError(t, os.WriteFile(path, l.file, 0o600))
	b = open(t, path)
	testlog.ErrorIs(t, b.Append(ctx, "a", batch(1)), backend.ErrDamaged, "Append")
	testlog.NoError(t, b.Close())
	testlog.NoError(t, open(t, path).Close()) // Open does not detect the damage
}

// If damage gives a leaf overflow pages that belong to other pages, writes do not copy the leaf. If a write copied
// the leaf, bbolt would free the other pages. If those pages are freed later, the file can still be opened.
func TestOverflowIntoOtherPages(t *testing.T) {
	t.Parallel()
	b, path := openWithSession(t)
	create := func(name string, records ...backend.Record) {
		testlog.NoError(t, b.Append(ctx, name, backend.Batch{Creation: "c", Create: true, Records: records}))
	}
	create("large", backend.Record{Seq: 1, IDs: []string{"id1"}, Data: make([]byte, 10_000)})
	create("between", longRecords(0, 100)...)
	create("b", longRecords(0, 100)...)
	testlog.NoError(t, b.Close())
	l := readLayout(t, path)
	leaves := l.leaves["records"]
	leaf, other := 0, leaves[len(leaves)-1] // the last leaf of session "b"
	for _, id := range leaves {
		if binary.NativeEndian.Uint32(l.at(id)[12:]) > 0 {
			leaf = id
		}
	}
	if other <= leaf {
		t.Fatal("no leaf of b follows the one with overflow pages")
	}
	at := l.at(leaf)
	more := uint32(other - leaf - int(binary.NativeEndian.Uint32(at[12:])))
	last := at[16+16*(l.count(leaf)-1):]
	binary.NativeEndian.PutUint32(at[12:], binary.NativeEndian.Uint32(at[12:])+more)
	binary.NativeEndian.PutUint32(last[12:], binary.NativeEndian.Uint32(last[12:])+more*uint32(l.page))
	testlog.NoError(t, os.WriteFile(path, l.file, 0o600))
	b = open(t, path)
	err := b.Append(ctx, "large", backend.Batch{Creation: "c", ExpectedLast: 1, Records: longRecords(1, 1)})
	testlog.ErrorIs(t, err, backend.ErrDamaged, "Append")
	testlog.Equal(t, "outcome unknown", errors.Is(err, backend.ErrUnknown), false)
	testlog.NoError(t, b.Delete(ctx, "b", "c", nil))
	create("b", longRecords(0, 200)...)
	testlog.NoError(t, b.Close())
	b = open(t, path)
	testlog.ErrorIs(t, b.Check(ctx), backend.ErrDamaged, "Check")
	testlog.NoError(t, b.Close())
}
