package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
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

// explain says what an error means to a person.
func explain(r *http.Request, err error) explanation {
	if own := (*advised)(nil); errors.As(err, &own) {
		return own.explanation
	}
	e := explanation{Text: present.PrintableUpTo(err.Error(), errorRunes)}
	key, keyErr := store.ParseKey(r.FormValue("key"))
	to := func(text, path string, pairs ...any) {
		if keyErr != nil {
			return
		}
		if url, err := query(path, append([]any{"key", key}, pairs...)...); err == nil {
			e.Link = &link{url, text}
		}
	}
	session := func(text string) { to(text, "session") }

	var duplicate *store.DuplicateIDError
	var corrupt *store.CorruptError
	switch {
	case errors.Is(err, store.ErrConflict):
		e.Advice = "The log has grown meanwhile. Nothing was written. Look at the session as it is, and do it again."
		session("The session as it is")
	case errors.Is(err, fold.ErrOutOfRange):
		e.Advice = "The visible log has other events than those that were meant, perhaps since it changed. Look at it as it is, and choose again."
		session("The session as it is")
	case errors.Is(err, fold.ErrEventNotFound):
		e.Advice = "The event is not in sight: a patch hides it, or it was never logged. The raw log shows what became of it."
		session("The session as it is")
	case errors.Is(err, fold.ErrUnknownPatch):
		e.Advice = "A newer version of patchlog wrote to this log. Nothing can be patched by this one; it can be read. Use the newer version."
	case errors.Is(err, store.ErrExists):
		e.Advice = "A session of this name is there already. Choose another name."
	case errors.As(err, &duplicate):
		e.Advice = "An id may be used once in a log. It was perhaps sent twice."
		if duplicate.Seq > 0 {
			to(fmt.Sprintf("Record %d, which has the id", duplicate.Seq), "record", "seq", duplicate.Seq)
		}
	case errors.Is(err, store.ErrOutcomeUnknown):
		e.Advice = "It may have been written or not. Look at the session before doing it again."
		session("The session as it is")
	case errors.Is(err, errForbidden):
		e.Advice = "You may read this session, not write to it."
		session("The session")
	case errors.Is(err, store.ErrReadOnly):
		e.Advice = "The store is opened for reading. Whoever runs this inspector can open it for writing."
	case errors.Is(err, store.ErrClosed):
		e.Advice = "The program that keeps the sessions is ending. Try again when it is back."
	case errors.Is(err, store.ErrLocked):
		e.Advice = "Another program has the file open. Look at the session there."
	case errors.As(err, &corrupt):
		e.Advice = fmt.Sprintf("Record %d cannot be read: the storage was damaged. 'patchlog verify' says how much is; what is before this record can be shown.", corrupt.Seq)
		to("As it stood before", "session", "at", max(corrupt.Seq, 1)-1)
	case errors.Is(err, store.ErrCorrupt):
		e.Advice = "The storage was damaged. 'patchlog verify' says where, and how much."
	case errors.Is(err, store.ErrTooLarge):
		e.Advice = "It is larger than the store takes. Nothing was written."
	case errors.Is(err, store.ErrNotFound):
		e.Advice = "It may have been deleted, or the address is wrong, or you may not see it."
	case errors.Is(err, patch.ErrInvalid):
		e.Advice = "The address or the form asks for something that cannot be. Nothing was written."
		session("The session")
	case errors.Is(err, context.DeadlineExceeded):
		e.Advice = "It took too long. The machine may be busy; try again."
	default: // what it says is for operators, who find it in the log
		e = explanation{Text: "Something failed that should not have.", Advice: "The log of the program that serves this page says what."}
	}
	return e
}
