package store_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// TestEraseCanaries puts 10,000 canaries into messages, tool results, data, state, summaries, snapshots and forks.
// Then it erases them and vacuums the store. After that no file contains a canary, compressed or not. Before the
// vacuum the scan finds some canaries, which shows that the scan works.
func TestEraseCanaries(t *testing.T) {
	testlog.SkipUnderRace(t)
	n := 10_000
	if testing.Short() {
		n = 2000
	}
	dir := t.TempDir()
	b := testlog.Must(bolt.Open(filepath.Join(dir, "a.db"), bolt.Options{NoSync: true}))(t)
	s := newStore(t, b, store.Options{Snapshots: snapshot.Policy{Every: 100, MinPercent: 1}})
	defer s.Close()
	plantCanaries(t, s, n)
	stored := endsOf(t, b)
	if got := findCanaries(t, dir, stored); got < n {
		t.Fatalf("%d canaries and records that have one are found, of %d", got, n)
	}
	must(t)(s.EraseUser(ctx, "a", "u", store.EraseOptions{}))
	verified(t, s)
	if got := findCanaries(t, dir, stored); got == 0 {
		t.Error("without a vacuum none is found: the scan does not look where they are")
	} else {
		t.Logf("%d canaries are found before the vacuum", got)
	}
	must(t)(s.Vacuum(ctx, store.VacuumOptions{}))
	testlog.Equal(t, "canaries found after the vacuum", findCanaries(t, dir, stored), 0)
	testlog.NoError(t, s.Close())
	testlog.Equal(t, "canaries found after closing", findCanaries(t, dir, stored), 0)
}

// TestEraseCanariesPostgreSQL is TestEraseCanaries on a server. After VACUUM FULL, only the write-ahead log
// contains canaries. A plain VACUUM leaves most of them in the free space of pages.
func TestEraseCanariesPostgreSQL(t *testing.T) {
	t.Parallel()
	const n = 10_000
	server := pgtest.Start(t, pgtest.Options{NoSync: true, Settings: []string{"autovacuum=off"}})
	dsn := server.Database(t)
	b := testlog.Must(pg.OpenBackend(ctx, dsn, pg.Options{StatementTimeout: 5 * time.Minute, ConnectTimeout: 5 * time.Minute}))(t) // long timeouts, for a busy machine
	s := newStore(t, b, store.Options{Snapshots: snapshot.Policy{Every: 100, MinPercent: 1}})
	defer s.Close()
	tables := []string{"patchlog.records", "patchlog.metas", "patchlog.snapshots", "patchlog.shared"}
	for _, table := range tables { // prevents compression by the server, because the scan cannot find compressed text
		pgtest.Exec(t, dsn, "ALTER TABLE "+table+" ALTER COLUMN data SET STORAGE EXTERNAL")
	}
	plantCanaries(t, s, n)
	stored := endsOf(t, b)
	find := func() int {
		pgtest.Exec(t, dsn, "CHECKPOINT")
		return findCanaries(t, server.Data(), stored, "pg_wal")
	}
	if got := find(); got < n {
		t.Fatalf("%d canaries and records that have one are found, of %d", got, n)
	}
	pgtest.Exec(t, dsn, "ANALYZE") // ANALYZE stores samples of the tables' content
	must(t)(s.EraseUser(ctx, "a", "u", store.EraseOptions{}))
	if got := find(); got == 0 {
		t.Error("without a vacuum none is found: the scan does not look where they are")
	} else {
		t.Logf("%d canaries are found before the vacuum", got)
	}
	pgtest.Exec(t, dsn, "VACUUM FULL "+strings.Join(tables, ", "))
	if got := find(); got != 0 {
		t.Errorf("%d canaries are found after the vacuum", got)
	}
}

var (
	canary  = regexp.MustCompile(`canary-[0-9]{5}`)
	encoded = regexp.MustCompile(`[A-Za-z0-9+/]{20,}={0,2}`)
)

// canarySessions is the number of sessions with canaries. Each has a summary, and every fifth has a fork of another
// user.
const canarySessions = 20

// plantCanaries puts n canaries into the sessions, one in each event: in messages, tool results, data, state and
// metadata. Some canaries are in initial states and summaries too.
func plantCanaries(t testing.TB, s *store.Store, n int) {
	t.Helper()
	each := n / canarySessions
	for i := range canarySessions {
		key := store.Key{App: "a", User: "u", Session: fmt.Sprint(i)}
		var events []*patch.Event
		for j := range each {
			c := canaryName(i*each + j)
			long := c
			if j%50 == 0 { // makes the text too long for a page and for a row
				for k := range 200 {
					long += fmt.Sprintf(" %x", sha256.Sum256(fmt.Append(nil, c, k)))
				}
			}
			data := base64.StdEncoding.EncodeToString([]byte("is " + c + " in it"))
			forms := []string{
				`{"id":"e%[2]d","author":"user","content":{"role":"user","parts":[{"text":"it is %[1]s"}]}}`,
				`{"id":"e%[2]d","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"x":["%[1]s"]}}}]}}`,
				`{"id":"e%[2]d","author":"user","actions":{"stateDelta":{"k%[2]d":"%[1]s","user:k%[2]d":"%[1]s"}}}`,
				`{"id":"e%[2]d","author":"user","content":{"parts":[{"inlineData":{"mimeType":"text/plain","data":"%[3]s"}}]}}`,
				`{"id":"e%[2]d","author":"user","customMetadata":{"note":"%[1]s"}}`,
			}
			events = append(events, event(forms[j%len(forms)], long, j, data))
		}
		last := canaryName((i+1)*each - 1)
		must(t)(s.Create(ctx, key, map[string]any{"first": last}, store.CreateOptions{}))
		must(t)(s.AppendEvents(ctx, key, events, store.AppendOptions{}))
		summary := testlog.Must(patch.NewEvent(patch.Fields{ID: "s", Content: patch.Text("user", "a summary of "+last)}))(t)
		must(t)(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSummarise(0, 50, summary)}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))
		if i%5 == 0 {
			must(t)(s.Fork(ctx, key, store.Key{App: "a", User: "other", Session: fmt.Sprint(i)}, store.ForkOptions{}))
		}
	}
}

func canaryName(n int) string { return fmt.Sprintf("canary-%05d", n) }

// recordEnds finds stored records in a file by their last bytes.
type recordEnds struct {
	of    map[[endBytes]byte]string
	begin [1 << 20]bool // indexed by the first bytes of each end, so that most positions need no lookup in of
}

// endBytes is the length of an end. This length is sufficient to distinguish records.
const endBytes = 32

func beginOf(b []byte) uint32 { return binary.LittleEndian.Uint32(b) % (1 << 20) }

func (e *recordEnds) at(b []byte) (record string, ok bool) {
	if !e.begin[beginOf(b)] {
		return "", false
	}
	record, ok = e.of[[endBytes]byte(b)]
	return record, ok
}

// endsOf returns the ends of all records of a backend.
func endsOf(t testing.TB, b backend.Backend) *recordEnds {
	t.Helper()
	out := &recordEnds{of: map[[endBytes]byte]string{}}
	for _, l := range testlog.Must(b.List(ctx, "", "", 1000))(t) {
		for from := uint64(1); from <= l.Last; {
			records := testlog.Must(b.Read(ctx, l.Session, l.Creation, backend.Range(from, 1000), 1<<20))(t)
			for _, r := range records {
				end := r.Data[len(r.Data)-endBytes:]
				out.of[[endBytes]byte(end)], out.begin[beginOf(end)] = fmt.Sprint(l.Session, r.Seq), true
			}
			from += uint64(len(records))
		}
	}
	return out
}

// findCanaries returns the number of canaries in the files below a directory: in plain text, in base64, or in a
// stored record. It skips the directories with the names in without.
func findCanaries(t testing.TB, dir string, stored *recordEnds, without ...string) int {
	t.Helper()
	found := map[string]bool{}
	look := func(data []byte) {
		for _, c := range canary.FindAll(data, -1) {
			found[string(c)] = true
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the server has removed the file
			return nil
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(without, d.Name()):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for at := range max(len(data)-endBytes+1, 0) {
			if r, ok := stored.at(data[at:]); ok {
				found[r] = true
			}
		}
		look(data)
		for _, text := range encoded.FindAll(data, -1) {
			for shift := range 4 { // letters directly before the text may look like base64 too
				text := text[min(shift, len(text)):]
				plain, _ := base64.StdEncoding.AppendDecode(nil, bytes.TrimRight(text[:len(text)/4*4], "="))
				look(plain)
			}
		}
		return nil
	})
	testlog.NoError(t, err)
	return len(found)
}
