package bench_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// BenchmarkEvent makes events of about 512 bytes: of maps, of a patch.Content, of
// JSON, and of a store's bytes.
func BenchmarkEvent(b *testing.B) {
	text := map[string]any{"role": "model", "parts": []any{map[string]any{"text": longText}}}
	call := map[string]any{"role": "model", "parts": []any{
		map[string]any{"text": longText[:100]},
		map[string]any{"functionCall": map[string]any{"name": "find_order", "args": map[string]any{"order": 4711, "tags": []string{"a", "b"}, "deep": map[string]any{"x": 1.5, "y": longText[:60]}}}},
	}}
	for _, c := range []struct {
		name    string
		content map[string]any
	}{{"text", text}, {"call", call}} {
		f := patch.Fields{
			ID: "00000000-0000-0000-0000-000000000001", InvocationID: "inv1", Author: "agent", Content: c.content,
			Actions: patch.Actions{StateDelta: map[string]any{"key": 1}},
		}
		e := testlog.New(f)
		line := []byte(e.String())
		form, err := patch.AppendRecord(nil, patch.Record{Seq: 1, Event: e})
		if err != nil {
			b.Fatal(err)
		}
		b.Run("content="+c.name+"/from=map", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				testlog.New(f)
			}
		})
		b.Run("content="+c.name+"/from=content", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g := f
				if g.Content = patch.Text("model", longText); c.name == "call" {
					g.Content = e.Content()
				}
				testlog.New(g)
			}
		})
		b.Run("content="+c.name+"/from=json", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := patch.ParseEvent(line); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("content="+c.name+"/from=store", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := patch.DecodeRecord(form); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var longText = strings.Repeat("x", 280)

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
