package bolt

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// handle is an open file. All calls of bbolt go through its methods, which return panics of bbolt and faults of the
// memory map as errors.
//
// A panic inside a transaction ends the transaction. A panic at the beginning or the end of a transaction abandons
// the handle. An abandoned handle neither begins transactions nor closes bbolt's database. Every later call fails
// with the reason. Locks of bbolt that the panic left locked are unlocked, so that open transactions can end.
type handle struct {
	path     string
	db       *bbolt.DB
	file     *os.File // the file used by db
	info     os.FileInfo
	lastTxid atomic.Uint64 // the last committed transaction

	openedTxid uint64 // the last committed transaction when the file was opened
	metaDamage error  // if not nil, the damage because of which openedTxid may not be the last committed transaction

	abandonErr atomic.Pointer[error] // if not nil, why the handle was abandoned
}

// abandon marks the handle as unusable and releases the file and its lock. The memory map stays, because open
// transactions may read it.
func (h *handle) abandon(cause error) error {
	abandonErr := fmt.Errorf("%w; the file is no longer used; to retry, close the store and open it again", cause)
	if h.abandonErr.CompareAndSwap(nil, &abandonErr) {
		release(h.file)
	}
	return *h.abandonErr.Load()
}

func (h *handle) isAbandoned() bool { return h.abandonErr.Load() != nil }

// guard calls f and returns a panic caused by damage as an error.
func (h *handle) guard(f func() error) (err error) {
	defer recoverDamage(h.path, &err)()
	return f()
}

// guardBolt is guard for a function that only calls bbolt. It returns any panic as an error.
func (h *handle) guardBolt(f func() error) (err error) {
	defer recoverWith(panicReason, h.path, &err)()
	return f()
}

// guardOrAbandon is guardBolt for functions in which a panic leaves locks of bbolt locked. After a panic,
// guardOrAbandon abandons the handle.
func (h *handle) guardOrAbandon(f func() error) error {
	err := h.guardBolt(f)
	if p := (*panicError)(nil); errors.As(err, &p) {
		return h.abandon(err)
	}
	return err
}

func (h *handle) begin(writable bool) (tx *bbolt.Tx, err error) {
	if abandonErr := h.abandonErr.Load(); abandonErr != nil {
		return nil, *abandonErr
	}
	err = h.guardOrAbandon(func() (err error) {
		defer func() {
			if p := recover(); p != nil { // bbolt found no valid meta page, because the file was overwritten or truncated
				unlockDB(h.db, writable)
				panic(p)
			}
		}()
		tx, err = h.db.Begin(writable)
		return err
	})
	return tx, err
}

// unlockDB unlocks the locks that DB.Begin leaves locked if it panics.
func unlockDB(db *bbolt.DB, writable bool) {
	fields := reflect.ValueOf(db).Elem()
	if writable {
		(*sync.Mutex)(fields.FieldByName("rwlock").Addr().UnsafePointer()).Unlock()
		return
	}
	(*sync.RWMutex)(fields.FieldByName("mmaplock").Addr().UnsafePointer()).RUnlock()
	(*sync.Mutex)(fields.FieldByName("metalock").Addr().UnsafePointer()).Unlock()
}

// rollback rolls back a transaction, unless it was committed.
func (h *handle) rollback(tx *bbolt.Tx, err *error) {
	if tx.DB() == nil {
		return
	}
	if rollbackErr := h.guardOrAbandon(func() error {
		_ = tx.Rollback()
		return nil
	}); rollbackErr != nil {
		*err = rollbackErr
	}
}

func (h *handle) view(f func(tx *bbolt.Tx) error) (err error) {
	defer recoverDamage(h.path, &err)()
	tx, err := h.begin(false)
	if err != nil {
		return err
	}
	defer h.rollback(tx, &err)
	return f(tx)
}

// write calls f in a write transaction and commits it. The result commitFailed reports whether the error is from the
// commit. The caller has the writer lock.
func (h *handle) write(f func(tx *bbolt.Tx) error, commit func(tx *bbolt.Tx) error) (commitFailed bool, err error) {
	defer recoverDamage(h.path, &err)()
	tx, err := h.begin(true)
	if err != nil {
		return false, err
	}
	defer h.rollback(tx, &err)
	id := uint64(tx.ID())
	if err := f(tx); err != nil {
		return false, err
	}
	if err := putTxid(tx); err != nil {
		return false, err
	}
	if err := h.guardBolt(func() error { return commit(tx) }); err != nil {
		return true, err
	}
	h.lastTxid.Store(id)
	return false, nil
}

func (h *handle) close() error {
	if h.isAbandoned() {
		return nil
	}
	return h.guardOrAbandon(h.db.Close)
}

// panicError is a panic of bbolt or a fault of the memory map that was caused by damage.
type panicError struct {
	path   string
	reason any
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%v: %s: %v", backend.ErrDamaged, e.path, e.reason)
}

func (e *panicError) Unwrap() error { return backend.ErrDamaged }

// recoverDamage returns a function to be deferred. The deferred function turns a panic caused by damage into an
// error. It lets all other panics continue.
func recoverDamage(path string, err *error) func() { return recoverWith(damageReason, path, err) }

// recoverWith returns a function to be deferred, which turns panics into errors. The error contains the result of
// reason. If reason cannot explain the panic, reason panics again.
func recoverWith(reason func(p any) any, path string, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			*err = &panicError{path, reason(p)}
		}
	}
}

// damageReason returns the reason of a panic that was caused by damage. It must be called by the deferred function
// that recovered the panic. In a damaged file, bbolt panics, explicitly or with an index out of range. If pages are
// missing, the memory map faults. If damage cannot be the reason, damageReason panics again.
func damageReason(p any) (reason any) {
	if _, fault := p.(interface{ Addr() uintptr }); !fault && !panickedInBolt() {
		panic(p)
	}
	return panicReason(p)
}

func panicReason(p any) any {
	if fault, ok := p.(interface{ Addr() uintptr }); ok {
		return fmt.Sprintf("no page at address %#x", fault.Addr())
	}
	return p
}

// panickedInBolt reports whether the panic began in a function of bbolt. That function is the caller of
// runtime.gopanic on the stack.
func panickedInBolt() bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for panicking := false; ; {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(frame.Function, "runtime."):
			return strings.HasPrefix(frame.Function, "go.etcd.io/bbolt")
		case !more:
			return false
		}
	}
}
