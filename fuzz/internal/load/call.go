package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Call is a call of a client. All that it is to write follows from it, so that it can be made
// again by somebody else.
type Call struct {
	N        int // 1, 2, 3 … in a round
	Client   int
	Op       string
	Session  string
	Creation string `json:",omitempty"` // that it is meant for; "" if it makes or deletes a session

	Offered []json.RawMessage `json:",omitempty"` // events or patches
	State   json.RawMessage   `json:",omitempty"` // initial, of a session that it makes
	IfSeq   *uint64           `json:",omitempty"` // the last record of the log, as the client sees it, if the call goes by that
	Loose   bool              `json:",omitempty"` // it may do what a patch is mostly refused for
	Target  string            `json:",omitempty"` // the patch, the invocation or the session that it is about, or the receipt
	Seqs    []uint64          `json:",omitempty"` // what it erases
	Of      string            `json:",omitempty"` // the creation of the session that is forked
	At      uint64            `json:",omitempty"` // the last record of a fork
	Short   int               `json:",omitempty"` // tokens of a response in the visible log
	File    string            `json:",omitempty"` // of a backup

	Adds    int   `json:",omitempty"` // how many records it adds, if that is not as many as are offered
	Counter int64 `json:",omitempty"` // the value that it sets the client's shared keys to
}

// String returns the call as JSON, or the beginning of that.
func (c Call) String() string { return fmt.Sprintf("%.500s", jsonOf(c)) }

// makes reports whether the call makes its session be there.
func (c Call) makes() bool {
	return c.Creation == "" && (c.Op == "create" || c.Op == "fork" || c.Op == "import" || c.Op == "copy")
}

// adds is how many records the call adds, if any.
func (c Call) adds() int {
	if c.Adds > 0 {
		return c.Adds
	}
	return len(c.Offered)
}

// Reply is what came of a call.
type Reply struct {
	N        int
	Kind     string  // done, or why not
	Err      string  `json:",omitempty"`
	Records  []Entry `json:",omitempty"`
	Creation string  `json:",omitempty"` // of a session that it made
}

// Entry is a record at its place.
type Entry struct {
	Seq  uint64
	Sum  uint64
	Left uint64 // of what an erasing leaves of it
	Gone bool   `json:",omitempty"` // it is erased
}

func entryOf(r patch.Record) (Entry, error) {
	text, err := r.MarshalJSON()
	all := patch.Erasure{Seqs: []patch.Span{{From: r.Seq, To: r.Seq}}, Values: patch.NullValues}
	left, leftErr := all.Blank(r, "").MarshalJSON()
	receipt, gone := r.Erased()
	left = bytes.ReplaceAll(left, jsonOf(object{"receipt": receipt})[1:], jsonOf(object{"receipt": ""})[1:])
	return Entry{r.Seq, sumOf(text), sumOf(left), gone}, errors.Join(err, leftErr)
}

func sumOf(text []byte) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write(text)
	return sum.Sum64()
}

// same reports whether both may be of one record, which may have been erased since.
func (e Entry) same(other Entry) bool {
	return e.Seq == other.Seq && (e.Sum == other.Sum || e.Left == other.Left && (e.Gone || other.Gone))
}

// Key returns the key of a session of the load.
func Key(session string) store.Key { return store.Key{App: "kill", User: "u", Session: session} }

// kinds are why a call may fail. The others are a fault.
var kinds = []struct {
	err  error
	kind string
}{
	{store.ErrOutcomeUnknown, "unknown"},
	{store.ErrDuplicateID, "duplicate"},
	{store.ErrConflict, "conflict"},
	{store.ErrExists, "exists"},
	{store.ErrOutOfRange, "refused"},
	{store.ErrEventNotFound, "refused"},
	{store.ErrOrphanedCall, "refused"},
	{store.ErrPinned, "refused"},
	{store.ErrBlocked, "refused"},
	{store.ErrCorrupt, "corrupt"},
	{store.ErrNotFound, "not found"},
	{errors.ErrUnsupported, "unsupported"},
}

func kindOf(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	if err != nil {
		return "failed"
	}
	return "done"
}

// Do makes a call.
func Do(ctx context.Context, s *store.Store, c Call) Reply {
	r := Reply{N: c.N}
	records, err := c.make(ctx, s, &r)
	for _, record := range records {
		e, sumErr := entryOf(record)
		err = errors.Join(err, sumErr)
		r.Records = append(r.Records, e)
	}
	if r.Kind = kindOf(err); err != nil {
		r.Err, r.Records, r.Creation = err.Error(), nil, ""
	}
	return r
}

func (c Call) make(ctx context.Context, s *store.Store, r *Reply) ([]patch.Record, error) {
	key := Key(c.Session)
	switch c.Op {
	case "create":
		state, err := c.state()
		if err != nil {
			return nil, err
		}
		session, err := s.Create(ctx, key, state)
		r.Creation = session.View.Creation()
		return nil, err
	case "fork":
		session, err := s.Fork(ctx, Key(c.Target), key, store.ForkOptions{At: &c.At})
		r.Creation = session.View.Creation()
		return nil, err
	case "import":
		done, err := s.Import(ctx, key, c.text(), store.ImportOptions{WriteShared: true})
		if c.makes() {
			r.Creation = done.View.Creation()
			return nil, err
		}
		return done.Records, err
	case "copy":
		return nil, c.copy(ctx, s, r)
	case "delete":
		return nil, s.Delete(ctx, key)
	case "vacuum":
		return nil, s.Vacuum(ctx)
	case "backup":
		return nil, c.backup(ctx, s)
	case "lease":
		_, err := s.Lease(ctx, key, c.Target, time.Duration(c.At)*time.Millisecond)
		return nil, err
	case "append":
		events, err := c.events()
		if err != nil {
			return nil, err
		}
		done, err := s.AppendEvents(ctx, key, store.AppendOptions{IfSeq: c.IfSeq, Creation: c.Creation, MaxResultTokens: c.Short}, events...)
		return done.Records, err
	}
	session, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if session.View.Creation() != c.Creation {
		return nil, fmt.Errorf("%w: it was created anew", store.ErrNotFound)
	}
	var done store.Committed
	switch c.Op {
	case "patch":
		var patches []*patch.PatchEvent
		if patches, err = c.patches(); err == nil {
			done, err = s.ApplyPatch(ctx, key, c.options(session.View), patches...)
		}
	case "revert":
		done, err = s.Revert(ctx, key, store.BackOptions{On: session.View, AllowOrphans: true}, c.Target)
	case "rewind":
		done, err = s.Rewind(ctx, key, store.BackOptions{On: session.View}, c.Target)
	case "erase":
		return c.erase(ctx, s)
	default:
		err = fmt.Errorf("no such call: %s", c.Op)
	}
	return done.Records, err
}

// erase erases, and returns the receipts that the session has got.
func (c Call) erase(ctx context.Context, s *store.Store) (receipts []patch.Record, err error) {
	opts := store.EraseOptions{ID: c.Target, Author: c.Target, Values: patch.NullValues}
	done, err := s.Erase(ctx, Key(c.Session), store.EraseSelection{Seqs: c.Seqs}, opts)
	for _, one := range done.Sessions {
		if one.Key == Key(c.Session) && one.Receipt.ID() == c.Target {
			receipts = append(receipts, one.Receipt)
		}
	}
	return receipts, err
}

func (c Call) options(on fold.View) store.PatchOptions {
	return store.PatchOptions{On: on, AllowOrphans: c.Loose, AllowPinned: c.Loose, HideWaiting: c.Loose}
}

func (c Call) state() (map[string]any, error) {
	if len(c.State) == 0 {
		return nil, nil
	}
	var texts map[string]json.RawMessage
	err := json.Unmarshal(c.State, &texts)
	state := map[string]any{}
	for key, text := range texts {
		value, valueErr := patch.ParseValue(text)
		err = errors.Join(err, valueErr)
		state[key] = value
	}
	return state, err
}

// records are what the call offers.
func (c Call) records() ([]patch.Record, error) {
	var records []patch.Record
	for _, text := range c.Offered {
		r, err := patch.ParseRecord(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		records = append(records, r)
	}
	return records, nil
}

func (c Call) events() (events []*patch.Event, err error) {
	records, err := c.records()
	for _, r := range records {
		events = append(events, r.Event)
	}
	return events, err
}

func (c Call) patches() (patches []*patch.PatchEvent, err error) {
	records, err := c.records()
	for _, r := range records {
		patches = append(patches, r.Patch)
	}
	return patches, err
}

// text is what the call imports.
func (c Call) text() *strings.Reader {
	var b strings.Builder
	if len(c.State) > 0 {
		fmt.Fprintf(&b, "{\"patchlog\":1,\"initialState\":%s}\n", c.State)
	}
	for _, line := range c.Offered {
		fmt.Fprintf(&b, "%s\n", line)
	}
	return strings.NewReader(b.String())
}

// copy copies the session from a store in memory.
func (c Call) copy(ctx context.Context, s *store.Store, r *Reply) error {
	from, err := store.OpenMemory(store.Options{})
	if err != nil {
		return err
	}
	defer from.Close()
	key := Key(c.Session)
	if _, err := from.Import(ctx, key, c.text(), store.ImportOptions{WriteShared: true}); err != nil {
		return err
	}
	if _, err := s.CopyFrom(ctx, from, key, store.CopyOptions{}); err != nil {
		return err
	}
	info, err := s.Info(ctx, key)
	r.Creation = info.Creation
	return err
}

// backup writes a backup, which has its name when it is whole.
func (c Call) backup(ctx context.Context, s *store.Store) error {
	var b bytes.Buffer
	if err := s.Backup(ctx, &b); err != nil {
		return err
	}
	draft := filepath.Join(filepath.Dir(c.File), ".draft")
	if err := os.WriteFile(draft, b.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(draft, c.File)
}
