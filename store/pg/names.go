package pg

import (
	"bytes"
	"crypto/sha256"
	"math"
)

// hash returns the SHA-256 of a name or of a creation id. The tables use hashes as keys.
func hash(name string) []byte {
	h := sha256.Sum256([]byte(name))
	return h[:]
}

const idBytes = 16

// idHash returns the first 16 bytes of the SHA-256 of an id. The table ids uses them as keys.
func idHash(id string) [idBytes]byte {
	h := sha256.Sum256([]byte(id))
	return [idBytes]byte(h[:])
}

// indexedBytes is the number of leading bytes of a name that the prefix indexes contain.
const indexedBytes = 1024

// behind returns a byte string that is greater than the indexed part of every name with this prefix.
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

// number converts a seq to a bigint. If the seq is out of range, number returns the largest bigint, which is
// greater than the last seq of every log.
func number(seq uint64) int64 { return int64(min(seq, math.MaxInt64)) }

// data returns b, or an empty slice if b is nil. The driver would send nil as null.
func data(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
