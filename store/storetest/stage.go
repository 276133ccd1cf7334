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
	b.Create, b.RenameFrom, b.Meta = true, staged, []byte("meta of "+creation)
	return b
}

var stageCases = []testCase{
	{"Staged", func(s *suite) {
		s.append("a", create("c1", 2))
		s.append("tmp", create("c2", 3))
		s.append("tmp", extend("c2", 3, 700))
		s.putSnapshot("tmp", "of what is staged")
		b := rename("tmp", "c2", 703, 1)
		b.Shared, b.Counts = []backend.Value{{Name: "x", Data: []byte("1")}}, []byte("704")
		s.append("b", b)
		s.check()
		s.append("b", extend("c2", 704, 2))
		s.append("a", extend("c1", 2, 2))
		s.append("tmp", create("c3", 1)) // the staged name can be used again
		s.append("c", rename("tmp", "c3", 1, 0))
		s.check()
		s.delete("b")
	}},
	{"Staged/refused", func(s *suite) {
		s.append("a", create("c1", 1))
		s.append("tmp", create("c2", 2))
		s.appendRefused(backend.ErrExists, "a", rename("tmp", "c2", 2, 1))
		s.appendRefused(backend.ErrMoved, "b", rename("tmp", "c2", 1, 1))
		s.appendRefused(backend.ErrMoved, "b", rename("tmp", "c3", 2, 1))
		s.appendRefused(backend.ErrMoved, "b", rename("none", "c2", 2, 1))
		moved := rename("tmp", "c2", 2, 1)
		moved.ExpectedToken = 7
		s.appendRefused(backend.ErrMoved, "b", moved)
		taken := rename("tmp", "c2", 2, 1)
		taken.Records[0].IDs = []string{"id1"}
		s.appendRefused(backend.ErrTaken, "b", taken)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		s.wantError(s.Append(cancelled, "b", rename("tmp", "c2", 2, 1)), context.Canceled, "Append that renames")
		late := s.withToken("b", rename("tmp", "c2", 2, 1))
		s.append("b", late)
		s.appendRefused(backend.ErrMoved, "c", late) // the staged session no longer exists
	}},
	{"Staged/fence", func(s *suite) {
		s.append("tmp", create("c1", 2))
		late := s.withToken("a", rename("tmp", "c1", 2, 1))
		s.fence("tmp", "c1", late.ExpectedToken, 7, true)
		s.appendRefusedAfterFence("tmp", "a", late)
		late.ExpectedToken = s.want.sessions["tmp"].token
		s.append("a", late)
		s.fence("tmp", "c1", late.ExpectedToken, 7, false)
	}},
	{"Staged/while another session is unmoved", func(s *suite) {
		s.append("a", create("c1", 2))
		for i, staged := range []bool{false, true} {
			name, creation := fmt.Sprint("b", i), fmt.Sprint("of b", i)
			b := create(creation, 1)
			if staged {
				s.append("tmp", create(creation, 3))
				b = rename("tmp", creation, 3, 1)
			}
			head := s.mustHead("a")
			source := backend.SessionEdition{Session: "a", Creation: "c1", Edition: head.Edition}
			for _, change := range []func(wrong *backend.SessionEdition){
				func(wrong *backend.SessionEdition) { wrong.Session = "other" },
				func(wrong *backend.SessionEdition) { wrong.Creation = "other" },
				func(wrong *backend.SessionEdition) { wrong.Edition++ },
			} {
				wrong := source
				change(&wrong)
				b.ExpectedSource = &wrong
				s.appendRefused(backend.ErrMoved, name, b)
			}
			b.ExpectedSource = &source
			s.replace("a", s.replacement("a", "other", 1))
			s.appendRefused(backend.ErrMoved, name, b)
			source.Edition++
			s.append("a", extend("c1", head.Last, 1)) // does not change the edition
			s.append(name, b)
			s.check()
		}
	}},
	{"Relatives", func(s *suite) {
		createRelative := func(name, creation, family string, of *backend.SessionEdition) {
			b := create(creation, 1)
			if name == "f3" { // create f3 by renaming a staged session
				s.append("tmp", create(creation, 3))
				b = rename("tmp", creation, 3, 1)
			}
			b.Family, b.ExpectedSource = family, of
			s.append(name, b)
		}
		wantRelatives := func(family, after string, limit int, want ...string) {
			s.Helper()
			listed, err := s.Relatives(ctx, family, after, limit)
			s.wantError(err, nil, "Relatives")
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
		s.append("root", create("c1", 2))
		s.append("other", create("c2", 2))
		createRelative("f1", "c3", "c1", &backend.SessionEdition{Session: "root", Creation: "c1"})
		createRelative("f2", "c4", "c1", &backend.SessionEdition{Session: "f1", Creation: "c3"})
		createRelative("f3", "c5", "c1", &backend.SessionEdition{Session: "f1", Creation: "c3"})
		createRelative("g", "c6", "elsewhere", nil)
		wantRelatives("c1", "", 9, "f1", "f2", "f3", "root")
		wantRelatives("c1", "f1", 2, "f2", "f3")
		wantRelatives("elsewhere", "", 9, "g")
		wantRelatives("none", "", 9)
		wantRelatives("", "", 9)
		s.replace("f1", s.replacement("f1", "other", 1))
		s.append("f2", extend("c4", 1, 1))
		s.delete("root")
		s.delete("f2")
		wantRelatives("c1", "", 9, "f1", "f3")
		s.append("root", create("c7", 1))
		wantRelatives("c1", "", 9, "f1", "f3")
	}},
}
