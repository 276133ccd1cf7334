package memory

import "testing"

type tb struct {
	testing.TB
	failed bool
}

func (t *tb) Helper()               {}
func (t *tb) Errorf(string, ...any) { t.failed = true }

var held [][]byte

// Within measures the peak of the memory, not the sum of allocations.
func TestWithin(t *testing.T) {
	const input, part = 1 << 20, 4 << 20
	for _, c := range []struct {
		name   string
		parts  int
		keep   bool
		failed bool
	}{{"little", 3, true, false}, {"much, one after another", 60, false, false}, {"much at a time", 30, true, true}} {
		x := &tb{TB: t}
		Within(x, input, func() {
			held = nil
			for range c.parts {
				b := make([]byte, part)
				for i := 0; i < part; i += 4096 {
					b[i] = 1
				}
				if !c.keep {
					held = nil
				}
				held = append(held, b)
			}
			held = nil
		})
		if x.failed != c.failed {
			t.Errorf("%s: failed %v, want %v", c.name, x.failed, c.failed)
		}
	}
}
