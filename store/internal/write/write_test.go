package write_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/write"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// cached is a log with only one writer, the test. Its cached state is therefore always the newest.
type cached struct {
	backend backend.Backend
	state   write.State
}

func (c *cached) CachedState(context.Context) (write.State, error) { return c.state, nil }
func (c *cached) Publish(s write.State)                            { c.state = s }
func (c *cached) Drop()                                            {}
func (c *cached) Wake()                                            {}
func (c *cached) WrapError(err error) error                        { return err }

func (c *cached) NewestState(ctx context.Context, _ bool) (write.State, error) {
	head, err := backend.FetchHead(ctx, c.backend, "s")
	c.state.Token = head.Token // a fence may have changed the token
	return c.state, err
}

func (c *cached) Records(ctx context.Context, creation string, seqs []uint64) (out []patch.Record, err error) {
	raw, err := c.backend.Read(ctx, "s", creation, seqs, 1<<30)
	for _, one := range raw {
		r, decodeErr := patch.DecodeRecord(one.Data)
		out, err = append(out, r), errors.Join(err, decodeErr)
	}
	return out, err
}

type events []patch.Record

func (e events) Offered() []patch.Record { return e }

func (e events) Draft(d *write.Draft) error {
	err := d.Match()
	for _, i := range d.Missing {
		if err == nil {
			err = d.Append(i)
		}
	}
	return err
}

type patches struct {
	events
	opts fold.PatchOptions
}

func (p patches) Draft(d *write.Draft) error {
	if err := d.Match(); err != nil {
		return err
	}
	return d.Patches(p.opts)
}

func TestSession(t *testing.T) {
	ctx, b := t.Context(), &memory.Backend{}
	n := 0
	config := &write.Config{Backend: b, MaxRecordBytes: 1000, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		NewID: func() string { n++; return fmt.Sprint("id", n) }}
	log := &cached{backend: b}
	s := write.NewSession(config, log, "s", "s", func(key string) string { return key })

	c := s.NewCreation(ctx, time.Unix(1, 0), nil)
	testlog.NoError(t, c.Plan(events{}, nil, false))
	testlog.NoError(t, s.Lock(ctx))
	testlog.NoError(t, c.Commit(ctx))
	s.Unlock()
	c.Drop()

	said := func(id, text string) events { return events{{Event: testlog.Text(id, "inv", "user", text)}} }
	for range 2 { // the second append is a retry and looks the id up
		done, err := s.Commit(ctx, "", said("a", "text"))
		testlog.NoError(t, err)
		testlog.Equal(t, "seq", done.Records[0].Seq, 1)
	}
	if _, err := s.Commit(ctx, "", said("a", "other")); !errors.Is(err, fold.ErrDuplicateID) {
		t.Errorf("another event with the id: %v", err)
	}
	if _, err := s.Commit(ctx, "other", said("b", "text")); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("another creation: %v", err)
	}
	long := make([]byte, 2000)
	for i := range long {
		long[i] = byte('a' + i%26)
	}
	if _, err := s.Commit(ctx, "", said("long", string(long))); !errors.Is(err, patch.ErrTooLarge) {
		t.Errorf("a long event: %v", err)
	}

	cut := patches{events{{Patch: patch.NewSplice(0, 1).WithID("cut").WithGroup("g")}}, fold.PatchOptions{On: log.state.View}}
	dry, err := s.Preview(ctx, "", cut)
	testlog.NoError(t, err)
	testlog.Equal(t, "visible before and after", fmt.Sprint(dry.Before.Len(), dry.View.Len(), log.state.View.Seq()), "1 0 1")
	_, err = s.Commit(ctx, "", cut)
	testlog.NoError(t, err)
	held := patches{events{{Patch: patch.NewSplice(0, 0, testlog.Text("x", "", "user", "x")).WithID("again").WithGroup("g")}}, fold.PatchOptions{AsOfNow: true}}
	if _, err = s.Commit(ctx, "", held); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("a group that is held: %v", err)
	}
	// The revert needs the record of the event that it restores; Commit reads and supplies it.
	back := patches{events{{Patch: patch.NewRevert("cut").WithID("back")}}, fold.PatchOptions{}}
	done, err := s.Commit(ctx, "", back)
	testlog.NoError(t, err)
	testlog.Equal(t, "visible after a revert", done.View.Len(), 1)

	head := testlog.Must(backend.FetchHead(ctx, b, "s"))(t)
	counts := write.CountsOf(head)
	testlog.Equal(t, "visible as counted", counts.Visible, 1)
	testlog.Equal(t, "created", counts.Created.Equal(time.Unix(1, 0)), true)
	testlog.NoError(t, write.Confirm(ctx, b))
}
