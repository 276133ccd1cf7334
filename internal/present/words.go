package present

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
)

// Counted returns a number of things, such as "1 event" and "2 events", "2 summaries" and
// "2 patches". The number has no commas: see [Grouped].
func Counted[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		thing = stem + "ie"
	} else if strings.HasSuffix(thing, "ch") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Grouped returns a size, in bytes or tokens, with commas between thousands. What a person
// may type back, seqs, indices and counts, is written as it is typed, not by this.
func Grouped[N int | int64 | uint64](n N) string {
	digits := fmt.Sprint(n)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Percent returns a ratio in percent, without decimals. What is not nothing does not show as
// nothing: it is "under 1 %".
func Percent(ratio float64) string {
	if 0 < ratio && ratio < 0.01 {
		return "under 1 %"
	}
	return fmt.Sprintf("%.0f %%", 100*ratio)
}

// Share returns a part of a whole in percent, with one decimal, or a dash if there is no whole.
func Share[N int | float64](part, whole N) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// IndexRange returns the indices of n things in a row, of which the first has the index start:
// "7", or "7 to 9". n is 1 or more.
func IndexRange(start, n int) string {
	if n == 1 {
		return strconv.Itoa(start)
	}
	return fmt.Sprintf("%d to %d", start, start+n-1)
}

// KeptValues says which of the selected state values an erase keeps, in a sentence.
func KeptValues(k store.KeptValues) string {
	var parts []string
	if k.Events > 0 {
		parts = append(parts, Counted(k.Events, "event"))
	}
	if n := len(k.Initial); n > 0 {
		parts = append(parts, Counted(n, "key")+" of the initial state")
	}
	if n := len(k.Shared); n > 0 {
		parts = append(parts, Counted(n, "key")+" of the shared state")
	}
	verb := "match"
	if k.Events+len(k.Initial)+len(k.Shared) == 1 {
		verb = "matches"
	}
	return fmt.Sprintf("State values are kept: %s still %s.", strings.Join(parts, " and "), verb)
}
