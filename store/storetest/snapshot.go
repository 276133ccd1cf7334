package storetest

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// keep stores a snapshot that must be taken.
func (s *suite) keep(name, data string) {
	s.Helper()
	s.must(s.PutSnapshot(ctx, name, s.want.sessions[name].creation, backend.Snapshot{Seq: uint64(len(s.want.sessions[name].records)), Data: []byte(data)}), "PutSnapshot of %q", name)
	s.want.sessions[name].snapshot = data
}

var snapshotCases = []testCase{
	{"Snapshot", func(s *suite) {
		s.put("a", create("c1", 3))
		s.put("b", create("c2", 3))
		s.check() // none yet
		s.keep("a", "first")
		s.keep("a", "second")
		s.keep("b", string(big(300_000)))
		s.put("a", extend("c1", 3, 2))
		s.check()
		s.keep("b", "shorter")
	}},
	{"Snapshot/not found", func(s *suite) {
		s.put("a", create("c1", 1))
		s.keep("a", "kept")
		for _, c := range []struct{ name, creation string }{{"b", "c1"}, {"a", "c2"}, {"a", ""}} {
			s.is(s.PutSnapshot(ctx, c.name, c.creation, backend.Snapshot{Seq: 1, Data: []byte("x")}), backend.ErrNotFound, fmt.Sprintf("PutSnapshot of %q, created as %q", c.name, c.creation))
			_, err := s.Snapshot(ctx, c.name, c.creation)
			s.is(err, backend.ErrNotFound, fmt.Sprintf("Snapshot of %q, created as %q", c.name, c.creation))
		}
	}},
	{"Snapshot/slices", func(s *suite) {
		s.put("a", create("c1", 1))
		data := []byte("as it was")
		s.must(s.PutSnapshot(ctx, "a", "c1", backend.Snapshot{Seq: 1, Data: data}), "PutSnapshot")
		s.want.sessions["a"].snapshot = "as it was"
		scramble(data)
		kept, _ := s.Snapshot(ctx, "a", "c1")
		got := kept.Data
		scramble(got)
		_ = append(got, "tail"...)
	}},
}
