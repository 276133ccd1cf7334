package patch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/recordform/packed"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// sealPacked sets version 2 and the checksums of a frame if the frame has valid content.
func sealPacked(frame []byte) []byte {
	body, _ := packed.Open(nil, frame)
	return sealWith(crc32c([]byte{1}, body), frame)
}

func sealWith(sum uint32, frame []byte) []byte {
	header := binary.LittleEndian.AppendUint32([]byte{2}, sum)
	return append(binary.LittleEndian.AppendUint32(header, crc32c(header, frame)), frame...)
}

// Logs that the first version compressed can still be read. Otherwise the dictionary has changed.
func TestPackedFormIsStable(t *testing.T) {
	sum := sha256.Sum256(packed.Dictionary)
	if got := hex.EncodeToString(sum[:]); got != dictionarySum {
		t.Errorf("dictionary %#x has the sum %s; it must never change", packed.FirstByte, got)
	}
	for text, i := range packedForms {
		form := testlog.Must(hex.DecodeString(text))(t)
		rec, err := patch.DecodeRecord(form)
		if err != nil {
			t.Errorf("record %d: %v", i, err)
			continue
		}
		if want := encode(t, sampleRecords(t)[i]); !bytes.Equal(encode(t, rec), want) {
			t.Errorf("record %d is read as %s", i, marshal(t, rec))
		}
	}
}

func TestCompressRecord(t *testing.T) {
	forms := [][]byte{nil, {}, {1}, {1, 0, 0, 0, 0}, {2, 0, 0, 0, 0, 1, 2, 3}, {3, 1, 2, 3, 4, 5, 6, 7, 8, 9}}
	forms = append(forms, encode(t, patch.Record{Seq: 1, Event: newEvent(t, patch.Fields{ID: "e", Extra: map[string]any{"x": strings.Repeat("x", packed.MaxBytes)}})}))
	for _, form := range forms {
		if got := recordform.Compress(form); !bytes.Equal(got, form) {
			t.Errorf("%.20x became %.20x", form, got)
		}
		if n := recordform.PlainSize(form); n != len(form) {
			t.Errorf("%.20x takes %d bytes plain, want %d", form, n, len(form))
		}
	}
	smaller := 0
	for _, rec := range sampleRecords(t) {
		form := encode(t, rec)
		before := bytes.Clone(form)
		short := recordform.Compress(form)
		if !bytes.Equal(form, before) {
			t.Error("the plain form was changed")
		}
		if len(short) > len(form) || len(short) == len(form) && !bytes.Equal(short, form) {
			t.Errorf("%d bytes became %d", len(form), len(short))
		}
		if len(short) < len(form) {
			smaller++
		}
		if recordform.Checksum(short) != recordform.Checksum(form) {
			t.Errorf("the checksum %08x became %08x", recordform.Checksum(form), recordform.Checksum(short))
		}
		if n := recordform.PlainSize(short); n != len(form) {
			t.Errorf("it takes %d bytes plain, want %d", n, len(form))
		}
		if again := recordform.Compress(short); !bytes.Equal(again, short) {
			t.Error("compressed twice it is something else")
		}
	}
	if smaller < 3 {
		t.Errorf("%d of the records became smaller", smaller)
	}
	largest := encode(t, patch.Record{Seq: 1, Event: newEvent(t, patch.Fields{ID: "e", Extra: map[string]any{"x": strings.Repeat("x", packed.MaxBytes-60)}})})
	if short := recordform.Compress(largest); len(largest) < packed.MaxBytes-100 || len(short) > 1000 {
		t.Errorf("%d bytes became %d", len(largest), len(short))
	} else if rec, err := patch.DecodeRecord(short); err != nil || !bytes.Equal(encode(t, rec), largest) {
		t.Errorf("it is read as %.20q, %v", rec.ID(), err)
	}
}

func TestEveryChangeOfAPackedFormIsRefused(t *testing.T) {
	form := recordform.Compress(encode(t, sampleRecords(t)[3]))
	if form[0] != 2 {
		t.Fatal("it is not compressed")
	}
	for i := range form {
		for bit := range 8 {
			form[i] ^= 1 << bit
			testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(form)), patch.ErrCorrupt, "bit %d of byte %d flipped", bit, i)
			form[i] ^= 1 << bit
		}
	}
	for n := range form {
		testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(form[:n])), patch.ErrCorrupt, "%d of %d bytes", n, len(form))
		if n >= 9 { // the checksums are correct, but the content is truncated
			testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(sealPacked(form[9:n]))), patch.ErrCorrupt, "%d of %d bytes, sealed", n, len(form))
		}
	}
}

// DecodeRecord refuses a frame that no writer of records produces.
func TestInvalidFramesAreRefused(t *testing.T) {
	body := encode(t, sampleRecords(t)[0])[5:]
	frame := packed.Append(nil, body)
	if _, err := patch.DecodeRecord(sealPacked(frame)); err != nil {
		t.Fatal(err)
	}
	changed := func(at int, to byte) []byte {
		f := bytes.Clone(frame)
		f[at] = to
		return f
	}
	framed := func(block []byte) []byte {
		n := len(block)
		return append([]byte{packed.FirstByte, byte(n >> 16), byte(n >> 8), byte(n)}, block...)
	}
	const size = 4 // index of the content's length, which is the first byte of the block
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"nothing":                   {nil, "length of the frame"},
		"a header cut off":          {frame[:3], "length of the frame"},
		"other bytes":               {[]byte("some other bytes"), "dictionary 0x73"},
		"by another dictionary":     {changed(0, 0xd2), "dictionary 0xd2"},
		"without a dictionary":      {framed(s2.Encode(nil, bytes.Repeat(body, 20))), "corrupt"},
		"no block":                  {framed(nil), "0 bytes"},
		"no length":                 {framed([]byte{0xff, 0xff}), "corrupt"},
		"a length of 32 bits":       {framed([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}), "corrupt"},
		"twice":                     {append(bytes.Clone(frame), frame...), "length of the frame"},
		"a byte more":               {append(bytes.Clone(frame), 0), "length of the frame"},
		"a byte more in the block":  {framed(append(bytes.Clone(frame[4:]), 0)), "corrupt"},
		"longer than it is":         {changed(size, frame[size]+1), "corrupt"},
		"shorter than it is":        {changed(size, frame[size]-1), "corrupt"},
		"longer than any":           {packed.Append(nil, make([]byte, packed.MaxBytes+1)), "maximum"},
		"a block longer than any":   {framed(make([]byte, packed.MaxBytes+1)), "maximum"},
		"no MessagePack":            {packed.Append(nil, make([]byte, 1000)), "corrupt"},
		"a record and a byte more":  {packed.Append(nil, append(bytes.Clone(body), 0)), "corrupt"},
		"a packed form once again":  {packed.Append(nil, sealPacked(frame)), "corrupt"},
		"nothing, in a whole block": {framed([]byte{0}), "corrupt"},
	} {
		rec, err := patch.DecodeRecord(sealPacked(c.frame))
		if !errors.Is(err, patch.ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want an error with %q", name, rec, err, c.want)
		}
		if n := recordform.PlainSize(sealPacked(c.frame)); n > packed.MaxBytes+len(c.frame)+9 {
			t.Errorf("%s takes %d bytes plain", name, n)
		}
	}
}

// Decompressing a small forged form uses a limited amount of memory, even for the most expensive content.
func TestDecompressionBombs(t *testing.T) {
	var types, functions, changes, ids list
	for i := range 30_000 {
		types = append(types, fmt.Sprintf("/content/%d", i), "int")
	}
	for range patch.MaxFunctionParts {
		functions, changes, ids = append(functions, 0, false, "", ""), append(changes, "", 0, 0), append(ids, "")
	}
	index := func(i int, v any) []byte {
		x := validIndex()
		x[i] = v
		return pack(t, eventForm(func(e list) { e[indexAt] = x }))
	}
	for name, body := range map[string][]byte{
		"zeros":     make([]byte, packed.MaxBytes),
		"arrays":    bytes.Repeat([]byte{0x91}, packed.MaxBytes),
		"text":      pack(t, eventForm(func(e list) { e[jsonAt] = []byte(`{"x":"` + strings.Repeat("x", packed.MaxBytes-100) + `"}`) })),
		"parts":     pack(t, eventForm(func(e list) { e[jsonAt] = []byte(`{"content":{"parts":[` + strings.Repeat("{},", 300_000) + `{}]}}`) })),
		"types":     pack(t, eventForm(func(e list) { e[typesAt] = types })),
		"functions": index(functionsAt, functions),
		"ids":       index(longRunningAt, ids),
		"changes":   index(changesAt, changes),
		"events": pack(t, patchForm(func(p list) {
			var events list
			for range patch.MaxReplacements {
				events = append(events, list{"", "", "", "", "", nil, nil, list{}, validIndex()})
			}
			p[replacementAt] = events
		})),
	} {
		if len(body) > packed.MaxBytes {
			t.Fatalf("%s: the body is %d bytes", name, len(body))
		}
		form := sealPacked(packed.Append(nil, body))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := patch.DecodeRecord(form)
		runtime.ReadMemStats(&after)
		if err != nil && !errors.Is(err, patch.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		cost, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+8*len(form))
		t.Logf("%s: %d bytes, unpacked %d, cost %d", name, len(form), len(body), cost)
		if cost > most {
			t.Errorf("%s: %d bytes cost %d bytes of memory, more than %d", name, len(form), cost, most)
		}
	}
}

func TestCompressConcurrently(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint(g, "-", i), Content: patch.Text("user", strings.Repeat(fmt.Sprint(g, " says ", i, ". "), 1+i*i))})
				if err != nil {
					t.Error(err)
					return
				}
				form, err := patch.AppendRecord(nil, patch.Record{Seq: uint64(i), Event: e})
				if err != nil {
					t.Error(err)
					return
				}
				back, err := patch.DecodeRecord(recordform.Compress(form))
				if err != nil {
					t.Error(err)
					return
				}
				if again, err := patch.AppendRecord(nil, back); err != nil || !bytes.Equal(again, form) {
					t.Errorf("%s came back as %s, %v", e.ID(), back.ID(), err)
				}
			}
		})
	}
	wg.Wait()
}

// A decoded record shares no memory with records that are decoded later.
func TestDecodedRecordsShareNoMemory(t *testing.T) {
	var forms, plain [][]byte
	var records []patch.Record
	for _, rec := range sampleRecords(t) {
		plain = append(plain, encode(t, rec))
		forms = append(forms, bytes.Clone(recordform.Compress(plain[len(plain)-1])))
	}
	for _, form := range forms {
		rec := testlog.Must(patch.DecodeRecord(form))(t)
		records = append(records, rec)
		clear(form)
	}
	for i, rec := range records {
		if !bytes.Equal(encode(t, rec), plain[i]) {
			t.Errorf("record %d has become %s", i, marshal(t, rec))
		}
	}
}

// FuzzDecodePacked decodes arbitrary frames and arbitrary compressed content.
func FuzzDecodePacked(f *testing.F) {
	for _, rec := range sampleRecords(f) {
		body := encode(f, rec)[5:]
		f.Add(packed.Append(nil, body), false)
		f.Add(body, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, isBody bool) {
		if isBody && len(data) <= packed.MaxBytes {
			data = packed.Append(nil, data)
		}
		form := sealPacked(data)
		if n := recordform.PlainSize(form); n > max(len(form), packed.MaxBytes+5) {
			t.Fatalf("%d bytes take %d plain", len(form), n)
		}
		rec, err := patch.DecodeRecord(form)
		if err != nil {
			if !errors.Is(err, patch.ErrCorrupt) {
				t.Fatalf("%v does not match ErrCorrupt", err)
			}
			return
		}
		if rec.Verify(nil) != nil {
			return // forged
		}
		plain := encode(t, rec)
		if again, err := patch.DecodeRecord(recordform.Compress(plain)); err != nil || !bytes.Equal(encode(t, again), plain) {
			t.Fatalf("stored again it is %v, %v", again, err)
		}
	})
}

const dictionarySum = "e815dee828d7b6a44c68e43ba554f3ddab01d6fdecaa7c77450f24fc0c607055"

// packedForms contains the forms of sampleRecords as the first version with compression wrote them. The values
// are indices in sampleRecords.
var packedForms = map[string]int{
	"02f6b5de0701d922e9d1000078c901309b0100a165a0a161a0a0c0c46832df0042d00028686920f09d849e227d5d2c3214036ebe00606170703a62223a2241513d3d222c226e223a357d7d7d94b92f0df0002f19ed382f6170703a62a75b5d75696e7438b54e22006c6ea3696e749601a4757365720390c096a56170703a62595fa16e6465":                                                                                                                         0,
	"0241752ae2ae289c20d10000b49c0234dc00150201a170a0a0a0a0c0c41a1ed70f2e5806206e223a317d7d92b12f36d07b6c2f6ea4696e7438a673706c69636500019199a165a0a161a0a0c0c46832270142180128686920f09d849e227d5d2c325c036e0601606170703a62223a2241513d3d222c226e223a357d7d7d94b92f2d38002f3935382f6170703a62a75b5d75696e7438b54e2200986ea3696e749601a4757365720390c096a56170703a62595fa16e6465c0c003a46b656570c0c0c0": 3,
}
