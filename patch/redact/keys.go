package redact

import "strings"

// Keys finds what gives access: keys and tokens of well-known services by how they begin (AWS,
// GitHub, GitLab, Google, Slack, OpenAI, Anthropic, Stripe, Hugging Face, npm, PyPI, SendGrid and
// others), JSON web tokens, private keys in PEM, bearer tokens, passwords in URLs, and what is
// assigned to a name such as DB_PASSWORD or apiKey, in a text or as a member of a JSON object.
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

// token is a key that begins with a prefix.
type token struct {
	prefix string
	of     *charset // what follows
	least  int      // how many of these
	most   int      // 0: any number
	mixed  bool     // a digit must be among them
}

var tokens = []token{
	{prefix: "AKIA", of: capitals, least: 16, most: 16}, // AWS
	{prefix: "ASIA", of: capitals, least: 16, most: 16},
	{prefix: "ghp_", of: alphanumeric, least: 36}, // GitHub
	{prefix: "gho_", of: alphanumeric, least: 36},
	{prefix: "ghu_", of: alphanumeric, least: 36},
	{prefix: "ghs_", of: alphanumeric, least: 36},
	{prefix: "ghr_", of: alphanumeric, least: 36},
	{prefix: "github_pat_", of: word, least: 40},
	{prefix: "glpat-", of: urlSafe, least: 20},
	{prefix: "AIza", of: urlSafe, least: 35}, // Google
	{prefix: "GOCSPX-", of: urlSafe, least: 28},
	{prefix: "ya29.", of: urlSafe, least: 20},
	{prefix: "xoxa-", of: urlSafe, least: 10}, // Slack
	{prefix: "xoxb-", of: urlSafe, least: 10},
	{prefix: "xoxe-", of: urlSafe, least: 10},
	{prefix: "xoxp-", of: urlSafe, least: 10},
	{prefix: "xoxr-", of: urlSafe, least: 10},
	{prefix: "xoxs-", of: urlSafe, least: 10},
	{prefix: "xapp-", of: urlSafe, least: 10},
	{prefix: "hooks.slack.com/services/", of: setOf("09azAZ", "/"), least: 30},
	{prefix: "sk-", of: urlSafe, least: 20, mixed: true}, // OpenAI, Anthropic and others
	{prefix: "xai-", of: urlSafe, least: 20, mixed: true},
	{prefix: "gsk_", of: alphanumeric, least: 20, mixed: true},
	{prefix: "hf_", of: alphanumeric, least: 30, mixed: true},
	{prefix: "sk_live_", of: alphanumeric, least: 16}, // Stripe
	{prefix: "sk_test_", of: alphanumeric, least: 16},
	{prefix: "rk_live_", of: alphanumeric, least: 16},
	{prefix: "rk_test_", of: alphanumeric, least: 16},
	{prefix: "whsec_", of: base64Digits, least: 24},
	{prefix: "npm_", of: alphanumeric, least: 36, mixed: true},
	{prefix: "pypi-", of: urlSafe, least: 60, mixed: true},
	{prefix: "SG.", of: setOf("09azAZ", "_-."), least: 60, mixed: true},
	{prefix: "shpat_", of: hexDigits, least: 32},
	{prefix: "dop_v1_", of: hexDigits, least: 64},
	{prefix: "AGE-SECRET-KEY-1", of: capitals, least: 58},
}

func (t token) find(text string, add func(start, end int)) {
	for from := 0; ; {
		at := strings.Index(text[from:], t.prefix)
		if at < 0 {
			return
		}
		start := from + at
		body := start + len(t.prefix)
		from = body
		if wordBefore(text, start) {
			continue
		}
		end := runEnd(text, body, t.of)
		n := end - body
		if n >= t.least && (t.most == 0 || n <= t.most) && !wordAfter(text, end) && (!t.mixed || contains(text[body:end], digits)) {
			add(start, end)
		}
		from = end
	}
}

// findWebTokens finds JSON web tokens: base64 of two objects, and perhaps a signature.
func findWebTokens(text string, add func(start, end int)) {
	const begin, least = "eyJ", 10
	for from := 0; ; {
		at := strings.Index(text[from:], begin)
		if at < 0 {
			return
		}
		start := from + at
		end := runEnd(text, start, urlSafe)
		from = end
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
	}
}

// findPrivateKeys finds private keys in PEM. One whose end was cut off goes on for as long as it
// looks like one.
func findPrivateKeys(text string, add func(start, end int)) {
	const begin, key, end, dashes = "-----BEGIN ", "PRIVATE KEY", "-----END ", "-----"
	body := setOf("09azAZ", "+/=\\: ,-\r\n\t")
	ends := true // there may be another end
	for from := 0; ; {
		at := strings.Index(text[from:], begin)
		if at < 0 {
			return
		}
		start := from + at
		from = start + len(begin)
		title := text[from:min(from+64, len(text))]
		if title, _, _ = strings.Cut(title, dashes); !strings.Contains(title, key) {
			continue
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
	}
}

// findBearers finds tokens in the headers of HTTP.
func findBearers(text string, add func(start, end int)) {
	of := setOf("09azAZ", "-._~+/=")
	for _, scheme := range []string{"earer ", "asic "} {
		for from := 0; ; {
			at := strings.Index(text[from:], scheme)
			if at < 0 {
				break
			}
			start := from + at
			from = start + len(scheme)
			if start == 0 || strings.IndexByte("bB", text[start-1]) < 0 || wordBefore(text, start-1) {
				continue
			}
			end := runEnd(text, from, of)
			if token := text[from:end]; len(token) >= 12 && contains(token, digits) {
				add(from, end)
			}
			from = end
		}
	}
}

// findURLPasswords finds passwords between a name and a host.
func findURLPasswords(text string, add func(start, end int)) {
	const most = 1024
	for from := 0; ; {
		at := strings.Index(text[from:], "://")
		if at < 0 {
			return
		}
		from += at + len("://")
		authority := text[from:min(from+most, len(text))]
		if end := strings.IndexAny(authority, "/ \t\r\n\"'<>\\`?#[]{}"); end >= 0 {
			authority = authority[:end]
		}
		host := strings.LastIndexByte(authority, '@')
		name := strings.IndexByte(authority, ':')
		if name >= 0 && host > name+1 {
			add(from+name+1, from+host)
		}
	}
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
