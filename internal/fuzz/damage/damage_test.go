package damage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/fuzz/long"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

func allWrecks(t *testing.T) []*wreck {
	t.Helper()
	all, err := makeWrecks()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var makeWrecks = sync.OnceValues(func() (all []*wreck, err error) {
	dir, err := os.MkdirTemp("", "wreck")
	if err != nil {
		return nil, err
	}
	for _, s := range shapes {
		w, err := s.makeWreck(filepath.Join(dir, s.name))
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		all = append(all, w)
	}
	return all, os.RemoveAll(dir)
})

// After any damage to a closed file, reads return what was written, or an error that names the damage. Writes do not
// lose readable data. Verify finds the damage. Salvage recovers all undamaged records, except one in a thousand.
//
// A record counts as undamaged if the bytes of its key and its form are unchanged in place, even if the header of
// its page, or the path to the page, is damaged. A salvage that relied on the tree would fail this test.
func TestDamage(t *testing.T) {
	few := 3 * len(kinds)
	if testing.Short() {
		few = len(kinds)
	}
	wrecks := allWrecks(t)
	w := newWorker(t, wrecks)
	all := map[string]int{}
	for r := range long.Rounds(t, few) {
		out := w.check(t, wrecks, job{Wreck: r.N % len(wrecks), Kind: r.N / len(wrecks) % len(kinds), Seed: r.Random.Uint64()})
		for what, n := range out.Counts {
			r.Count(what, n)
			all[what] += n
		}
	}
	if lost := all["records untouched"] - all["of them salvaged"]; lost*1000 > all["records untouched"] {
		t.Errorf("%d of %d untouched records were not salvaged", lost, all["records untouched"])
	}
	if sampled := all["undamaged records, for a salvage that trusts the tree"]; (sampled-all["of them read by the tree"])*1000 <= sampled && sampled > 2000 {
		t.Errorf("a salvage that trusts the tree got %d of %d; the test tests nothing", all["of them read by the tree"], sampled)
	}
}

// If any bit in the used parts of a small file is flipped, the store behaves as in TestDamage. A short run flips a
// sample of the bits.
func TestFlippedBits(t *testing.T) {
	few := 100
	if testing.Short() {
		few = 30
	}
	wrecks := allWrecks(t)
	w := newWorker(t, wrecks)
	const step = 1_299_709 // a prime greater than the number of bits, so that no bit is flipped twice
	bits := 8 * len(wrecks[0].inUse())
	for r := range long.Rounds(t, few) {
		for what, n := range w.check(t, wrecks, job{Bit: 1 + r.N*step%bits, Seed: r.Random.Uint64()}).Counts {
			r.Count(what, n)
		}
	}
	t.Logf("%d bits are in use", bits)
}

// check runs a job. It fails the test if the worker reports a fault.
func (w *worker) check(t *testing.T, wrecks []*wreck, j job) reply {
	t.Helper()
	what := fmt.Sprintf("%s, %s, bit %d", wrecks[j.Wreck].Name, kinds[j.Kind].name, j.Bit)
	out, err := w.do(j)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return reply{}
	}
	for _, text := range out.Wrong {
		t.Error(text)
	}
	if exceedsMemory(wrecks, j, out) {
		// If the second run needs less memory, the first run had garbage in memory.
		if again, err := w.do(j); err != nil || exceedsMemory(wrecks, j, again) {
			t.Errorf("%s: %d bytes of memory for a file of %d (%v)", what, out.Peak, out.Size, err)
		}
	}
	return out
}

// If a file has lost its meta pages, Open reports damage if another page has the form of a page of bbolt. Otherwise,
// Open reports that the file is no database, because it could be a file of another program.
func TestCutOffWithoutMetaPages(t *testing.T) {
	w := allWrecks(t)[0]
	for size, want := range map[int]error{
		1: store.ErrNotDatabase, pageBytes: store.ErrNotDatabase, 2 * pageBytes: store.ErrNotDatabase, 2*pageBytes + 19: store.ErrNotDatabase,
		2*pageBytes + 20: store.ErrCorrupt, 3 * pageBytes: store.ErrCorrupt, len(w.Data): store.ErrCorrupt,
	} {
		data := clearMetaPages(nil, w, bytes.Clone(w.Data[:size]))
		path := filepath.Join(t.TempDir(), "log.db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open(path, storeOptions()); !errors.Is(err, want) || hasPage(data) != (want == store.ErrCorrupt) {
			t.Errorf("%d bytes: %v, want %v; hasPage says %v", size, err, want, hasPage(data))
		}
	}
}

// The test harness detects a store that silently ends a log at damage, overwrites readable data, crashes, or needs
// much memory.
func TestFlawedStoreIsReported(t *testing.T) {
	wrecks := allWrecks(t)
	for _, control := range []string{"trusts", "overwrites", "dies", "takes memory"} {
		t.Run(control, func(t *testing.T) {
			if control == "takes memory" && testlog.Race {
				t.Skip("memory is not judged under the race detector")
			}
			w := newWorker(t, wrecks)
			for seed := range uint64(30) {
				j := job{Wreck: 1, Kind: kindOf(t, "bits of records"), Seed: seed, Control: control}
				out, err := w.do(j)
				if len(out.Wrong) > 0 || err != nil && control == "dies" || exceedsMemory(wrecks, j, out) {
					return
				}
			}
			t.Error("30 files were damaged, and nothing is reported")
		})
	}
}

// exceedsMemory reports whether a job needed more memory than the size of its file allows. The size is the size at
// the end of the job, because the file grows. Under the race detector, there is no limit.
func exceedsMemory(wrecks []*wreck, j job, out reply) bool {
	return !testlog.Race && out.Peak > 8*max(out.Size, int64(len(wrecks[j.Wreck].Data)))+64<<20
}

func kindOf(t *testing.T, name string) int {
	t.Helper()
	for i, k := range kinds {
		if k.name == name {
			return i
		}
	}
	t.Fatalf("no damage is called %q", name)
	return 0
}
