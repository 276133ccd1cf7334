package bench_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
)

// BenchmarkDecodeRecorded decodes recorded events as a store keeps them, and without compression.
func BenchmarkDecodeRecorded(b *testing.B) {
	var plain, kept [][]byte
	for _, r := range recorded.Log(b, 5000) {
		form, err := patch.AppendRecord(nil, r)
		if err != nil {
			b.Fatal(err)
		}
		plain, kept = append(plain, form), append(kept, recordform.Compress(form))
	}
	for name, forms := range map[string][][]byte{"plain": plain, "compressed": kept} {
		b.Run("form="+name, func(b *testing.B) {
			b.ReportAllocs()
			i, size := 0, 0
			for b.Loop() {
				form := forms[i%len(forms)]
				if _, err := patch.DecodeRecord(form); err != nil {
					b.Fatal(err)
				}
				size += len(form)
				i++
			}
			b.ReportMetric(float64(size)/float64(i), "B/record")
		})
	}
}
