package redact

import (
	"regexp"
	"strconv"
	"strings"
)

// Cards finds payment card numbers: 13 to 19 digits, together or in groups with spaces or dashes, with an issuer's
// prefix and a correct check digit. One in ten other numbers with such a prefix and length passes by chance.
func Cards() Pattern { return Pattern{Name: "card", Find: findCards} }

var (
	cardGroups = regexp.MustCompile(`^(?:\d{3,7}[ -]){0,5}\d{1,19}`)
	cardNumber = regexp.MustCompile(`^(?:` +
		`3[47]\d{13}|` + // American Express
		`(?:3[689]\d|30[0-5])\d{11}|` + // Diners Club
		`35(?:2[89]|[3-8]\d)\d{12}|` + // JCB
		`(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|` + // Mastercard
		`4\d{12}(?:\d{3}){0,2}|` + // Visa
		`(?:6[25]\d\d|6011|64[4-9]\d)\d{12,15}|` + // UnionPay, Discover
		`(?:5[0678]|6[37])\d{14}(?:\d{2,3})?)$`) // Maestro
)

func findCards(text string) [][]int {
	const shortest, longest = 13, 5*8 + 19
	text = blankEscapes(text)
	return search(text, digits, func(at int) (start, end, next int) {
		if wordBefore(text, at) || at >= 2 && text[at-1] == '.' && strings.IndexByte(digits, text[at-2]) >= 0 {
			return 0, 0, 0
		}
		groups := cardGroups.FindString(text[at:min(at+longest, len(text))])
		for n := len(groups); n >= shortest; n = strings.LastIndexAny(groups[:n], " -") {
			if end = at + n; !wordAfter(text, end) && isCard(groups[:n]) {
				return at, end, end
			}
		}
		return 0, 0, 0
	})
}

// isCard reports whether a number has the form of a card's, and its last digit is the one that Luhn's algorithm
// computes from the others.
func isCard(groups string) bool {
	number := strings.NewReplacer(" ", "", "-", "").Replace(groups)
	sum := 0
	for i := range number {
		d := number[len(number)-1-i] - '0'
		if i%2 == 1 {
			d = "\x00\x02\x04\x06\x08\x01\x03\x05\x07\x09"[d] // the digit sum of 2*d
		}
		sum += int(d)
	}
	return sum%10 == 0 && cardNumber.MatchString(number)
}

// IBANs finds international bank account numbers, together or in groups with spaces, by their country's length and
// their checksum.
func IBANs() Pattern { return Pattern{Name: "iban", Find: findIBANs} }

// ibanLengths are the countries of the registry, with how long their numbers are.
const ibanLengths = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 " +
	"EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 " +
	"LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 " +
	"RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30 "

var ibanNumber = regexp.MustCompile(`^[A-Za-z]{2}\d\d[0-9A-Za-z]+$`)

func findIBANs(text string) [][]int {
	return search(text, digits, func(at int) (start, end, next int) {
		start = max(at-2, 0)
		i := strings.Index(ibanLengths, strings.ToUpper(text[start:at]))
		if i < 0 || wordBefore(text, start) {
			return 0, 0, 0
		}
		length, _ := strconv.Atoi(ibanLengths[i+2 : i+4])
		number := ""
		for end = start; end < len(text) && len(number) < length; end++ {
			if text[end] != ' ' || len(number)%4 != 0 {
				number += text[end : end+1]
			}
		}
		if len(number) < length || wordAfter(text, end) || !ibanNumber.MatchString(number) || mod97(number) != 1 {
			return 0, 0, 0
		}
		return start, end, end
	})
}

// mod97 returns the remainder of an account number whose first four characters stand at its end, and whose letters
// stand for 10 to 35.
func mod97(number string) (rest int64) {
	for _, c := range number[4:] + number[:4] {
		digit, _ := strconv.ParseInt(string(c), 36, 64)
		if rest *= 10; digit > 9 {
			rest *= 10
		}
		rest = (rest + digit) % 97
	}
	return rest
}
