//go:build linux && (amd64 || arm64)

package power

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/fuzz/linear"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
)

// judge returns the violations of a history that ends with reads after a power cut before a step.
//
// bbolt writes the meta page of a commit and then syncs it. Between the two, readers already see the commit. A
// power cut before the sync may lose data that was read. This loss is no violation if all of the following
// hold:
//
//   - The file has its content from before the write of the meta page.
//   - The reads agree with the content of the file after that write.
//   - The history without the reads that ended after that write is valid.
func (r *run) judge(h linear.History, before int) []string {
	faults := linear.Options{Faults: true}
	violations := h.Judge(faults)
	write := r.unsyncedMeta(before)
	if len(violations) == 0 || write < 0 {
		return violations
	}
	readBefore, err := r.historyOn(write, before)
	readAfter, isErr := r.historyOn(before, before)
	if err := errors.Join(err, isErr); err != nil {
		return append(violations, err.Error())
	}
	if !slices.EqualFunc(readBefore, h[:min(len(readBefore), len(h))], isSameReply) {
		return violations
	}
	if wrong := readAfter.Judge(faults); len(wrong) > 0 {
		return wrong
	}
	load := r.load.Until(r.moment(before)).History()
	kept := slices.DeleteFunc(slices.Clone(load), func(e linear.Call) bool {
		acknowledged := e.Outcome == ops.Done && e.Changes()
		return e.To > r.steps[write].moment && e.Outcome != ops.Gone && !acknowledged
	})
	return append(kept, h[len(load):]...).Judge(faults)
}

// unsyncedMeta returns the step that last wrote the meta page of the log file before the given step. If a sync of
// the file was attempted since that write, it returns -1.
func (r *run) unsyncedMeta(before int) int {
	for i, s := range slices.Backward(r.steps[:before]) {
		switch {
		case filepath.Base(s.file.path) != fileName:
		case s.name == "sync", s.name == "fsync":
			return -1
		case s.isMeta():
			return i
		}
	}
	return -1
}

// isMeta reports whether the step writes a meta page of the log file.
func (s step) isMeta() bool {
	return s.name == "write" && s.at < int64(2*os.Getpagesize()) && filepath.Base(s.file.path) == fileName
}

// historyOn returns the load's history up to the step before, followed by new reads. The reads are of the files as
// the system showed them before the step shown.
func (r *run) historyOn(shown, before int) (linear.History, error) {
	dir, err := r.writeShown(shown)
	defer os.RemoveAll(dir)
	if err != nil {
		return nil, err
	}
	s, err := r.setting.open(filepath.Join(dir, fileName))
	if err != nil {
		return nil, err
	}
	h := r.load.Until(r.moment(before)).End(&ops.Local{Store: s})
	return h, s.Close()
}

// writeShown writes files into a new directory. The files are those that the system showed before a step. The caller
// must remove the directory.
func (r *run) writeShown(step int) (dir string, err error) {
	if dir, err = os.MkdirTemp(r.room, "shown-"); err == nil {
		err = r.diskBefore(step, rand.New(rand.NewPCG(0, 0))).writeTo(dir)
	}
	return dir, err
}

// isSameReply reports whether two operations have the same reply. It ignores the parts of a reply that a reader of
// the file cannot see.
func isSameReply(a, b linear.Call) bool {
	return a.Kind == b.Kind && a.Session == b.Session && a.Outcome == b.Outcome && a.Creation == b.Creation &&
		a.Exported == b.Exported && maps.Equal(a.Values, b.Values)
}

// delayedReplies is a caller that delays the replies of a store.
type delayedReplies struct {
	*ops.Local
	made    chan ops.Reply
	release chan struct{}
}

func (c delayedReplies) Call(o ops.Op) ops.Reply {
	r := c.Local.Call(o)
	c.made <- r
	<-c.release
	return r
}

// A commit that was read may be lost only if its sync has not ended. An acknowledged commit is never lost.
func TestReadBeforeSync(t *testing.T) {
	tap, r := needTap(t), newRun(t, newDir(t), newDisk(), setting{}, fault{})
	l := &linear.Load{Clients: 1, Apps: 1, Name: "unsynced"}
	r.load = l
	l.Begin()
	var store delayedReplies
	var inFlight sync.WaitGroup
	// call executes an operation on the session. It returns the last step that wrote a meta page.
	call := func(c ops.Caller, kind ops.Kind, ids ...string) (last int) {
		o := ops.Op{App: "app", Session: "s", Kind: kind, IDs: ids}
		if c == store {
			inFlight.Go(func() { l.Call(store, o) })
			if reply := <-store.made; reply.Outcome != ops.Done {
				t.Errorf("%s: %s", kind, reply.Err)
			}
		} else if reply := l.Call(c, o); reply.Outcome != ops.Done {
			t.Errorf("%s: %s", kind, reply.Err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for last = len(r.steps) - 1; !r.steps[last].isMeta(); last-- {
		}
		return last
	}
	var readAtSync atomic.Bool
	defer tap.start(func(c syscall) outcome {
		if c.name == "sync" && r.unsyncedMeta(len(r.steps)) >= 0 && readAtSync.Swap(false) {
			call(store.Local, ops.Raw)
		}
		return r.decide(c)
	})()
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	store = delayedReplies{&ops.Local{Store: r.store}, make(chan ops.Reply), make(chan struct{})}
	call(store.Local, ops.Create)
	acknowledged := call(store.Local, ops.Append, "acknowledged")
	synced := call(store, ops.Append, "synced")
	readAtSync.Store(true)
	unsynced := call(store, ops.Append, "unsynced")
	call(store.Local, ops.Raw)
	call(store, ops.Append, "next")
	close(store.release)
	inFlight.Wait()
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	atSync := unsynced + 1
	if r.steps[atSync].name != "sync" || readAtSync.Load() {
		t.Fatalf("step %d is a %s, and not the sync of a meta page", atSync, r.steps[atSync].name)
	}
	check := func(left, before int) error {
		dir, err := r.writeShown(left)
		if err == nil {
			_, err = r.recover(dir, before)
		}
		return err
	}
	for _, c := range []struct {
		name        string
		left        int // the content before this step remains after the power cut
		before      int
		isViolation bool
	}{
		{"nothing is lost", atSync, atSync, false},
		{"the commit that is not synced is lost", unsynced, atSync, false},
		{"an unacknowledged commit is lost, and was read after its sync", unsynced, atSync + 1, true},
		{"a synced commit is lost too, and was read before the sync", synced, atSync, true},
		{"an acknowledged commit is lost too", acknowledged, atSync, true},
	} {
		if err := check(c.left, c.before); (err != nil) != c.isViolation {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	history := l.History()
	l.ReadDuring(emptyStore{}, history[slices.IndexFunc(history, func(e linear.Call) bool { return e.Kind == ops.Raw })])
	if check(unsynced, atSync) == nil {
		t.Error("before the sync, a read did not show an acknowledged write, and this is no violation")
	}
}

type emptyStore struct{}

func (emptyStore) Call(ops.Op) ops.Reply { return ops.Reply{Outcome: ops.NotFound} }
