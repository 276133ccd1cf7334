package bolt

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// handle is one opening of the file.
//
// bbolt panics on some damage, in the midst of what it holds locked, and whoever needs
// the lock then waits for ever. Such a panic abandons the handle: bbolt is not called
// again then, not even to close the file, and every call fails with the reason. Nor does
// a call that is under way wait for ever:
//
// A transaction that is to read, and panics as it begins, leaves held what others need to
// begin or to end, and what a commit needs. So transactions begin and end one at a time,
// in a place that such a panic never gives back. A commit cannot wait for the place, for
// it takes long; it is waited for from outside, as long as the handle is not abandoned.
type handle struct {
	path string
	db   *bbolt.DB
	file *os.File // the one that db has

	metas metaPages     // as the last commit left them; used by writers alone
	free  freeSum       // and this
	wrote time.Time     // when the file was changed last, as the system says; and this
	last  atomic.Uint64 // the transaction that was committed last

	place  chan struct{} // holds a token while a transaction begins
	gone   chan struct{} // closed when the handle is abandoned
	lost   error         // why; set before that
	ending sync.Once
}

// abandon gives the handle up. The file and its lock are let go of; the memory map stays,
// since others may be reading it.
func (h *handle) abandon(cause error) error {
	h.ending.Do(func() {
		h.lost = fmt.Errorf("%w; the file is no longer used; to try again, close the store and open it", cause)
		close(h.gone)
		release(h.file)
	})
	return h.lost
}

func (h *handle) abandoned() bool {
	select {
	case <-h.gone:
		return true
	default:
		return false
	}
}

// step calls f, which waits for locks of bbolt's. It returns early if the handle is
// abandoned meanwhile: f may wait for ever then.
func (h *handle) step(f func() error) error {
	if h.abandoned() {
		return h.lost
	}
	done := make(chan error, 1)
	go func() {
		err := errors.New("the step did not end")
		defer func() { done <- err }()
		err = h.guard(f)
	}()
	select {
	case err := <-done:
		return err
	case <-h.gone:
		select {
		case err := <-done: // it had ended before
			return err
		default:
			return h.lost
		}
	}
}

// guard calls f, and makes a panic that damage brings about an error.
func (h *handle) guard(f func() error) (err error) {
	defer recoverDamage(h.path, &err)()
	return f()
}

// locking is guard for what leaves locks held if it panics.
func (h *handle) locking(f func() error) error {
	err := h.guard(f)
	if p := (*panicError)(nil); errors.As(err, &p) {
		return h.abandon(err)
	}
	return err
}

func (h *handle) begin(writable bool) (tx *bbolt.Tx, err error) {
	select {
	case h.place <- struct{}{}:
	case <-h.gone:
	}
	if h.abandoned() {
		return nil, h.lost
	}
	if err := h.locking(func() (err error) {
		tx, err = h.db.Begin(writable)
		<-h.place
		return err
	}); err != nil {
		return nil, err
	}
	return tx, nil
}

// end ends a transaction if its commit has not.
func (h *handle) end(tx *bbolt.Tx, err *error) {
	if h.abandoned() || tx.DB() == nil {
		return
	}
	rollback := func() error {
		return h.locking(func() error {
			_ = tx.Rollback()
			return nil
		})
	}
	var stepErr error
	select {
	case h.place <- struct{}{}: // nothing begins, so that nothing is left held meanwhile
		stepErr = rollback()
		<-h.place
	default: // what begins may be waiting for this one to end
		stepErr = h.step(rollback)
	}
	if stepErr != nil {
		*err = stepErr
	}
}

// view calls f in a read transaction. A panic of f's harms no other call: the transaction
// is ended as ever.
func (h *handle) view(f func(tx *txn) error) (err error) {
	defer recoverDamage(h.path, &err)()
	before := h.last.Load()
	tx, err := h.begin(false)
	if err != nil {
		return err
	}
	defer h.end(tx, &err)
	// A commit under way may be visible already.
	if id := uint64(tx.ID()); id < before || id > h.last.Load()+1 {
		return h.abandon(h.changed(id))
	}
	return f(newTxn(tx))
}

// write commits what f does. committing says that an error is of the commit itself. The
// caller is the only writer.
func (h *handle) write(f func(tx *txn) error, commit func(tx *bbolt.Tx) error) (committing bool, err error) {
	defer recoverDamage(h.path, &err)()
	if h.abandoned() {
		return false, h.lost
	}
	metas, err := h.metas.again(h.file)
	if err != nil {
		return false, err
	}
	if metas != h.metas {
		id := uint64(0)
		if current := metas.current(); current != nil {
			id = current.txid()
		}
		return false, h.abandon(h.changed(id))
	}
	tx, err := h.begin(true)
	if err != nil {
		return false, err
	}
	defer h.end(tx, &err)
	id := uint64(tx.ID())
	if id != h.last.Load()+1 {
		return false, h.abandon(h.changed(id - 1))
	}
	if err := f(newTxn(tx)); err != nil {
		return false, err
	}
	// The commit frees the pages of the list, as many as it says, and gives out those that are on it, which
	// bbolt has read again if a transaction came to nothing. It is looked at as late as can be.
	if free, err := freeSumOf(h.file, h.metas.current()); err != nil || free != h.free {
		return false, h.abandon(errors.Join(fmt.Errorf("%w: %s: the list of free pages was changed from outside while the file was open", backend.ErrDamaged, h.path), err))
	}
	if err := h.step(func() error { return commit(tx) }); err != nil {
		return true, err
	}
	h.last.Store(id)
	h.wrote = h.modified()
	if metas, err := h.metas.written(h.file, id); err == nil && metas.current() != nil && metas.current().txid() == id {
		h.metas = metas
		h.free, _ = freeSumOf(h.file, metas.current())
	} // else the next write will find it
	return false, nil
}

// modified returns when the file was changed last, as the system says.
func (h *handle) modified() (at time.Time) {
	if info, err := h.file.Stat(); err == nil {
		at = info.ModTime()
	}
	return at
}

// changed is the error of a file whose last transaction is not this program's.
func (h *handle) changed(id uint64) error {
	return fmt.Errorf("%w: %s: it was changed from outside while it was open: its last transaction is %d, and was %d",
		backend.ErrDamaged, h.path, id, h.last.Load())
}

func (h *handle) close() error {
	if h.abandoned() {
		return nil
	}
	return h.step(func() error { return h.locking(h.db.Close) })
}

// panicError is a panic that damage made bbolt, or the memory map, raise.
type panicError struct {
	path   string
	reason any
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%v: %s: %v", backend.ErrDamaged, e.path, e.reason)
}

func (e *panicError) Unwrap() error { return backend.ErrDamaged }

// recoverDamage returns a function to be deferred that turns a panic into an error.
// bbolt panics on some damage, and where pages are missing the memory map faults.
func recoverDamage(path string, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		p := recover()
		if p == nil {
			return
		}
		if fault, ok := p.(interface{ Addr() uintptr }); ok {
			p = fmt.Sprintf("no page at address %#x", fault.Addr())
		}
		*err = &panicError{path, p}
	}
}
