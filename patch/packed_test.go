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

// sealPacked gives a frame version 2 and the checksums of a record's form, as far as there is a body.
func sealPacked(frame []byte) []byte {
	body, _ := packed.Open(nil, frame)
	return sealWith(crc32c([]byte{1}, body), frame)
}

func sealWith(sum uint32, frame []byte) []byte {
	header := binary.LittleEndian.AppendUint32([]byte{2}, sum)
	return append(binary.LittleEndian.AppendUint32(header, crc32c(header, frame)), frame...)
}

// A log that was written once is read for ever: by the dictionary too.
func TestPackedFormIsReadForEver(t *testing.T) {
	sum := sha256.Sum256(packed.Dictionary)
	if got := hex.EncodeToString(sum[:]); got != dictionarySum {
		t.Errorf("dictionary %#x has the sum %s; it must never change", packed.Beginning, got)
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

// A form that is damaged is never given a new checksum.
func TestDamagedFormsAreNotCompressed(t *testing.T) {
	form := encode(t, sampleRecords(t)[3])
	for i := range form {
		form[i] ^= 4
		if got := recordform.Compress(form); !bytes.Equal(got, form) {
			t.Errorf("with byte %d damaged it became %.20x", i, got)
		}
		form[i] ^= 4
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
		if n >= 9 { // the checksums are right, and still there is too little
			testlog.ErrorIs(t, testlog.ErrorOf(patch.DecodeRecord(sealPacked(form[9:n]))), patch.ErrCorrupt, "%d of %d bytes, sealed", n, len(form))
		}
	}
}

// What no writer of records makes.
func TestFramesOfAnotherKindAreRefused(t *testing.T) {
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
		return append([]byte{packed.Beginning, byte(n >> 16), byte(n >> 8), byte(n)}, block...)
	}
	const size = 4 // the place of the body's length, the first byte of the block
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"nothing":                   {nil, "does not end"},
		"a header cut off":          {frame[:3], "does not end"},
		"other bytes":               {[]byte("some other bytes"), "dictionary 0x73"},
		"by another dictionary":     {changed(0, 0xd2), "dictionary 0xd2"},
		"without a dictionary":      {framed(s2.Encode(nil, bytes.Repeat(body, 20))), "corrupt"},
		"no block":                  {framed(nil), "0 bytes"},
		"no length":                 {framed([]byte{0xff, 0xff}), "corrupt"},
		"a length of 32 bits":       {framed([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}), "corrupt"},
		"twice":                     {append(bytes.Clone(frame), frame...), "does not end"},
		"a byte more":               {append(bytes.Clone(frame), 0), "does not end"},
		"a byte more in the block":  {framed(append(bytes.Clone(frame[4:]), 0)), "corrupt"},
		"longer than it is":         {changed(size, frame[size]+1), "corrupt"},
		"shorter than it is":        {changed(size, frame[size]-1), "corrupt"},
		"longer than any":           {packed.Append(nil, make([]byte, packed.MaxBytes+1)), "at most"},
		"a block longer than any":   {framed(make([]byte, packed.MaxBytes+1)), "at most"},
		"MessagePack another way":   {packed.Append(nil, append([]byte{0xdc, 0, 3}, body[1:]...)), "longer than it needs"},
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
	// The frame is whole, and is not the record's.
	if _, err := patch.DecodeRecord(sealWith(crc32c([]byte{1}, body)+1, frame)); !errors.Is(err, patch.ErrCorrupt) || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("the frame of another record: %v", err)
	}
	// Values are never packed.
	if err := new(patch.Value).UnmarshalBinary(sealPacked(frame)); !errors.Is(err, patch.ErrCorrupt) || !strings.Contains(err.Error(), "form 2") {
		t.Errorf("a value of form 2: %v", err)
	}
}

// A few bytes may stand for many, of the kind that costs most to read.
func TestPackedBombsCostBoundedMemory(t *testing.T) {
	members, parts := list{}, "{}"
	for i := 0; len(members) < 200_000; i++ {
		members = append(members, fmt.Sprintf("%x", i), []byte("1"))
	}
	for len(parts) < packed.MaxBytes-5000 {
		parts += strings.Repeat(",{}", 1000)
	}
	notes := list{}
	for i := range 40_000 {
		notes = append(notes, fmt.Sprintf("/content/%d", i), "int")
	}
	for name, body := range map[string][]byte{
		"zeros":   make([]byte, packed.MaxBytes),
		"arrays":  bytes.Repeat([]byte{0x91}, packed.MaxBytes),
		"text":    pack(t, eventForm(func(e list) { e[6] = list{"x", []byte(`"` + strings.Repeat("x", packed.MaxBytes-100) + `"`)} })),
		"members": pack(t, eventForm(func(e list) { e[6] = members })),
		"parts":   pack(t, eventForm(func(e list) { e[6] = list{"content", []byte(`{"parts":[` + parts + `]}`)} })),
		"notes":   pack(t, eventForm(func(e list) { e[6], e[7] = list{"content", []byte(`[` + strings.Repeat("1,", 40_000) + `1]`)}, notes })),
		"events": pack(t, patchForm(func(p list) {
			var events list
			for range 60_000 {
				events = append(events, list{"", "", "", "", "", nil, list{}, list{}})
			}
			p[9] = events
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

func TestPackingFromManyGoroutines(t *testing.T) {
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

// A record that was decoded has nothing in common with what is decoded after it.
func TestDecodedRecordsShareNothing(t *testing.T) {
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

// FuzzDecodePacked reads frames, and bodies that are packed.
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
		plain := encode(t, rec)
		if len(plain) != recordform.PlainSize(form) {
			t.Fatalf("it takes %d bytes plain, and says %d", len(plain), recordform.PlainSize(form))
		}
		if again, err := patch.DecodeRecord(recordform.Compress(plain)); err != nil || !bytes.Equal(encode(t, again), plain) {
			t.Fatalf("stored again it is %v, %v", again, err)
		}
	})
}

const dictionarySum = "343faa6d037a7dd81d8a76f6ef599a178bcfae16dc79835062f9e5d6dfd7bf1f"

// packedForms are forms of sampleRecords, by their index, as the first program wrote them that did.
var packedForms = map[string]int{
	"02e59e301a093d17f5d100005faf012893010098a165a0a161a0a026d03004c42c4a257518686920f09d849e85012e9200197200251500070ea643003a813f0c41513d3dc1d21c223a357d7d94b92f0d31002f192e002f052b20a75b5d75696e7438b54e2200106ea3696e74":                                                                                                                                     0,
	"02c9276e280477898dd10000a1fe017c930201dc0012a170a0a0a0a0c0a673706c69636500019198a165a0a161a0a0c01989042c7b467b0028686920f09d849e227d5d2c32a600198600253a860060226170703a62223a2241513d3d222c226e223a357d7d94b92f0d31002f19b4382f6170703a62a75b5d75696e7438b54e2200406ea3696e74c0c003a46b656570c0c092ae36787c2cc4077b226e223a317d92b12f361a00182f6ea4696e7438": 3,
}
