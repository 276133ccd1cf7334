package redact

import "strings"

// Keys finds credentials: keys and tokens of well-known services by their prefix (AWS, GitHub, GitLab, Google, Slack,
// OpenAI, Anthropic, Stripe, Hugging Face, npm, PyPI, SendGrid and others), JSON web tokens, private keys in PEM,
// bearer tokens, passwords in URLs, and values assigned to names such as DB_PASSWORD or apiKey, in a text or in a JSON
// object.
func Keys() Pattern {
	return Pattern{Name: "key", Find: findKeys, Is: namesSecret}
}

func findKeys(text string) (found [][]int) {
	add := func(start, end int) { found = append(found, []int{start, end}) }
	for _, t := range tokens {
		t.find(text, add)
	}
	findWebTokens(text, add)
	findPrivateKeys(text, add)
	findBearers(text, add)
	findURLPasswords(text, add)
	findAssigned(text, add)
	return found
}

// token is a key that begins with one of some prefixes.
type token struct {
	prefixes string   // with spaces between
	of       *charset // what follows
	least    int      // how many of these
	most     int      // 0: any number
	mixed    bool     // a digit must be among them
}

var tokens = []token{
	{prefixes: "AKIA ASIA", of: capitals, least: 16, most: 16},                      // AWS
	{prefixes: "ghp_ gho_ ghu_ ghs_ ghr_", of: alphanumeric, least: 36},             // GitHub
	{prefixes: "github_pat_", of: word, least: 40},                                  // GitHub
	{prefixes: "glpat-", of: urlSafe, least: 20},                                    // GitLab
	{prefixes: "AIza", of: urlSafe, least: 35},                                      // Google
	{prefixes: "GOCSPX-", of: urlSafe, least: 28},                                   // Google
	{prefixes: "ya29.", of: urlSafe, least: 20},                                     // Google
	{prefixes: "xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- xapp-", of: urlSafe, least: 10}, // Slack
	{prefixes: "hooks.slack.com/services/", of: setOf("09azAZ", "/"), least: 30},    // Slack
	{prefixes: "sk- xai-", of: urlSafe, least: 20, mixed: true},                     // OpenAI, Anthropic, xAI and others
	{prefixes: "gsk_", of: alphanumeric, least: 20, mixed: true},                    // Groq
	{prefixes: "hf_", of: alphanumeric, least: 30, mixed: true},                     // Hugging Face
	{prefixes: "sk_live_ sk_test_ rk_live_ rk_test_", of: alphanumeric, least: 16},  // Stripe
	{prefixes: "whsec_", of: base64Digits, least: 24},                               // Stripe
	{prefixes: "npm_", of: alphanumeric, least: 36, mixed: true},                    // npm
	{prefixes: "pypi-", of: urlSafe, least: 60, mixed: true},                        // PyPI
	{prefixes: "SG.", of: setOf("09azAZ", "_-."), least: 60, mixed: true},           // SendGrid
	{prefixes: "shpat_", of: hexDigits, least: 32},                                  // Shopify
	{prefixes: "dop_v1_", of: hexDigits, least: 64},                                 // DigitalOcean
	{prefixes: "AGE-SECRET-KEY-1", of: capitals, least: 58},                         // age
}

func (t token) find(text string, add func(start, end int)) {
	for prefix := range strings.FieldsSeq(t.prefixes) {
		eachIndex(text, prefix, func(start int) int {
			body := start + len(prefix)
			if wordBefore(text, start) {
				return body
			}
			end := runEnd(text, body, t.of)
			n := end - body
			if n >= t.least && (t.most == 0 || n <= t.most) && !wordAfter(text, end) && (!t.mixed || contains(text[body:end], digits)) {
				add(start, end)
			}
			return end
		})
	}
}

// eachIndex calls visit with the places of part in a text. The search goes on at the place that visit returns.
func eachIndex(text, part string, visit func(at int) (next int)) {
	for from := 0; ; {
		at := strings.Index(text[from:], part)
		if at < 0 {
			return
		}
		from = visit(from + at)
	}
}

// findWebTokens finds JSON web tokens: base64 of two objects, and perhaps a signature.
func findWebTokens(text string, add func(start, end int)) {
	const begin, least = "eyJ", 10
	eachIndex(text, begin, func(start int) int {
		end := runEnd(text, start, urlSafe)
		from := end
		for parts := 1; end < len(text) && text[end] == '.' && parts < 5; parts++ { // 5 where they are encrypted
			next := runEnd(text, end+1, urlSafe)
			if parts == 1 && next-end-1 < least || end-start < least {
				break
			}
			end = next
		}
		if end > from && !wordBefore(text, start) {
			add(start, end)
			from = end
		}
		return from
	})
}

// findPrivateKeys finds private keys in PEM. One whose end was cut off goes on for as long as it
// looks like one.
func findPrivateKeys(text string, add func(start, end int)) {
	const begin, key, end, dashes = "-----BEGIN ", "PRIVATE KEY", "-----END ", "-----"
	body := setOf("09azAZ", "+/=\\: ,-\r\n\t")
	ends := true // there may be another end
	eachIndex(text, begin, func(start int) int {
		from := start + len(begin)
		title := text[from:min(from+64, len(text))]
		if title, _, _ = strings.Cut(title, dashes); !strings.Contains(title, key) {
			return from
		}
		from = min(from+len(title)+len(dashes), len(text))
		stop := -1
		if ends {
			stop = strings.Index(text[from:], end)
			ends = stop >= 0
		}
		if stop >= 0 {
			from += stop + len(end)
			if last := strings.Index(text[from:min(from+64, len(text))], dashes); last >= 0 {
				from += last + len(dashes)
			}
		} else {
			from = runEnd(text, from, body)
		}
		add(start, from)
		return from
	})
}

// findBearers finds tokens in the headers of HTTP.
func findBearers(text string, add func(start, end int)) {
	of := setOf("09azAZ", "-._~+/=")
	for _, scheme := range []string{"earer ", "asic "} {
		eachIndex(text, scheme, func(start int) int {
			from := start + len(scheme)
			if start == 0 || strings.IndexByte("bB", text[start-1]) < 0 || wordBefore(text, start-1) {
				return from
			}
			end := runEnd(text, from, of)
			if token := text[from:end]; len(token) >= 12 && contains(token, digits) {
				add(from, end)
			}
			return end
		})
	}
}

// findURLPasswords finds passwords between a name and a host.
func findURLPasswords(text string, add func(start, end int)) {
	const most = 1024
	eachIndex(text, "://", func(at int) int {
		from := at + len("://")
		authority := text[from:min(from+most, len(text))]
		if end := strings.IndexAny(authority, "/ \t\r\n\"'<>\\`?#[]{}"); end >= 0 {
			authority = authority[:end]
		}
		host := strings.LastIndexByte(authority, '@')
		name := strings.IndexByte(authority, ':')
		if name >= 0 && host > name+1 {
			add(from+name+1, from+host)
		}
		return from
	})
}

// Names end so of what a secret is assigned to, in small letters and without punctuation.
var secretNames = []string{
	"password", "passwd", "passphrase", "secret", "apikey", "accesskey", "secretkey", "privatekey", "accesstoken",
	"refreshtoken", "authtoken", "sessiontoken", "bearertoken", "idtoken", "apitoken", "authorization",
}

// Names that are of secrets if what they name looks like one.
var vagueNames = []string{"token", "credential", "credentials", "cookie"}

// namesSecret reports whether what a name is given is a secret.
func namesSecret(name, text string) bool {
	const longest = 80
	if len(name) > longest || text == "" {
		return false
	}
	plain := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		}
		return -1
	}, name)
	for _, n := range secretNames {
		if strings.HasSuffix(plain, n) {
			return true
		}
	}
	for _, n := range vagueNames {
		if strings.HasSuffix(plain, n) {
			return len(text) >= 16 && contains(text, digits) && contains(text, letters) && strings.IndexByte(text, ' ') < 0
		}
	}
	return false
}

// findAssigned finds what a name of a secret is given by = or :, in programs, settings, URLs, headers
// and JSON. What looks like a word, a variable or a call is none.
func findAssigned(text string, add func(start, end int)) {
	const longest, judged = 80, 256
	names := setOf("09azAZ", "_-.")
	around := setOf("", " \t\"'\\`")
	ends := setOf("", " \t\r\n\"'`\\&,;)<>]}|")
	for from := 0; from < len(text); {
		at := strings.IndexAny(text[from:], "=:")
		if at < 0 {
			return
		}
		at += from
		from = at + 1
		nameEnd := runStart(text, at, 4, around)
		name := text[runStart(text, nameEnd, longest, names):nameEnd]
		if len(name) < len("token") {
			continue
		}
		start := at + 1
		if start < len(text) && (text[start] == '=' || text[start] == '>') { // ==, =>
			start++
		}
		start = runEnd(text[:min(start+6, len(text))], start, around)
		end := start
		for end < len(text) && end-start < judged && !ends[text[end]] {
			end++
		}
		value := text[start:end]
		if len(value) < 6 || strings.IndexByte("$%{([<*", value[0]) >= 0 || strings.IndexByte(value, '(') >= 0 ||
			!contains(value, digits) || !namesSecret(name, value) {
			continue
		}
		for end < len(text) && !ends[text[end]] {
			end++
		}
		add(start, end)
		from = end
	}
}
