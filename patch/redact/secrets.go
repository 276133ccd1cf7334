package redact

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

	// A text may contain JSON or a URL, with escapes. An escape is not part of the word that follows it. The
	// digits in an escape are not part of a number.
	digitEscape = `\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2}`
	anyEscape   = `(?:` + digitEscape + `|\\[nrtbf])`
)

// search returns the byte ranges of the secrets in a text. At each occurrence of one of the characters in chars, it
// calls find with the offset of this character. The result next of find is the earliest offset for the next call. If
// there is no secret, the result end is 0. The search is linear in the length of the text if find reads a bounded
// number of bytes past next.
func search(text, chars string, find func(at int) (start, end, next int)) (found [][]int) {
	for at := 0; at < len(text); at++ {
		i := strings.IndexAny(text[at:], chars)
		if i < 0 {
			break
		}
		at += i
		start, end, next := find(at)
		if start < end {
			found = append(found, []int{start, end})
		}
		at = max(at, next-1)
	}
	return found
}

// prefixOf returns the longest prefix of a text that consists of the given characters.
func prefixOf(text, chars string) string { return text[:len(text)-len(strings.TrimLeft(text, chars))] }

var escape = regexp.MustCompile(digitEscape)

// blankEscapes replaces escapes that contain digits with NUL bytes. The length of the text does not change.
func blankEscapes(text string) string {
	if !strings.Contains(text, "%") && !strings.Contains(text, `\u`) {
		return text
	}
	return escape.ReplaceAllStringFunc(text, func(e string) string { return strings.Repeat("\x00", len(e)) })
}

func isWord(c byte) bool { return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' }

var escapeBefore = regexp.MustCompile(anyEscape + `$`)

// hasWordBefore reports whether a word character precedes the offset. The last character of an escape does not
// count.
func hasWordBefore(text string, at int) bool {
	before := text[max(at-6, 0):at]
	return at > 0 && isWord(text[at-1]) && !(strings.ContainsAny(before, `\%`) && escapeBefore.MatchString(before))
}

// hasWordAfter reports whether there is a word character at the offset.
func hasWordAfter(text string, end int) bool { return end < len(text) && isWord(text[end]) }

// Keys finds credentials in texts and in members of JSON objects:
//
//   - keys and tokens of well-known services, by their prefix: AWS, GitHub, GitLab, Google, Slack, OpenAI,
//     Anthropic, Stripe, Hugging Face, npm, PyPI, SendGrid and others
//   - JSON web tokens, bearer tokens, and private keys in PEM
//   - passwords in URLs
//   - values assigned to names such as DB_PASSWORD or apiKey
func Keys() Pattern { return Pattern{Name: "key", Find: findKeys, Is: isSecretName} }

func findKeys(text string) [][]int {
	found := findAssigned(text)
	for _, t := range tokens {
		if !slices.ContainsFunc(t.prefixes, func(prefix string) bool { return strings.Contains(text, prefix) }) {
			continue
		}
		for _, m := range t.form.FindAllStringSubmatchIndex(text, -1) {
			m = m[len(m)-2:]
			if m[0] >= 0 && (!t.digit || strings.ContainsAny(text[m[0]:m[1]], digits)) {
				found = append(found, m)
			}
		}
	}
	return found
}

// token describes keys with fixed prefixes. The last group of form is the secret.
type token struct {
	prefixes []string
	form     *regexp.Regexp
	digit    bool // whether the secret must contain a digit
}

// wordStart matches the start of a word, or an escape before the word.
const wordStart = `(?:\b|` + anyEscape + `)`

// newToken returns a token that begins at the start of a word. The argument rest is the pattern after the
// prefix.
func newToken(prefixes, rest string, digit bool) token {
	prefix := strings.ReplaceAll(regexp.QuoteMeta(prefixes), " ", "|")
	return token{strings.Fields(prefixes), regexp.MustCompile(wordStart + "((?:" + prefix + ")" + rest + ")"), digit}
}

// pemKey is the first line of a private key in PEM, without the last dashes.
const pemKey = `-----BEGIN (?:-?[^-]){0,53}-?PRIVATE KEY[^-]{0,53}`

// Each form consumes all characters of its kind. A longer token therefore does not match, and no text is read
// twice.
var tokens = []token{
	newToken("AKIA ASIA", `[0-9A-Z]{16}\b`, false),                               // AWS
	newToken("ghp_ gho_ ghu_ ghs_ ghr_", `[0-9A-Za-z]{36,}\b`, false),            // GitHub
	newToken("github_pat_", `\w{40,}`, false),                                    // GitHub
	newToken("AIza", `[\w-]{35,}`, false),                                        // Google
	newToken("GOCSPX-", `[\w-]{28,}`, false),                                     // Google
	newToken("glpat- ya29.", `[\w-]{20,}`, false),                                // GitLab, Google
	newToken("xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- xapp-", `[\w-]{10,}`, false),   // Slack
	newToken("hooks.slack.com/services/", `[0-9A-Za-z/]{30,}`, false),            // Slack
	newToken("sk- xai-", `[\w-]{20,}`, true),                                     // OpenAI, Anthropic, xAI and others
	newToken("gsk_", `[0-9A-Za-z]{20,}\b`, true),                                 // Groq
	newToken("hf_", `[0-9A-Za-z]{30,}\b`, true),                                  // Hugging Face
	newToken("sk_live_ sk_test_ rk_live_ rk_test_", `[0-9A-Za-z]{16,}\b`, false), // Stripe
	newToken("whsec_", `[0-9A-Za-z+/=]{24,}`, false),                             // Stripe
	newToken("npm_", `[0-9A-Za-z]{36,}\b`, true),                                 // npm
	newToken("pypi-", `[\w-]{60,}`, true),                                        // PyPI
	newToken("SG.", `[\w.-]{60,}`, true),                                         // SendGrid
	newToken("shpat_", `[0-9a-fA-F]{32,}\b`, false),                              // Shopify
	newToken("dop_v1_", `[0-9a-fA-F]{64,}\b`, false),                             // DigitalOcean
	newToken("AGE-SECRET-KEY-1", `[0-9A-Z]{58,}\b`, false),                       // age
	newToken("bearer Bearer", ` ([\w.~+/=-]{12,})`, true),                        // in HTTP headers
	newToken("basic Basic", ` ([\w.~+/=-]{12,})`, true),                          // in HTTP headers
	// JSON web tokens. The second alternative consumes similar texts, so that each text is read once.
	{[]string{"eyJ"}, regexp.MustCompile(wordStart + `(?:(eyJ[\w-]{7,}\.[\w-]{10,}(?:\.[\w-]*){0,3})|eyJ[\w-]*)`), false},
	// Private keys in PEM, complete or truncated. A truncated key extends as far as the text can be part of a
	// key.
	{[]string{"-----BEGIN "}, regexp.MustCompile(`(?s)(` + pemKey + `.*?-----END (?:.{0,59}?-----)?)`), false},
	{[]string{"-----BEGIN "}, regexp.MustCompile(`(` + pemKey + `(?:-----)?(?:-{0,4}[0-9A-Za-z+/=\\: ,\r\n\t]|-{5,}[0-9A-DF-Za-z+/=\\: ,\r\n\t])*-*(?:E[A-Z ]*$)?)`), false},
	// Passwords in URLs.
	{[]string{"://"}, regexp.MustCompile("://[^/ \t\r\n\"'<>\\\\`?#[\\]{}:]*:([^/ \t\r\n\"'<>\\\\`?#[\\]{}]+)@"), false},
}

// Suffixes of names of secrets, in lower case and without punctuation. If only a vague name matches, the value
// must also look like a secret.
var (
	secretNames = strings.Fields("password passwd passphrase secret apikey accesskey secretkey privatekey accesstoken " +
		"refreshtoken authtoken sessiontoken bearertoken idtoken apitoken authorization")
	vagueNames  = strings.Fields("token credential credentials cookie")
	punctuation = regexp.MustCompile(`[^0-9A-Za-z]+`)
)

const maxNameLen = 80

// isSecretName reports whether the name of a value indicates that the value is a secret.
func isSecretName(name, value string) bool {
	plain := strings.ToLower(punctuation.ReplaceAllString(name[:min(len(name), maxNameLen)], ""))
	isSuffix := func(suffix string) bool { return strings.HasSuffix(plain, suffix) }
	return len(name) <= maxNameLen && value != "" && (slices.ContainsFunc(secretNames, isSuffix) ||
		len(value) >= 16 && slices.ContainsFunc(vagueNames, isSuffix) &&
			strings.ContainsAny(value, digits) && strings.ContainsAny(value, letters) && !strings.Contains(value, " "))
}

// assignment matches the text between a name and its value.
var assignment = regexp.MustCompile("^[=:][=>]?[ \t\"'\\\\`]{0,6}")

// assignedValue matches a value without its quotes.
var assignedValue = regexp.MustCompile("^[^ \t\r\n\"'`\\\\&,;)<>\\]}|]*")

// findAssigned finds values that = or : assigns to the name of a secret, in programs, settings, URLs, headers
// and JSON. A value that looks like a word, a variable or a call is not a secret.
func findAssigned(text string) [][]int {
	// Only the first bytes of a value are checked. Otherwise a text with many names would be read again for
	// each name.
	const minName, maxQuotes, maxAssignment, maxChecked = 5, 4, 8, 256
	return search(text, "=:", func(at int) (start, end, next int) {
		nameEnd := max(len(strings.TrimRight(text[:at], " \t\"'\\`")), at-maxQuotes)
		name := text[max(nameEnd-maxNameLen, 0):nameEnd]
		if name = name[len(strings.TrimRight(name, digits+letters+"_-.")):]; len(name) < minName {
			return 0, 0, 0
		}
		start = at + len(assignment.FindString(text[at:min(at+maxAssignment, len(text))]))
		value := assignedValue.FindString(text[start:min(start+maxChecked, len(text))])
		if len(value) >= 6 && !strings.ContainsAny(value[:1], "$%{([<*") && !strings.Contains(value, "(") &&
			strings.ContainsAny(value, digits) && isSecretName(name, value) {
			end = start + len(assignedValue.FindString(text[start:]))
		}
		return start, end, end
	})
}

// Cards finds payment card numbers. A card number has 13 to 19 digits, an issuer's prefix, and a correct check
// digit. Spaces or dashes may separate groups of digits. One in ten random numbers with such a prefix and
// length has a correct check digit.
func Cards() Pattern { return Pattern{Name: "card", Find: findCards} }

var (
	separators = strings.NewReplacer(" ", "", "-", "")
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
	const minLen, maxLen = 13, 5*8 + 19
	text = blankEscapes(text)
	return search(text, digits, func(at int) (start, end, next int) {
		if hasWordBefore(text, at) || at >= 2 && text[at-1] == '.' && strings.IndexByte(digits, text[at-2]) >= 0 {
			return 0, 0, 0
		}
		groups := cardGroups.FindString(text[at:min(at+maxLen, len(text))])
		for n := len(groups); n >= minLen; n = strings.LastIndexAny(groups[:n], " -") {
			if end = at + n; !hasWordAfter(text, end) && isCard(groups[:n]) {
				return at, end, end
			}
		}
		return 0, 0, 0
	})
}

// isCard reports whether a number has the form of a card number and a correct Luhn check digit.
func isCard(groups string) bool {
	number := separators.Replace(groups)
	sum := 0
	for i := range number {
		d := number[len(number)-1-i] - '0'
		if i%2 == 1 {
			d = "\x00\x02\x04\x06\x08\x01\x03\x05\x07\x09"[d] // digit sum of 2*d
		}
		sum += int(d)
	}
	return sum%10 == 0 && cardNumber.MatchString(number)
}

// IBANs finds international bank account numbers, by country, length and checksum. Spaces may separate groups
// of four characters.
func IBANs() Pattern { return Pattern{Name: "iban", Find: findIBANs} }

// ibanLengths contains the country codes of the IBAN registry, each with the length of its numbers.
const ibanLengths = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 " +
	"EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 " +
	"LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 " +
	"RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30 "

// A space that does not separate groups of four stays in the number. Such a number does not match.
var ibanNumber = regexp.MustCompile(`^[A-Za-z]{2}\d\d[0-9A-Za-z]+$`)

func findIBANs(text string) [][]int {
	return search(text, digits, func(at int) (start, end, next int) {
		start = max(at-2, 0)
		i := strings.Index(ibanLengths, strings.ToUpper(text[start:at]))
		if i < 0 || hasWordBefore(text, start) {
			return 0, 0, 0
		}
		length, _ := strconv.Atoi(ibanLengths[i+2 : i+4])
		number := ""
		for end = start; end < len(text) && len(number) < length; end++ {
			if text[end] != ' ' || len(number)%4 != 0 {
				number += text[end : end+1]
			}
		}
		if len(number) == length && !hasWordAfter(text, end) && ibanNumber.MatchString(number) && mod97(number) == 1 {
			return start, end, end
		}
		return 0, 0, 0
	})
}

// mod97 moves the first four characters to the end, replaces each letter with a number from 10 to 35, and
// returns the remainder modulo 97.
func mod97(number string) (remainder int) {
	for _, c := range number[4:] + number[:4] {
		value, _ := strconv.ParseInt(string(c), 36, 8)
		for _, digit := range strconv.FormatInt(value, 10) {
			remainder = (remainder*10 + int(digit-'0')) % 97
		}
	}
	return remainder
}
