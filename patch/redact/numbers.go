package redact

import "strings"

// Cards finds payment card numbers: 13 to 19 digits, together or in groups with spaces or dashes, with an issuer's
// prefix and a correct check digit. One in ten other numbers with such a prefix and length passes by chance.
func Cards() Pattern {
	return Pattern{Name: "card", Find: findCards}
}

const (
	leastCard, mostCard = 13, 19
	mostGroups          = 6
)

func findCards(text string) (found [][]int) {
	for at := 0; at < len(text); at++ {
		if at = escapesEnd(text, at); at == len(text) || !digits[text[at]] {
			continue
		}
		if end := cardAt(text, at); end > 0 {
			found = append(found, []int{at, end})
			at = end - 1
			continue
		}
		at = runEnd(text, at, digits) - 1
	}
	return found
}

// cardAt returns where the card's number ends that begins at a place, or 0.
func cardAt(text string, at int) int {
	if wordBefore(text, at) || at >= 2 && text[at-1] == '.' && digits[text[at-2]] {
		return 0
	}
	var number [mostCard]byte
	n, end, best := 0, at, 0
	for groups := 1; groups <= mostGroups; groups++ {
		next := runEnd(text[:min(end+mostCard+1, len(text))], end, digits)
		if n+next-end > mostCard {
			break
		}
		size := next - end
		n += copy(number[n:], text[end:next])
		end = next
		if n >= leastCard && !wordAfter(text, end) && isCard(number[:n]) {
			best = end
		}
		if size < 3 || size > 7 || end+1 >= len(text) || strings.IndexByte(" -", text[end]) < 0 || !digits[text[end+1]] {
			break
		}
		end++
	}
	return best
}

func isCard(number []byte) bool {
	two := int(number[0]-'0')*10 + int(number[1]-'0')
	four := two*100 + int(number[2]-'0')*10 + int(number[3]-'0')
	n := len(number)
	switch {
	case two == 34 || two == 37: // American Express
		return n == 15 && luhn(number)
	case two == 36 || two == 38 || two == 39 || four/10 >= 300 && four/10 <= 305: // Diners Club
		return n == 14 && luhn(number)
	case four >= 3528 && four <= 3589, four >= 2221 && four <= 2720, two >= 51 && two <= 55: // JCB, Mastercard
		return n == 16 && luhn(number)
	case two/10 == 4: // Visa
		return (n == 13 || n == 16 || n == 19) && luhn(number)
	case two == 62, two == 65, four == 6011, four >= 6440 && four <= 6499: // UnionPay, Discover
		return n >= 16 && luhn(number)
	case two == 50 || two >= 56 && two <= 58 || two == 63 || two == 67: // Maestro
		return (n == 16 || n >= 18) && luhn(number)
	}
	return false
}

// luhn reports whether the last digit is the one that the others ask for.
func luhn(number []byte) bool {
	sum := 0
	for i := range number {
		d := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// IBANs finds international bank account numbers, together or in groups with spaces, by their country's length and
// their checksum.
func IBANs() Pattern {
	return Pattern{Name: "iban", Find: findIBANs}
}

// ibanLengths are the countries of the registry, with how long their numbers are.
const ibanLengths = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 " +
	"EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 " +
	"LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 " +
	"RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30 "

func findIBANs(text string) (found [][]int) {
	for at := 0; at+4 < len(text); at++ {
		if !digits[text[at+2]] || !digits[text[at+3]] || !letters[text[at]] || !letters[text[at+1]] || wordBefore(text, at) {
			continue
		}
		country := strings.ToUpper(text[at : at+2])
		i := strings.Index(ibanLengths, country)
		if i < 0 || i%5 != 0 {
			continue
		}
		length := int(ibanLengths[i+2]-'0')*10 + int(ibanLengths[i+3]-'0')
		if end := ibanEnd(text, at, length); end > 0 {
			found = append(found, []int{at, end})
			at = end - 1
		}
	}
	return found
}

// ibanEnd returns where the account number of that length ends that begins at a place, or 0.
func ibanEnd(text string, at, length int) int {
	var number []byte
	end := at
	for ; end < len(text) && len(number) < length; end++ {
		switch c := text[end]; {
		case alphanumeric[c]:
			number = append(number, c)
		case c == ' ' && len(number)%4 == 0:
		default:
			return 0
		}
	}
	if len(number) < length || wordAfter(text, end) {
		return 0
	}
	rest := 0
	for _, c := range append(number[4:], number[:4]...) {
		switch {
		case c <= '9':
			rest = (rest*10 + int(c-'0')) % 97
		default:
			rest = (rest*100 + int(c|' '-'a') + 10) % 97
		}
	}
	if rest != 1 {
		return 0
	}
	return end
}
