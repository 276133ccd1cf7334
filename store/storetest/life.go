package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/patchlog-dev/patchlog/store/backend"
)

var lifeCases = []testCase{
	{"Delete", func(s *suite) {
		for _, name := range []string{"a", "b", "ba", "b\x00", "c"} {
			s.append(name, withShared(create("creation of "+name, 3), "shared by "+name, "stays"))
		}
		s.delete("b")
		s.check()
		s.wantError(s.Delete(ctx, "b", "c2", nil), backend.ErrNotFound, "Delete again")
		_, err := s.head("b")
		s.wantError(err, backend.ErrNotFound, "Fetch after Delete")
		s.delete("a")
		s.delete("c")
	}},
	{"Delete/very large", func(s *suite) {
		for i := range 3 {
			s.append("a", create(fmt.Sprint("c1 ", i), 6000))
			s.putSnapshot("a", "snapshot")
			s.append("b", create(fmt.Sprint("c2 ", i), 2))
			s.delete("a")
			s.append("a", create(fmt.Sprint("c3 ", i), 3)) // at once, while the rows of the deleted session may still exist
			s.check()
			s.delete("b")
			s.delete("a")
			s.check()
		}
	}},
	{"Delete/create again", func(s *suite) {
		s.append("a", create("c1", 3))
		s.delete("a")
		s.append("a", create("c2", 1)) // with the ids of the deleted session's records
		s.check()
		s.appendRefused(backend.ErrNotFound, "a", extend("c1", 3, 1))
		s.appendRefused(backend.ErrNotFound, "a", extend("c1", 1, 1))
		_, err := s.Read(ctx, "a", "c1", []uint64{1}, 99)
		s.wantError(err, backend.ErrNotFound, "Read of the deleted creation")
		_, err = s.Lookup(ctx, "a", "c1", []string{"id1"})
		s.wantError(err, backend.ErrNotFound, "Lookup in the deleted creation")
		seqs, err := s.Lookup(ctx, "a", "c2", []string{"id1", "id2"})
		if err != nil || seqs[0] != 1 || seqs[1] != 0 {
			s.Errorf("Lookup in the new creation: %v, %v; want 1 and 0", seqs, err)
		}
		for i := range 5 {
			s.delete("a")
			s.append("a", create(fmt.Sprint("again ", i), i))
			s.check()
		}
	}},
	{"Records that were read", func(s *suite) { // a returned record does not change while other callers write
		s.append("a", create("c1", 3))
		before := s.read("a", "c1", backend.Range(1, 9), 99)
		s.append("a", extend("c1", 3, 500))
		s.delete("a")
		s.sameRecords(before, &modelSession{records: []string{"record 1", "record 2", "record 3"}}, backend.Range(1, 3))
	}},
	{"Not found", func(s *suite) {
		s.append("a", create("c1", 2))
		s.putSnapshot("a", "kept")
		s.want.shared["x"] = "" // written by everyCall
		for _, c := range []struct{ name, creation string }{{"b", "c1"}, {"", "c1"}, {"A", "c1"}, {"a\x00", "c1"}, {"a", "c2"}, {"a", "c"}, {"a", "c10"}, {"a", "C1"}, {"a", ""}} {
			errs := s.everyCall(ctx, c.name, withShared(extend(c.creation, 2, 1), "y", "1"))
			for _, call := range []string{"Append", "Read", "Lookup", "Replace", "PutSnapshot", "Snapshot", "Delete", "Fetch"} {
				if c.name == "" && (call == "Append" || call == "Replace" || call == "Fetch") || c.name == "a" && call == "Fetch" {
					continue // the call is invalid or does not check the creation id
				}
				s.wantError(errs[call], backend.ErrNotFound, fmt.Sprintf("%s of %q, created as %q", call, c.name, c.creation))
			}
			s.check()
		}
		s.appendRefused(backend.ErrNotFound, "a", extend("c2", 7, 1)) // a wrong creation id is reported before a wrong seq
	}},
	{"Cancelled", func(s *suite) {
		s.append("a", create("c1", 1))
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		for name, err := range s.everyCall(cancelled, "a", withShared(extend("c1", 1, 1), "x", "1")) {
			s.wantError(err, context.Canceled, name)
		}
		s.wantError(s.Append(cancelled, "b", create("c2", 1)), context.Canceled, "Append that creates")
	}},
	{"Closed", func(s *suite) {
		s.append("a", create("c1", 1))
		s.must(s.Close(), "Close")
		s.closed = true
		for name, err := range s.everyCall(ctx, "a", extend("c1", 1, 1)) {
			s.wantError(err, backend.ErrClosed, name)
		}
		s.wantError(s.Append(ctx, "b", create("c2", 1)), backend.ErrClosed, "Append that creates")
		s.wantError(s.Close(), backend.ErrClosed, "Close")
	}},
}

// everyCall calls each method except Close and returns the errors.
func (s *suite) everyCall(ctx context.Context, name string, b backend.Batch) map[string]error {
	errs := map[string]error{}
	_, errs["Fetch"] = s.Fetch(ctx, backend.Query{Session: name, Creation: b.Creation, Shared: []string{""}})
	errs["Append"] = s.Append(ctx, name, b)
	_, errs["Read"] = s.Read(ctx, name, b.Creation, []uint64{1}, 99)
	_, errs["Lookup"] = s.Lookup(ctx, name, b.Creation, []string{"id1"})
	_, errs["Snapshot"] = backend.FetchSnapshot(ctx, s.Backend, name, b.Creation)
	_, errs["Fetch of shared values"] = backend.FetchShared(ctx, s.Backend, "")
	errs["PutShared"] = s.PutShared(ctx, []backend.SharedChange{{Name: "x"}})
	errs["Replace"] = s.Replace(ctx, name, b.Creation, replacing(backend.Replacement{Next: 1}))
	_, errs["Relatives"] = s.Relatives(ctx, b.Creation, "", 9)
	_, errs["List"] = s.List(ctx, "", "", 9)
	errs["PutSnapshot"] = s.PutSnapshot(ctx, name, b.Creation, backend.Snapshot{Seq: b.ExpectedLast, Data: []byte("x")})
	errs["Delete"] = s.Delete(ctx, name, b.Creation, nil)
	_, errs["Fence"] = s.Fence(ctx, name, b.Creation, 1, 2)
	if l, ok := s.Backend.(backend.Leaser); ok {
		_, errs["Lease"] = l.Lease(ctx, "lease", "owner", time.Minute)
	}
	return errs
}
