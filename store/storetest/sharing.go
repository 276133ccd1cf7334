package storetest

import (
	"math"
	"time"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// fetch calls Fetch as a caller that has read the records up to the seq after in the log with this creation id. It
// compares the result with the model.
func (s *suite) fetch(name, creation string, after uint64, prefixes ...string) backend.Fetched {
	s.Helper()
	fetched, err := s.Fetch(ctx, backend.Query{Session: name, Creation: creation, After: after, Shared: prefixes})
	s.must(err, "Fetch of %q after record %d", name, after)
	want := s.want.sessions[name]
	n := 0
	if creation == want.creation {
		if fetched.Meta != nil {
			s.Errorf("Fetch of %q after record %d gives the meta that is known", name, after)
		}
		fetched.Meta = []byte(want.meta)
		n = int(min(max(int64(len(want.records))-int64(after), 0), backend.FetchRecords))
	}
	s.sameHead(fetched.Head, want, name)
	if len(fetched.Records) > 0 && len(fetched.Records) < n { // a Fetch may stop at its limit in bytes
		n = len(fetched.Records)
	}
	s.sameRecords(fetched.Records, want, backend.Range(after+1, n))
	if len(fetched.Shared) != len(prefixes) {
		s.Fatalf("Fetch with prefixes %q gives shared values of %d", prefixes, len(fetched.Shared))
	}
	return fetched
}

// coldRead makes a cold read and compares the result with the model.
func (s *suite) coldRead(name string, upTo uint64, snapshot string, seqs ...uint64) {
	s.Helper()
	fetched, err := s.Fetch(ctx, backend.Query{Session: name, UpTo: upTo})
	s.must(err, "cold Fetch of %q up to record %d", name, upTo)
	want := s.want.sessions[name]
	s.sameHead(fetched.Head, want, name)
	s.sameRecords(fetched.Records, want, seqs)
	if snap := fetched.Snapshot; string(snap.Data) != snapshot {
		s.Errorf("cold Fetch of %q up to record %d gives the snapshot %q of record %d, want %q", name, upTo, clip(snap.Data), snap.Seq, snapshot)
	}
}

// fence calls Fence and checks whether it fenced the batch off. If so, it may have changed the session's token.
func (s *suite) fence(name, creation string, seen, next backend.Token, want bool) {
	s.Helper()
	fenced, err := s.Fence(ctx, name, creation, seen, next)
	if err != nil || fenced != want {
		s.Errorf("Fence of %q, created as %q, at %d: %v, error %v, want %v", name, creation, seen, fenced, err, want)
	}
	if session := s.want.sessions[name]; session != nil && fenced {
		session.token = s.mustHead(name).Token
	}
}

// appendRefusedAfterFence appends a batch that was planned before a fence. The batch must be refused, unless the fence left the
// token unchanged. A backend leaves the token only if no batch can be in flight.
func (s *suite) appendRefusedAfterFence(fenced, name string, late backend.Batch) {
	s.Helper()
	if s.want.sessions[fenced].token != late.ExpectedToken {
		s.appendRefused(backend.ErrMoved, name, late)
	}
}

// sharingCases test the calls that programs need to share a backend.
var sharingCases = []testCase{
	{"Fetch", func(s *suite) {
		s.append("a", create("c1", 0))
		s.fetch("a", "c1", 0)
		s.fetch("a", "", 0)
		s.append("a", withShared(extend("c1", 0, 5), "x/1", "1", "x/2", "2", "y", "3"))
		for last := range uint64(8) {
			s.fetch("a", "c1", last)
		}
		s.fetch("a", "c1", 1<<62)
		s.fetch("a", "c0", 3)
		s.fetch("a", "", 3)
		fetched := s.fetch("a", "c1", 5, "x/", "none", "y", "")
		s.sameShared(fetched.Shared[0], []string{"x/1", "x/2"})
		s.sameShared(fetched.Shared[1], nil)
		s.sameShared(fetched.Shared[2], []string{"y"})
		s.sameShared(fetched.Shared[3], []string{"x/1", "x/2", "y"})
		_, err := s.Fetch(ctx, backend.Query{Session: "b", Creation: "c1", Shared: []string{"x/"}})
		s.wantError(err, backend.ErrNotFound, "Fetch of no session")
		s.delete("a")
		_, err = s.Fetch(ctx, backend.Query{Session: "a", Creation: "c1"})
		s.wantError(err, backend.ErrNotFound, "Fetch of a deleted session")
		s.append("a", create("c2", 2))
		s.fetch("a", "c1", 1)
	}},
	{"Fetch/many", func(s *suite) {
		s.append("a", create("c1", 3000))
		for _, last := range []uint64{10, 522, 2990} {
			s.fetch("a", "c1", last)
		}
		b := backend.Batch{Creation: "c2", Create: true}
		for i := range 6 {
			b.Records = append(b.Records, backend.Record{Seq: uint64(i + 1), Data: testData(1 << 20)})
		}
		s.append("large", b)
		for last := range uint64(6) {
			if fetched := s.fetch("large", "c2", last); len(fetched.Records) == 0 {
				s.Errorf("a look after record %d of 6 large ones gives none", last)
			}
		}
	}},
	{"Fence", func(s *suite) {
		s.append("a", create("c1", 1))
		late := s.withToken("a", extend("c1", 1, 1))
		s.fence("a", "c1", late.ExpectedToken, 7, true)
		s.fence("a", "c1", late.ExpectedToken, 7, true) // again, as if the answer had been lost
		s.appendRefusedAfterFence("a", "a", late)
		s.append("a", extend("c1", 1, 1))
		s.fence("a", "c1", late.ExpectedToken, 9, false)
		s.fence("a", "c0", 7, 9, false)
		s.fence("b", "c1", 7, 9, false)
		s.fence("", "", 7, 9, false) // makes all values read before durable
	}},
	{"Fence/create", func(s *suite) {
		s.append("a", create("c2", 2))
		s.fence("a", "c2", 0, 9, false)
		s.append("a", extend("c2", 2, 1))
		s.fence("b", "c1", 0, 7, true)
		s.fence("b", "c1", 0, 8, true)
		s.check()
		s.delete("a")
		s.append("a", create("c3", 1)) // a session of this name was created and deleted before
		s.fence("a", "c3", 0, 9, false)
	}},
	{"Snapshot", func(s *suite) {
		s.append("a", create("c1", 5))
		s.append("b", create("c2", 3))
		s.check() // there is no snapshot yet
		s.putSnapshot("b", string(testData(300_000)))
		put := func(seq uint64, sum uint32, data string) {
			s.Helper()
			snap := backend.Snapshot{Seq: seq, Chain: backend.Chain{Sum: sum}, Data: []byte(data)}
			s.wantError(s.PutSnapshot(ctx, "a", "c1", snap), nil, "PutSnapshot")
		}
		put(4, 0, "at 4")
		put(3, 0, "at 3") // a lower seq: ignored
		s.want.sessions["a"].snapshot = "at 4"
		s.check()
		put(4, 0xfffffffe, "at 4 again")
		s.want.sessions["a"].snapshot = "at 4 again"
		if snap, err := backend.FetchSnapshot(ctx, s.Backend, "a", "c1"); err != nil || snap.Seq != 4 || snap.Chain.Sum != 0xfffffffe {
			s.Errorf("Snapshot: %v, %v", snap, err)
		}
		s.append("a", extend("c1", 5, 2))
		s.check()
		s.putSnapshot("b", "shorter")
		s.delete("a")
		s.append("a", create("c3", 1))
		s.putSnapshot("a", "at 1")
	}},
	{"Cold read", func(s *suite) {
		s.append("a", create("c1", 9))
		s.append("b", create("c2", 0))
		s.coldRead("b", 9, "")
		s.coldRead("a", 4, "", 1, 2, 3, 4)
		s.coldRead("a", math.MaxUint64, "", 1, 2, 3, 4, 5, 6, 7, 8, 9)
		snap := backend.Snapshot{Seq: 7, Spans: []backend.Span{{First: 2, Last: 3}, {First: 6, Last: 6}}, Data: []byte("at 7")}
		s.wantError(s.PutSnapshot(ctx, "a", "c1", snap), nil, "PutSnapshot")
		s.want.sessions["a"].snapshot = "at 7"
		s.coldRead("a", 6, "", 1, 2, 3, 4, 5, 6)
		s.coldRead("a", 7, "at 7", 2, 3, 6)
		s.coldRead("a", 8, "at 7", 2, 3, 6, 8)
		s.coldRead("a", math.MaxUint64, "at 7", 2, 3, 6, 8, 9)
		s.replace("a", s.replacement("a", "other", 2))
		s.coldRead("a", 3, "", 1, 2, 3)
		if _, err := s.Fetch(ctx, backend.Query{Session: "z", UpTo: 9}); err == nil {
			s.Error("a cold Fetch of a session that is not there succeeds")
		}
	}},
	{"Versions", func(s *suite) {
		const one, other = "app\x00\x01", "user\x00\x01u\x00\x01"
		s.append("a", create("c1", 0))
		known := map[string]backend.Token{}
		look := func(scope string, changed bool, names ...string) {
			s.Helper()
			fetched, err := s.Fetch(ctx, backend.Query{Shared: []string{scope}, KnownVersions: []backend.Token{known[scope]}})
			s.must(err, "Fetch of the values of %q", scope)
			if changed != (fetched.Versions[0] != known[scope]) {
				s.Errorf("the version of %q was %d, and is %d", scope, known[scope], fetched.Versions[0])
			}
			s.sameShared(fetched.Shared[0], names)
			known[scope] = fetched.Versions[0]
		}
		look(one, false)
		s.append("a", withShared(extend("c1", 0, 1), one+"x", "1", other+"y", "2"))
		look(other, true, other+"y")
		look(other, false)
		known[one] = 1 // a version that is not current
		look(one, true, one+"x")
		s.append("a", withShared(extend("c1", 1, 1), one+"x", "3"))
		look(other, false)
		look(one, true, one+"x")
		s.append("b", withShared(create("c2", 0), other+"z", "4"))
		look(other, true, other+"y", other+"z")
		look(one, false)
		s.wantError(s.PutShared(ctx, []backend.SharedChange{{Name: one + "w", Data: []byte("5")}}), nil, "PutShared")
		s.want.shared[one+"w"] = "5"
		look(one, true, one+"w", one+"x")
		s.appendRefused(backend.ErrMoved, "a", withShared(extend("c1", 9, 1), one+"x", "6"))
		look(one, false)
	}},
	{"Delete/seen", func(s *suite) {
		s.append("a", create("c1", 2))
		for what, write := range map[string]func(){
			"an append":     func() { s.append("a", extend("c1", 2, 1)) },
			"a replacement": func() { s.replace("a", s.replacement("a", "other", 1)) },
		} {
			seen := s.mustHead("a")
			write()
			s.wantError(s.Delete(ctx, "a", "c1", &seen), backend.ErrMoved, "Delete by a head of before "+what)
			s.check()
		}
		head := s.mustHead("a")
		seen := &head
		s.wantError(s.PutSnapshot(ctx, "a", "c1", backend.Snapshot{Seq: 3, Edition: seen.Edition, Data: []byte("x")}), nil, "PutSnapshot")
		for _, creation := range []string{"c2", ""} {
			s.wantError(s.Delete(ctx, "a", creation, nil), backend.ErrNotFound, "Delete of another creation")
			s.wantError(s.Delete(ctx, "a", creation, seen), backend.ErrNotFound, "Delete of another creation")
		}
		s.wantError(s.Delete(ctx, "b", "c1", seen), backend.ErrNotFound, "Delete of another session")
		s.wantError(s.Delete(ctx, "a", "c1", seen), nil, "Delete of the session as it was seen")
		delete(s.want.sessions, "a")
		s.check()
		s.wantError(s.Delete(ctx, "a", "c1", seen), backend.ErrNotFound, "Delete again")
		s.append("a", create("c2", 3))
		s.wantError(s.Delete(ctx, "a", "c1", seen), backend.ErrNotFound, "Delete of the creation before")
		s.check()
	}},
	{"Lease", func(s *suite) {
		leases, ok := s.Backend.(backend.Leaser)
		if !ok {
			return
		}
		lease := func(name, owner string, ttl time.Duration, want bool) {
			s.Helper()
			held, err := leases.Lease(ctx, name, owner, ttl)
			if err != nil || held != want {
				s.Errorf("Lease %q by %q for %v: %v, error %v, want %v", name, owner, ttl, held, err, want)
			}
		}
		lease("l", "first", time.Hour, true)
		lease("l", "first", time.Hour, true) // extends the lease
		lease("l", "second", time.Hour, false)
		lease("l", "second", 0, false) // only the owner can release a lease
		lease("l", "second", time.Hour, false)
		lease("l", "second", -1, false)
		lease("l", "first", -1, true)
		lease("free", "second", -1, true)
		lease("free", "first", time.Hour, true) // the query with a negative ttl did not acquire the lease
		lease("other\x00name", "second", time.Hour, true)
		lease("l", "first", 0, false)
		lease("l", "second", 50*time.Millisecond, true)
		time.Sleep(80 * time.Millisecond)
		lease("l", "first", time.Hour, true)
		lease("", "", time.Hour, true)
	}},
}
