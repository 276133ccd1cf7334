package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Reply is the result of an operation.
type Reply struct {
	Outcome string // [Done] or the kind of failure
	Err     string
	Error   error `json:"-"`

	Committed store.Committed `json:"-"`
	View      fold.View       `json:"-"`

	Creation string
	Logged   []string // ids of the records that the operation wrote or read
	Seqs     []uint64 // seqs of the records in Logged
	Erased   []string // ids of the records in Logged that are erased
	Seq      uint64   // seq of the log's last record
	PatchSeq uint64
	Visible  []string
	Values   map[string]string // state of the session as text; for a Get, the shared state is included
	Last     uint64            // after a conflict: seq of the last record of the log, or of its newest patch
	Created  bool              // after an import: whether the import created the session
	Held     bool              // after a lease operation: whether the store has the lease
	Owner    int               // after a lease operation: number of the store
	Exported string            // exported text, or text of the records that were read
}

// Outcomes other than a refusal.
const (
	Done    = "done"
	Unknown = "unknown" // the store does not know the outcome
	Failed  = "failed"  // the store reports that nothing was written
	Gone    = "gone"    // the process ended before it replied
)

// Refusals that the reference model does not return.
const (
	NotFound  = "not found"
	Exists    = "exists"
	Duplicate = "duplicate"
	Corrupt   = "corrupt"
)

// OutcomeOf returns the outcome of an operation that returned err.
func OutcomeOf(err error) string {
	for _, k := range []struct {
		err     error
		outcome string
	}{
		{store.ErrOutcomeUnknown, Unknown}, {store.ErrDuplicateID, Duplicate}, {fold.ErrUnknownPatch, fuzz.UnknownInLog},
		{store.ErrConflict, fuzz.Conflict}, {store.ErrExists, Exists}, {fold.ErrOutOfRange, fuzz.OutOfRange},
		{fold.ErrEventNotFound, fuzz.NotFound}, {fold.ErrBlocked, fuzz.Blocked}, {fold.ErrPinned, fuzz.Pinned},
		{fold.ErrOrphanedCall, fuzz.OrphanedCall}, {store.ErrInvalid, fuzz.Invalid}, {store.ErrCorrupt, Corrupt}, {store.ErrNotFound, NotFound},
	} {
		if errors.Is(err, k.err) {
			return k.outcome
		}
	}
	if err != nil {
		return Failed
	}
	return Done
}

// ExpectedOutcome returns the outcome of a write according to the reference model. It ignores ids.
func ExpectedOutcome(ref *fuzz.Reference, o Op) string {
	var patches []*patch.PatchEvent
	check := func() string {
		var refusal *fuzz.Refusal
		if errors.As(ref.Check(fuzz.CheckOptions{AllowOrphans: o.AllowOrphans, AllowPinned: o.AllowPinned}, patches...), &refusal) {
			return refusal.Kind
		}
		return Done
	}
	switch o.Kind {
	case Revert:
		ids, blocked, ok := ref.RevertAll(o.IDs[0])
		switch {
		case slices.ContainsFunc(ref.Skipped(), func(s patch.Skip) bool { return s.Reason == patch.UnknownType }):
			return fuzz.UnknownInLog
		case !ok && blocked == "":
			return fuzz.Invalid
		case !ok:
			return fuzz.Blocked
		}
		for i, id := range ids {
			patches = append(patches, patch.NewRevert(id).WithID(fmt.Sprint("would be ", i)).WithGroup("reverts"))
		}
		return check()
	case Patch:
		for _, group := range fuzz.Batches(o.Records()) {
			for _, r := range group {
				if !hasBase(r.Patch) && o.On != "" && len(patches) == 0 {
					r.Patch = r.Patch.WithBase(o.Base)
				}
				if !hasBase(r.Patch) && o.On == "" && !o.AsOfNow && records.IsIndexed(r.Patch) {
					return fuzz.Invalid
				}
				patches = append(patches, r.Patch)
			}
			if kind := check(); kind != Done {
				return kind
			}
		}
	}
	return Done
}

// hasBase reports whether the patch has a base. The base may be malformed.
func hasBase(p *patch.PatchEvent) bool {
	_, ok := p.Base()
	text, malformed := p.Field("base")
	return ok || malformed && string(text) != "null"
}

// Do executes an operation. A patch on a view uses the view seen. If seen is the zero View, the patch uses the
// newest view with the operation's base.
func Do(ctx context.Context, s *store.Store, seen fold.View, o Op) Reply {
	var r Reply
	session, err := r.do(ctx, s, seen, o)
	for _, record := range r.Committed.Records {
		r.addRecord(record)
	}
	r.Outcome, r.Error = OutcomeOf(err), err
	if err != nil {
		r.Err = err.Error()
		var moved *store.SeqError
		var newer *fold.ConflictError
		switch {
		case errors.As(err, &moved):
			r.Last = moved.Last
		case errors.As(err, &newer):
			r.Last = newer.Newest
		}
		return r
	}
	if v := session.View; v.Creation() != "" {
		r.View, r.Creation, r.Seq, r.PatchSeq = v, v.Creation(), v.Seq(), v.PatchSeq()
		r.Visible, r.Values = Visible(v), Texts(session.Values())
	}
	return r
}

func (r *Reply) addRecord(record patch.Record) {
	r.Logged, r.Seqs = append(r.Logged, record.ID()), append(r.Seqs, record.Seq)
	if _, erased := records.Envelope(record).ErasedBy(); erased {
		r.Erased = append(r.Erased, record.ID())
	}
}

// Visible returns the ids of the visible events.
func Visible(v fold.View) []string {
	ids := make([]string, 0, v.Len())
	for _, e := range v.Events() {
		ids = append(ids, e.ID())
	}
	return ids
}

// Texts returns each value as text.
func Texts(values map[string]patch.Value) map[string]string {
	all := map[string]string{}
	for key, value := range values {
		all[key] = fmt.Sprint(value.Any())
	}
	return all
}

func (r *Reply) do(ctx context.Context, s *store.Store, seen fold.View, o Op) (store.Session, error) {
	key := Key(o.App, o.Session)
	undoOpts := store.UndoOptions{AllowOrphans: o.AllowOrphans}
	var err error
	switch o.Kind {
	case Create:
		return s.Create(ctx, key, nil, store.CreateOptions{})
	case Get:
		return s.Get(ctx, key)
	case Delete:
		return store.Session{}, s.Delete(ctx, key)
	case Fork:
		session, err := s.Fork(ctx, Key(o.App, o.Source), key, store.ForkOptions{At: o.At})
		return store.Session{View: session.View}, err
	case At:
		view, err := s.ViewAt(ctx, key, *o.At)
		return store.Session{View: view}, err
	case Lease:
		r.Held, err = s.Lease(ctx, key, "lease", o.TTL())
		return store.Session{}, err
	case Vacuum:
		_, err := s.Vacuum(ctx, store.VacuumOptions{})
		return store.Session{}, err
	case Backup:
		return store.Session{}, backup(ctx, s, o.File)
	case Erase:
		_, err := s.Erase(ctx, key, store.EraseSelection{EventIDs: o.IDs}, store.EraseOptions{ID: o.Text, Author: "client", Values: patch.KeepValues})
		return store.Session{}, err
	case Raw:
		return store.Session{}, r.read(ctx, s, key)
	case Export:
		var text strings.Builder
		if err := s.Export(ctx, key, &text, store.ExportOptions{}); err != nil {
			return store.Session{}, err
		}
		r.Exported = text.String()
		all, err := Parse(r.Exported)
		for _, record := range all {
			r.addRecord(record)
		}
		return store.Session{}, err
	case Append:
		opts := store.AppendOptions{IfSeq: o.IfSeq, Creation: o.On}
		var events []*patch.Event
		for _, record := range o.Records() {
			events = append(events, record.Event)
		}
		r.Committed, err = s.AppendEvents(ctx, key, events, opts)
	case Patch:
		opts := store.PatchOptions{On: seen, AllowOrphans: o.AllowOrphans, AllowPinned: o.AllowPinned, AsOfNow: o.AsOfNow}
		if o.On == "" {
			opts.On = fold.View{}
		} else if seen.Creation() == "" {
			if opts.On, err = s.View(ctx, key); err != nil {
				return store.Session{}, err
			}
			if opts.On.Creation() != o.On {
				return store.Session{}, fmt.Errorf("session %s: %w: it was created again", key, store.ErrNotFound)
			}
		}
		var patches []*patch.PatchEvent
		for i, record := range o.Records() {
			if i == 0 && o.On != "" && seen.Creation() == "" {
				record.Patch = record.Patch.WithBase(o.Base)
			}
			patches = append(patches, record.Patch)
		}
		r.Committed, err = s.ApplyPatch(ctx, key, patches, opts)
	case Revert:
		r.Committed, err = s.Revert(ctx, key, o.IDs[0], undoOpts)
	case Rewind:
		r.Committed, err = s.Rewind(ctx, key, Invocation(o.IDs[0]), undoOpts)
	case Import:
		var imported store.Imported
		imported, err = s.Import(ctx, key, strings.NewReader(o.Text), store.ImportOptions{})
		r.Committed, r.Created = imported.Committed, imported.Created
	default:
		err = fmt.Errorf("no such operation: %s", o.Kind)
	}
	return store.Session{View: r.Committed.View}, err
}

// read reads the session's records.
func (r *Reply) read(ctx context.Context, s *store.Store, key store.Key) error {
	var b strings.Builder
	for record, err := range s.RawEvents(ctx, key, 1) {
		if err == nil {
			r.addRecord(record)
			err = patch.WriteRecord(&b, record)
		}
		if err != nil {
			return err
		}
	}
	r.Exported = b.String()
	return nil
}

// backup writes a backup to a temporary file, and renames the file when it is complete.
func backup(ctx context.Context, s *store.Store, file string) error {
	var b bytes.Buffer
	if err := s.Backup(ctx, &b); err != nil {
		return err
	}
	if err := os.WriteFile(file+".draft", b.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".draft", file)
}

// Caller executes operations. It is safe for concurrent use.
type Caller interface {
	Call(Op) Reply
}

// Local executes operations on a store. It caches the last view that each client saw of each session.
type Local struct {
	Store *store.Store
	Owner int // number that identifies the store among the stores on one storage

	mu    sync.Mutex
	views map[string]fold.View // key: client and session
}

// Call implements [Caller].
func (l *Local) Call(o Op) Reply {
	ctx := context.Background()
	if o.Wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.Wait)
		defer stop()
	}
	client := fmt.Sprint(o.Client, " ", o.App, " ", o.Session)
	l.mu.Lock()
	seen := l.views[client]
	l.mu.Unlock()
	if seen.Creation() != o.On || seen.PatchSeq() != o.Base {
		seen = fold.View{}
	}
	r := Do(ctx, l.Store, seen, o)
	r.Owner = l.Owner
	if r.Creation != "" && o.Kind != At { // a reply to At has an older view
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.views == nil {
			l.views = map[string]fold.View{}
		}
		l.views[client] = r.View
	}
	return r
}

// Audit returns the text of each log of a store. No other client may use the store meanwhile. The error has the
// problems that [store.Store.Verify] finds, and the sessions whose view differs from the reference model.
func Audit(ctx context.Context, s *store.Store) (map[store.Key]string, error) {
	logs := map[store.Key]string{}
	var problems []error
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		problems = append(problems, fmt.Errorf("verify: %v %w", p, err))
	}
	for info, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			return logs, errors.Join(append(problems, err)...)
		}
		start, err := s.ViewAt(ctx, info.Key, 0)
		initial := maps.Collect(start.Values())
		var r Reply
		problems = append(problems, err, r.read(ctx, s, info.Key))
		all, parseErr := Parse(r.Exported)
		ref := fuzz.NewReference(initial, all...)
		v, viewErr := s.View(ctx, info.Key)
		if err := errors.Join(parseErr, viewErr); err != nil {
			problems = append(problems, err)
			continue
		}
		if err := fuzz.Compare(v, ref); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", info.Key, err))
		}
		logs[info.Key] = r.Exported
	}
	return logs, errors.Join(problems...)
}

// CheckUnchanged returns an error for each log in before that differs from the log of the same session in now.
func CheckUnchanged(before, now map[store.Key]string) error {
	var changed []error
	for key, old := range before {
		if text, ok := now[key]; !ok || text != old {
			changed = append(changed, fmt.Errorf("the log of %s, to which no operation wrote, has changed: %.300s; it was %.300s", key, text, old))
		}
	}
	return errors.Join(changed...)
}
