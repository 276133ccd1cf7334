//go:build linux

package power

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchlog-dev/patchlog/internal/command"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// op is one call. What it does follows from it alone, so that it can be tried again.
type op struct {
	N       int
	Name    string // of the op; its records' ids begin with it
	Kind    string
	Session string            `json:",omitempty"` // a key
	Life    int               `json:",omitempty"` // which of the sessions that go by this key one after another
	From    string            `json:",omitempty"` // the key that is forked
	Of      string            `json:",omitempty"` // the patch or invocation that is taken back
	Erases  []string          `json:",omitempty"` // ids of events
	Shared  string            `json:",omitempty"` // a key of a shared scope that it sets to its name
	Records []json.RawMessage `json:",omitempty"` // what it offers
	offered []patch.Record    // the same
	File    string            `json:",omitempty"` // of a backup
}

// Kinds of ops.
const (
	kindCreate   = "create"
	kindAppend   = "append"
	kindPatch    = "patch"
	kindImport   = "import"
	kindFork     = "fork"
	kindDelete   = "delete"
	kindTakeBack = "take back" // a patch and its group
	kindRewind   = "rewind"
	kindErase    = "erase"
	kindVacuum   = "vacuum"
	kindCopy     = "copy"    // a backup to nowhere, while others write
	kindBackup   = "backup"  // by the command; the store is closed
	kindCommand  = "command" // a vacuum by the command; the store is closed
	kindOpen     = "open"
)

// draws reports whether the store makes what the op logs, under ids that begin with the op's name.
func (o *op) draws() bool {
	return o.Kind == kindTakeBack || o.Kind == kindRewind || o.Kind == kindErase
}

// receipt is the id of the receipt of what the op erases.
func (o *op) receipt() string { return o.Name + "/receipt" }

func (o *op) String() string { return fmt.Sprintf("op %d (%s %s %s)", o.N, o.Kind, o.Session, o.Name) }

func (o *op) key() store.Key { return keyOf(o.Session) }

func keyOf(s string) store.Key {
	key, err := store.ParseKey(s)
	if err != nil {
		panic(err)
	}
	return key
}

// parse makes records of what the op offers.
func (o *op) parse() {
	o.offered = nil
	for _, text := range o.Records {
		r, err := patch.ParseRecord(text)
		if err != nil {
			panic(err)
		}
		o.offered = append(o.offered, r)
	}
}

var clock = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// opened is a store and what it draws ids from: one op at a time draws some.
type opened struct {
	*store.Store
	dir     string
	drawing sync.Mutex
	prefix  atomic.Value
	drawn   atomic.Int64
}

const fileName = "log.db"

func open(dir string, durability store.Durability) (*opened, error) {
	s := &opened{dir: dir}
	s.prefix.Store("nobody")
	var err error
	s.Store, err = store.Open(filepath.Join(dir, fileName), store.Options{
		Durability: durability, Snapshots: snapshot.Policy{Every: 6, Share: 1}, LockTimeout: 5 * time.Second,
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return clock },
		NewID: func() string { return fmt.Sprint(s.prefix.Load(), "/", s.drawn.Add(1)) },
	})
	return s, err
}

// done is what a call says of itself.
type done struct {
	Op    int
	First uint64   `json:",omitempty"` // seq
	Sums  []uint32 `json:",omitempty"` // of the records
	Seq   uint64   `json:",omitempty"` // of a fork's last record
	No    string   `json:",omitempty"` // why it was refused

	Shows map[string]uint64 `json:",omitempty"` // of opening: how long the logs are
}

func sumOf(r patch.Record) uint32 {
	text, err := r.MarshalJSON()
	if err != nil {
		panic(err)
	}
	return patch.Checksum(text)
}

// refusals are answers that say that nothing was written.
var refusals = []error{
	store.ErrConflict, store.ErrInvalid, store.ErrOutOfRange, store.ErrEventNotFound, store.ErrOrphanedCall,
	store.ErrBlocked, store.ErrPinned,
}

func refused(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// do makes the call. again says that it was tried before: what is there, or gone, already is
// as it should be.
func (s *opened) do(ctx context.Context, o *op, again bool) (d done, err error) {
	d.Op = o.N
	var records []patch.Record
	switch o.Kind {
	case kindCreate:
		state := map[string]any{"made": o.Name}
		if o.Shared != "" {
			state[o.Shared] = o.Name
		}
		if _, err = s.Create(ctx, o.key(), state); again && errors.Is(err, store.ErrExists) {
			err = nil
		}
	case kindAppend:
		var events []*patch.Event
		for _, r := range o.offered {
			events = append(events, r.Event)
		}
		var c store.Committed
		c, err = s.AppendEvents(ctx, o.key(), store.AppendOptions{}, events...)
		records = c.Records
	case kindPatch:
		var patches []*patch.PatchEvent
		for _, r := range o.offered {
			patches = append(patches, r.Patch)
		}
		var c store.Committed
		c, err = s.ApplyPatch(ctx, o.key(), store.PatchOptions{AsOfNow: true}, patches...)
		records = c.Records
	case kindImport:
		var i store.Imported
		i, err = s.Import(ctx, o.key(), bytes.NewReader(bytes.Join(rawTexts(o.Records), []byte("\n"))), store.ImportOptions{})
		records = i.Records
	case kindFork:
		var f store.Session
		if f, err = s.Fork(ctx, keyOf(o.From), o.key(), store.ForkOptions{}); err == nil {
			d.Seq = f.View.Seq()
		} else if again && errors.Is(err, store.ErrExists) {
			err = nil
		}
	case kindDelete:
		if err = s.Delete(ctx, o.key()); again && errors.Is(err, store.ErrNotFound) {
			err = nil
		}
	case kindTakeBack, kindRewind:
		s.drawing.Lock()
		defer s.drawing.Unlock()
		s.prefix.Store(o.Name)
		var c store.Committed
		if o.Kind == kindRewind {
			c, err = s.Rewind(ctx, o.key(), store.BackOptions{}, o.Of)
		} else {
			c, err = s.Revert(ctx, o.key(), store.BackOptions{AllowOrphans: true}, o.Of)
		}
		records = c.Records
	case kindErase:
		var e store.Erasure
		e, err = s.Erase(ctx, o.key(), store.EraseSelection{EventIDs: o.Erases}, store.EraseOptions{ID: o.receipt(), Salt: []byte("salt")})
		for _, one := range e.Sessions {
			if one.Key == o.key() && one.Receipt.ID() == o.receipt() {
				records = append(records, one.Receipt)
			}
		}
	case kindVacuum:
		err = s.Vacuum(ctx)
	case kindCopy:
		err = s.Backup(ctx, io.Discard)
	default:
		err = fmt.Errorf("%s is no call of an open store", o)
	}
	if refused(err) {
		d.No, err = err.Error(), nil
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("%s: %w", o, err)
	}
	for i, r := range records {
		if i == 0 {
			d.First = r.Seq
		}
		d.Sums = append(d.Sums, sumOf(r))
	}
	return d, nil
}

func rawTexts(records []json.RawMessage) (out [][]byte) {
	for _, r := range records {
		out = append(out, r)
	}
	return out
}

// doClosed makes a call of the command, which no program has the store open for.
func doClosed(ctx context.Context, dir string, o *op) error {
	args := []string{"vacuum"}
	if o.Kind == kindBackup {
		args = []string{"backup", "--force", filepath.Join(dir, o.File)}
	}
	var said bytes.Buffer
	if code := command.Run(ctx, args, strings.NewReader(""), io.Discard, &said, func(name string) string {
		if name == "PATCHLOG_DB" {
			return filepath.Join(dir, fileName)
		}
		return os.Getenv(name)
	}, command.Options{}); code != 0 {
		return fmt.Errorf("%s: %s", o, said.String())
	}
	return nil
}
