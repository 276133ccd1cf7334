package identifiers

import (
	"math"
	"strings"
)

type numbers struct {
	values     map[int64]struct{}
	byDecimals [decimals + 1][]int64 // numbers of the text by their number of decimals, in text order
}

// A number is stored as an integer, in units of 1/10,000.
const (
	decimals = 4
	unit     = 10_000
)

// Limits on the numbers from which another is derived. In a long text, almost any number is the sum of others.
const (
	maxMultiple = 12 // largest multiple of a number, such as of a price
	maxDistance = 12 // largest distance between two numbers that are added or subtracted, counted in numbers
)

// isDerived reports whether a word can be derived from numbers of the text. It may be the same number in another
// spelling, a small multiple of a number, or the sum of a few consecutive numbers. It may also be the sum or difference
// of two numbers that are close to each other.
func (x *Index) isDerived(id string) bool {
	n, places, ok := numberOf(id)
	if !ok || n == 0 {
		return false
	}
	if x.sums == nil {
		x.sums = numbersOf(x.text)
	}
	return x.sums.canDerive(n, places)
}

func numbersOf(text string) *numbers {
	s := &numbers{values: make(map[int64]struct{})}
	for w := range scan(text, identifierTraits) {
		if n, places, ok := numberOf(w.Text); ok {
			s.values[n] = struct{}{}
			s.byDecimals[places] = append(s.byDecimals[places], n)
		}
	}
	return s
}

// canDerive reports whether n is a small multiple of a number of the text, or can be computed from numbers with the
// same number of decimals. The argument places is the number of decimals with which n is written. A whole number may
// also be computed from amounts with two decimals.
func (s *numbers) canDerive(n int64, places int) bool {
	for times := int64(1); times <= maxMultiple; times++ {
		if _, ok := s.values[n/times]; ok && n%times == 0 {
			return true
		}
	}
	return isSum(s.byDecimals[places], n) || places == 0 && isSum(s.byDecimals[2], n)
}

// isSum reports whether n is the sum of a few numbers that directly follow each other in the list, or the sum or
// difference of two numbers at most maxDistance places apart.
func isSum(numbers []int64, n int64) bool {
	for i, first := range numbers {
		sum := first
		for _, next := range numbers[i+1 : min(len(numbers), i+1+maxDistance)] {
			sum += next
			if sum == n || first+next == n || first-next == n || next-first == n {
				return true
			}
		}
	}
	return false
}

// numberOf parses a word as a number with up to four decimals. The result places is the number of decimals. If the
// number has too many digits or begins with 0 like a code, ok is false.
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
		case c != ',': // a comma separates thousands
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
