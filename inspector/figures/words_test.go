package figures_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/inspector/figures"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		figures.Counted(1, "event"):           "1 event",
		figures.Counted(0, "event"):           "0 events",
		figures.Counted(uint64(1234), "word"): "1234 words",
		figures.Counted(1, "summary"):         "1 summary",
		figures.Counted(2, "summary"):         "2 summaries",
		figures.Counted(2, "key"):             "2 keys",
		figures.IndexRange(7, 1):              "7",
		figures.IndexRange(7, 3):              "7 to 9",
		figures.Percent(0):                    "0 %",
		figures.Percent(0.0001):               "under 1 %",
		figures.Percent(0.01):                 "1 %",
		figures.Percent(1.5):                  "150 %",
		figures.Share(1, 3):                   "33.3 %",
		figures.Share(2.5, 2.0):               "125.0 %",
		figures.Share(0, 0):                   "–",
		figures.Share(0.0, 2):                 "0.0 %",
	} {
		if got != want {
			t.Errorf("got %q want %q", got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -999: "-999", -1234567: "-1,234,567", 123456: "123,456"} {
		if got := figures.Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %q, want %q", n, got, want)
		}
	}
	if got, want := figures.Grouped(uint64(1<<64-1)), "18,446,744,073,709,551,615"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
}
