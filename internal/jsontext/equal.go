package jsontext

import (
	"bytes"
	"math/big"
	"strconv"
	"strings"
)

// Equal reports whether two checked values mean the same: the order of keys is
// free, strings are compared by their text, numbers by kind and value. A number
// written with a point or an exponent is of another kind than one without.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	ka, kb := KindOf(a), KindOf(b)
	if ka != kb {
		return false
	}
	switch ka {
	case Null:
		return true
	case String:
		return Unquote(a) == Unquote(b)
	case Number:
		return number(string(a)) == number(string(b))
	case Array:
		var bs [][]byte
		for _, v := range Elements(b) {
			bs = append(bs, v)
		}
		n := 0
		for i, v := range Elements(a) {
			if i >= len(bs) || !Equal(v, bs[i]) {
				return false
			}
			n++
		}
		return n == len(bs)
	case Object:
		bm := map[string][]byte{}
		for k, v := range Members(b) {
			bm[k] = v
		}
		n := 0
		for k, v := range Members(a) {
			other, ok := bm[k]
			if !ok || !Equal(v, other) {
				return false
			}
			n++
		}
		return n == len(bm)
	default: // Bool, and the bytes differ
		return false
	}
}

// decimal is a number literal in one form for each kind and value.
type decimal struct {
	float    bool
	negative bool
	digits   string // without zeros at either end
	exponent string // of the last digit, in decimal; as text since it may be huge
}

func number(literal string) decimal {
	d := decimal{float: strings.ContainsAny(literal, ".eE")}
	literal, d.negative = strings.CutPrefix(literal, "-")
	mantissa, exp := literal, ""
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, exp = literal[:i], literal[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	shift := -len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	shift += len(digits) - len(trimmed)
	d.digits = strings.TrimLeft(trimmed, "0")
	if d.digits == "" {
		return d
	}
	d.exponent = addExponent(exp, shift)
	return d
}

// addExponent adds shift to a decimal exponent. One of absurd length is not worth
// the arithmetic: such literals are equal if written alike.
func addExponent(exp string, shift int) string {
	if len(exp) > 64 {
		return exp + " " + strconv.Itoa(shift)
	}
	e := new(big.Int)
	if exp != "" {
		e.SetString(strings.TrimPrefix(exp, "+"), 10)
	}
	return e.Add(e, big.NewInt(int64(shift))).String()
}
