package redact

import (
	"net/netip"
	"regexp"
	"strings"
)

// Emails finds e-mail addresses in ASCII: a name, an @, and a host name with a dot. It also matches similar
// texts such as git@github.com.
func Emails() Pattern { return Pattern{Name: "email", Find: findEmails} }

// The top-level domain has no digits, unless it is in Punycode.
var emailHost = regexp.MustCompile(`^[0-9A-Za-z.-]+\.(?:[A-Za-z-]{2,}|xn--[0-9A-Za-z-]*)$`)

func findEmails(text string) [][]int {
	const maxName, maxHost = 64, 253
	return search(text, "@", func(at int) (start, end, next int) {
		before := text[max(at-maxName, 0):at]
		name := strings.TrimLeft(before[len(strings.TrimRight(before, digits+letters+"._%+-'")):], ".%+-'")
		start = at - len(name)
		if len(name) > 1 && strings.HasSuffix(text[:start], `\`) && strings.IndexByte("nrtbf", name[0]) >= 0 { // the first letter belongs to an escape
			start++
		}
		host := prefixOf(text[at+1:min(at+1+maxHost, len(text))], digits+letters+".-")
		host = strings.TrimRight(host, ".-")
		if name != "" && emailHost.MatchString(host) {
			end = at + 1 + len(host)
		}
		return start, end, end
	})
}

// Phones finds telephone numbers: international numbers with a + and 9 to 15 digits, and North American numbers
// of ten digits in groups. It does not find other national formats, because other numbers have the same form.
func Phones() Pattern { return Pattern{Name: "phone", Find: findPhones} }

// Submatch 1 of phone is an international number, and submatch 2 is a North American number. No word character may
// follow a North American number, not even after a dash or a point. Otherwise the match could be part of a longer
// number.
var (
	phone = regexp.MustCompile(`^(?:(\+[1-9](?:[ .()/-]*\d){8,14}\b)|` +
		`((?:1[ .-])?(?:\([2-9]\d\d\)[ .-]?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4})(?:[^\w.-]|[.-](?:\W|$)|$))`)
	doubleSeparator = regexp.MustCompile(`(?s)(?:  |\.\.|--|//|\(\(|\)\)).*`)
)

func findPhones(text string) [][]int {
	const maxLen = 64 // maximum length of a telephone number in bytes, with separators
	text = blankEscapes(text)
	return search(text, "+("+digits, func(at int) (start, end, next int) {
		if hasWordBefore(text, at) || at > 0 && strings.IndexByte(".-+/", text[at-1]) >= 0 {
			return 0, 0, 0
		}
		number := text[at:min(at+maxLen, len(text))]
		if number[0] == '+' { // a double separator, as in an ellipsis, ends the number
			number = number[:len(number)-len(doubleSeparator.FindString(number))]
		}
		if m := phone.FindStringSubmatchIndex(number); m != nil {
			end = at + max(m[3], m[5])
		}
		return at, end, end
	})
}

// IPs finds IPv4 and IPv6 addresses. It also matches program versions with four numbers.
func IPs() Pattern { return Pattern{Name: "ip", Find: findIPs} }

func findIPs(text string) [][]int {
	const chars = digits + "abcdefABCDEF.:"
	text = blankEscapes(text)
	return search(text, ".:", func(at int) (start, end, next int) {
		start, next = len(strings.TrimRight(text[:at], chars)), at+len(prefixOf(text[at:], chars))
		address := strings.TrimRight(text[start:next], ".:")
		if host, port, _ := strings.Cut(address, ":"); isIP(host) && prefixOf(port, digits) == port {
			address = host
		}
		if !hasWordBefore(text, start) && !hasWordAfter(text, next) && isIP(address) {
			end = start + len(address)
		}
		return start, end, next
	})
}

func isIP(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && !ip.IsUnspecified() && strings.ContainsAny(text, digits) // excludes C++ names such as ab::cd
}
