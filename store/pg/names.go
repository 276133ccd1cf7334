package pg

import (
	"bytes"
	"crypto/sha256"
	"math"
)

// hash is the key of a name or a creation id.
func hash(name string) []byte {
	h := sha256.Sum256([]byte(name))
	return h[:]
}

const idBytes = 16

// idHash is the key of an id.
func idHash(id string) [idBytes]byte {
	h := sha256.Sum256([]byte(id))
	return [idBytes]byte(h[:])
}

// The indexes by prefix hold so much of a name.
const indexedBytes = 1024

// behind returns the first byte string that is above all which begin with prefix, as far as
// it is compared with what the indexes hold.
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

// number is a seq as the database holds it. One that no log has stays one.
func number(seq uint64) int64 { return int64(min(seq, math.MaxInt64)) }

// data is bytes as the database holds them: none are not null.
func data(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
