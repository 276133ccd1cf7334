package pg

import (
	"bytes"
	"crypto/sha256"
	"math"
)

// hash returns the key of a name or a creation id.
func hash(name string) []byte {
	h := sha256.Sum256([]byte(name))
	return h[:]
}

const idBytes = 16

// idHash returns the key of an id.
func idHash(id string) [idBytes]byte {
	h := sha256.Sum256([]byte(id))
	return [idBytes]byte(h[:])
}

// indexedBytes is how many bytes of a name the prefix indexes hold.
const indexedBytes = 1024

// behind returns a byte string that is greater than the indexed part of every name that begins with prefix.
func behind(prefix string) []byte {
	out := []byte(prefix)
	for len(out) > 0 {
		if last := len(out) - 1; out[last] != 0xff {
			out[last]++
			return out
		}
		out = out[:len(out)-1]
	}
	return bytes.Repeat([]byte{0xff}, indexedBytes+1)
}

// number converts a seq. A seq beyond the range becomes the largest one, which no log has.
func number(seq uint64) int64 { return int64(min(seq, math.MaxInt64)) }

// data returns bytes that are not null in the database.
func data(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
