package identifiers

import (
	"math"
	"strings"
)

// numbers are the numbers of a text.
type numbers struct {
	known map[int64]struct{}
	alike [decimals + 1][]int64 // by the number of decimals, in their order
}

// A number is stored as a multiple of the smallest unit, which has four decimals.
const (
	decimals = 4
	unit     = 10_000
)

// Limits of derivation: in long texts any number would be a sum of others.
const (
	maxTimes = 12 // the largest multiple, as of a price
	maxApart = 12 // the largest distance between two numbers that are added
)

// derives reports whether a word is a number of the text in another spelling,
// or a small multiple of one, or the sum or the difference of two that are near each other, or
// the sum of a few consecutive ones.
func (x *Index) derives(id string) bool {
	n, places, ok := numberOf(id)
	if !ok || n == 0 {
		return false
	}
	if x.sums == nil {
		x.sums = numbersOf(x.text)
	}
	return x.sums.derive(n, places)
}

func numbersOf(text string) *numbers {
	s := &numbers{known: make(map[int64]struct{})}
	for w := range scan(text, telling) {
		if n, places, ok := numberOf(w.Text); ok {
			s.known[n] = struct{}{}
			s.alike[places] = append(s.alike[places], n)
		}
	}
	return s
}

// derive reports whether n, which is written with the given decimals, is one of the numbers or
// can be computed from those with as many decimals. Amounts may add up to a whole number.
func (s *numbers) derive(n int64, places int) bool {
	for times := int64(1); times <= maxTimes; times++ {
		if _, ok := s.known[n/times]; ok && n%times == 0 {
			return true
		}
	}
	return isSum(s.alike[places], n) || places == 0 && isSum(s.alike[2], n)
}

// isSum reports whether n is a sum of a few consecutive numbers, or the sum or the difference of two
// that are near each other.
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

// numberOf reads a word that is a number of up to four decimals and few enough
// digits to compute with, and returns how many decimals are written. One that begins with a
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
