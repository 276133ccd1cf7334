package backend_test

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// The chain is the CRC-32C of all checksums in order.
func TestChain(t *testing.T) {
	var chain backend.Chain
	var row []byte
	for _, sum := range []uint32{0, 1, 0xffffffff, 7, 7, 0x12345678} {
		row = binary.BigEndian.AppendUint32(row, sum)
		chain = chain.Add(sum)
		if want := crc32.Checksum(row, crc32.MakeTable(crc32.Castagnoli)); chain.Sum != want {
			t.Fatalf("after %x the chain is %v, want the sum %x", row, chain, want)
		}
	}
	if a, b := chain.Add(1).Add(2), chain.Add(2).Add(1); a == b {
		t.Error("the order of records makes no difference")
	}
}

// The chain after Replace equals the chain of a log that was written with the new record.
func TestChainReplace(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		sums := make([]uint32, 1+draw.IntN(200))
		for i := range sums {
			sums[i] = draw.Uint32()
		}
		of := func() (c backend.Chain) {
			for _, sum := range sums {
				c = c.Add(sum)
			}
			return c
		}
		chain := of()
		for range 3 {
			at, sum := draw.IntN(len(sums)), draw.Uint32()
			chain = chain.Replace(uint64(len(sums)-1-at), sums[at], sum)
			sums[at] = sum
			if want := of(); chain != want {
				t.Fatalf("record %d of %d replaced: %v, want %v", at, len(sums), chain, want)
			}
		}
	}
	chain := backend.Chain{Sum: 7}
	if got := chain.Replace(1<<63, 1, 2).Replace(1<<63, 2, 1); got != chain {
		t.Errorf("there and back is %v", got)
	}
	if got := chain.Replace(12, 9, 9); got != chain {
		t.Errorf("replaced by the same: %v", got)
	}
}
