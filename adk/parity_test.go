package adk_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// Where ADK's service in memory refuses, ours does in the same words.
func TestErrorsAreWordedAsADKsOwn(t *testing.T) {
	ctx := t.Context()
	made := func(s session.Service, app, user, id string) error {
		_, err := s.Create(ctx, &session.CreateRequest{AppName: app, UserID: user, SessionID: id})
		return err
	}
	got := func(s session.Service, app, user, id string) error {
		_, err := s.Get(ctx, &session.GetRequest{AppName: app, UserID: user, SessionID: id})
		return err
	}
	deleted := func(s session.Service, app, user, id string) error {
		return s.Delete(ctx, &session.DeleteRequest{AppName: app, UserID: user, SessionID: id})
	}
	foreign := create(t, session.InMemoryService(), "s", nil)
	foreignToADK := create(t, inMemory(t), "s", nil)
	e := text("e", "user", "x")
	partial := text("p", "user", "x")
	partial.Partial = true
	for _, c := range []struct {
		name string
		call func(s session.Service, its, others session.Session) error
	}{
		{"create without app", func(s session.Service, _, _ session.Session) error { return made(s, "", "user", "s") }},
		{"create without user", func(s session.Service, _, _ session.Session) error { return made(s, "app", "", "s") }},
		{"create again", func(s session.Service, _, _ session.Session) error { return made(s, "app", "user", "s") }},
		{"get without app", func(s session.Service, _, _ session.Session) error { return got(s, "", "user", "s") }},
		{"get without user", func(s session.Service, _, _ session.Session) error { return got(s, "app", "", "s") }},
		{"get without id", func(s session.Service, _, _ session.Session) error { return got(s, "app", "user", "") }},
		{"get what is not there", func(s session.Service, _, _ session.Session) error { return got(s, "app", "user", "x") }},
		{"list without app", func(s session.Service, _, _ session.Session) error {
			_, err := s.List(ctx, &session.ListRequest{UserID: "user"})
			return err
		}},
		{"delete without app", func(s session.Service, _, _ session.Session) error { return deleted(s, "", "user", "s") }},
		{"delete without user", func(s session.Service, _, _ session.Session) error { return deleted(s, "app", "", "s") }},
		{"delete without id", func(s session.Service, _, _ session.Session) error { return deleted(s, "app", "user", "") }},
		{"delete what is not there", func(s session.Service, _, _ session.Session) error { return deleted(s, "app", "user", "x") }},
		{"append to nothing", func(s session.Service, _, _ session.Session) error { return s.AppendEvent(ctx, nil, e) }},
		{"append nothing", func(s session.Service, its, _ session.Session) error { return s.AppendEvent(ctx, its, nil) }},
		{"append nothing to nothing", func(s session.Service, _, _ session.Session) error { return s.AppendEvent(ctx, nil, nil) }},
		{"append to another's session", func(s session.Service, _, others session.Session) error { return s.AppendEvent(ctx, others, e) }},
		{"append what is partial to another's session", func(s session.Service, _, others session.Session) error {
			return s.AppendEvent(ctx, others, partial)
		}},
		{"append to what was deleted", func(s session.Service, its, _ session.Session) error {
			if err := deleted(s, "app", "user", "s"); err != nil {
				return err
			}
			return s.AppendEvent(ctx, its, e)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			theirs, own := session.InMemoryService(), inMemory(t)
			want := c.call(theirs, create(t, theirs, "s", nil), foreignToADK)
			got := c.call(own, create(t, own, "s", nil), foreign)
			if wanted, is := wordsOf(want, foreignToADK), wordsOf(got, foreign); wanted != is {
				t.Errorf("got  %s\nwant %s", is, wanted)
			}
		})
	}
}

// wordsOf gives an error's words, whatever type the session is of that was offered.
func wordsOf(err error, offered session.Session) string {
	if err == nil {
		return "nothing"
	}
	if err.Error() == fmt.Sprintf("unexpected session type %T for session ID s", offered) {
		return "unexpected session type"
	}
	return err.Error()
}

// A session was updated when its newest event says that it came, or when it was created by
// the platform's clock: as with ADK's service in memory, at every step, through the handle
// and got anew.
func TestLastUpdateTimeIsADKs(t *testing.T) {
	early := time.Date(2020, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	ctx := platform.WithTimeProvider(context.Background(), func() time.Time { return early })
	at := func(id string, when time.Time) *session.Event {
		e := text(id, "user", "words of "+id)
		e.Timestamp = when
		return e
	}
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			theirs, own := session.InMemoryService(), service{t, b.make(t)}
			var handles [2]session.Session
			for i, s := range []session.Service{theirs, own} {
				r, err := s.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
				no(t, err)
				handles[i] = r.Session
			}
			same := func(step string) {
				t.Helper()
				want := handles[0].LastUpdateTime()
				listed, err := own.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
				no(t, err)
				for by, sess := range map[string]session.Session{"the handle": handles[1], "got": get(t, own, "s"), "listed": listed.Sessions[0]} {
					if got := sess.LastUpdateTime(); !got.Equal(want) {
						t.Errorf("%s: %s says %v, want %v", step, by, got, want)
					}
				}
			}
			same("created")
			for _, e := range []*session.Event{
				at("e1", early.Add(time.Hour)), at("e2", early.Add(-time.Hour)), at("e3", time.Time{}), at("e4", early.Add(time.Nanosecond)),
			} {
				no(t, theirs.AppendEvent(ctx, handles[0], e))
				no(t, own.AppendEvent(ctx, handles[1], e))
				same("after " + e.ID)
			}
			// What patches hide or put in changes nothing.
			r, err := patch.NewEvent(patch.Fields{ID: "r", Author: "user", Timestamp: early.Add(time.Minute)})
			no(t, err)
			for _, p := range []*patch.PatchEvent{patch.NewSplice(3, 1, r), patch.NewSplice(0, 2)} {
				fresh := get(t, own, "s")
				_, err := own.now().ApplyPatch(t.Context(), fresh, p)
				no(t, err)
				same("after a patch")
			}
		})
	}
}
