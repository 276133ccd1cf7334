package redact

import (
	"regexp"
	"slices"
	"strings"
)

// Keys finds credentials: keys and tokens of well-known services by their prefix (AWS, GitHub, GitLab, Google, Slack,
// OpenAI, Anthropic, Stripe, Hugging Face, npm, PyPI, SendGrid and others), JSON web tokens, private keys in PEM,
// bearer tokens, passwords in URLs, and values assigned to names such as DB_PASSWORD or apiKey, in a text or in a JSON
// object.
func Keys() Pattern {
	return Pattern{Name: "key", Find: findKeys, Is: namesSecret}
}

func findKeys(text string) [][]int {
	found := slices.Concat(findPrivateKeys(text), findAssigned(text))
	for _, m := range urlPassword.FindAllStringSubmatchIndex(text, -1) {
		found = append(found, m[2:])
	}
	for _, t := range tokens {
		for _, prefix := range t.prefixes {
			found = append(found, search(text, index(prefix), func(at int) (start, end, next int) {
				if wordBefore(text, at) {
					return 0, 0, at + 1
				}
				m := t.form.FindStringSubmatchIndex(text[at:])
				if m == nil {
					return 0, 0, at + 1
				}
				start, end, next = at+m[len(m)-2], at+m[len(m)-1], at+m[1]
				if start < at || wordAfter(text, end) || t.digit && !strings.ContainsAny(text[start:end], digits) {
					return 0, 0, next
				}
				return start, end, next
			})...)
		}
	}
	return found
}

// token is a key that begins with one of some prefixes.
type token struct {
	prefixes []string
	form     *regexp.Regexp // of the key with its prefix; the last group is what is secret
	digit    bool           // a digit must be in it
}

func tokenOf(prefixes, form string, digit bool) token {
	any := strings.ReplaceAll(regexp.QuoteMeta(prefixes), " ", "|")
	return token{strings.Fields(prefixes), regexp.MustCompile("^((?:" + any + ")" + form + ")"), digit}
}

// A form matches all characters that may follow, so that none of them is read twice.
var tokens = []token{
	tokenOf("AKIA ASIA", `[0-9A-Z]{16}`, false),                                                                // AWS
	tokenOf("ghp_ gho_ ghu_ ghs_ ghr_", `[0-9A-Za-z]{36,}`, false),                                             // GitHub
	tokenOf("github_pat_", `\w{40,}`, false),                                                                   // GitHub
	tokenOf("glpat-", `[\w-]{20,}`, false),                                                                     // GitLab
	tokenOf("AIza", `[\w-]{35,}`, false),                                                                       // Google
	tokenOf("GOCSPX-", `[\w-]{28,}`, false),                                                                    // Google
	tokenOf("ya29.", `[\w-]{20,}`, false),                                                                      // Google
	tokenOf("xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- xapp-", `[\w-]{10,}`, false),                                  // Slack
	tokenOf("hooks.slack.com/services/", `[0-9A-Za-z/]{30,}`, false),                                           // Slack
	tokenOf("sk- xai-", `[\w-]{20,}`, true),                                                                    // OpenAI, Anthropic, xAI and others
	tokenOf("gsk_", `[0-9A-Za-z]{20,}`, true),                                                                  // Groq
	tokenOf("hf_", `[0-9A-Za-z]{30,}`, true),                                                                   // Hugging Face
	tokenOf("sk_live_ sk_test_ rk_live_ rk_test_", `[0-9A-Za-z]{16,}`, false),                                  // Stripe
	tokenOf("whsec_", `[0-9A-Za-z+/=]{24,}`, false),                                                            // Stripe
	tokenOf("npm_", `[0-9A-Za-z]{36,}`, true),                                                                  // npm
	tokenOf("pypi-", `[\w-]{60,}`, true),                                                                       // PyPI
	tokenOf("SG.", `[\w.-]{60,}`, true),                                                                        // SendGrid
	tokenOf("shpat_", `[0-9a-fA-F]{32,}`, false),                                                               // Shopify
	tokenOf("dop_v1_", `[0-9a-fA-F]{64,}`, false),                                                              // DigitalOcean
	tokenOf("AGE-SECRET-KEY-1", `[0-9A-Z]{58,}`, false),                                                        // age
	tokenOf("bearer Bearer", ` ([\w.~+/=-]{12,})`, true),                                                       // in headers of HTTP
	tokenOf("basic Basic", ` ([\w.~+/=-]{12,})`, true),                                                         // in headers of HTTP
	{[]string{"eyJ"}, regexp.MustCompile(`^(?:(eyJ[\w-]{7,}\.[\w-]{10,}(?:\.[\w-]*){0,3})|eyJ[\w-]*)`), false}, // JSON web tokens
}

var urlPassword = regexp.MustCompile("://[^/ \t\r\n\"'<>\\\\`?#[\\]{}:]*:([^/ \t\r\n\"'<>\\\\`?#[\\]{}]+)@")

// findPrivateKeys finds private keys in PEM. One whose end was cut off goes on for as long as it
// looks like one.
func findPrivateKeys(text string) [][]int {
	const begin, end, dashes, longestTitle = "-----BEGIN ", "-----END ", "-----", 64
	lastEnd := strings.LastIndex(text, end)
	return search(text, index(begin), func(at int) (int, int, int) {
		next := at + len(begin)
		title, _, _ := strings.Cut(text[next:min(next+longestTitle, len(text))], dashes)
		if !strings.Contains(title, "PRIVATE KEY") {
			return 0, 0, next
		}
		next = min(next+len(title)+len(dashes), len(text))
		if lastEnd < next {
			next += len(prefixOf(text[next:], digits+letters+"+/=\\: ,-\r\n\t"))
			return at, next, next
		}
		next += strings.Index(text[next:], end) + len(end)
		if i := strings.Index(text[next:min(next+longestTitle, len(text))], dashes); i >= 0 {
			next += i + len(dashes)
		}
		return at, next, next
	})
}

// Names of secrets end so, in small letters and without punctuation. Those that are vague are names of secrets if their
// value looks like one.
var (
	secretNames = strings.Fields("password passwd passphrase secret apikey accesskey secretkey privatekey accesstoken " +
		"refreshtoken authtoken sessiontoken bearertoken idtoken apitoken authorization")
	vagueNames = strings.Fields("token credential credentials cookie")
)

const longestName = 80

// namesSecret reports whether the value of a name is a secret.
func namesSecret(name, value string) bool {
	if len(name) > longestName || value == "" {
		return false
	}
	name = strings.ToLower(strings.Map(func(c rune) rune {
		if c < 0x80 && c != '_' && isWord(byte(c)) {
			return c
		}
		return -1
	}, name))
	isSuffix := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
	return slices.ContainsFunc(secretNames, isSuffix) || len(value) >= 16 && slices.ContainsFunc(vagueNames, isSuffix) &&
		strings.ContainsAny(value, digits) && strings.ContainsAny(value, letters) && !strings.Contains(value, " ")
}

var assignment = regexp.MustCompile("^[=:][=>]?[ \t\"'\\\\`]{0,6}")

// findAssigned finds what a name of a secret is given by = or :, in programs, settings, URLs, headers
// and JSON. What looks like a word, a variable or a call is none.
func findAssigned(text string) [][]int {
	const shortestName, mostQuotes, shortest, judged = len("token"), 4, 6, 256
	const quotes, ends = " \t\"'\\`", " \t\r\n\"'`\\&,;)<>]}|"
	return search(text, indexAny("=:"), func(at int) (start, end, next int) {
		nameEnd := max(len(strings.TrimRight(text[:at], quotes)), at-mostQuotes)
		name := text[max(nameEnd-longestName, 0):nameEnd]
		name = name[len(strings.TrimRight(name, digits+letters+"_-.")):]
		start = at + len(assignment.FindString(text[at:min(at+8, len(text))]))
		value := prefixWithout(text[start:min(start+judged, len(text))], ends)
		if len(name) < shortestName || len(value) < shortest || strings.ContainsAny(value[:1], "$%{([<*") ||
			strings.Contains(value, "(") || !strings.ContainsAny(value, digits) || !namesSecret(name, value) {
			return 0, 0, at + 1
		}
		end = start + len(prefixWithout(text[start:], ends))
		return start, end, end
	})
}
