package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Settle judges what is in a store that nobody writes to, makes the calls again whose outcome is
// not known, which lands each of them once, and judges again. It returns what is there then.
func Settle(ctx context.Context, s *store.Store, before Content, j *Journal, random *rand.Rand, count func(string, int)) (Content, error) {
	if err := VerifyBeside(ctx, s, j.Pending()); err != nil {
		return Content{}, err
	}
	now, err := Read(ctx, s)
	if err != nil {
		return now, err
	}
	g := newJudge(before, j, now, j.Lines, j.Lines)
	if err := g.judge(); err != nil {
		return now, err
	}
	if err := repeat(ctx, s, j, now, random); err != nil {
		return now, err
	}
	pending := j.Pending()
	slices.SortStableFunc(pending, func(a, b Call) int { return cmp.Compare(b.rank(), a.rank()) })
	for _, c := range pending {
		if err := g.again(ctx, s, c, count); err != nil {
			return now, err
		}
	}
	if now, err = Read(ctx, s); err != nil {
		return now, err
	}
	g = newJudge(before, j, now, j.Lines, j.Lines)
	if err := g.judge(); err != nil {
		return now, fmt.Errorf("after all was tried again: %w", err)
	}
	if err := g.views(ctx, s, count); err != nil {
		return now, err
	}
	return now, Verify(ctx, s)
}

// again makes a call whose outcome is not known. It lands once: if it is in the log, where it
// is, with what it offered.
func (g *judge) again(ctx context.Context, s *store.Store, c Call, count func(string, int)) error {
	is := g.now.sessions[c.Session]
	switch {
	case c.Op == "vacuum" || c.Op == "backup" || c.Op == "lease" || c.Op == "delete" && is == nil:
		g.End(Reply{N: c.N, Kind: "done"})
		return nil
	case c.Creation != "" && (is == nil || is.creation != c.Creation): // its session is gone
		return nil
	}
	landed := g.landedAt(c)
	if landed > 0 {
		count("landed", 1)
	}
	if c.draws() { // whoever makes it again does not know it again
		if landed > 0 {
			r := Reply{N: c.N, Kind: "done"}
			for i := range is.sums[landed-1:] {
				r.Records = append(r.Records, is.sums[landed-1+i])
			}
			g.End(r)
			return nil
		}
	}
	r := Do(ctx, s, c)
	switch made := c.makes() && is != nil; {
	case made && r.Kind == "exists": // and is what the call was to make, by the judge's word
		r = Reply{N: c.N, Kind: "done", Creation: is.creation}
		count("landed", 1)
	case landed > 0 && (r.Kind != "done" || len(r.Records) == 0 || int(r.Records[0].Seq) != landed):
		return fmt.Errorf("call %d is record %d, and made again it is: %+v\n%v", c.N, landed, r, c)
	case r.Kind != "done" && r.Kind != "conflict" && r.Kind != "refused":
		return fmt.Errorf("call %d, made again: %+v\n%v", c.N, r, c)
	}
	g.End(r)
	return nil
}

// draws reports whether all ids that the call takes are drawn by the store.
func (c Call) draws() bool { return c.Creation != "" && len(c.Offered) == 0 && c.Op != "erase" }

// landedAt returns the first record of a call in the log of its session, or 0.
func (g *judge) landedAt(c Call) int {
	is := g.now.sessions[c.Session]
	if c.Creation == "" {
		return 0
	}
	if c.draws() { // nobody else writes to the session
		if seq := int(*c.IfSeq); seq < len(is.records) {
			return seq + 1
		}
		return 0
	}
	id := c.id()
	if c.Op == "erase" {
		id = c.Target
	}
	return 1 + slices.IndexFunc(is.records, func(r patch.Record) bool { return r.ID() == id })
}

// rank puts what deletes behind the others.
func (c Call) rank() int {
	if c.Op == "delete" {
		return 0
	}
	return 1
}

// repeat makes some calls again that were acknowledged: they find what is there.
func repeat(ctx context.Context, s *store.Store, j *Journal, now Content, random *rand.Rand) error {
	for range min(20, len(j.Calls)) {
		c := j.Calls[random.IntN(len(j.Calls))]
		is := now.sessions[c.Session]
		was := j.Replies[c.N]
		if is == nil || is.creation != c.Creation || len(c.Offered) == 0 || was.Kind != "done" {
			continue
		}
		if r := Do(ctx, s, c); r.Kind != "done" || !slices.EqualFunc(r.Records, was.Records, Entry.same) {
			return fmt.Errorf("call %d came to %+v, and made again it comes to %+v", c.N, was, r)
		}
	}
	return nil
}

// Verify returns what [store.Store.Verify] finds.
func Verify(ctx context.Context, s *store.Store) error { return VerifyBeside(ctx, s, nil) }

// VerifyBeside is Verify where some calls may be half done: those that erase.
func VerifyBeside(ctx context.Context, s *store.Store, pending []Call) error {
	var problems []error
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		if err == nil {
			if half, err := erases(ctx, s, p, pending); half && err == nil {
				continue
			}
			err = errors.New(p.String())
		}
		problems = append(problems, err)
	}
	if err := join(problems); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// erases reports whether a problem is of the receipt of a call: that it is not finished.
func erases(ctx context.Context, s *store.Store, p store.Problem, pending []Call) (bool, error) {
	if p.Seq == 0 {
		return false, nil
	}
	for r, err := range s.RawEvents(ctx, p.Key, p.Seq) {
		return err == nil && slices.ContainsFunc(pending, func(c Call) bool { return c.Op == "erase" && c.Target == r.ID() }), err
	}
	return false, nil
}

// views holds the views of the sessions that calls were about against the reference model.
func (g *judge) views(ctx context.Context, s *store.Store, count func(string, int)) error {
	for name, is := range g.now.sessions {
		if len(g.by[name]) == 0 {
			continue
		}
		ref := fuzz.NewReference(is.initial)
		for _, r := range is.records {
			ref.Apply(r)
		}
		v, err := s.View(ctx, Key(name))
		if err != nil {
			return err
		}
		if err := fuzz.Compare(whole{v, s, Key(name)}, ref); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		count("views", 1)
	}
	return nil
}

// whole is a view that knows which patches were skipped, also if it came from a snapshot.
type whole struct {
	fold.View
	store *store.Store
	key   store.Key
}

func (w whole) Skipped() ([]patch.Skip, error) {
	v, err := w.store.Whole(context.Background(), w.key, w.View)
	if err != nil {
		return nil, err
	}
	return v.Skipped()
}
