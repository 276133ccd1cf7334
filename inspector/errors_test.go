package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Every error of the store is explained to a person: what it means and where to go on.
func TestExplain(t *testing.T) {
	e, err := patch.ParseEvent([]byte(event("e7\u202e", "user", text("x"))))
	if err != nil {
		t.Fatal(err)
	}
	many := make([]fold.Visible, 9)
	for n := range many {
		many[n] = fold.Visible{Index: n, Event: e}
	}
	for _, c := range []struct {
		err    error
		advice string
		link   string // a part of it; "" if there is none
	}{
		{&store.ConflictError{Base: 3, Newest: 9}, "Another patch was logged meanwhile, record 9", "record?key=a%2Fb%2Fc&seq=9"},
		{&store.SeqError{Expected: 3, Last: 4}, "The log has grown meanwhile", "session?key=a%2Fb%2Fc"},
		{&store.BlockedError{PatchID: "p", Blocking: "q", BlockingSeq: 12}, "Revert that one first: record 12", "record?key=a%2Fb%2Fc&seq=12"},
		{&store.BlockedError{PatchID: "p", Blocking: "q", BlockingSeq: 12, TakenBack: true}, "revert its revert", "record?key=a%2Fb%2Fc&seq=12"},
		{&store.OrphanError{Suggested: true, Start: 3, Count: 4}, "Take visible events 3 to 6 instead: start 3, count 4", "session?"},
		{&store.OrphanError{Suggested: true, EventID: "e9"}, `Cut before event "e9" instead`, "session?"},
		{&store.OrphanError{}, "No wider span passes", "session?"},
		{&store.PinnedError{Events: many}, `Pinned, by their index: 0 (e7\u202e), 1 (e7\u202e), 2 (e7\u202e), 3 (e7\u202e), 4 (e7\u202e) and 4 more. Unpin`, "session?"},
		{store.ErrOutOfRange, "choose again", "session?"},
		{store.ErrEventNotFound, "not in sight", "session?"},
		{store.ErrUnknownPatch, "newer version", ""},
		{store.ErrExists, "Choose another name", ""},
		{&store.DuplicateIDError{ID: "x", Seq: 5}, "once in a log", "record?key=a%2Fb%2Fc&seq=5"},
		{store.ErrOutcomeUnknown, "Look at the session before", "session?"},
		{errForbidden, "not write", "session?"},
		{store.ErrReadOnly, "opened for reading", ""},
		{store.ErrClosed, "Try again", ""},
		{store.ErrLocked, "Another program", ""},
		{&store.CorruptError{Seq: 8, Err: errors.New("damaged")}, "Record 8 cannot be read: the storage was damaged. 'patchlog verify'", "session?at=7"},
		{store.ErrCorrupt, "patchlog verify", ""},
		{store.ErrTooLarge, "larger than the store takes", ""},
		{store.ErrNotFound, "may have been deleted", ""},
		{store.ErrInvalid, "cannot be", "session?"},
		{badRequest("x", "y"), "cannot be", "session?"},
		{context.DeadlineExceeded, "took too long", ""},
	} {
		got := explain(httptest.NewRequest("GET", "http://localhost/record?key=a/b/c", nil), fmt.Errorf("session a/b/c: %w", c.err))
		if !strings.Contains(got.Advice, c.advice) || !strings.HasPrefix(got.Text, "session a/b/c: ") {
			t.Errorf("%v: %+v", c.err, got)
		}
		if (got.Link != nil) != (c.link != "") || got.Link != nil && (!strings.Contains(string(got.Link.URL), c.link) || got.Link.Text == "") {
			t.Errorf("%v: link %+v, want %q", c.err, got.Link, c.link)
		}
		if got := explain(httptest.NewRequest("GET", "http://localhost/record?key=nonsense", nil), c.err); got.Link != nil {
			t.Errorf("%v: of no session, but link %+v", c.err, got.Link)
		}
	}
	r := httptest.NewRequest("GET", "http://localhost/record", nil)
	if got := explain(r, errors.New("open /var/lib/secret.db: no")); strings.Contains(got.Text+got.Advice, "secret") || got.Advice == "" {
		t.Errorf("what is for operators is told: %+v", got)
	}
	if got := explain(r, fmt.Errorf("%w: %s", store.ErrNotFound, strings.Repeat("\x1b", 1<<20))); len(got.Text) > 20_000 || strings.Contains(got.Text, "\x1b") {
		t.Errorf("%d bytes: %.40q", len(got.Text), got.Text)
	}
}
