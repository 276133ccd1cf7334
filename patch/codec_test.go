package patch_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// sampleRecords returns records that together set every field of the byte form.
func sampleRecords(t testing.TB) []patch.Record {
	e := newEvent(t, patch.Fields{
		ID: "e", Author: "a", Content: patch.Text("user", "hi 𝄞"),
		Actions: patch.Actions{StateDelta: map[string]any{"n": 5, "app:b": []byte{1}}},
	})
	splice := testlog.Must(patch.NewSplice(0, 1, e).WithID("p").WithBase(3).WithState(patch.Keep).WithCustomMetadata(map[string]any{"n": int8(1)}))(t)
	return []patch.Record{
		{Seq: 1, Event: e},
		{Event: newEvent(t, patch.Fields{})},
		{Seq: 1 << 40, Event: parseEvent(t, `{"id":"e","invocationId":"v","branch":"","timestamp":"1969-12-31T23:59:58.5Z","x":{"y":[1e400]}}`)},
		{Seq: 2, Patch: splice},
		{Seq: 3, Patch: patch.NewTruncateBefore("e")},
		{Seq: 4, Patch: patch.NewSummarise(0, 1, e)},
		{Seq: 6, Patch: patch.NewRevert("p").WithBase(5)},
		{Seq: 7, Patch: patch.NewPin("e").WithGroup("g")},
		{Seq: 8, Patch: patch.NewUnpin("e")},
		{Seq: 5, Patch: parsePatch(t, `{"patchType":"later","start":"x","replacement":null,"author":null}`)},
	}
}

func TestAppendRecordKeepsPrefix(t *testing.T) {
	for _, rec := range sampleRecords(t) {
		form := encode(t, rec)
		before := []byte("before")
		dst := append(make([]byte, 0, 4096), before...)
		out, err := patch.AppendRecord(dst, rec)
		if err != nil || !bytes.Equal(out, append(before, form...)) {
			t.Errorf("appended %x, %v, want %x", out, err, form)
		}
		stored(t, rec)
	}
}

// Logs that the first version wrote can still be read.
func TestRecordFormIsStable(t *testing.T) {
	want := map[int]string{
		0: "01f6b5de079b0100a165a0a161a0a0c0c4687b22636f6e74656e74223a7b227061727473223a5b7b2274657874223a22686920f09d849e227d5d2c22" +
			"726f6c65223a2275736572227d2c22616374696f6e73223a7b22737461746544656c7461223a7b226170703a62223a2241513d3d222c226e223a357d" +
			"7d7d94b92f616374696f6e732f737461746544656c74612f6170703a62a75b5d75696e7438b52f616374696f6e732f737461746544656c74612f6ea3" +
			"696e749601a4757365720390c096a56170703a62595fa16e6465",
		3: "0141752ae2dc00150201a170a0a0a0a0c0c41a7b22637573746f6d4d65746164617461223a7b226e223a317d7d92b12f637573746f6d4d6574616461" +
			"74612f6ea4696e7438a673706c69636500019199a165a0a161a0a0c0c4687b22636f6e74656e74223a7b227061727473223a5b7b2274657874223a22" +
			"686920f09d849e227d5d2c22726f6c65223a2275736572227d2c22616374696f6e73223a7b22737461746544656c7461223a7b226170703a62223a22" +
			"41513d3d222c226e223a357d7d7d94b92f616374696f6e732f737461746544656c74612f6170703a62a75b5d75696e7438b52f616374696f6e732f73" +
			"7461746544656c74612f6ea3696e749601a4757365720390c096a56170703a62595fa16e6465c0c003a46b656570c0c0c0",
	}
	for i, rec := range sampleRecords(t) {
		if text, ok := want[i]; ok && hex.EncodeToString(encode(t, rec)) != text {
			t.Errorf("record %d is written as\n%x, was\n%s", i, encode(t, rec), text)
		}
	}
}

func TestRecordWithoutContentIsNotEncoded(t *testing.T) {
	dst := []byte("before")
	out, err := patch.AppendRecord(dst, patch.Record{Seq: 1})
	if !errors.Is(err, patch.ErrInvalid) || string(out) != "before" {
		t.Errorf("a record of nothing is %x, %v", out, err)
	}
	testlog.ErrorIs(t, testlog.ErrorOf((patch.Record{Seq: 1}).MarshalJSON()), patch.ErrInvalid, "a record of nothing as JSON")
	rec := patch.Record{}
	if rec.ID() != "" || rec.Size() != 0 {
		t.Errorf("a record of nothing has id %q, size %d", rec.ID(), rec.Size())
	}
	for range records.SharedChanges(rec) {
		t.Error("a record of nothing has shared changes")
	}
}

func TestRecordOverTheLimitIsNotEncoded(t *testing.T) {
	e := newEvent(t, patch.Fields{ID: "big", Extra: map[string]any{"x": strings.Repeat("x", patch.MaxRecordBytes)}})
	out, err := patch.AppendRecord([]byte("before"), patch.Record{Event: e})
	if !errors.Is(err, patch.ErrTooLarge) || string(out) != "before" || !strings.Contains(err.Error(), `"big"`) {
		t.Errorf("a record of 64 MiB: %d bytes, %v", len(out), err)
	}
	testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(make([]byte, patch.MaxRecordBytes+1))), patch.ErrCorrupt, "a form of 64 MiB")
}

func TestEverySingleBitFlipIsRefused(t *testing.T) {
	for _, rec := range sampleRecords(t) {
		form := encode(t, rec)
		for i := range form {
			for bit := range 8 {
				form[i] ^= 1 << bit
				testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(form)), patch.ErrCorrupt, "bit %d of byte %d flipped", bit, i)
				form[i] ^= 1 << bit
			}
		}
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	for _, rec := range sampleRecords(t) {
		form := encode(t, rec)
		for n := range form {
			testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(form[:n])), patch.ErrCorrupt, "%d of %d bytes", n, len(form))
			// This form has a correct checksum but truncated content.
			if n >= 5 {
				testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(seal(form[5:n]))), patch.ErrCorrupt, "%d of %d bytes, sealed", n, len(form))
			}
		}
		testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(seal(append(form[5:len(form):len(form)], 0xc0)))), patch.ErrCorrupt, "a byte more")
	}
}

func TestNewerVersionError(t *testing.T) {
	form := encode(t, sampleRecords(t)[0])
	form[0] = 3
	_, err := patch.DecodeRecord(form)
	if !errors.Is(err, patch.ErrCorrupt) || !strings.Contains(err.Error(), "form 3") || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a newer form: %v", err)
	}
}

func TestRecordIDsAndSharedChanges(t *testing.T) {
	e := parseEvent(t, `{"id":"e","actions":{"stateDelta":{"user:b":1,"k":2,"app:a":3,"temp:x":4,"a":5}}}`)
	f := parseEvent(t, `{"id":"f","actions":{"stateDelta":{"app:a":6}}}`)
	for _, c := range []struct {
		rec         patch.Record
		ids, shared string
	}{
		{patch.Record{Event: e}, "e", "app:a=3 user:b=1"},
		{patch.Record{Patch: patch.NewSplice(0, 1, e, f).WithID("p")}, "p e f", "app:a=3 user:b=1 app:a=6"},
		{patch.Record{Patch: patch.NewSplice(0, 1).WithID("p")}, "p", ""},
		{patch.Record{Patch: patch.NewSummarise(0, 1, f)}, " f", "app:a=6"},
		{patch.Record{Patch: patch.NewTruncateBefore("e").WithID("p")}, "p", ""},
	} {
		var ids, shared []string
		for id := range c.rec.IDs() {
			ids = append(ids, id)
		}
		for change := range records.SharedChanges(c.rec) {
			shared = append(shared, change.Key+"="+change.Value.String())
		}
		if strings.Join(ids, " ") != c.ids || strings.Join(shared, " ") != c.shared {
			t.Errorf("ids %q, shared %q, want %q, %q", ids, shared, c.ids, c.shared)
		}
		for range c.rec.IDs() {
			break
		}
		for range records.SharedChanges(c.rec) {
			break
		}
	}
	var own []string
	for c := range e.Changes() {
		own = append(own, c.Key+"="+c.Value.String())
	}
	if strings.Join(own, " ") != "a=5 k=2" || !records.HasDelta(e) || !records.HasDelta(f) {
		t.Errorf("own changes %q", own)
	}
	for range (patch.Record{Patch: patch.NewSplice(0, 1, e, f)}).IDs() {
	}
}
