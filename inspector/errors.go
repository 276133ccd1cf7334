package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// explanation is what an error page says.
type explanation struct {
	Text   string // what is wrong
	Advice string // what to do about it, or ""
	Link   *link  // where to go on, or nil
}

// advised is an error with what its page says.
type advised struct {
	error
	explanation
}

func (e *advised) Unwrap() error { return e.error }

// So long is the text of an error on a page, in runes.
const errorRunes = 2_000

// again is the text of a link to the session.
const again = "The session as it is"

// problems are the errors that pages explain, by the first that matches: the status by which HTTP names it, what to do
// about it, and the text of a link to the session.
var problems = []struct {
	err          error
	status       int
	advice, link string
}{
	{store.ErrConflict, http.StatusConflict, "The log has grown meanwhile. Nothing was written. Look at the session as it is, and do it again.", again},
	{fold.ErrOutOfRange, http.StatusUnprocessableEntity, "The visible log has other events than those that were meant, perhaps since it changed. Look at it as it is, and choose again.", again},
	{fold.ErrEventNotFound, http.StatusNotFound, "The event is not in sight: a patch hides it, or it was never logged. The raw log shows what became of it.", again},
	{fold.ErrUnknownPatch, http.StatusNotFound, "A newer version of patchlog wrote to this log. Nothing can be patched by this one; it can be read. Use the newer version.", ""},
	{store.ErrExists, http.StatusConflict, "A session of this name is there already. Choose another name.", ""},
	{store.ErrDuplicateID, http.StatusConflict, "An id may be used once in a log. It was perhaps sent twice.", ""},
	{fold.ErrBlocked, http.StatusConflict, refused, again},
	{fold.ErrOrphanedCall, http.StatusUnprocessableEntity, refused, again},
	{fold.ErrPinned, http.StatusUnprocessableEntity, refused, again},
	{store.ErrOutcomeUnknown, http.StatusInternalServerError, "It may have been written or not. Look at the session before doing it again.", again},
	{errForbidden, http.StatusForbidden, "You may read this session, not write to it.", again},
	{store.ErrReadOnly, http.StatusForbidden, "The store is opened for reading. The operator of this inspector can open it for writing.", ""},
	{store.ErrClosed, http.StatusServiceUnavailable, "The program that keeps the sessions is ending. Try again when it is back.", ""},
	{store.ErrLocked, http.StatusInternalServerError, "Another program has the file open. Look at the session there.", ""},
	{store.ErrCorrupt, http.StatusInternalServerError, "The storage was damaged. 'patchlog verify' says where, and how much.", ""},
	{store.ErrTooLarge, http.StatusRequestEntityTooLarge, "It is larger than the store takes. Nothing was written.", ""},
	{store.ErrNotFound, http.StatusNotFound, "It may have been deleted, or the address is wrong, or you may not see it.", ""},
	{os.ErrDeadlineExceeded, http.StatusRequestTimeout, "The request did not arrive in time.", ""},
	{store.ErrInvalid, http.StatusBadRequest, refused, again},
	{context.DeadlineExceeded, http.StatusInternalServerError, "It took too long. The machine may be busy; try again.", ""},
}

const refused = "The address or the form asks for something that cannot be. Nothing was written."

// statusOf is the status by which HTTP names an error.
func statusOf(err error) int {
	for _, p := range problems {
		if errors.Is(err, p.err) {
			return p.status
		}
	}
	return http.StatusInternalServerError
}

// explain says what an error means to a person.
func explain(r *http.Request, err error) explanation {
	if own := (*advised)(nil); errors.As(err, &own) {
		return own.explanation
	}
	// What an unknown error says is for operators, who find it in the log.
	e := explanation{Text: "Something failed that should not have.", Advice: "The log of the program that serves this page says what."}
	text, path, pairs := "", "session", []any(nil)
	for _, p := range problems {
		if errors.Is(err, p.err) {
			e, text = explanation{Text: present.PrintableUpTo(err.Error(), errorRunes), Advice: p.advice}, p.link
			break
		}
	}
	if duplicate := (*store.DuplicateIDError)(nil); errors.As(err, &duplicate) && duplicate.Seq > 0 {
		text, path, pairs = fmt.Sprintf("Record %d, which has the id", duplicate.Seq), "record", []any{"seq", duplicate.Seq}
	}
	if corrupt := (*store.CorruptError)(nil); errors.As(err, &corrupt) {
		e.Advice = fmt.Sprintf("Record %d cannot be read: the storage was damaged. 'patchlog verify' says how much is; what is before this record can be shown.", corrupt.Seq)
		text, pairs = "As it stood before", []any{"at", max(corrupt.Seq, 1) - 1}
	}
	if key, err := store.ParseKey(r.FormValue("key")); err == nil && text != "" {
		if url, err := query(path, append([]any{"key", key}, pairs...)...); err == nil {
			e.Link = &link{url, text}
		}
	}
	return e
}
