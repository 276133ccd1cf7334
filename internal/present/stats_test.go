package present_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// pass is a patch with the metadata of a compaction pass.
const pass = `{"id":"p2","patchType":"summarise","timestamp":"2025-01-02T03:04:06Z","start":0,"count":2,` +
	`"summaryEvent":{"id":"s1","author":"user","content":{"role":"user","parts":[{"text":"in short"}]},"customMetadata":{"patchlog":{"level":1}}},` +
	`"customMetadata":{"patchlog":{"trigger":"tokens","level":1,"eventsBefore":2,"eventsAfter":1,"tokensBefore":2000,"tokensAfter":3,"ratio":0.0015,"model":"m\u001b"}}}`

// logged returns a session with patches of several types. One patch does not apply.
func logged() []string {
	return []string{
		said("e1", "user", "hello"),
		said("e2", "agent", strings.Repeat("many words ", 200)),
		`{"id":"p1","patchType":"splice","start":9,"count":1}`,
		pass,
		`{"id":"e3","author":"agent","content":{"role":"model","parts":[{"text":"done"}]},"actions":{"stateDelta":{"k":1}}}`,
	}
}

func TestMeasure(t *testing.T) {
	s := open(t)
	add(t, s, logged()...)
	var seen []uint64
	st, _, err := present.Measure(t.Context(), s, key, nil, func(seq, of uint64) {
		if seen = append(seen, seq); of != 5 {
			t.Errorf("record %d of %d", seq, of)
		}
	})
	testlog.NoError(t, err)
	testlog.Equal(t, "progress", seen, []uint64{1, 2, 3, 4, 5})
	testlog.Equal(t, "rows", st.Rows(), []present.Row{
		{"session", "a/u/s"},
		{"created", "2025-01-02 03:04:05"},
		{"records", "5"},
		{"  splices", "1"},
		{"  summaries", "1"},
		{"skipped patches", "1"},
		{"visible events", "2"},
		{"tokens, about", st.Tokens.String()},
		{"state keys", "1"},
		{"prompt", "about 3 tokens, estimated"},
		{"compactions", "1"},
		{"  last compaction", "2025-01-02 03:04:06, record 4, by tokens"},
		{"  events compacted", "2 events → 1 summary of level 1"},
		{"  tokens compacted", "about 2,000 → 3 tokens (under 1 %)"},
		{"  model asked", `m\u001b`},
		{"visible summaries", "1: 1 of level 1"},
	})

	// Compare with the events themselves.
	v := testlog.Must(s.View(t.Context(), key))(t)
	tokens := 0
	for _, e := range v.Events() {
		tokens += e.EstimatedTokens()
	}
	all := tokens - v.At(0).EstimatedTokens() // the summary was logged later
	for _, line := range logged()[:2] {
		all += testlog.Event(line).EstimatedTokens()
	}
	testlog.Equal(t, "tokens", st.Tokens, present.Sizes{Raw: all, Visible: tokens})
}

// busy is a backend to which another process writes during each read of a session.
type busy struct {
	*memory.Backend
	write func()
}

func (b *busy) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	b.write()
	return b.Backend.Fetch(ctx, q)
}

// The figures are of one moment, even if another process writes at the same time.
func TestMeasureOfABusySession(t *testing.T) {
	b := &busy{Backend: new(memory.Backend), write: func() {}}
	other := testlog.Must(store.New(b.Peer(), store.Options{}))(t)
	defer other.Close()
	s := testlog.Must(store.New(b, store.Options{}))(t)
	defer s.Close()
	add(t, other, logged()...)
	writes := 0
	b.write = func() {
		writes++
		e := testlog.Event(said(fmt.Sprint("late", writes), "user", "late"))
		if _, err := other.AppendEvents(t.Context(), key, []*patch.Event{e}, store.AppendOptions{}); err != nil {
			t.Error(err)
		}
	}
	st, _, err := present.Measure(t.Context(), s, key, nil, nil)
	b.write = func() {}
	testlog.NoError(t, err)
	newest := testlog.Must(other.View(t.Context(), key))(t)
	if writes == 0 || newest.Seq() == st.Records {
		t.Fatalf("nothing came meanwhile: %d writes, %d records", writes, st.Records)
	}
	raw := 0
	for r, err := range other.RawEvents(t.Context(), key, 1) {
		testlog.NoError(t, err)
		if r.Seq <= st.Records && r.Event != nil {
			raw += r.Event.EstimatedTokens()
		}
	}
	testlog.Equal(t, "tokens of these records", st.Tokens.Raw, raw)
}

func TestMeasureFails(t *testing.T) {
	s := open(t)
	if _, _, err := present.Measure(t.Context(), s, key, nil, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}

	// A long log is read page by page, and the session may be deleted between two pages.
	var long []string
	for i := range 600 {
		long = append(long, said(fmt.Sprint("e", i), "user", "hello"))
	}
	add(t, s, long...)
	_, _, err := present.Measure(t.Context(), s, key, nil, func(seq, _ uint64) {
		if seq == 1 {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Error(err)
			}
		}
	})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestStatsOfNothing(t *testing.T) {
	s := open(t)
	testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
	st, _, err := present.Measure(t.Context(), s, key, nil, nil)
	testlog.NoError(t, err)
	testlog.Equal(t, "JSON", asJSON(t, st), `{"key":"a/u/s","created":"2025-01-02T03:04:05Z","records":0,"patches":{},"skipped":0,"visible":0,`+
		`"tokens":{"raw":0,"visible":0},"stateKeys":0,`+
		`"compaction":{"passes":0,"last":null,"summaries":{},"prompt":{"tokens":0,"measured":false}}}`)
	testlog.Equal(t, "rows", st.Rows()[3:], []present.Row{
		{"skipped patches", "0"}, {"visible events", "0"}, {"tokens, about", "0 of 0 visible"}, {"state keys", "0"},
		{"prompt", "about 0 tokens, estimated"}, {"compactions", "0"}, {"visible summaries", "0"},
	})
	var back present.Stats
	if err := json.Unmarshal([]byte(asJSON(t, st)), &back); err != nil || back.Key != st.Key {
		t.Errorf("got %+v, %v", back, err)
	}
	testlog.Equal(t, "sizes", present.Sizes{Raw: 2755, Visible: 1182}.String(), "1,182 of 2,755 visible (43 %)")
}
