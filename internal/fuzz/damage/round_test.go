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

type try struct {
	*wreck
	job    job
	rnd    *rand.Rand
	path   string
	kind   string
	older  bool // a store may open the file as of an earlier commit
	harm   harm
	data   []byte // content of the file after the damage
	writes bool   // some writes come before the reads
	s      *store.Store

	logs      map[store.Key]map[uint64]string // records by session, including those acknowledged after the damage
	last      map[store.Key]uint64            // last acknowledged seq
	readAll   map[store.Key]bool              // sessions whose log was read to its end after the damage
	gone      map[store.Key]bool              // sessions deleted after the damage
	lastError string
	failed    int                  // number of failed reads
	seqs      map[store.Key]uint64 // seq at which reading a log failed

	out *reply
}

func (t *try) wrong(format string, args ...any) {
	t.out.Wrong = append(t.out.Wrong, fmt.Sprintf("%s, %s: %s", t.Name, t.kind, fmt.Sprintf(format, args...)))
}

func (t *try) count(what string, n int) { t.out.Counts[what] += n }

// run damages a file, and then reads, writes, verifies and salvages it.
func (w *wreck) run(j job, dir string) *reply {
	rnd := rand.New(rand.NewPCG(j.Seed, 0))
	t := &try{
		wreck: w, job: j, rnd: rnd, path: filepath.Join(dir, "log.db"), data: w.Data,
		logs: map[store.Key]map[uint64]string{}, last: map[store.Key]uint64{}, readAll: map[store.Key]bool{}, gone: map[store.Key]bool{},
		seqs: map[store.Key]uint64{}, out: &reply{Counts: map[string]int{}},
	}
	for n := range w.Live {
		k := w.Keys[n]
		t.logs[k] = maps.Clone(w.Logs[n])
		for seq := range w.Logs[n] {
			t.last[k] = max(t.last[k], seq)
		}
	}
	t.writes = rnd.IntN(3) == 0
	if err := os.WriteFile(t.path, w.Data, 0o600); err != nil {
		t.wrong("%v", err)
		return t.out
	}
	if rnd.IntN(10) == 0 && j.Bit == 0 {
		t.replaced()
		return t.out
	}
	t.damage()
	t.salvage(dir)
	if !t.open() {
		return t.out
	}
	before := treeOf(t.data)
	if t.writes {
		t.write()
	}
	t.read()
	t.verify()
	t.backup()
	if !t.writes {
		t.write()
	}
	t.flaw()
	if err := t.s.Close(); err != nil {
		t.wrong("Close: %v", err)
	}
	t.kept(before)
	t.again()
	return t.out
}

// flaw simulates the flaw that the job names.
func (t *try) flaw() {
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
			t.wrong("%v", err)
			return
		}
		was := bytes.Clone(data)
		for _, row := range treeOf(data).rows {
			if row.bucket == "records" {
				data[row.to-1] ^= 1
				break
			}
		}
		if err := writeOver(t.path, was, data); err != nil {
			t.wrong("%v", err)
		}
	}
}

// live returns the keys of the existing sessions, sorted.
func (t *try) live() []store.Key { return sorted(t.logs) }

// open opens the file and reports whether that succeeded.
func (t *try) open() bool {
	opts := storeOptions()
	if t.rnd.IntN(2) == 0 {
		opts.CacheBytes = -1
	}
	var err error
	if t.job.Control == "trusts" {
		var b *bolt.Backend
		if b, err = bolt.Open(t.path, bolt.Options{NoSync: true, Logger: quiet}); err == nil {
			t.s, err = store.New(trusts{b}, opts)
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
		t.wrong("Open: %v", err)
	case t.harm.current && !t.harm.pages:
		t.wrong("it does not open, and nothing but keys and values has changed: %v", err)
	}
	return false
}

// damage damages the file through a separate descriptor.
func (t *try) damage() {
	data, err := os.ReadFile(t.path)
	if err != nil {
		t.wrong("%v", err)
		return
	}
	k := kinds[t.job.Kind%len(kinds)]
	if bit := t.job.Bit - 1; bit >= 0 {
		k = kind{fmt.Sprint("bit ", t.job.Bit), inPlace(func(_ *rand.Rand, w *wreck, data []byte) { data[w.inUse()[bit/8]] ^= 1 << (bit % 8) })}
	}
	t.kind = k.name
	harmed := k.do(t.rnd, t.wreck, bytes.Clone(t.Data))
	t.older = strings.Contains(k.name, "stale")
	if t.rnd.IntN(10) == 0 && len(harmed) >= 4*pageBytes && t.job.Bit == 0 { // a second damage
		second := kinds[t.rnd.IntN(len(kinds))]
		t.kind += " and " + second.name
		t.older = t.older || strings.Contains(second.name, "stale")
		harmed = second.do(t.rnd, t.wreck, harmed)
	}
	t.harm = t.harmOf(harmed)
	t.older = t.older || !t.harm.current
	cut := len(harmed) < len(t.Data)
	if !cut {
		harmed = append(harmed, data[len(t.Data):]...)
	}
	if err := writeOver(t.path, data, harmed); err != nil {
		t.wrong("%v", err)
	}
	t.data = harmed
	t.count("files", 1)
}

// writeOver writes the bytes of a file that differ, and truncates the file to the new length.
func writeOver(path string, was, data []byte) error {
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

// replaced truncates the file of an open store, or overwrites it with an older state. Calls must return, but
// their results are not checked. After the file is opened again, each read must return what was once written,
// or an error.
func (t *try) replaced() {
	t.kind = "replaced while open"
	if !t.open() {
		return
	}
	t.append(t.live()[0])
	data, err := os.ReadFile(t.path)
	if err != nil {
		t.wrong("%v", err)
		return
	}
	harmed := t.Older[t.rnd.IntN(len(t.Older))]
	if t.rnd.IntN(2) == 0 {
		harmed = data[:t.rnd.IntN(len(data))]
	}
	if err := writeOver(t.path, data, harmed); err != nil {
		t.wrong("%v", err)
		return
	}
	t.count("files replaced while open", 1)
	_ = ask(t.s, t.keys())
	for i, k := range t.live() {
		if c, err := t.s.AppendEvents(ctx, k, []*patch.Event{say(fmt.Sprint("after", i))}, store.AppendOptions{}); err == nil {
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
	for _, k := range t.live() {
		text, _ := rawText(s, k, 1)
		for line := range strings.Lines(text) {
			seq, form, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, _ := strconv.ParseUint(seq, 10, 64)
			if short(t.logs[k][n]) != form && !t.wasWritten(k, n, form) {
				t.wrong("after it was opened again, record %s of %s is %s, which was never written there", seq, k, form)
			}
		}
	}
}

// wasWritten reports whether a session with the key ever had the record. Deleted sessions count.
func (t *try) wasWritten(k store.Key, seq uint64, form string) bool {
	for n, key := range t.Keys {
		if key == k && short(t.Logs[n][seq]) == form {
			return true
		}
	}
	return false
}

// offered notes the records that the store acknowledged.
func (t *try) offered(k store.Key, c store.Committed, err error) {
	for _, r := range c.Records {
		if r.Seq == 0 {
			continue
		}
		if err != nil {
			continue
		}
		if was, there := t.logs[k][r.Seq]; there && was != textOf(r) && !t.older {
			t.wrong("record %d of %s was acknowledged as %s, and was %s", r.Seq, k, short(textOf(r)), short(was))
		}
		if was, there := t.logs[k][r.Seq]; there && was != textOf(r) { // appended to an earlier state of the log
			t.last[k] = r.Seq
		}
		t.logs[k][r.Seq] = textOf(r)
		t.last[k] = max(t.last[k], r.Seq)
	}
}

func (t *try) append(k store.Key) {
	c, err := t.s.AppendEvents(ctx, k, []*patch.Event{say(fmt.Sprint("new", t.rnd.Uint64()))}, store.AppendOptions{})
	t.offered(k, c, err)
	t.bad("AppendEvents", k, err)
}

// bad reports whether err is an error. It fails the test if the damage does not explain the error.
func (t *try) bad(what string, k store.Key, err error) bool {
	a := answerOf("", err)
	switch {
	case err == nil:
		return false
	case a.Unknown:
		t.count("unknown outcomes", 1)
	case (a.Absent || errors.Is(err, store.ErrConflict)) && t.older:
	case !a.Corrupt || a.Absent || !strings.Contains(a.Err, k.String()) && k != (store.Key{}):
		t.wrong("%s of %s: %v", what, k, err)
	}
	t.failed++
	t.lastError = err.Error()
	t.count("errors", 1)
	return true
}

func (t *try) read() {
	for q, a := range ask(t.s, t.keys()) {
		t.judge(q, a)
		if q.What == whole && a.Err == "" && t.logs[q.Key] != nil {
			t.readAll[q.Key] = true
		}
		if q.What == whole && a.Corrupt && a.Seq > 0 {
			t.seqs[q.Key] = a.Seq
		}
	}
}

// changed reports whether a session has changed since the file was made.
func (t *try) changed(k store.Key) bool {
	for n := range t.Live {
		if t.Keys[n] == k {
			return t.gone[k] || len(t.logs[k]) != len(t.Logs[n])
		}
	}
	return t.logs[k] != nil // a new session
}

// verify checks that Verify reports all damage that reads reported, and reports nothing for an undamaged file.
func (t *try) verify() {
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
			t.wrong("Verify: %v", err)
		}
		if t.harm.none() {
			t.wrong("nothing in use has changed, but Verify says %v %v", p, err)
		}
	}
	t.count("problems verified", n)
	if n == 0 && t.failed > 0 {
		t.wrong("Verify finds nothing, where %d answers are errors, the last one %s", t.failed, t.lastError)
	}
	for k, seq := range t.seqs {
		if !found[where{k, seq}] && !t.harm.pages && t.harm.current && !t.harm.keys {
			t.wrong("Verify does not name record %d of %s, at which reading ends", seq, k)
		}
	}
	if t.harm.pages || !t.harm.current || t.harm.keys {
		return
	}
	for k, seqs := range t.harm.records {
		for _, seq := range seqs {
			t.count("records damaged", 1)
			if !t.gone[k] && !found[where{k, seq}] {
				t.wrong("Verify does not name record %d of %s, which was damaged", seq, k)
			}
		}
	}
}

// backup checks that a backup fails or is equal to the file.
func (t *try) backup() {
	if t.rnd.IntN(4) > 0 {
		return
	}
	var b bytes.Buffer
	if t.bad("Backup", store.Key{}, t.s.Backup(ctx, &b)) {
		if b.Len() > 0 {
			t.wrong("a backup that fails has %d bytes", b.Len())
		}
		return
	}
	t.count("backups", 1)
	path := t.path + ".backup"
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.wrong("%v", err)
		return
	}
	s, err := store.Open(path, storeOptions())
	if err != nil {
		t.wrong("a backup does not open: %v", err)
		return
	}
	defer s.Close()
	for q, a := range ask(s, t.keys()) {
		if a.Err != "" && !a.Absent {
			t.wrong("backup: %s: %s", q, a.Err)
			continue
		}
		t.judge(q, a)
	}
}

// write makes the writes of a service that has not noticed the damage.
func (t *try) write() {
	keys := t.live()
	t.rnd.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, k := range keys[:min(len(keys), 4)] {
		t.retry(k)
		t.append(k)
		if _, err := t.s.Create(ctx, k, nil, store.CreateOptions{}); err == nil {
			if !t.wasAbsent(question{k, "Info"}) {
				t.wrong("%s was created again", k)
			}
			t.logs[k], t.last[k], t.readAll[k] = map[uint64]string{}, 0, false
		} else if !errors.Is(err, store.ErrExists) {
			t.bad("Create", k, err)
		}
	}
	fresh := store.Key{App: "app", User: "user1", Session: "new"}
	if _, err := t.s.Create(ctx, fresh, map[string]any{"app:new": 1}, store.CreateOptions{}); !t.bad("Create", fresh, err) {
		t.logs[fresh] = map[uint64]string{}
		t.append(fresh)
	}
	k := keys[0]
	switch t.rnd.IntN(4) {
	case 0:
		v, err := t.s.View(ctx, k)
		if t.bad("View", k, err) || v.Len() == 0 {
			break
		}
		c, err := t.s.ApplyPatch(ctx, k, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{On: v})
		t.offered(k, c, err)
		if t.bad("ApplyPatch", k, err) {
			break
		}
		c, err = t.s.Revert(ctx, k, c.Records[0].ID(), store.UndoOptions{})
		t.offered(k, c, err)
		t.bad("Revert", k, err)
	case 1:
		fork := store.Key{App: "app", User: "user1", Session: "fork"}
		if _, err := t.s.Fork(ctx, k, fork, store.ForkOptions{}); !t.bad("Fork", store.Key{}, err) {
			t.logs[fork] = maps.Clone(t.logs[k])
			if !t.older {
				t.last[fork] = t.last[k]
			}
		}
	case 2:
		if !t.bad("Delete", k, t.s.Delete(ctx, k)) {
			t.gone[k] = true
			t.failed = 0 // the reads that failed may have been of this session
			t.count("sessions deleted", 1)
		}
	case 3:
		if !t.bad("Vacuum", store.Key{}, testlog.ErrorOf(t.s.Vacuum(ctx, store.VacuumOptions{}))) {
			t.count("vacuums", 1)
			t.failed = 0 // vacuum does not copy damaged names and order
		}
	}
}

// retry appends an event that exists.
func (t *try) retry(k store.Key) {
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
	if t.bad("a retry", k, err) {
		return
	}
	if c.Records[0].Seq != seq && !t.older {
		t.wrong("a retry of record %d of %s landed at %d", seq, k, c.Records[0].Seq)
	}
	t.offered(k, c, nil)
}

// again reopens the file, and checks that what was readable is still readable.
func (t *try) again() {
	opts := storeOptions()
	s, err := store.Open(t.path, opts)
	if err != nil {
		t.wrong("it does not open again: %v", err)
		return
	}
	t.s = s
	for _, k := range t.live() {
		q := question{k, whole}
		text, err := rawText(s, k, 1)
		a := answerOf(text, err)
		if t.gone[k] {
			if !a.Absent && !a.Corrupt {
				t.wrong("%s was deleted, and is there", k)
			}
			continue
		}
		t.judgeLog(q, a)
		if a.Err != "" && !a.Absent && (!a.Corrupt || t.readAll[k]) {
			t.wrong("%s after it was opened again: %s", q, a.Err)
		}
	}
	if err := s.Close(); err != nil {
		t.wrong("Close: %v", err)
	}
}

func (t *try) salvage(dir string) {
	intact := t.intact(t.data)
	got, wrong := t.rescue(t.data, intact)
	for _, text := range wrong {
		t.wrong("salvage: %s", text)
	}
	t.count("records untouched", len(intact))
	t.count("of them salvaged", got)
	if t.rnd.IntN(10) == 0 {
		t.count("undamaged records, for a salvage that trusts the tree", len(intact))
		t.count("of them read by the tree", t.trusting(dir, t.data, intact))
	}
}
