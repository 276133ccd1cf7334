package storetest

import (
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// oddNames are names that an engine could confuse with each other or with its own internal keys.
var oddNames = []string{
	"a", "aa", "a\x00", "a\x00a", "a\x01", "a\xff", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01",
	"\xff", "\xff\xff", "\xff\x00", "/", "a/b", "\n", "\xc3\x28", "😀", string(testData(4000)), string(testData(4001)), string(testData(backend.MaxNameBytes)),
	"\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01",
}

var sharedCases = []testCase{
	{"Shared", func(s *suite) {
		s.append("a", create("c1", 0))
		names := []string{"p", "p\x00", "p\x00q", "pq", "q", "q\xff", "q\xff\xff", "r"}
		for i := range names {
			// The names are not written in name order.
			name := names[(i*5)%len(names)]
			s.append("a", withShared(extend("c1", 0, 0), name, "of "+name))
		}
		for _, c := range []struct {
			prefix string
			want   []string
		}{
			{"", names}, {"p", names[:4]}, {"p\x00", names[1:3]}, {"q\xff", names[5:7]}, {"q\xff\xff\xff", nil},
			{"r", names[7:]}, {"s", nil}, {"o", nil}, {"pqr", nil},
		} {
			got, err := backend.FetchShared(ctx, s.Backend, c.prefix)
			s.must(err, "Shared")
			s.sameShared(got, c.want)
		}
	}},
	{"Shared/put", func(s *suite) {
		put := func(want error, changes ...backend.SharedChange) {
			s.Helper()
			if err := s.PutShared(ctx, changes); !errors.Is(err, want) {
				s.Errorf("PutShared %v: %v, want %v", changes, err, want)
			}
			for _, c := range changes {
				if want == nil {
					s.want.shared[c.Name] = string(c.Data)
				}
				scramble(c.Data)
			}
			s.check()
		}
		is := func(name, data string) *backend.Value { return &backend.Value{Name: name, Data: []byte(data)} }
		put(nil)
		put(nil, backend.SharedChange{Name: "x", Data: []byte("1")}, backend.SharedChange{Name: "xy", Data: []byte("2")})
		put(backend.ErrMoved, backend.SharedChange{Name: "z", Data: []byte("3")}, backend.SharedChange{Name: "x", Data: []byte("3")})
		put(backend.ErrMoved, backend.SharedChange{Old: is("x", "1"), Name: "x", Data: []byte("3")}, backend.SharedChange{Old: is("xy", "1"), Name: "xy"})
		put(backend.ErrMoved, backend.SharedChange{Old: is("w", ""), Name: "w"})
		put(nil, backend.SharedChange{Old: is("xy", "2"), Name: "xy"}, backend.SharedChange{Name: "w", Data: []byte("4")}, backend.SharedChange{Old: is("x", "1"), Name: "x", Data: []byte("1")})
		put(nil, backend.SharedChange{Old: is("xy", ""), Name: "xy", Data: []byte("5")})
		s.append("a", withShared(create("c1", 1), "x", "6"))
		put(backend.ErrMoved, backend.SharedChange{Old: is("x", "1"), Name: "x"})
	}},
	{"Names", func(s *suite) {
		for i, name := range oddNames {
			b := create(fmt.Sprint("c", i), 0)
			for k, id := range oddNames {
				b.Records = append(b.Records, backend.Record{Seq: uint64(k + 1), IDs: []string{id}, Data: []byte(name + id)})
			}
			s.append(name, withShared(b, name, "of "+name))
		}
		for i, name := range oddNames {
			if i%2 == 0 {
				s.delete(name)
			}
		}
	}},
	{"Names/creations", func(s *suite) {
		for i, creation := range oddNames {
			name := fmt.Sprint("s", i)
			s.append(name, create(creation, 1))
			s.append(name, extend(creation, 1, 1))
			other := ("\x00" + creation)[:min(len(creation)+1, backend.MaxNameBytes)]
			s.appendRefused(backend.ErrNotFound, name, extend(other, 2, 1))
		}
	}},
}
