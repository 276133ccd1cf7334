package storetest

import "github.com/patchlog-dev/patchlog/store/backend"

// keep stores a snapshot that must be taken.
func (s *suite) keep(name, data string) {
	s.Helper()
	given := []byte(data)
	s.must(s.PutSnapshot(ctx, name, s.want.sessions[name].creation, backend.Snapshot{Seq: uint64(len(s.want.sessions[name].records)), Data: given}), "PutSnapshot of %q", name)
	scramble(given)
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
}
