package storetest

import "github.com/patchlog-dev/patchlog/store/backend"

var appendCases = []testCase{
	{"Create", func(s *suite) {
		s.append("empty", backend.Batch{Creation: "c1", Create: true})
		s.append("with meta", backend.Batch{Creation: "c2", Create: true, Meta: []byte{0, 1, 0xff}})
		s.append("with records", create("c3", 3))
		s.append("with shared values", withShared(create("c4", 2), "x", "1"))
	}},
	{"Create/exists", func(s *suite) {
		s.append("a", create("c1", 2))
		b := withShared(create("c2", 3), "x", "1")
		s.appendRefused(backend.ErrExists, "a", b)
		s.appendRefused(backend.ErrExists, "a", create("c1", 0))
		b.ExpectedLast, b.Records = 2, records(2, 3)
		s.appendRefused(backend.ErrExists, "a", b)
		b = create("c2", 0)
		b.ExpectedLast = 1
		s.appendRefused(backend.ErrMoved, "b", b)
	}},
	{"Append", func(s *suite) {
		s.append("a", create("c1", 0))
		s.append("a", extend("c1", 0, 1))
		s.append("a", extend("c1", 1, 3))
		s.append("a", withShared(extend("c1", 4, 1), "x", "1", "y", "", "x", "2"))
		s.append("a", backend.Batch{Creation: "c1", ExpectedLast: 5}) // an empty batch
		s.append("a", withShared(extend("c1", 5, 0), "z", "3"))
	}},
	{"Append/counts", func(s *suite) {
		s.append("none", create("c0", 1))
		b := create("c1", 1)
		b.Counts = []byte("one record")
		s.append("a", b)
		s.append("a", extend("c1", 1, 1)) // keeps the counts
		b = extend("c1", 2, 1)
		b.Counts = []byte{0, 0xff}
		s.append("a", b)
		b = extend("c1", 2, 1)
		b.Counts = []byte("refused")
		s.appendRefused(backend.ErrMoved, "a", b)
		r := s.replacement("a", "other", 1)
		s.replace("a", r)
		s.check()
		r = s.replacement("a", "again", 1)
		r.Counts = []byte("of the replaced log")
		s.replace("a", r)
	}},
	{"Append/moved", func(s *suite) {
		s.append("a", create("c1", 3))
		for _, after := range []uint64{0, 2, 4, 1 << 63} {
			s.appendRefused(backend.ErrMoved, "a", withShared(extend("c1", after, 2), "x", "1"))
		}
		head := s.mustHead("a")
		b := withShared(extend("c1", 3, 0), "x", "1")
		b.ExpectedToken, b.Chain = head.Token+1, head.Chain
		s.appendRefused(backend.ErrMoved, "a", b)
		b.ExpectedToken = head.Token
		s.append("a", b) // sets a shared value and the token only
		s.appendRefused(backend.ErrMoved, "a", b)
	}},
	{"Append/taken", func(s *suite) {
		s.append("a", create("c1", 3))
		s.append("b", create("c2", 1))
		b := withShared(extend("c1", 3, 2), "x", "1")
		b.Records[1].IDs = []string{"new", "id2"}
		s.appendRefused(backend.ErrTaken, "a", b)
		b.Records[1].IDs = []string{"new"}
		s.append("a", b)
	}},
	{"Append/invalid", func(s *suite) {
		s.append("a", create("c1", 1))
		for _, seqs := range [][]uint64{{1}, {3}, {2, 2}, {2, 4}, {2, 3, 1}, {0}} {
			b := withShared(extend("c1", 1, 0), "x", "1")
			for _, seq := range seqs {
				b.Records = append(b.Records, records(seq-1, 1)...)
			}
			s.appendRefused(backend.ErrInvalid, "a", b)
			if seqs[0] != 1 {
				b.Create, b.ExpectedLast = true, 0
				s.appendRefused(backend.ErrInvalid, "b", b)
			}
		}
		long := string(testData(backend.MaxNameBytes + 1))
		ids := extend("c1", 1, 1)
		ids.Records[0].IDs = []string{long}
		s.appendRefused(backend.ErrInvalid, "a", ids)
		for _, name := range []string{"", long} {
			s.appendRefused(backend.ErrInvalid, name, create("c2", 1))
			s.appendRefused(backend.ErrInvalid, "a", withShared(extend("c1", 1, 1), name, "1"))
			s.wantError(s.PutShared(ctx, []backend.SharedChange{{Name: name}}), backend.ErrInvalid, "PutShared")
		}
		s.appendRefused(backend.ErrInvalid, "b", create(long, 1))
	}},
	{"Append/sizes", func(s *suite) {
		s.append("a", create("c1", 0))
		b := backend.Batch{Creation: "c1"}
		for i, size := range []int{0, 1, 4095, 4096, 4097, 70_000, 3 << 20} {
			b.Records = append(b.Records, backend.Record{Seq: uint64(i + 1), Data: testData(size)})
		}
		s.append("a", b)
		s.append("b", create("c2", 3000))
		s.append("c", backend.Batch{Creation: "c3", Create: true, Meta: testData(1 << 20)})
	}},
}
