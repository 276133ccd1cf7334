package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

func (e *env) verify(opts store.VerifyOptions) (found []store.Problem) {
	e.Helper()
	for p, err := range e.store.Verify(ctx, opts) {
		e.no(err)
		found = append(found, p)
	}
	return found
}

// forgetful is a backend whose index does not know an id.
type forgetful struct {
	backend.Backend
	id string
}

func (f *forgetful) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	seqs, err := f.Backend.Lookup(ctx, session, creation, ids)
	if i := slices.Index(ids, f.id); i >= 0 && err == nil {
		seqs[i] = 0
	}
	return seqs, err
}

func TestVerify(t *testing.T) {
	keys := []store.Key{{App: "a", User: "u", Session: "1"}, {App: "a", User: "u", Session: "2"}}
	for _, c := range []struct {
		name   string
		damage func(e *env, engine backend.Backend) backend.Backend
		want   []string // key and seq of each problem, and what it says
	}{
		{"nothing", func(e *env, engine backend.Backend) backend.Backend { return engine }, nil},
		{"record", func(e *env, engine backend.Backend) backend.Backend {
			return &damaged{Backend: engine, seq: 3, change: func(r *backend.Record) { r.Data[9] ^= 1 }}
		}, []string{"a/u/1 3 checksum", "a/u/2 3 checksum"}},
		{"record in another's place", func(e *env, engine backend.Backend) backend.Backend {
			return &damaged{Backend: engine, seq: 5, change: func(r *backend.Record) {
				r.Data, _ = patch.AppendRecord(nil, patch.Record{Seq: 4, Event: say("x")})
			}}
		}, []string{"a/u/1 5 place", "a/u/2 5 place"}},
		{"two damages", func(e *env, engine backend.Backend) backend.Backend {
			return &damaged{Backend: &damaged{Backend: engine, seq: 1, change: func(r *backend.Record) { r.Data = nil }},
				seq: 4, change: func(r *backend.Record) { r.Data[0] = 99 }}
		}, []string{"a/u/1 1 ", "a/u/1 4 form 99", "a/u/2 1 ", "a/u/2 4 form 99"}},
		{"id not known", func(e *env, engine backend.Backend) backend.Backend {
			return &forgetful{engine, "e2"}
		}, []string{"a/u/1 2 e2", "a/u/2 2 e2"}},
		{"nested id not known", func(e *env, engine backend.Backend) backend.Backend {
			return &forgetful{engine, "r"}
		}, []string{"a/u/1 6 r", "a/u/2 6 r"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *env) {
				for _, k := range keys {
					e.must(e.store.Create(ctx, k, map[string]any{"tenant": "t1"}))
					e.must(e.store.AppendEvents(ctx, k, store.AppendOptions{}, says("e", 5)...))
					e.must(e.store.ApplyPatch(ctx, k, asOfNow, patch.NewSplice(0, 1, say("r")).WithID("p")))
				}
				e.backend.Backend = c.damage(e, e.engine)
				e.open()
				var seen []string
				found := e.verify(store.VerifyOptions{Progress: func(k store.Key) { seen = append(seen, k.String()) }})
				e.problems(found, c.want)
				e.same("progress", strings.Join(seen, " "), "a/u/1 a/u/2")
				// One session alone.
				e.problems(e.verify(store.VerifyOptions{Key: keys[1]}),
					slices.DeleteFunc(slices.Clone(c.want), func(w string) bool { return !strings.HasPrefix(w, "a/u/2") }))
				for range e.store.Verify(ctx, store.VerifyOptions{}) {
					break // it can be left
				}
				e.reopen()
				for _, k := range keys {
					e.no(e.store.Delete(ctx, k)) // with what was damaged for good
				}
			})
		})
	}
}

func (e *env) problems(found []store.Problem, want []string) {
	e.Helper()
	if len(found) != len(want) {
		e.Errorf("problems %v, want %q", found, want)
		return
	}
	for i, p := range found {
		place, says := want[i][:strings.LastIndex(want[i][:len("a/u/1 0 ")], " ")], want[i][len("a/u/1 0 "):]
		if got := fmt.Sprint(p.Key, " ", p.Seq); got != place {
			e.Errorf("problem at %s, want %s", got, place)
		}
		if !strings.Contains(p.String(), says) || !strings.Contains(p.String(), p.Key.String()) {
			e.Errorf("problem %q does not say %q", p, says)
		}
	}
}

// A view in memory that is not what is stored: someone changed what was logged.
func TestVerifyCachedViews(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		e.view()
		e.backend.Backend = &damaged{Backend: e.engine, seq: 2, change: func(r *backend.Record) {
			r.Data, _ = patch.AppendRecord(nil, patch.Record{Seq: 2, Event: sets("a2", `{"k":1}`)})
		}}
		found := e.verify(store.VerifyOptions{})
		if len(found) != 2 || found[0].Key != key || !strings.Contains(found[0].String(), "view in memory") {
			e.Errorf("problems %v, want one of the view in memory and one of the chain", found)
		}
	})
}

func (e *env) isHealthy(opts store.VerifyOptions) {
	e.Helper()
	if found := e.verify(opts); len(found) > 0 {
		e.Errorf("problems: %v", found)
	}
}

// changeRows changes the rows of the session that was created first: those of a bucket
// whose keys begin with its number.
func changeRows(bucket string, change func(k, v []byte) []byte) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		makeBoltChange(t, path, bucket, func(k, v []byte) []byte {
			if binary.BigEndian.Uint64(k) == 1 {
				return change(k[8:], v)
			}
			return v
		})
	}
}

func changeRecord(seq uint64, change func(v []byte) []byte) func(t *testing.T, path string) {
	return changeRows("records", func(k, v []byte) []byte {
		if binary.BigEndian.Uint64(k) == seq {
			return change(v)
		}
		return v
	})
}

// changeID changes the ids in the row of record 4.
func changeID(t *testing.T, path string) {
	changeRecord(4, func(v []byte) []byte {
		v[len(v)-9] ^= 2 // of the last hash, before their number and checksum
		return v
	})(t, path)
}

// sealRow returns a row as a file has it: its checksum and its value.
func sealRow(kind byte, key, value []byte) []byte {
	sum := crc32.Checksum(slices.Concat(key, value, []byte{kind}), crc32.MakeTable(crc32.Castagnoli))
	return append(binary.BigEndian.AppendUint32(nil, sum), value...)
}

// sealRecord returns a record's row: the sealed record, the hashes of its ids, their number and a checksum.
func sealRecord(key, form []byte, ids ...string) []byte {
	var end []byte
	for _, id := range ids {
		hash := sha256.Sum256([]byte(id))
		end = append(end, hash[:16]...)
	}
	end = binary.BigEndian.AppendUint32(end, uint32(len(ids)))
	return slices.Concat(sealRow('r', key, form), end, sealRow('i', key, end)[:4])
}

// anotherRecord3 is a row with another record in the place of record 3 of the first session.
func anotherRecord3([]byte) []byte {
	data, _ := patch.AppendRecord(nil, patch.Record{Seq: 3, Event: sets("a3", `{"other":1}`)})
	key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 1), 3)
	return sealRecord(key, data, "a3")
}

// swapRecords has the records 2 and 3 change places.
func swapRecords(t *testing.T, path string) {
	rows := map[uint64][]byte{}
	changeRows("records", func(k, v []byte) []byte {
		rows[binary.BigEndian.Uint64(k)] = v
		return v
	})(t, path)
	changeRecord(2, func([]byte) []byte { return rows[3] })(t, path)
	changeRecord(3, func([]byte) []byte { return rows[2] })(t, path)
}

func swapSnapshots(t *testing.T, path string) {
	var other []byte
	makeBoltChange(t, path, "snapshots", func(k, v []byte) []byte {
		if binary.BigEndian.Uint64(k) == 2 {
			other = v
		}
		return v
	})
	changeRows("snapshots", func(_, _ []byte) []byte { return other })(t, path)
}

func damageEntry(t *testing.T, path string) {
	makeBoltChange(t, path, "sessions", func(_, v []byte) []byte {
		if binary.BigEndian.Uint64(v[4:]) == 1 {
			v[len(v)-1] ^= 1
		}
		return v
	})
}

// Each row damages a file in one way.
func TestVerifyFindsDamageOfFile(t *testing.T) {
	removed := func([]byte) []byte { return nil }
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, path string)
		whole  bool   // the problem is one of the storage as a whole
		seq    uint64 // of the problem
		says   string // "" is no problem
	}{
		{"none", func(*testing.T, string) {}, false, 0, ""},
		{"flipped bit", changeRecord(3, func(v []byte) []byte { v[len(v)/2] ^= 4; return v }), false, 3, "checksum"},
		{"swapped", swapRecords, false, 2, "the checksum of record 2"},
		{"swapped, the other one", swapRecords, false, 3, "the checksum of record 3"},
		{"missing record", changeRecord(3, removed), false, 3, "missing"},
		{"missing record, structure", changeRecord(3, removed), true, 0, "record 4 after record 2"},
		{"missing first record", changeRecord(1, removed), false, 1, "missing"},
		{"missing last record", changeRecord(6, removed), true, 0, "its last record is 5, and its head says 6"},
		{"missing last record, session", changeRecord(6, removed), false, 6, "missing"},
		{"record that was not written there", changeRecord(3, anotherRecord3), false, 6, "another chain"},
		{"wrong ids", changeID, true, 0, "the ids of record 4"},
		{"damaged snapshot", changeRows("snapshots", func(_, v []byte) []byte { v[len(v)-1] ^= 1; return v }), false, 0, "checksum"},
		{"snapshot of another session", swapSnapshots, false, 0, "the checksum of the snapshot"},
		{"session entry", damageEntry, true, 0, "the checksum of the entry"},
		{"session entry, session", damageEntry, false, 0, "the checksum of the entry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &env{T: t, path: filepath.Join(t.TempDir(), "log.db")}
			e.opts = store.Options{Snapshots: eager, Logger: slog.New(slog.DiscardHandler)}
			e.fillTwo()
			c.damage(t, e.path)
			e.store = openStore(e, e.path, e.opts)
			defer e.store.Close()
			var found []store.Problem
			for p, err := range e.store.Verify(ctx, store.VerifyOptions{}) {
				if err != nil {
					e.Errorf("Verify ends with %v", err)
				}
				found = append(found, p)
			}
			want := store.Key{}
			if !c.whole {
				want = key
			}
			if c.says == "" && len(found) == 0 {
				return
			}
			if !slices.ContainsFunc(found, func(p store.Problem) bool {
				return p.Key == want && p.Seq == c.seq && strings.Contains(p.Err.Error(), c.says)
			}) {
				e.Errorf("problems %v, want one of %q, record %d, that says %q", found, want, c.seq, c.says)
			}
			for _, p := range found {
				if p.Key == elsewhere || strings.Count(p.String(), "session app/") > 1 {
					e.Errorf("problem %s", p)
				}
			}
			e.isHealthy(store.VerifyOptions{Key: elsewhere})
			for _, p := range e.verify(store.VerifyOptions{Key: key}) {
				if p.Key != key {
					e.Errorf("of one session: problem %s", p)
				}
			}
		})
	}
}

// fillTwo makes a file with two sessions, and with snapshots if the options want them.
func (e *env) fillTwo() {
	e.Helper()
	e.store = openStore(e, e.path, e.opts)
	e.create(map[string]any{"tenant": "t1"})
	e.append(says("a", 5)...)
	e.apply(patch.NewSplice(0, 1).WithID("p"))
	e.must(e.store.Create(ctx, elsewhere, nil))
	e.must(e.store.AppendEvents(ctx, elsewhere, store.AppendOptions{}, says("a", 5)...))
	e.no(e.store.Close())
}

// A snapshot that is whole and of the right session, but says what the log does not.
func TestVerifySnapshotThatDiffers(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		e.anew(snapshot.Policy{Every: -1})
		e.create(map[string]any{"k": 1})
		e.append(says("a", 4)...)
		records := e.records(key)
		for name, differs := range map[string]fold.View{
			"at the end":    e.refold(slices.Concat(records[:3], []patch.Record{{Seq: 4, Patch: patch.NewSplice(0, 1)}})),
			"in the middle": e.refold(slices.Concat(records[:2], []patch.Record{{Seq: 3, Patch: patch.NewSplice(0, 1)}})),
			"invocation":    e.refold([]patch.Record{{Seq: 1, Event: event(`{"invocationId":"another"}`)}}),
		} {
			data, err := snapshot.Encode(differs)
			e.no(err)
			e.putSnapshot(data)
			says := fmt.Sprintf("the snapshot at record %d", differs.Seq())
			if found := e.verify(store.VerifyOptions{}); len(found) != 1 || found[0].Key != key || !strings.Contains(found[0].String(), says) {
				e.Errorf("%s: problems %v", name, found)
			}
		}
		data, err := snapshot.Encode(e.refold(records))
		e.no(err)
		e.putSnapshot(data)
		e.isHealthy(store.VerifyOptions{})
	})
}

// amiss is a backend with something wrong in its structure.
type amiss struct{ backend.Backend }

var errAmiss = errors.New("a page is amiss")

func (amiss) Check(context.Context) error { return errAmiss }

// What a backend finds wrong is a problem of no session, and the sessions are verified
// nevertheless, unless only one of them is.
func TestVerifyReportsCheck(t *testing.T) {
	e := &env{T: t, path: filepath.Join(t.TempDir(), "log.db")}
	e.fillTwo()
	b, err := bolt.Open(e.path, bolt.Options{})
	e.no(err)
	e.store = newStore(e, amiss{b}, e.opts)
	defer e.store.Close()
	seen := 0
	found := e.verify(store.VerifyOptions{Progress: func(store.Key) { seen++ }})
	if len(found) != 1 || found[0].Key != (store.Key{}) || found[0].String() != errAmiss.Error() || seen != 2 {
		e.Errorf("%d sessions, problems %q", seen, found)
	}
	e.isHealthy(store.VerifyOptions{Key: key})
}

// Where Verify cannot go on it yields one error, and no problem.
func TestVerifyEnds(t *testing.T) {
	e := &env{T: t, path: filepath.Join(t.TempDir(), "log.db")}
	e.fillTwo()
	ends := func(s *store.Store, ctx context.Context, opts store.VerifyOptions, want error) {
		t.Helper()
		n := 0
		for p, err := range s.Verify(ctx, opts) {
			if n++; n > 1 || p != (store.Problem{}) {
				t.Errorf("yield %d: problem %v", n, p)
			}
			e.is(err, want)
		}
		if n != 1 {
			t.Errorf("%d yields, want one with an error", n)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	file := openStore(e, e.path, e.opts)
	memory, err := store.OpenMemory(e.opts)
	e.no(err)
	e.must(memory.Create(ctx, key, nil))
	for _, s := range []*store.Store{file, memory} {
		for _, opts := range []store.VerifyOptions{{}, {Key: key}} {
			ends(s, cancelled, opts, context.Canceled)
		}
		ends(s, ctx, store.VerifyOptions{Key: store.Key{App: "a", User: "u", Session: "none"}}, store.ErrNotFound)
		ends(s, ctx, store.VerifyOptions{Key: store.Key{App: "a"}}, store.ErrInvalid)
		halfway, cancel := context.WithCancel(ctx)
		ends(s, halfway, store.VerifyOptions{Progress: func(store.Key) { cancel() }}, context.Canceled)
		e.no(s.Close())
		for _, opts := range []store.VerifyOptions{{}, {Key: key}} {
			ends(s, ctx, opts, store.ErrClosed)
		}
	}
}

// weighing is a context whose holder's memory is weighed wherever it looks whether to go on.
type weighing struct {
	context.Context
	most *uint64
}

func (w weighing) Err() error {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*w.most = max(*w.most, m.HeapAlloc)
	return w.Context.Err()
}

// To verify a session takes memory for what is visible and what is read at once, not for all that
// patches have hidden. What a revert brings back is read again.
func TestVerifyHoldsWhatIsVisible(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "log.db"), store.Options{Durability: store.Relaxed})
	e := &env{T: t, store: s}
	defer func() { e.no(s.Close()) }()
	e.create(nil)
	const events, bytes = 60, 300_000
	for i := range events {
		e.must(s.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"id":"e%d","content":{"parts":[{"text":"%0*d"}]}}`, i, bytes, i)))
		if i > 0 {
			made, err := s.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 1))
			e.no(err)
			if i == 40 {
				e.must(s.Revert(ctx, key, store.UndoOptions{}, made.Records[0].ID()))
			}
		}
	}
	runtime.GC() // twice: pools keep what compressing took for one
	runtime.GC()
	var before, most uint64
	runtime.GC() // what pools hold is freed by the second collection
	_ = weighing{ctx, &before}.Err()
	for p, err := range s.Verify(weighing{ctx, &most}, store.VerifyOptions{}) {
		t.Fatal(fmt.Sprint(p, err))
	}
	if took := most - before; most < before+bytes || took > events*bytes/3 {
		t.Errorf("%d bytes are held while %d events of %d bytes are verified, of which two are visible", took, events, bytes)
	}
}

// To verify a log takes, beside what is read at once, a few dozen bytes for each visible event, however
// long they are.
func TestVerifyHoldsNoBodies(t *testing.T) {
	testlog.OneGoroutine(t)
	path := filepath.Join(t.TempDir(), "log.db")
	opts := store.Options{Durability: store.Relaxed}
	s := openStore(t, path, opts)
	e := &env{T: t, store: s}
	defer func() { e.no(e.store.Close()) }()
	e.create(nil)
	const records, batch = 40_000, 4_000
	for i := 0; i < records; i += batch {
		var events []*patch.Event
		for n := range batch {
			events = append(events, event(`{"id":"event %d","author":"user","content":{"role":"user","parts":[{"text":"%0*d"}]}}`, i+n, 500, i))
		}
		e.must(s.AppendEvents(ctx, key, store.AppendOptions{}, events...))
	}
	for _, id := range []string{"event 20000", "event 30000"} {
		e.must(s.ApplyPatch(ctx, key, asOfNow, patch.NewPin(id)))
	}
	e.no(s.Close()) // its view goes
	e.store = openStore(e, path, opts)
	var before, most uint64
	for range 3 { // what the closed store had goes with its finalizers
		before = 0
		_ = weighing{ctx, &before}.Err()
	}
	looks := 0
	for p, err := range e.store.Verify(calling{ctx, func() {
		if looks++; looks%8 == 0 {
			_ = weighing{ctx, &most}.Err()
		}
	}}, store.VerifyOptions{}) {
		t.Fatal(fmt.Sprint(p, err))
	}
	const perRecord, page = 64, 4 << 20
	took := int64(most) - int64(before)
	t.Logf("%d bytes a record", took/records)
	if looks < 64 || took > records*perRecord+page {
		t.Errorf("%d bytes are held while %d records are verified, of which %d are looked at", took, records, looks)
	}
}

// calling is a context that calls a function wherever its holder looks whether to go on.
type calling struct {
	context.Context
	call func()
}

func (n calling) Err() error {
	n.call()
	return n.Context.Err()
}
