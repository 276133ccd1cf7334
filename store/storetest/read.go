package storetest

import (
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/store/backend"
)

var readCases = []testCase{
	{"Read", func(s *suite) {
		s.append("a", create("c1", 10))
		want := s.want.sessions["a"]
		for _, c := range []struct{ seqs, want []uint64 }{
			{backend.Range(1, 10), backend.Range(1, 10)}, {backend.Range(4, 99), backend.Range(4, 7)},
			{[]uint64{1, 3, 4, 10}, []uint64{1, 3, 4, 10}}, {[]uint64{9, 11, 12}, []uint64{9}},
			{[]uint64{11}, nil}, {[]uint64{1 << 63}, nil}, {[]uint64{0, 1}, nil}, {nil, nil},
		} {
			s.sameRecords(s.read("a", "c1", c.seqs, 1<<20), want, c.want)
		}
		s.append("b", create("c2", 0))
		s.sameRecords(s.read("b", "c2", []uint64{1}, 1<<20), nil, nil)
	}},
	{"Read/limits", func(s *suite) {
		s.append("a", create("c1", 0))
		b := backend.Batch{Creation: "c1"}
		for seq := uint64(1); seq <= 10; seq++ {
			b.Records = append(b.Records, backend.Record{Seq: seq, Data: testData(100)})
		}
		s.append("a", b)
		want := s.want.sessions["a"]
		for _, c := range []struct{ records, maxBytes, want int }{
			{1, 1 << 20, 1}, {10, 1 << 20, 10}, {10, 100, 1}, {10, 199, 1}, {10, 200, 2}, {10, 201, 2}, {10, 999, 9},
			{10, 1000, 10}, {2, 300, 2}, {3, 200, 2}, {10, 99, 1}, {10, 0, 1}, // the first record is always returned
		} {
			s.sameRecords(s.read("a", "c1", backend.Range(1, c.records), c.maxBytes), want, backend.Range(1, c.want))
		}
	}},
	{"Lookup", func(s *suite) {
		b := create("c1", 0)
		b.Records = []backend.Record{{Seq: 1, IDs: []string{"b", "ab", "abc"}}, {Seq: 2, IDs: []string{"a"}}, {Seq: 3, IDs: []string{"", "ab\x00"}}}
		s.append("a", b)
		s.append("b", create("c2", 2))
		for _, c := range []struct {
			name, creation string
			ids            []string
			want           []uint64
		}{
			{"a", "c1", nil, nil},
			{"a", "c1", []string{"a", "b", "ab", "abc"}, []uint64{2, 1, 1, 1}},
			{"a", "c1", []string{"abc", "no", "a", "a", "abcd", "", "ab\x00", "\x00"}, []uint64{1, 0, 2, 2, 0, 3, 3, 0}},
			{"a", "c1", []string{"id1", "id2"}, []uint64{0, 0}}, // ids of another session
			{"b", "c2", []string{"a", "id2", "id1"}, []uint64{0, 2, 1}},
		} {
			got, err := s.Lookup(ctx, c.name, c.creation, c.ids)
			if err != nil || !slices.Equal(got, c.want) {
				s.Errorf("Lookup of %q in %q: %v, %v; want %v", c.ids, c.name, got, err, c.want)
			}
		}
	}},
	{"List", func(s *suite) {
		names := []string{"a", "a\x00", "a\x00\x01", "ab", "b", "b\xff", "b\xff\xff", "c"}
		for i, name := range names {
			s.append(name, create(fmt.Sprint("c", i), i))
		}
		for _, c := range []struct {
			prefix, after string
			limit         int
			want          []string
		}{
			{"", "", 99, names},
			{"", "", 3, names[:3]},
			{"", "", len(names), names},
			{"", "", 0, nil},
			{"a", "", 99, names[:4]},
			{"a\x00", "", 99, names[1:3]},
			{"b\xff", "", 99, names[5:7]},
			{"b\xff\xff", "", 99, names[6:7]},
			{"x", "", 99, nil},
			{"", "b", 99, names[5:]},
			{"", "aa", 99, names[3:]}, // no session has the name in after
			{"", "c", 99, nil},
			{"b", "a", 99, names[4:7]}, // after is below the prefix
			{"b", "b", 1, names[5:6]},
			{"a", "b", 99, nil}, // after is above the prefix
			{"a", "a\x00\x01", 99, names[3:4]},
		} {
			got, err := s.List(ctx, c.prefix, c.after, c.limit)
			s.must(err, "List")
			var gotNames []string
			for _, l := range got {
				gotNames = append(gotNames, l.Session)
				s.sameListed(l, s.want.sessions[l.Session])
			}
			if !slices.Equal(gotNames, c.want) {
				s.Errorf("List of prefix %q after %q, limit %d: %q, want %q", c.prefix, c.after, c.limit, gotNames, c.want)
			}
		}
	}},
}
