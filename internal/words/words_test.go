package words

import (
	"slices"
	"strings"
	"testing"
)

func TestIn(t *testing.T) {
	for text, want := range map[string]string{
		"Ann's tree, a TREE: 12A!": "ann s tree a 12a",
		"Füße и ёлка":              "füße и ёлка",
		"订单A-4711号在这里":             "订单 a 4711 号在 在这 这里",
		"오늘 12시":                   "오늘 12시",
		"":                         "",
	} {
		if got := In(text); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("of %q: %q, want %q", text, got, want)
		}
	}
}

func TestIsCommon(t *testing.T) {
	for _, w := range []string{"the", "nicht", "vous", "это", "我们", "감사합니다"} {
		if !IsCommon(w) {
			t.Errorf("%q is not common", w)
		}
	}
	for _, w := range []string{"tree", "haselnuss", "лодка", "锅炉", ""} {
		if IsCommon(w) {
			t.Errorf("%q is common", w)
		}
	}
}
