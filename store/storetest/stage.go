package storetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// rename returns a batch that appends n records to a staged session and renames the session.
func rename(staged, creation string, after, n int) backend.Batch {
	b := extend(creation, uint64(after), n)
	b.Create, b.Staged, b.Meta = true, staged, []byte("meta of "+creation)
	return b
}

var stageCases = []testCase{
	{"Staged", func(s *suite) {
		s.put("a", create("c1", 2))
		s.put("tmp", create("c2", 3))
		s.put("tmp", extend("c2", 3, 700))
		s.keep("tmp", "of what is staged")
		b := rename("tmp", "c2", 703, 1)
		b.Shared, b.Counts = []backend.Value{{Name: "x", Data: []byte("1")}}, []byte("704")
		s.put("b", b)
		s.check()
		s.put("b", extend("c2", 704, 2))
		s.put("a", extend("c1", 2, 2))
		s.put("tmp", create("c3", 1)) // the staged name can be used again
		s.put("c", rename("tmp", "c3", 1, 0))
		s.check()
		s.remove("b")
	}},
	{"Staged/refused", func(s *suite) {
		s.put("a", create("c1", 1))
		s.put("tmp", create("c2", 2))
		s.refuse(backend.ErrExists, "a", rename("tmp", "c2", 2, 1))
		s.refuse(backend.ErrMoved, "b", rename("tmp", "c2", 1, 1))
		s.refuse(backend.ErrMoved, "b", rename("tmp", "c3", 2, 1))
		s.refuse(backend.ErrMoved, "b", rename("none", "c2", 2, 1))
		moved := rename("tmp", "c2", 2, 1)
		moved.ExpectedToken = 7
		s.refuse(backend.ErrMoved, "b", moved)
		taken := rename("tmp", "c2", 2, 1)
		taken.Records[0].IDs = []string{"id1"}
		s.refuse(backend.ErrTaken, "b", taken)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		s.is(s.Append(cancelled, "b", rename("tmp", "c2", 2, 1)), context.Canceled, "Append that renames")
		late := s.upToDate("b", rename("tmp", "c2", 2, 1))
		s.put("b", late)
		s.refuse(backend.ErrMoved, "c", late) // the staged session no longer exists
	}},
	{"Staged/fence", func(s *suite) {
		s.put("tmp", create("c1", 2))
		late := s.upToDate("a", rename("tmp", "c1", 2, 1))
		s.fence("tmp", "c1", late.ExpectedToken, 7, true)
		s.refuseFenced("tmp", "a", late)
		late.ExpectedToken = s.want.sessions["tmp"].token
		s.put("a", late)
		s.fence("tmp", "c1", late.ExpectedToken, 7, false)
	}},
	{"Staged/while another session is unmoved", func(s *suite) {
		s.put("a", create("c1", 2))
		for i, staged := range []bool{false, true} {
			name, creation := fmt.Sprint("b", i), fmt.Sprint("of b", i)
			b := create(creation, 1)
			if staged {
				s.put("tmp", create(creation, 3))
				b = rename("tmp", creation, 3, 1)
			}
			head := s.mustHead("a")
			unmoved := backend.Unmoved{Session: "a", Creation: "c1", Edition: head.Edition}
			for _, change := range []func(w *backend.Unmoved){
				func(w *backend.Unmoved) { w.Session = "other" },
				func(w *backend.Unmoved) { w.Creation = "other" },
				func(w *backend.Unmoved) { w.Edition++ },
			} {
				w := unmoved
				change(&w)
				b.While = &w
				s.refuse(backend.ErrMoved, name, b)
			}
			b.While = &unmoved
			s.replace("a", s.replacement("a", "other", 1))
			s.refuse(backend.ErrMoved, name, b)
			unmoved.Edition++
			s.put("a", extend("c1", head.Last, 1)) // does not change the edition
			s.put(name, b)
			s.check()
		}
	}},
	{"Relatives", func(s *suite) {
		born := func(name, creation, family string, of *backend.Unmoved) {
			b := create(creation, 1)
			if name == "f3" { // create f3 by renaming a staged session
				s.put("tmp", create(creation, 3))
				b = rename("tmp", creation, 3, 1)
			}
			b.Family, b.While = family, of
			s.put(name, b)
		}
		names := func(family, after string, limit int, want ...string) {
			s.Helper()
			listed, err := s.Relatives(ctx, family, after, limit)
			s.is(err, nil, "Relatives")
			var got []string
			for _, l := range listed {
				head := s.mustHead(l.Session)
				if l.Err != nil || !reflect.DeepEqual(l.Head, head) {
					s.Errorf("relative %q: %+v, %v, want %+v", l.Session, l.Head, l.Err, head)
				}
				got = append(got, l.Session)
			}
			if !slices.Equal(got, want) {
				s.Errorf("Relatives of %q after %q: %q, want %q", family, after, got, want)
			}
		}
		s.put("root", create("c1", 2))
		s.put("other", create("c2", 2))
		born("f1", "c3", "c1", &backend.Unmoved{Session: "root", Creation: "c1"})
		born("f2", "c4", "c1", &backend.Unmoved{Session: "f1", Creation: "c3"})
		born("f3", "c5", "c1", &backend.Unmoved{Session: "f1", Creation: "c3"})
		born("g", "c6", "elsewhere", nil)
		names("c1", "", 9, "f1", "f2", "f3", "root")
		names("c1", "f1", 2, "f2", "f3")
		names("elsewhere", "", 9, "g")
		names("none", "", 9)
		names("", "", 9)
		s.replace("f1", s.replacement("f1", "other", 1))
		s.put("f2", extend("c4", 1, 1))
		s.remove("root")
		s.remove("f2")
		names("c1", "", 9, "f1", "f3")
		s.put("root", create("c7", 1))
		names("c1", "", 9, "f1", "f3")
	}},
}
