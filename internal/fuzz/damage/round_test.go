package damage

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

type trial struct {
	*wreck
	job         job
	rnd         *rand.Rand
	path        string
	kind        string
	mayBeOlder  bool // whether the store may open the file as of an earlier commit
	harm        damageReport
	data        []byte // content of the file after the damage
	writesFirst bool   // whether some writes precede the reads
	s           *store.Store

	logs      map[store.Key]map[uint64]string // key: session and seq; value: the records, including those acknowledged after the damage
	last      map[store.Key]uint64            // last acknowledged seq of each session
	readAll   map[store.Key]bool              // sessions whose log was read to its end after the damage
	deleted   map[store.Key]bool              // sessions deleted after the damage
	lastError string
	failed    int                  // number of calls that failed
	seqs      map[store.Key]uint64 // seq at which reading a log failed

	out *reply
}

func (t *trial) failf(format string, args ...any) {
	t.out.Wrong = append(t.out.Wrong, fmt.Sprintf("%s, %s: %s", t.Name, t.kind, fmt.Sprintf(format, args...)))
}

func (t *trial) count(what string, n int) { t.out.Counts[what] += n }

// run damages a file, and then reads, writes, verifies and salvages it.
func (w *wreck) run(j job, dir string) *reply {
	rnd := rand.New(rand.NewPCG(j.Seed, 0))
	t := &trial{
		wreck: w, job: j, rnd: rnd, path: filepath.Join(dir, "log.db"), data: w.Data,
		logs: map[store.Key]map[uint64]string{}, last: map[store.Key]uint64{}, readAll: map[store.Key]bool{}, deleted: map[store.Key]bool{},
		seqs: map[store.Key]uint64{}, out: &reply{Counts: map[string]int{}},
	}
	for n := range w.Live {
		k := w.Keys[n]
		t.logs[k] = maps.Clone(w.Logs[n])
		for seq := range w.Logs[n] {
			t.last[k] = max(t.last[k], seq)
		}
	}
	t.writesFirst = rnd.IntN(3) == 0
	if err := os.WriteFile(t.path, w.Data, 0o600); err != nil {
		t.failf("%v", err)
		return t.out
	}
	if rnd.IntN(10) == 0 && j.Bit == 0 {
		t.replaceWhileOpen()
		return t.out
	}
	t.damage()
	t.salvage(dir)
	if !t.open() {
		return t.out
	}
	before := treeOf(t.data)
	if t.writesFirst {
		t.write()
	}
	t.read()
	t.verify()
	t.backup()
	if !t.writesFirst {
		t.write()
	}
	t.simulateFlaw()
	if err := t.s.Close(); err != nil {
		t.failf("Close: %v", err)
	}
	t.checkIntactKept(before)
	t.reopen()
	return t.out
}

// simulateFlaw simulates the flaw that the job names.
func (t *trial) simulateFlaw() {
	switch t.job.Control {
	case "dies":
		os.Exit(2)
	case "takes memory":
		b := make([]byte, 100<<20)
		for i := 0; i < len(b); i += pageBytes {
			b[i] = 1
		}
		runtime.KeepAlive(b)
	case "overwrites":
		data, err := os.ReadFile(t.path)
		if err != nil {
			t.failf("%v", err)
			return
		}
		was := bytes.Clone(data)
		for _, row := range treeOf(data).rows {
			if row.bucket == "records" {
				data[row.to-1] ^= 1
				break
			}
		}
		if err := overwrite(t.path, was, data); err != nil {
			t.failf("%v", err)
		}
	}
}

// liveKeys returns the keys of the existing sessions, sorted.
func (t *trial) liveKeys() []store.Key { return sortedKeys(t.logs) }

// open opens the file and reports whether that succeeded.
func (t *trial) open() bool {
	opts := storeOptions()
	if t.rnd.IntN(2) == 0 {
		opts.CacheBytes = -1
	}
	var err error
	if t.job.Control == "trusts" {
		var b *bolt.Backend
		if b, err = bolt.Open(t.path, bolt.Options{NoSync: true, Logger: quiet}); err == nil {
			t.s, err = store.New(truncatingBackend{b}, opts)
		} else if errors.Is(err, store.ErrCorrupt) {
			return false
		}
	} else {
		t.s, err = store.Open(t.path, opts)
	}
	if err == nil {
		return true
	}
	t.count("files that do not open", 1)
	switch {
	case t.job.Control != "":
	case !strings.Contains(err.Error(), t.path),
		!errors.Is(err, store.ErrCorrupt) && (hasPage(t.data) || !errors.Is(err, store.ErrNotDatabase)):
		t.failf("Open: %v", err)
	case t.harm.current && !t.harm.pages:
		t.failf("it does not open, and nothing but keys and values has changed: %v", err)
	}
	return false
}

// damage damages the file on disk, through its own descriptor.
func (t *trial) damage() {
	data, err := os.ReadFile(t.path)
	if err != nil {
		t.failf("%v", err)
		return
	}
	k := kinds[t.job.Kind%len(kinds)]
	if bit := t.job.Bit - 1; bit >= 0 {
		k = damageKind{fmt.Sprint("bit ", t.job.Bit), inPlace(func(_ *rand.Rand, w *wreck, data []byte) { data[w.inUse()[bit/8]] ^= 1 << (bit % 8) })}
	}
	t.kind = k.name
	harmed := k.do(t.rnd, t.wreck, bytes.Clone(t.Data))
	t.mayBeOlder = strings.Contains(k.name, "stale")
	if t.rnd.IntN(10) == 0 && len(harmed) >= 4*pageBytes && t.job.Bit == 0 { // in some trials, damage the file twice
		second := kinds[t.rnd.IntN(len(kinds))]
		t.kind += " and " + second.name
		t.mayBeOlder = t.mayBeOlder || strings.Contains(second.name, "stale")
		harmed = second.do(t.rnd, t.wreck, harmed)
	}
	t.harm = t.findDamage(harmed)
	t.mayBeOlder = t.mayBeOlder || !t.harm.current
	cut := len(harmed) < len(t.Data)
	if !cut {
		harmed = append(harmed, data[len(t.Data):]...)
	}
	if err := overwrite(t.path, data, harmed); err != nil {
		t.failf("%v", err)
	}
	t.data = harmed
	t.count("files", 1)
}

// overwrite writes only those bytes of a file that have changed, and truncates the file to the new length.
func overwrite(path string, was, data []byte) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	for at := 0; at < min(len(was), len(data)); at += sector {
		end := min(at+sector, len(was), len(data))
		if bytes.Equal(was[at:end], data[at:end]) {
			continue
		}
		for i := at; i < end; i++ {
			from := i
			for i < end && was[i] != data[i] {
				i++
			}
			if _, err := file.WriteAt(data[from:i], int64(from)); err != nil {
				return err
			}
		}
	}
	if len(data) < len(was) {
		return file.Truncate(int64(len(data)))
	}
	return nil
}

// replaceWhileOpen truncates the file of an open store, or overwrites it with an older state. Calls must return, but
// their results are not checked. After the file is opened again, each read must return an error, or a record that
// was written to that session at any time.
func (t *trial) replaceWhileOpen() {
	t.kind = "replaced while open"
	if !t.open() {
		return
	}
	t.append(t.liveKeys()[0])
	data, err := os.ReadFile(t.path)
	if err != nil {
		t.failf("%v", err)
		return
	}
	harmed := t.Older[t.rnd.IntN(len(t.Older))]
	if t.rnd.IntN(2) == 0 {
		harmed = data[:t.rnd.IntN(len(data))]
	}
	if err := overwrite(t.path, data, harmed); err != nil {
		t.failf("%v", err)
		return
	}
	t.count("files replaced while open", 1)
	_ = readAll(t.s, t.keys())
	for i, k := range t.liveKeys() {
		if c, err := t.s.AppendEvents(ctx, k, []*patch.Event{newEvent(fmt.Sprint("after", i))}, store.AppendOptions{}); err == nil {
			t.logs[k][c.Records[0].Seq] = textOf(c.Records[0])
		}
	}
	for range t.s.Verify(ctx, store.VerifyOptions{}) {
	}
	_, _ = t.s.Vacuum(ctx, store.VacuumOptions{})
	_ = t.s.Close()
	s, err := store.Open(t.path, storeOptions())
	if err != nil {
		return
	}
	defer s.Close()
	for _, k := range t.liveKeys() {
		text, _ := rawText(s, k, 1)
		for line := range strings.Lines(text) {
			seq, form, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, _ := strconv.ParseUint(seq, 10, 64)
			if shorten(t.logs[k][n]) != form && !t.wasWritten(k, n, form) {
				t.failf("after it was opened again, record %s of %s is %s, which was never written there", seq, k, form)
			}
		}
	}
}

// wasWritten reports whether a session with the key ever had the record. Deleted sessions count too.
func (t *trial) wasWritten(k store.Key, seq uint64, form string) bool {
	for n, key := range t.Keys {
		if key == k && shorten(t.Logs[n][seq]) == form {
			return true
		}
	}
	return false
}

// addCommitted adds the records that the store acknowledged to the trial's logs.
func (t *trial) addCommitted(k store.Key, c store.Committed, err error) {
	for _, r := range c.Records {
		if r.Seq == 0 {
			continue
		}
		if err != nil {
			continue
		}
		if old, ok := t.logs[k][r.Seq]; ok && old != textOf(r) && !t.mayBeOlder {
			t.failf("record %d of %s was acknowledged as %s, and was %s", r.Seq, k, shorten(textOf(r)), shorten(old))
		}
		if old, there := t.logs[k][r.Seq]; there && old != textOf(r) { // the record was appended to an earlier state of the log
			t.last[k] = r.Seq
		}
		t.logs[k][r.Seq] = textOf(r)
		t.last[k] = max(t.last[k], r.Seq)
	}
}

func (t *trial) append(k store.Key) {
	c, err := t.s.AppendEvents(ctx, k, []*patch.Event{newEvent(fmt.Sprint("new", t.rnd.Uint64()))}, store.AppendOptions{})
	t.addCommitted(k, c, err)
	t.checkError("AppendEvents", k, err)
}

// checkError reports whether err is not nil. It fails the test if the damage does not explain the error.
func (t *trial) checkError(what string, k store.Key, err error) bool {
	a := newResult("", err)
	switch {
	case err == nil:
		return false
	case a.Unknown:
		t.count("unknown outcomes", 1)
	case (a.Absent || errors.Is(err, store.ErrConflict)) && t.mayBeOlder:
	case !a.Corrupt || a.Absent || !strings.Contains(a.Err, k.String()) && k != (store.Key{}):
		t.failf("%s of %s: %v", what, k, err)
	}
	t.failed++
	t.lastError = err.Error()
	t.count("errors", 1)
	return true
}

func (t *trial) read() {
	for q, a := range readAll(t.s, t.keys()) {
		t.checkResult(q, a)
		if q.What == whole && a.Err == "" && t.logs[q.Key] != nil {
			t.readAll[q.Key] = true
		}
		if q.What == whole && a.Corrupt && a.Seq > 0 {
			t.seqs[q.Key] = a.Seq
		}
	}
}

// hasChanged reports whether a session has changed since the file was made.
func (t *trial) hasChanged(k store.Key) bool {
	for n := range t.Live {
		if t.Keys[n] == k {
			return t.deleted[k] || len(t.logs[k]) != len(t.Logs[n])
		}
	}
	return t.logs[k] != nil // the session was created after the damage
}

// verify checks that Verify finds the damage if reads failed. If the file is undamaged, Verify must find nothing.
func (t *trial) verify() {
	type where struct {
		key store.Key
		seq uint64
	}
	found := map[where]bool{}
	n := 0
	for p, err := range t.s.Verify(ctx, store.VerifyOptions{}) {
		n++
		found[where{p.Key, p.Seq}] = true
		if err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.failf("Verify: %v", err)
		}
		if t.harm.none() {
			t.failf("nothing in use has changed, but Verify says %v %v", p, err)
		}
	}
	t.count("problems verified", n)
	if n == 0 && t.failed > 0 {
		t.failf("Verify finds nothing, where %d answers are errors, the last one %s", t.failed, t.lastError)
	}
	for k, seq := range t.seqs {
		if !found[where{k, seq}] && !t.harm.pages && t.harm.current && !t.harm.keys {
			t.failf("Verify does not name record %d of %s, at which reading ends", seq, k)
		}
	}
	if t.harm.pages || !t.harm.current || t.harm.keys {
		return
	}
	for k, seqs := range t.harm.records {
		for _, seq := range seqs {
			t.count("records damaged", 1)
			if !t.deleted[k] && !found[where{k, seq}] {
				t.failf("Verify does not name record %d of %s, which was damaged", seq, k)
			}
		}
	}
}

// backup checks that a backup fails or has the same content as the file.
func (t *trial) backup() {
	if t.rnd.IntN(4) > 0 {
		return
	}
	var b bytes.Buffer
	if t.checkError("Backup", store.Key{}, t.s.Backup(ctx, &b)) {
		if b.Len() > 0 {
			t.failf("a backup that fails has %d bytes", b.Len())
		}
		return
	}
	t.count("backups", 1)
	path := t.path + ".backup"
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.failf("%v", err)
		return
	}
	s, err := store.Open(path, storeOptions())
	if err != nil {
		t.failf("a backup does not open: %v", err)
		return
	}
	defer s.Close()
	for q, a := range readAll(s, t.keys()) {
		if a.Err != "" && !a.Absent {
			t.failf("backup: %s: %s", q, a.Err)
			continue
		}
		t.checkResult(q, a)
	}
}

// write writes to the store like a service that has not noticed the damage.
func (t *trial) write() {
	keys := t.liveKeys()
	t.rnd.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, k := range keys[:min(len(keys), 4)] {
		t.retry(k)
		t.append(k)
		if _, err := t.s.Create(ctx, k, nil, store.CreateOptions{}); err == nil {
			if !t.wasAbsent(query{k, "Info"}) {
				t.failf("%s was created again", k)
			}
			t.logs[k], t.last[k], t.readAll[k] = map[uint64]string{}, 0, false
		} else if !errors.Is(err, store.ErrExists) {
			t.checkError("Create", k, err)
		}
	}
	fresh := store.Key{App: "app", User: "user1", Session: "new"}
	if _, err := t.s.Create(ctx, fresh, map[string]any{"app:new": 1}, store.CreateOptions{}); !t.checkError("Create", fresh, err) {
		t.logs[fresh] = map[uint64]string{}
		t.append(fresh)
	}
	k := keys[0]
	switch t.rnd.IntN(4) {
	case 0:
		v, err := t.s.View(ctx, k)
		if t.checkError("View", k, err) || v.Len() == 0 {
			break
		}
		c, err := t.s.ApplyPatch(ctx, k, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{On: v})
		t.addCommitted(k, c, err)
		if t.checkError("ApplyPatch", k, err) {
			break
		}
		c, err = t.s.Revert(ctx, k, c.Records[0].ID(), store.UndoOptions{})
		t.addCommitted(k, c, err)
		t.checkError("Revert", k, err)
	case 1:
		fork := store.Key{App: "app", User: "user1", Session: "fork"}
		if _, err := t.s.Fork(ctx, k, fork, store.ForkOptions{}); !t.checkError("Fork", store.Key{}, err) {
			t.logs[fork] = maps.Clone(t.logs[k])
			if !t.mayBeOlder {
				t.last[fork] = t.last[k]
			}
		}
	case 2:
		if !t.checkError("Delete", k, t.s.Delete(ctx, k)) {
			t.deleted[k] = true
			t.failed = 0 // the failed calls may have concerned this session only, so Verify need not find damage
			t.count("sessions deleted", 1)
		}
	case 3:
		if !t.checkError("Vacuum", store.Key{}, testlog.ErrorOf(t.s.Vacuum(ctx, store.VacuumOptions{}))) {
			t.count("vacuums", 1)
			t.failed = 0 // a vacuum does not copy damaged names or a wrong order of keys
		}
	}
}

// retry appends an event that is already in the log.
func (t *trial) retry(k store.Key) {
	seqs := slices.Sorted(maps.Keys(t.logs[k]))
	if len(seqs) == 0 {
		return
	}
	seq := seqs[t.rnd.IntN(len(seqs))]
	rec, err := patch.ParseRecord([]byte(t.logs[k][seq]))
	if err != nil || rec.Event == nil {
		return
	}
	c, err := t.s.AppendEvents(ctx, k, []*patch.Event{rec.Event}, store.AppendOptions{})
	if t.checkError("a retry", k, err) {
		return
	}
	if c.Records[0].Seq != seq && !t.mayBeOlder {
		t.failf("a retry of record %d of %s landed at %d", seq, k, c.Records[0].Seq)
	}
	t.addCommitted(k, c, nil)
}

// reopen reopens the file and checks that all records that were readable before are still readable.
func (t *trial) reopen() {
	opts := storeOptions()
	s, err := store.Open(t.path, opts)
	if err != nil {
		t.failf("it does not open again: %v", err)
		return
	}
	t.s = s
	for _, k := range t.liveKeys() {
		q := query{k, whole}
		text, err := rawText(s, k, 1)
		a := newResult(text, err)
		if t.deleted[k] {
			if !a.Absent && !a.Corrupt {
				t.failf("%s was deleted, and is there", k)
			}
			continue
		}
		t.checkLog(q, a)
		if a.Err != "" && !a.Absent && (!a.Corrupt || t.readAll[k]) {
			t.failf("%s after it was opened again: %s", q, a.Err)
		}
	}
	if err := s.Close(); err != nil {
		t.failf("Close: %v", err)
	}
}

func (t *trial) salvage(dir string) {
	intact := t.intactRecords(t.data)
	got, wrong := t.salvageRecords(t.data, intact)
	for _, text := range wrong {
		t.failf("salvage: %s", text)
	}
	t.count("records untouched", len(intact))
	t.count("of them salvaged", got)
	if t.rnd.IntN(10) == 0 {
		t.count("undamaged records, for a salvage that trusts the tree", len(intact))
		t.count("of them read by the tree", t.salvageByTree(dir, t.data, intact))
	}
}
