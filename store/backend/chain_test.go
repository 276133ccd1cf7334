package backend_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// The chain is the CRC32C of the checksums in a row, and so depends on their order.
func TestChain(t *testing.T) {
	var chain backend.Chain
	var row []byte
	for _, sum := range []uint32{0, 1, 0xffffffff, 7, 7, 0x12345678} {
		row = binary.BigEndian.AppendUint32(row, sum)
		chain = chain.Add(sum)
		if want := crc32.Checksum(row, crc32.MakeTable(crc32.Castagnoli)); chain.Sum != want || chain.Since != 0 {
			t.Fatalf("after %x the chain is %v, want the sum %x", row, chain, want)
		}
	}
	if a, b := chain.Add(1).Add(2), chain.Add(2).Add(1); a == b {
		t.Error("the order of records makes no difference")
	}
	if later := (backend.Chain{Since: 9}).Add(3); later.Since != 9 {
		t.Errorf("a chain from record 9 became one from record %d", later.Since)
	}
}
