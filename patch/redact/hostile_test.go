package redact_test

import (
	"strings"
	"testing"
)

// Redacting a long text with many starts of secrets takes linear time. With quadratic time, this test would not
// finish.
func TestHostileTexts(t *testing.T) {
	r := all(t)
	const size = 1 << 19
	for _, piece := range []string{
		"sk-", "AKIA", "eyJ", "eyJaaaaaaaaaa.", "a.", "-----BEGIN ", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY----- a", "-----BEGIN PRIVATE KEY-----.", "://", "://a:", "://a:b@", "bearer ",
		"password=", "password = ", "password='", "=", ":", "token:a1", "4111", "4111 ", "4111 1111 1111 1111 ", "1", "1 ", "DE89", "DE89 ", "de89370400440532013000 ", "@", "a@", "a@b.", "a@b.com ",
		"+", "+1", "+1 ", "+15551234567 ", "(212) ", "212-555-", "1-", "1.", "1:", "::", "10.0.0.1 ", `\u`, `\u0022`, "%20", `\n`, " ", "\"", "é", "QUFB", "\xff",
	} {
		text := strings.Repeat(piece, size/len(piece))
		if got := r.Text(text); piece == "4111 1111 1111 1111 " && strings.Contains(got, "4111") {
			t.Errorf("%q is left", piece)
		}
	}
	long := strings.Repeat("word ", 2<<20) + "ada@example.com"
	if got := kinds(r.Text(long)); !strings.HasSuffix(got, "word [email]") {
		t.Errorf("of %d bytes the end is %q", len(long), got[len(got)-20:])
	}
}

func BenchmarkText(b *testing.B) {
	r := all(b)
	for name, text := range map[string]string{
		"prose": strings.Repeat("The quick brown fox, aged 7, jumps over 12 lazy dogs (see https://example.com/a?b=c).\n", 100),
		"dense": strings.Repeat("4111 1111 1111 1111 ada@example.com +15551234567\n", 100),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Text(text)
			}
		})
	}
}
