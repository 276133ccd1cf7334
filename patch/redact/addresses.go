package redact

import (
	"net/netip"
	"strings"
)

// Emails finds e-mail addresses in ASCII: a name, an @ and a host with a dot. It also finds texts of this form that
// are no addresses, such as git@github.com.
func Emails() Pattern {
	return Pattern{Name: "email", Find: findEmails}
}

func findEmails(text string) (found [][]int) {
	const longestName, longestHost = 64, 253
	name, host := setOf("09azAZ", "._%+-'"), setOf("09azAZ", ".-")
	for from := 0; ; {
		at := strings.IndexByte(text[from:], '@')
		if at < 0 {
			return found
		}
		at += from
		from = at + 1
		start := runStart(text, at, longestName, name)
		for start < at && strings.IndexByte(".%+-'", text[start]) >= 0 {
			start++
		}
		if start > 0 && start+1 < at && text[start-1] == '\\' && strings.IndexByte("nrtbf", text[start]) >= 0 { // an escape of JSON
			start++
		}
		end := min(runEnd(text, at+1, host), at+1+longestHost)
		end = at + 1 + len(strings.TrimRight(text[at+1:end], ".-"))
		point := strings.LastIndexByte(text[at+1:end], '.')
		if start == at || point < 1 {
			continue
		}
		top := text[at+1+point+1 : end]
		if len(top) < 2 || contains(top, digits) && !strings.HasPrefix(top, "xn--") {
			continue
		}
		found = append(found, []int{start, end})
		from = end
	}
}

// Phones finds telephone numbers: international ones, with a + and 9 to 15 digits, and North American ones of ten
// digits in groups. It does not find other national formats, which look like other numbers.
func Phones() Pattern {
	return Pattern{Name: "phone", Find: findPhones}
}

func findPhones(text string) (found [][]int) {
	for at := 0; at < len(text); at++ {
		if at = escapesEnd(text, at); at == len(text) {
			break
		}
		c := text[at]
		if c != '+' && c != '(' && !digits[c] {
			continue
		}
		end := 0
		if !wordBefore(text, at) && !(at > 0 && strings.IndexByte(".-+/", text[at-1]) >= 0) {
			if c == '+' {
				end = internationalAt(text, at)
			} else {
				end = americanAt(text, at)
			}
		}
		switch {
		case end > 0:
			found = append(found, []int{at, end})
			at = end - 1
		case digits[c]:
			at = runEnd(text, at, digits) - 1
		}
	}
	return found
}

// internationalAt returns where the number ends that begins with a + at a place, or 0.
func internationalAt(text string, at int) int {
	const least, most = 9, 15
	n, end := 0, 0
	for i := at + 1; i < len(text) && n <= most; i++ {
		c := text[i]
		switch {
		case digits[c] && (n > 0 || c != '0'):
			if n++; n >= least && n <= most && !wordAfter(text, i+1) {
				end = i + 1
			}
		case n == 0 || strings.IndexByte(" .-()/", c) < 0 || text[i-1] == c: // as of an ellipsis
			return end
		}
	}
	return end
}

// americanAt returns where the number ends that begins at a place, as in (212) 555-0123, or 0.
func americanAt(text string, at int) int {
	i := at
	take := func(of string) bool {
		if i < len(text) && strings.IndexByte(of, text[i]) >= 0 {
			i++
			return true
		}
		return false
	}
	group := func(n int, first string) bool {
		end := runEnd(text[:min(i+n+1, len(text))], i, digits)
		if end-i != n || strings.IndexByte(first, text[i]) < 0 {
			return false
		}
		i = end
		return true
	}
	const any, exchange = "0123456789", "23456789"
	if take("1") && !take(" -.") {
		return 0
	}
	bracket := take("(")
	if !group(3, exchange) || bracket != take(")") {
		return 0
	}
	if !take(" -.") && !bracket {
		return 0
	}
	if !group(3, exchange) || !take(" -.") || !group(4, any) || wordAfter(text, i) {
		return 0
	}
	if i+1 < len(text) && strings.IndexByte("-.", text[i]) >= 0 && word[text[i+1]] { // it goes on
		return 0
	}
	return i
}

// IPs finds IPv4 and IPv6 addresses. It also finds program versions with four numbers.
func IPs() Pattern {
	return Pattern{Name: "ip", Find: findIPs}
}

const longestIP = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

func findIPs(text string) (found [][]int) {
	of := setOf("09afAF", ".:")
	for at := 0; at < len(text); at++ {
		if at = escapesEnd(text, at); at == len(text) || !of[text[at]] {
			continue
		}
		end := runEnd(text, at, of)
		start := at
		at = end - 1
		address := strings.TrimRight(text[start:end], ".:")
		if strings.Count(address, ".") < 3 && strings.Count(address, ":") < 2 || len(address) > longestIP ||
			wordBefore(text, start) || wordAfter(text, end) {
			continue
		}
		host, port, _ := strings.Cut(address, ":")
		switch {
		case isIP(address):
			found = append(found, []int{start, start + len(address)})
		case isIP(host) && runEnd(port, 0, digits) == len(port):
			found = append(found, []int{start, start + len(host)})
		}
	}
	return found
}

func isIP(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && !ip.IsUnspecified() && contains(text, digits) // C++ has names such as ab::cd
}
