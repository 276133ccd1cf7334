package identifiers

import (
	"math"
	"strings"
)

// numbers are those of a text.
type numbers struct {
	known map[int64]struct{}
	alike [decimals + 1][]int64 // those with so many decimals, in their order
}

// A number is held as a multiple of the smallest unit that is looked at, which has four
// decimals.
const (
	decimals = 4
	unit     = 10_000
)

// What is looked for: multiples of a number up to so many, as of a price, and sums and
// differences of numbers that are at most so many apart. In longer texts anything would be a
// sum of something.
const (
	maxTimes = 12
	maxApart = 12
)

// derives reports whether a word is a number that stands in the text written in another way,
// or a small multiple of one, or a sum or a difference of two that stand near each other, or
// the sum of a few that follow each other.
func (x *Index) derives(id string) bool {
	n, places, ok := numberOf(id)
	if !ok || n == 0 {
		return false
	}
	if x.sums == nil {
		x.sums = numbersOf(x.text)
	}
	return x.sums.give(n, places)
}

func numbersOf(text string) *numbers {
	s := &numbers{known: make(map[int64]struct{})}
	for w := range words(text) {
		if n, places, ok := numberOf(w.text); ok {
			s.known[n] = struct{}{}
			s.alike[places] = append(s.alike[places], n)
		}
	}
	return s
}

// give reports whether n, which is written with the given decimals, is one of the numbers or
// can be reckoned from those that are written like it. Amounts may add up to a whole one.
func (s *numbers) give(n int64, places int) bool {
	for times := int64(1); times <= maxTimes; times++ {
		if _, ok := s.known[n/times]; ok && n%times == 0 {
			return true
		}
	}
	return isSum(s.alike[places], n) || places == 0 && isSum(s.alike[2], n)
}

// isSum reports whether n is a sum of a few of the numbers that follow each other, or a sum
// or a difference of two that are near each other.
func isSum(of []int64, n int64) bool {
	for i, first := range of {
		sum := first
		for _, next := range of[i+1 : min(len(of), i+1+maxApart)] {
			sum += next
			if sum == n || first+next == n || first-next == n || next-first == n {
				return true
			}
		}
	}
	return false
}

// numberOf reads a word that is nothing but a number of up to four decimals and not too
// many digits to reckon with, and says how many decimals are written. One that begins with a
// zero is a code.
func numberOf(word string) (n int64, places int, ok bool) {
	whole, fraction, _ := strings.Cut(word, ".")
	if whole == "" || len(whole) > 1 && whole[0] == '0' || len(fraction) > decimals {
		return 0, 0, false
	}
	for i := range len(whole) {
		switch c := whole[i]; {
		case c-'0' <= 9:
			if n > math.MaxInt64/unit/1_000 {
				return 0, 0, false
			}
			n = 10*n + int64(c-'0')
		case c != ',': // of thousands
			return 0, 0, false
		}
	}
	for i := range decimals {
		n *= 10
		if i < len(fraction) {
			if fraction[i]-'0' > 9 {
				return 0, 0, false
			}
			n += int64(fraction[i] - '0')
		}
	}
	return n, len(fraction), true
}
