package present_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/present"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		present.Counted(1, "event"):           "1 event",
		present.Counted(0, "event"):           "0 events",
		present.Counted(uint64(1234), "word"): "1234 words",
		present.Counted(1, "summary"):         "1 summary",
		present.Counted(2, "summary"):         "2 summaries",
		present.Counted(2, "key"):             "2 keys",
		present.Counted(2, "patch"):           "2 patches",
		present.IndexRange(7, 1):              "7",
		present.IndexRange(7, 3):              "7 to 9",
		present.Percent(0):                    "0 %",
		present.Percent(0.0001):               "under 1 %",
		present.Percent(0.01):                 "1 %",
		present.Percent(1.5):                  "150 %",
		present.Share(1, 3):                   "33.3 %",
		present.Share(2.5, 2.0):               "125.0 %",
		present.Share(0, 0):                   "–",
		present.Share(0.0, 2):                 "0.0 %",
	} {
		if got != want {
			t.Errorf("got %q want %q", got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -999: "-999", -1234567: "-1,234,567", 123456: "123,456"} {
		if got := present.Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %q, want %q", n, got, want)
		}
	}
	if got, want := present.Grouped(uint64(1<<64-1)), "18,446,744,073,709,551,615"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
}
