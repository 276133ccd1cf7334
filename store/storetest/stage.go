package storetest

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// stage stages records that must be accepted.
func (s *suite) stage(creation string, after uint64, n int) {
	s.Helper()
	if err := s.Stage(ctx, creation, after, records(after, n)); err != nil {
		s.Fatalf("Stage for %q after %d: %v", creation, after, err)
	}
}

// createStaged creates a session with the n records that are staged for it, and those of
// the batch.
func (s *suite) createStaged(name string, n int, b backend.Batch) {
	s.Helper()
	b.After = uint64(n)
	for i := range b.Records {
		if b.Records[i].Seq += uint64(n); b.Records[i].Sum != 0 { // as from records
			b.Records[i] = records(b.Records[i].Seq-1, 1)[0]
		}
	}
	for _, r := range records(0, n) {
		b.Chain = b.Chain.Add(r.Sum)
	}
	if err := s.Append(ctx, name, b); err != nil {
		s.Fatalf("Append to %q after what is staged: %v", name, err)
	}
	b.Records = append(records(0, n), b.Records...)
	s.want.append(name, b)
}

var stageCases = []testCase{
	{"Stage", func(s *suite) {
		s.put("a", create("c1", 2))
		s.stage("c2", 0, 3)
		s.check() // nobody sees it
		s.stage("c2", 3, 700)
		s.stage("c2", 703, 0)
		s.check()
		b := create("c2", 0)
		b.Records = []backend.Record{{Seq: 1, IDs: []string{"own"}, Data: []byte("the batch's own")}}
		b.Shared = []backend.Value{{Name: "x", Data: []byte("1")}}
		s.createStaged("b", 703, b)
		s.check()
		s.put("b", extend("c2", 704, 2))
		s.put("a", extend("c1", 2, 2))
		s.check()
		s.remove("b")
		s.check()
	}},
	{"Stage/while another session is unmoved", func(s *suite) {
		s.put("a", create("c1", 2))
		for i, staged := range []int{0, 3} {
			name, creation := fmt.Sprint("b", i), fmt.Sprint("of b", i)
			if staged > 0 {
				s.stage(creation, 0, staged)
			}
			head, err := s.Head(ctx, "a")
			if err != nil {
				s.Fatal(err)
			}
			b := create(creation, 1)
			b.After, b.Records = uint64(staged), records(uint64(staged), 1)
			for _, r := range records(0, staged) {
				b.Chain = b.Chain.Add(r.Sum)
			}
			unmoved := backend.Unmoved{Session: "a", Creation: "c1", Last: head.Last, Token: head.Token}
			for _, change := range []func(w *backend.Unmoved){
				func(w *backend.Unmoved) { w.Session = "other" },
				func(w *backend.Unmoved) { w.Creation = "other" },
				func(w *backend.Unmoved) { w.Last-- },
			} {
				w := unmoved
				change(&w)
				b.While = &w
				s.refuse(backend.ErrMoved, name, b)
			}
			s.put("a", extend("c1", head.Last, 1))
			b.While = &unmoved
			s.refuse(backend.ErrMoved, name, b)
			if head, err = s.Head(ctx, "a"); err != nil {
				s.Fatal(err)
			}
			b.While = &backend.Unmoved{Session: "a", Creation: "c1", Last: head.Last, Token: head.Token}
			b.After, b.Records, b.Chain = 0, records(0, 1), backend.Chain{}
			if staged == 0 {
				s.put(name, b)
			} else {
				s.createStaged(name, staged, b)
			}
			s.check()
		}
	}},
	{"Stage/without records of the batch", func(s *suite) {
		s.stage("c1", 0, 1)
		s.createStaged("a", 1, create("c1", 0))
	}},
	{"Stage/several at once", func(s *suite) {
		s.stage("c1", 0, 2)
		s.stage("c2", 0, 3)
		s.stage("c1", 2, 4)
		s.createStaged("b", 3, create("c2", 1))
		s.check()
		s.stage("c1", 6, 1)
		s.createStaged("a", 7, create("c1", 0))
	}},
	{"Stage/moved", func(s *suite) {
		s.is(s.Stage(ctx, "c1", 1, records(1, 1)), backend.ErrMoved, "Stage after what is not there")
		s.stage("c1", 0, 2)
		for _, after := range []uint64{0, 1, 3} {
			s.is(s.Stage(ctx, "c1", after, records(after, 1)), backend.ErrMoved, "Stage")
			b := create("c1", 0)
			b.After = after
			s.refuse(backend.ErrMoved, "a", b)
		}
		if err := s.Stage(ctx, "c1", 2, records(3, 1)); err == nil {
			s.Error("records with a gap were staged")
		}
		s.createStaged("a", 2, create("c1", 0))
		// It is used up.
		b := create("c1", 0)
		b.After = 2
		s.refuse(backend.ErrMoved, "b", b)
	}},
	{"Stage/exists", func(s *suite) {
		s.put("a", create("c1", 1))
		s.stage("c2", 0, 2)
		b := create("c2", 0)
		b.After = 2
		s.refuse(backend.ErrExists, "a", b)
		s.createStaged("b", 2, create("c2", 0)) // under another name it can be
	}},
	{"Unstage", func(s *suite) {
		s.Unstage("never")
		s.stage("c1", 0, 5)
		s.Unstage("c1")
		b := create("c1", 0)
		b.After = 5
		s.refuse(backend.ErrMoved, "a", b)
		s.stage("c1", 0, 2) // anew
		s.createStaged("a", 2, create("c1", 1))
		s.Unstage("c1") // it is a session now
		s.check()
	}},
	{"Stage/left behind", func(s *suite) {
		s.put("a", create("c1", 1))
		s.stage("c2", 0, 600)
	}},
	{"Stage/deleted meanwhile", func(s *suite) {
		s.put("a", create("c1", 5000))
		s.stage("c2", 0, 600)
		s.remove("a")
		s.createStaged("a", 600, create("c2", 1))
	}},
	{"Stage/slices", func(s *suite) {
		given := records(0, 2)
		if err := s.Stage(ctx, "c1", 0, given); err != nil {
			s.Fatalf("Stage: %v", err)
		}
		for i := range given {
			scramble(given[i].Data)
			given[i].IDs[0] = "other"
		}
		s.createStaged("a", 2, create("c1", 0))
	}},
	{"Stage/cancelled", func(s *suite) {
		s.stage("c1", 0, 2)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		s.is(s.Stage(cancelled, "c1", 2, records(2, 1)), context.Canceled, "Stage")
		b := create("c1", 0)
		b.After = 2
		s.is(s.Append(cancelled, "a", b), context.Canceled, "Append that creates")
		s.createStaged("a", 2, create("c1", 0))
	}},
}
