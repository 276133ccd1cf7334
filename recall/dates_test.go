package recall_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/patchlog-dev/patchlog/recall"
)

// A search for a date finds the events of the day first, and then the events of its month, in UTC. A number that is
// not a date finds no event by time.
func TestDates(t *testing.T) {
	x := new(recall.Index)
	for i, at := range []string{"2023-05-07T10:00:00Z", "2023-05-08T13:56:00Z", "2023-06-12T23:30:00-02:00", "2022-05-08T00:00:00Z", "1950-05-08T23:59:59Z", ""} {
		stamp := ""
		if at != "" {
			stamp = fmt.Sprintf(`"timestamp":%q,`, at)
		}
		x.Add(ofJSON(i+1, fmt.Sprintf(`{"id":"e","author":"user",%s"content":{"parts":[{"text":"sailing"}]}}`, stamp)))
	}
	for query, want := range map[string][]uint64{
		"2023-05-08": {2, 1}, "at 2023-05-08T13:56Z": {2, 1}, "2023-05": {2, 1}, "8 May 2023": {2, 1}, "May 8, 2023": {2, 1}, "on the 8th of May, 2023": {2, 1}, "8. Mai 2023": {2, 1},
		"8.5.2023": {2, 1}, "08. 05. 2023": {2, 1}, "le 8 mai 2023": {2, 1}, "8 de mayo de 2023": {2, 1}, "8 мая 2023 года": {2, 1}, "2023年5月8日": {2, 1}, "2023년 5월 8일에": {2, 1},
		norm.NFD.String("2023년 5월 8일"): {2, 1}, "２０２３年５月８日": {2, 1}, "May 2023": {2, 1}, "5월": {5, 4, 2, 1}, "в мае": {5, 4, 2, 1}, "May 8": {5, 4, 2, 1}, "in May": {5, 4, 2, 1}, "13 June": {3}, "im Juni": {3},
		"in JUNE?": {3}, "12 June": {3}, "2023-06-12": {3}, "MÄRZ 2023": nil, "January 1": nil, "May 41": nil, "2023-13-08": nil, "2023": nil, "8": nil, "5/8": nil, "may": nil, "may I": nil, "0001-01-01": nil,
		"12023-05-08": nil,
	} {
		if got := seqs(x, query, math.MaxUint64); !slices.Equal(got, want) {
			t.Errorf("%q finds %v, want %v", query, got, want)
		}
	}
	if got := seqs(x, "sailing on 12 June 2023", math.MaxUint64); len(got) != 6 || got[0] != 3 {
		t.Errorf("a word and a date find %v, want all, 3 first", got)
	}
	if got := seqs(x, "8 May 2023", 1); !slices.Equal(got, []uint64{1}) {
		t.Errorf("as of record 1, %v is found", got)
	}
}
