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
func Keys() Pattern { return Pattern{Name: "key", Find: findKeys, Is: namesSecret} }

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

// token is what keys that begin with one of some prefixes look like. The last group of the form is what is secret.
type token struct {
	prefixes []string
	form     *regexp.Regexp
	digit    bool // a digit must be in it
}

const (
	wordStart = `(?:\b|` + anyEscape + `)`
	pemTitle  = `(?:-?[^-]){0,53}-?PRIVATE KEY[^-]{0,53}`
)

// tokenOf returns a token that begins where no word goes on. rest is the form of what follows the prefix.
func tokenOf(prefixes, rest string, digit bool) token {
	prefix := strings.ReplaceAll(regexp.QuoteMeta(prefixes), " ", "|")
	return token{strings.Fields(prefixes), regexp.MustCompile(wordStart + "((?:" + prefix + ")" + rest + ")"), digit}
}

// A form reads all characters of its kind, so that a token that goes on is not one, and none is read twice.
var tokens = []token{
	tokenOf("AKIA ASIA", `[0-9A-Z]{16}\b`, false),                               // AWS
	tokenOf("ghp_ gho_ ghu_ ghs_ ghr_", `[0-9A-Za-z]{36,}\b`, false),            // GitHub
	tokenOf("github_pat_", `\w{40,}`, false),                                    // GitHub
	tokenOf("glpat-", `[\w-]{20,}`, false),                                      // GitLab
	tokenOf("AIza", `[\w-]{35,}`, false),                                        // Google
	tokenOf("GOCSPX-", `[\w-]{28,}`, false),                                     // Google
	tokenOf("ya29.", `[\w-]{20,}`, false),                                       // Google
	tokenOf("xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- xapp-", `[\w-]{10,}`, false),   // Slack
	tokenOf("hooks.slack.com/services/", `[0-9A-Za-z/]{30,}`, false),            // Slack
	tokenOf("sk- xai-", `[\w-]{20,}`, true),                                     // OpenAI, Anthropic, xAI and others
	tokenOf("gsk_", `[0-9A-Za-z]{20,}\b`, true),                                 // Groq
	tokenOf("hf_", `[0-9A-Za-z]{30,}\b`, true),                                  // Hugging Face
	tokenOf("sk_live_ sk_test_ rk_live_ rk_test_", `[0-9A-Za-z]{16,}\b`, false), // Stripe
	tokenOf("whsec_", `[0-9A-Za-z+/=]{24,}`, false),                             // Stripe
	tokenOf("npm_", `[0-9A-Za-z]{36,}\b`, true),                                 // npm
	tokenOf("pypi-", `[\w-]{60,}`, true),                                        // PyPI
	tokenOf("SG.", `[\w.-]{60,}`, true),                                         // SendGrid
	tokenOf("shpat_", `[0-9a-fA-F]{32,}\b`, false),                              // Shopify
	tokenOf("dop_v1_", `[0-9a-fA-F]{64,}\b`, false),                             // DigitalOcean
	tokenOf("AGE-SECRET-KEY-1", `[0-9A-Z]{58,}\b`, false),                       // age
	tokenOf("bearer Bearer", ` ([\w.~+/=-]{12,})`, true),                        // in headers of HTTP
	tokenOf("basic Basic", ` ([\w.~+/=-]{12,})`, true),                          // in headers of HTTP
	// JSON web tokens. What only begins like one is passed by, so that it is read once.
	{[]string{"eyJ"}, regexp.MustCompile(wordStart + `(?:(eyJ[\w-]{7,}\.[\w-]{10,}(?:\.[\w-]*){0,3})|eyJ[\w-]*)`), false},
	// Private keys in PEM, and the start of one that was cut off: it goes on for as long as it looks like a key.
	{[]string{"-----BEGIN "}, regexp.MustCompile(`(?s)(-----BEGIN ` + pemTitle + `.*?-----END (?:.{0,59}?-----)?)`), false},
	{[]string{"-----BEGIN "}, regexp.MustCompile(`(-----BEGIN ` + pemTitle + `(?:-----)?(?:-{0,4}[\w+/=\\: ,\r\n\t])*(?:-+[A-Z ]*$)?)`), false},
	// Passwords in URLs.
	{[]string{"://"}, regexp.MustCompile("://[^/ \t\r\n\"'<>\\\\`?#[\\]{}:]*:([^/ \t\r\n\"'<>\\\\`?#[\\]{}]+)@"), false},
}

// Names of secrets end so, in small letters and without punctuation. Those that are vague are names of secrets if their
// value looks like one.
var (
	secretNames = strings.Fields("password passwd passphrase secret apikey accesskey secretkey privatekey accesstoken " +
		"refreshtoken authtoken sessiontoken bearertoken idtoken apitoken authorization")
	vagueNames  = strings.Fields("token credential credentials cookie")
	punctuation = regexp.MustCompile(`[^0-9A-Za-z]+`)
)

const longestName = 80

// namesSecret reports whether the value of a name is a secret.
func namesSecret(name, value string) bool {
	plain := strings.ToLower(punctuation.ReplaceAllString(name[:min(len(name), longestName)], ""))
	isSuffix := func(suffix string) bool { return strings.HasSuffix(plain, suffix) }
	return len(name) <= longestName && value != "" && (slices.ContainsFunc(secretNames, isSuffix) ||
		len(value) >= 16 && slices.ContainsFunc(vagueNames, isSuffix) &&
			strings.ContainsAny(value, digits) && strings.ContainsAny(value, letters) && !strings.Contains(value, " "))
}

var (
	assignment = regexp.MustCompile("^[=:][=>]?[ \t\"'\\\\`]{0,6}")
	assigned   = regexp.MustCompile("^[^ \t\r\n\"'`\\\\&,;)<>\\]}|]*")
)

// findAssigned finds the values assigned by = or : to names of secrets, in programs, settings, URLs, headers and JSON.
// A value that looks like a word, a variable or a call is not a secret.
func findAssigned(text string) [][]int {
	const shortestName, mostQuotes, longestAssignment, judged = 5, 4, 8, 256
	return search(text, "=:", func(at int) (start, end, next int) {
		nameEnd := max(len(strings.TrimRight(text[:at], " \t\"'\\`")), at-mostQuotes)
		name := text[max(nameEnd-longestName, 0):nameEnd]
		if name = name[len(strings.TrimRight(name, digits+letters+"_-.")):]; len(name) < shortestName {
			return 0, 0, 0
		}
		start = at + len(assignment.FindString(text[at:min(at+longestAssignment, len(text))]))
		value := assigned.FindString(text[start:min(start+judged, len(text))])
		if len(value) >= 6 && !strings.ContainsAny(value[:1], "$%{([<*") && !strings.Contains(value, "(") &&
			strings.ContainsAny(value, digits) && namesSecret(name, value) {
			end = start + len(assigned.FindString(text[start:]))
		}
		return start, end, end
	})
}
