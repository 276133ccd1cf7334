package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/recordform/wire"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

func TestScan(t *testing.T) {
	x := strings.Repeat
	for _, c := range []struct {
		name, bytes string
		want        error
	}{
		{"nothing", "", wire.ErrTruncated},
		{"nil", "\xc0", nil}, {"false", "\xc2", nil}, {"true", "\xc3", nil}, {"the reserved code", "\xc1", wire.ErrReserved},
		{"0", "\x00", nil}, {"127", "\x7f", nil}, {"-32", "\xe0", nil}, {"-1", "\xff", nil},
		{"uint8", "\xcc0", nil}, {"uint16", "\xcd01", nil}, {"uint32", "\xce0123", nil}, {"uint64", "\xcf01234567", nil},
		{"int8", "\xd00", nil}, {"int16", "\xd101", nil}, {"int32", "\xd20123", nil}, {"int64", "\xd301234567", nil},
		{"float32", "\xca0123", nil}, {"float64", "\xcb01234567", nil},
		{"fixext1", "\xd4t0", nil}, {"fixext2", "\xd5t01", nil}, {"fixext4", "\xd6t0123", nil}, {"fixext8", "\xd7t01234567", nil}, {"fixext16", "\xd8t" + x("0", 16), nil},
		{"fixstr empty", "\xa0", nil}, {"fixstr", "\xa3abc", nil}, {"fixstr of 31", "\xbf" + x("a", 31), nil},
		{"str8", "\xd9\x03abc", nil}, {"str16", "\xda\x00\x03abc", nil}, {"str32", "\xdb\x00\x00\x00\x03abc", nil}, {"str8 empty", "\xd9\x00", nil},
		{"bin8", "\xc4\x03abc", nil}, {"bin16", "\xc5\x00\x03abc", nil}, {"bin32", "\xc6\x00\x00\x00\x03abc", nil},
		{"ext8", "\xc7\x03tabc", nil}, {"ext16", "\xc8\x00\x03tabc", nil}, {"ext32", "\xc9\x00\x00\x00\x03tabc", nil}, {"ext8 empty", "\xc7\x00t", nil},
		{"fixarray empty", "\x90", nil}, {"fixarray", "\x93\x01\xa1a\xc0", nil}, {"array16", "\xdc\x00\x02\x01\x02", nil}, {"array32", "\xdd\x00\x00\x00\x01\x01", nil}, {"array16 empty", "\xdc\x00\x00", nil},
		{"fixmap empty", "\x80", nil}, {"fixmap", "\x82\xa1a\x01\xa1b\x02", nil}, {"map16", "\xde\x00\x01\xa1a\x01", nil}, {"map32", "\xdf\x00\x00\x00\x01\xa1a\x01", nil},
		// What stands in a text is no value, and what stands in an array need not be one byte.
		{"str8 of no values", "\xd9\x03\xc1\xc1\xc1", nil}, {"str16 of no values", "\xda\x00\x03\xc1\xc1\xc1", nil}, {"str32 of no values", "\xdb\x00\x00\x00\x03\xc1\xc1\xc1", nil},
		{"bin8 of no values", "\xc4\x03\xc1\xc1\xc1", nil}, {"bin16 of no values", "\xc5\x00\x03\xc1\xc1\xc1", nil}, {"bin32 of no values", "\xc6\x00\x00\x00\x03\xc1\xc1\xc1", nil},
		{"array16 of texts", "\xdc\x00\x02\xa1a\xa1b", nil}, {"array32 of texts", "\xdd\x00\x00\x00\x02\xa1a\xa1b", nil},
		{"containers in containers", "\x92\x91\x81\x90\x80\x92\xa1a\x93\x01\x90\x02", nil},
		{"128 levels", x("\x91", wire.MaxDepth) + "\xc0", nil}, {"128 levels, the last empty", x("\x91", wire.MaxDepth) + "\x90", nil},
		{"129 levels", x("\x91", wire.MaxDepth+1) + "\xc0", wire.ErrDeep}, {"129 levels of maps", x("\x81\xc0", wire.MaxDepth+1) + "\xc0", wire.ErrDeep},
		{"128 levels, twice", "\x92" + x("\x91", wire.MaxDepth-1) + "\xc0" + x("\x91", wire.MaxDepth-1) + "\xc0", nil},
		{"many levels", x("\x91", 1<<20), wire.ErrDeep},
		{"two values", "\xc0\xc0", wire.ErrTrailing}, {"a byte after an array", "\x91\x01\x02", wire.ErrTrailing}, {"a byte after a text", "\xa1ab", wire.ErrTrailing},
		{"length of 4 GiB", "\xdb\xff\xff\xff\xff", wire.ErrTruncated}, {"bytes of 4 GiB", "\xc6\xff\xff\xff\xff0", wire.ErrTruncated}, {"extension of 4 GiB", "\xc9\xff\xff\xff\xff0", wire.ErrTruncated},
		{"2³² values", "\xdd\xff\xff\xff\xff\xc0", wire.ErrTruncated}, {"2³³ values", "\xdf\xff\xff\xff\xff\xc0\xc0", wire.ErrTruncated}, {"a key without value", "\x81\xc0", wire.ErrTruncated},
		{"reserved inside", "\x91\xc1", wire.ErrReserved},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := wire.Scan([]byte(c.bytes)); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("Scan says %v, want %v", err, c.want)
			}
			if c.want != nil {
				return
			}
			for n := range len(c.bytes) {
				if err := wire.Scan([]byte(c.bytes[:n])); !errors.Is(err, wire.ErrTruncated) {
					t.Errorf("of %d bytes Scan says %v", n, err)
				}
			}
			if err := wire.Scan([]byte(c.bytes + "\xc0")); !errors.Is(err, wire.ErrTrailing) {
				t.Errorf("with a value more Scan says %v", err)
			}
			if err := skip([]byte(c.bytes)); err != nil {
				t.Errorf("the library does not take it: %v", err)
			}
		})
	}
}

// skip reads exactly one value with the MessagePack library.
func skip(b []byte) error {
	r := bytes.NewReader(b)
	if err := msgpack.NewDecoder(r).Skip(); err != nil {
		return err
	}
	if r.Len() > 0 {
		return errors.New("bytes are left over")
	}
	return nil
}

func TestPropertyScanTakesWhatTheLibraryWrites(t *testing.T) {
	scalar := rapid.OneOf(
		rapid.Just[any](nil), asAny(rapid.Bool()), asAny(rapid.Int64()), asAny(rapid.Uint64()), asAny(rapid.Int8()), asAny(rapid.Float32()), asAny(rapid.Float64()),
		asAny(rapid.String()), asAny(rapid.SliceOf(rapid.Byte())), asAny(rapid.Map(rapid.IntRange(0, 70_000), func(n int) string { return strings.Repeat("x", n) })),
	)
	value := scalar
	for range 3 {
		inner := value
		value = rapid.OneOf(scalar, asAny(rapid.SliceOfN(inner, 0, 20)), asAny(rapid.MapOfN(rapid.String(), inner, 0, 20)))
	}
	rapid.Check(t, func(t *rapid.T) {
		b := testlog.Must(msgpack.Marshal(value.Draw(t, "value")))(t)
		if err := wire.Scan(b); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		n := rapid.IntRange(0, len(b)-1).Draw(t, "n")
		if err := wire.Scan(b[:n]); !errors.Is(err, wire.ErrTruncated) {
			t.Fatalf("%x: %v", b[:n], err)
		}
	})
}

func asAny[T any](g *rapid.Generator[T]) *rapid.Generator[any] {
	return rapid.Map(g, func(v T) any { return v })
}

func TestScanAllocatesNothing(t *testing.T) {
	b := []byte(strings.Repeat("\x91", 100) + "\x82\xa1a\x01\xa1b\xc4\x03abc")
	if n := testing.AllocsPerRun(100, func() {
		testlog.NoError(t, wire.Scan(b))
	}); n > 0 {
		t.Errorf("Scan allocates %v times", n)
	}
}

func FuzzScan(f *testing.F) {
	for _, seed := range []string{"\xc0", "\x93\x01\xa1a\xc4\x01b", "\x82\xa1a\x01\xa1b\x90", "\xdd\x00\x00\x00\x01\xc0", "\xc7\x01t0", "\xdb\xff\xff\xff\xff", "\xc1", strings.Repeat("\x91", 130)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := wire.Scan(b)
		if err == nil {
			if err := skip(b); err != nil {
				t.Fatalf("the library does not take %x: %v", b, err)
			}
			return
		}
		// What the library reads whole is refused for its depth alone.
		if len(b) < 1<<16 && !errors.Is(err, wire.ErrDeep) {
			if skip(b) == nil {
				t.Fatalf("%x is refused: %v", b, err)
			}
		}
	})
}
