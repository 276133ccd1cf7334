package redact_test

import (
	"strings"
	"testing"
)

// If more characters follow a text of a secret's form without a boundary, the text is not redacted.
func TestSecretBoundaries(t *testing.T) {
	r := all(t)
	for text, want := range map[string]string{
		"4111111111111111a 4111 1111 1111 1111_":              "4111111111111111a 4111 1111 1111 1111_",
		"4111 1111 1111 1111 12345678":                        "[card] 12345678",
		"DE89370400440532013000x DE89 37040 044 0532 0130 00": "DE89370400440532013000x DE89 37040 044 0532 0130 00",
		"212-555-0123-4 212-555-0123. 212-555-0123-":          "212-555-0123-4 [phone]. [phone]-",
		"+49 30 901820 0... 17 +1 555 123 4567  89":           "[phone]... 17 [phone]  89",
		"pkg@1.2.34 ada@example.c0m ada@a.xn--p1ai":           "pkg@1.2.34 ada@example.c0m [email]",
		"10.0.0.1x 10.0.0.1:x 10.0.0.1.":                      "10.0.0.1x 10.0.0.1:x [ip].",
		"%204111111111111111 %2B \\u00224111111111111111":     "%20[card] %2B \\u0022[card]",
		"gh~p_abcdefghijklmnopqrstuvwxyz0123456789_":          "gh~p_abcdefghijklmnopqrstuvwxyz0123456789_",
		"risk-sk~-abcdefghij0123456789":                       "risk-[key]",
		"url: https://x?access_token=abc~123def":              "url: https://x?access_token=[key]",
		"-----BEGIN PRIVATE~ KEY-----\nMIIE\n-----EN":         "[key]",
	} {
		if got := kinds(r.Text(split(text))); got != split(want) {
			t.Errorf("%q\nbecame %q\n  want %q", text, got, want)
		}
	}
}

// Redacting a text with many possible starts of keys takes linear time.
func TestHostileKeys(t *testing.T) {
	r := all(t)
	const size = 1 << 18
	for _, piece := range []string{
		"eyJ-", "x-eyJ", "AIza", "sk-a ", "-----BEGIN PRIVATE KEY", "-----BEGIN PRIVATE KEY-----a-----END ", "-----BEGIN X-", "-----END ", "token=", "password=a", "://a@", "bearer a", "10.0.0.1:", "%2", "%", "+1 - ", "DE89    ",
	} {
		if text := strings.Repeat(piece, size/len(piece)); r.Text(text) == "" {
			t.Errorf("of %q nothing is left", piece)
		}
	}
}
