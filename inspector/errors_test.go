package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store"
)

// Every error of the store is explained to a person: what it means and where to go on.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err    error
		advice string
		link   string // a part of it; "" if there is none
	}{
		{&store.SeqError{Expected: 3, Last: 4}, "The log has grown meanwhile", "session?key=a%2Fb%2Fc"},
		{fold.ErrOutOfRange, "choose again", "session?"},
		{fold.ErrEventNotFound, "not in sight", "session?"},
		{fold.ErrUnknownPatch, "newer version", ""},
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
