// Package storetest tests storage backends. It has a test suite for all backends, a backend that fails as planned and
// a backend that counts calls.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// Run tests the contract of [backend.Backend]. The function open opens an empty backend for one test. The function
// reopen closes that backend and opens the same data again. It is nil if closing the backend discards the data. The
// function open can add checks of the stored data with t.Cleanup. Some tests close the backend before these checks.
//
// At the end of each test, Run compares the whole content of the backend with the expected content, before and after
// reopening.
func Run(t *testing.T, open func(t *testing.T) (b backend.Backend, reopen func() backend.Backend)) {
	for _, c := range slices.Concat(appendCases, replaceCases, stageCases, readCases, sharedCases, lifeCases, concurrentCases, sharingCases) {
		t.Run(c.name, func(t *testing.T) {
			b, reopen := open(t)
			s := &suite{T: t, Backend: b, want: newModel()}
			c.run(s)
			if s.closed {
				return
			}
			s.check()
			if reopen != nil {
				s.Backend = reopen()
				s.check()
			}
		})
	}
}

type testCase struct {
	name string
	run  func(s *suite)
}

var ctx = context.Background()

// suite is one test: a backend and its expected content.
type suite struct {
	*testing.T
	backend.Backend
	want   model
	closed bool // the test has closed the backend
}

// model is the expected content of a backend.
type model struct {
	sessions map[string]*modelSession
	shared   map[string]string
	ids      map[string]bool // all ids ever used
}

type modelSession struct {
	creation string
	family   string
	token    backend.Token // 0 if unknown
	meta     string
	records  []string
	sums     []uint32
	counts   string
	snapshot string
	ids      map[string]uint64
}

func (s *modelSession) chain() (c backend.Chain) {
	for _, sum := range s.sums {
		c = c.Add(sum)
	}
	return c
}

func newModel() model {
	return model{map[string]*modelSession{}, map[string]string{}, map[string]bool{}}
}

// append applies an accepted batch to the model.
func (m model) append(name string, b backend.Batch) {
	s := m.sessions[name]
	if b.RenameFrom != "" {
		s = m.sessions[b.RenameFrom]
		s.meta = string(b.Meta)
		delete(m.sessions, b.RenameFrom)
		m.sessions[name] = s
	} else if b.Create {
		s = &modelSession{creation: b.Creation, meta: string(b.Meta), ids: map[string]uint64{}}
		m.sessions[name] = s
	}
	if b.Create {
		s.family = b.Family
	}
	for _, r := range b.Records {
		s.records = append(s.records, string(r.Data))
		s.sums = append(s.sums, r.Sum)
		for _, id := range r.IDs {
			s.ids[id] = r.Seq
			m.ids[id] = true
		}
	}
	for _, v := range b.Shared {
		m.shared[v.Name] = string(v.Data)
	}
	if b.Counts != nil {
		s.counts = string(b.Counts)
	}
	s.token = b.Next
}

// Append appends a batch with the session's current token and chain.
func (s *suite) Append(ctx context.Context, name string, b backend.Batch) error {
	return s.Backend.Append(ctx, name, s.withToken(name, b))
}

// withToken sets the current tokens and chain of a batch, unless they are set.
func (s *suite) withToken(name string, b backend.Batch) backend.Batch {
	if b.Next == 0 {
		b.Next = backend.Token(rand.Uint64() | 1)
	}
	known := name
	if b.Create {
		known = b.RenameFrom
	}
	if head, err := s.head(known); err == nil && known != "" && b.ExpectedToken == 0 {
		b.ExpectedToken, b.Chain = head.Token, head.Chain
	}
	return b
}

func (s *suite) must(err error, call string, args ...any) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", fmt.Sprintf(call, args...), err)
	}
}

func (s *suite) head(name string) (backend.Head, error) {
	return backend.FetchHead(ctx, s.Backend, name)
}

func (s *suite) mustHead(name string) backend.Head {
	s.Helper()
	head, err := s.head(name)
	s.must(err, "Head of %q", name)
	return head
}

// append appends a batch, which must succeed. It then overwrites the slices of the batch, since a backend must not
// retain them.
func (s *suite) append(name string, b backend.Batch) {
	s.Helper()
	b = s.withToken(name, b)
	s.must(s.Backend.Append(ctx, name, b), "Append to %q", name)
	s.want.append(name, b)
	scramble(b.Meta, b.Counts)
	for _, r := range b.Records {
		scramble(r.Data)
		for i := range r.IDs {
			r.IDs[i] = "other"
		}
	}
	for i := range b.Shared {
		scramble(b.Shared[i].Data)
		b.Shared[i].Name = "other"
	}
}

// appendRefused appends a batch that must fail with the given error, or with any error if want is nil, and must change
// nothing.
func (s *suite) appendRefused(want error, name string, b backend.Batch) {
	s.Helper()
	err := s.Append(ctx, name, b)
	if err == nil || want != nil && !errors.Is(err, want) {
		s.Errorf("Append to %q: %v, want %v", name, err, want)
	}
	if errors.Is(err, backend.ErrUnknown) {
		s.Errorf("Append to %q: the outcome of a refusal is known, but got %v", name, err)
	}
	s.check()
}

func (s *suite) delete(name string) {
	s.Helper()
	s.must(s.Delete(ctx, name, s.want.sessions[name].creation, nil), "Delete %q", name)
	delete(s.want.sessions, name)
}

// create returns a batch that creates a session with n records.
func create(creation string, n int) backend.Batch {
	return backend.Batch{Creation: creation, Create: true, Meta: []byte("meta of " + creation), Records: records(0, n), RequireFreeIDs: true}
}

func extend(creation string, after uint64, n int) backend.Batch {
	return backend.Batch{Creation: creation, ExpectedLast: after, Records: records(after, n), RequireFreeIDs: true}
}

func records(after uint64, n int) []backend.Record {
	var out []backend.Record
	for seq := after + 1; seq <= after+uint64(n); seq++ {
		out = append(out, backend.Record{Seq: seq, IDs: []string{fmt.Sprint("id", seq)}, Sum: uint32(seq * 0x9e3779b1), Data: fmt.Appendf(nil, "record %d", seq)})
	}
	return out
}

// check compares the whole content of the backend with the model.
func (s *suite) check() {
	s.Helper()
	listed, err := s.List(ctx, "", "", 1<<20)
	s.must(err, "List")
	var names []string
	for _, l := range listed {
		names = append(names, l.Session)
		s.wantError(l.Err, nil, "List of "+clip([]byte(l.Session)))
		if want, ok := s.want.sessions[l.Session]; ok {
			s.sameListed(l, want)
			if now := s.mustHead(l.Session).Edition; l.Edition != now {
				s.Errorf("List of %q: edition %d, want %d", clip([]byte(l.Session)), l.Edition, now)
			}
		}
	}
	if want := slices.Sorted(maps.Keys(s.want.sessions)); !slices.Equal(names, want) {
		s.Fatalf("List: sessions %q, want %q", names, want)
	}
	for name, want := range s.want.sessions {
		s.checkSession(name, want)
		if want.family != "" {
			relatives, err := s.Relatives(ctx, want.family, "", 1<<20)
			if err != nil || !slices.ContainsFunc(relatives, func(l backend.Listed) bool { return l.Session == name && l.Creation == want.creation }) {
				s.Errorf("Relatives of %q: %d without %q, %v", want.family, len(relatives), name, err)
			}
		}
	}
	values, err := backend.FetchShared(ctx, s.Backend, "")
	s.must(err, "Fetch of shared values")
	s.sameShared(values, slices.Sorted(maps.Keys(s.want.shared)))
}

// sameListed compares the head in a listing, which has no Meta.
func (s *suite) sameListed(l backend.Listed, want *modelSession) {
	s.Helper()
	if l.Meta != nil {
		s.Errorf("List of %q has its meta", clip([]byte(l.Session)))
	}
	l.Meta = []byte(want.meta)
	s.sameHead(l.Head, want, l.Session)
}

func (s *suite) sameHead(got backend.Head, want *modelSession, name string) {
	s.Helper()
	type head struct {
		creation, meta, counts string
		last                   uint64
		chain                  backend.Chain
	}
	gotFields := head{got.Creation, string(got.Meta), string(got.Counts), got.Last, got.Chain}
	if wantFields := (head{want.creation, want.meta, want.counts, uint64(len(want.records)), want.chain()}); gotFields != wantFields {
		s.Errorf("head of %q: %.500q, want %.500q", name, fmt.Sprint(gotFields), fmt.Sprint(wantFields))
	}
	if got.Token == 0 || want.token != 0 && got.Token != want.token {
		s.Errorf("head of %q: token %d, want %d", name, got.Token, want.token)
	}
	scramble(got.Meta, got.Counts)
}

func (s *suite) checkSession(name string, want *modelSession) {
	s.Helper()
	head := s.mustHead(name)
	s.sameHead(head, want, name)
	s.sameRecords(s.read(name, want.creation, backend.Range(1, len(want.records)+1), 1<<30), want, backend.Range(1, len(want.records)))

	snap, err := backend.FetchSnapshot(ctx, s.Backend, name, want.creation)
	s.must(err, "Snapshot of %q", name)
	if string(snap.Data) != want.snapshot {
		s.Errorf("snapshot of %q is %q, want %q", name, clip(snap.Data), clip([]byte(want.snapshot)))
	}
	scramble(snap.Data)
	ids := slices.Sorted(maps.Keys(s.want.ids))
	seqs, err := s.Lookup(ctx, name, want.creation, ids)
	s.must(err, "Lookup in %q", name)
	if len(seqs) != len(ids) {
		s.Fatalf("Lookup in %q: %d seqs for %d ids", name, len(seqs), len(ids))
	}
	for i, id := range ids {
		if seqs[i] != want.ids[id] {
			s.Errorf("Lookup in %q: id %q has seq %d, want %d", name, clip([]byte(id)), seqs[i], want.ids[id])
		}
	}
}

func (s *suite) read(name, creation string, seqs []uint64, maxBytes int) []backend.Record {
	s.Helper()
	got, err := s.Read(ctx, name, creation, seqs, maxBytes)
	s.must(err, "Read of %d seqs of %q", len(seqs), name)
	return got
}

// sameRecords compares the argument got with the records of the model that have these seqs.
func (s *suite) sameRecords(got []backend.Record, want *modelSession, seqs []uint64) {
	s.Helper()
	if len(got) != len(seqs) {
		s.Errorf("%d records, want %d", len(got), len(seqs))
		return
	}
	for i, r := range got {
		if seq := seqs[i]; r.Seq != seq || string(r.Data) != want.records[seq-1] {
			s.Errorf("record %d with data %q, want record %d with %q", r.Seq, clip(r.Data), seq, clip([]byte(want.records[seq-1])))
		}
		scramble(r.Data)
	}
}

// sameShared compares the argument got with the model's shared values of the given names.
func (s *suite) sameShared(got []backend.Value, names []string) {
	s.Helper()
	var gotFields, wantFields []string
	for _, v := range got {
		s.wantError(v.Err, nil, "Shared value "+clip([]byte(v.Name)))
		gotFields = append(gotFields, v.Name, string(v.Data))
		scramble(v.Data)
	}
	for _, name := range names {
		wantFields = append(wantFields, name, s.want.shared[name])
	}
	if !slices.Equal(gotFields, wantFields) {
		s.Errorf("shared values %.60q, want %.60q", gotFields, wantFields)
	}
}

func (s *suite) wantError(err, want error, call string) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", call, err, want)
	}
}

func clip(data []byte) string {
	const most = 60
	if len(data) <= most {
		return string(data)
	}
	return string(data[:most]) + "…"
}

// scramble overwrites slices and appends to them, as their owner may do.
func scramble(all ...[]byte) {
	for _, data := range all {
		copy(data, bytes.Repeat([]byte{'!'}, len(data)))
		_ = append(data, "tail"...)
	}
}

// withShared returns the batch with shared values; names and data alternate in values.
func withShared(b backend.Batch, values ...string) backend.Batch {
	for i := 0; i < len(values); i += 2 {
		b.Shared = append(b.Shared, backend.Value{Name: values[i], Data: []byte(values[i+1])})
	}
	return b
}

func (s *suite) putSnapshot(name, data string) {
	s.Helper()
	buf, want := []byte(data), s.want.sessions[name]
	s.must(s.PutSnapshot(ctx, name, want.creation, backend.Snapshot{Seq: uint64(len(want.records)), Data: buf}), "PutSnapshot of %q", name)
	scramble(buf)
	want.snapshot = data
}

func testData(n int) []byte { return []byte(strings.Repeat("0123456789abcdef", n/16+1)[:n]) }
