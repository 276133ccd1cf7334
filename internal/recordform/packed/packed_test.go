package packed

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// bodies yields contents of many lengths, including the lengths at which the form of a frame changes. The contents
// differ in two ways: their bytes are in the dictionary or not, and are repeated or not.
func bodies(yield func(name string, body []byte) bool) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{0, 1, 6, 7, 8, 9, 16, 17, 31, 32, 255, 256, 257, 1022, 1023, 1024, 1025, 4095, 4096, 16383, 16384, 16385,
		65535, 65536, 65537, 65791, 65792, 131071, 131072, 131073, 262143, 262144, 262145, 1 << 20}
	for range 200 {
		lengths = append(lengths, r.IntN(1+r.IntN(300_000)), r.IntN(3000))
	}
	words := strings.Fields(string(bytes.ToValidUTF8(Dictionary[len(Dictionary)-20_000:], nil)))
	kinds := map[string]func(n int) []byte{
		"zeros": func(n int) []byte { return make([]byte, n) },
		"noise": func(n int) []byte {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return b
		},
		"letters": func(n int) []byte {
			b := make([]byte, n)
			for i := range b {
				b[i] = "etaoin shrdlu"[r.IntN(1+r.IntN(13))]
			}
			return b
		},
		"high bytes": func(n int) []byte {
			b := make([]byte, n)
			for i := range b {
				b[i] = 0xf0 + byte(r.IntN(1+r.IntN(16)))
			}
			return b
		},
		"words": func(n int) []byte {
			var b []byte
			for len(b) < n {
				b = append(append(b, words[r.IntN(len(words))]...), byte(r.Uint32()))
			}
			return b[:n]
		},
	}
	kinds["one after the other"] = func(n int) (b []byte) {
		for len(b) < n {
			for _, kind := range []string{"letters", "noise", "words", "high bytes", "zeros"} {
				b = append(b, kinds[kind](1+r.IntN(1+n/4))...)
			}
		}
		return b[:n]
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		for _, n := range lengths {
			if !yield(name, kinds[name](n)) {
				return
			}
		}
	}
}

func TestBodiesComeBack(t *testing.T) {
	before := []byte("before")
	for name, body := range bodies {
		out := Append(before, body)
		frame := bytes.TrimPrefix(out, before)
		if len(body) == 0 {
			continue
		}
		if len(frame) > MaxBytes {
			if _, err := Open(nil, frame); err == nil {
				t.Errorf("a frame of %d bytes is taken", len(frame))
			}
			continue
		}
		if n, err := Len(frame); err != nil || n != len(body) {
			t.Fatalf("%d bytes of %s: the frame says %d, %v", len(body), name, n, err)
		}
		for what, room := range map[string][]byte{"no room": nil, "a room": make([]byte, 3, 2000)} {
			if back, err := Open(room, frame); err != nil || !bytes.Equal(back, body) {
				t.Fatalf("%d bytes of %s with %s: %d bytes, %v", len(body), name, what, len(back), err)
			}
		}
		if most := len(body) + 20 + len(body)/1000; len(frame) > most {
			t.Errorf("%d bytes of %s became %d", len(body), name, len(frame))
		}
	}
}
