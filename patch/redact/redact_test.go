package redact_test

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
)

func all(t testing.TB) *redact.Redactor {
	t.Helper()
	r := testlog.Must(redact.New(redact.Options{Patterns: redact.All(), Key: []byte("k")}))(t)
	return r
}

var placeholder = regexp.MustCompile(`\[([a-z]+) [0-9a-f]{8}\]`)

// kinds removes the numbers from the placeholders in a text.
func kinds(text string) string { return placeholder.ReplaceAllString(text, "[$1]") }

// split removes the character ~, which prevents secret scanners from matching this source.
func split(text string) string { return strings.ReplaceAll(text, "~", "") }

func TestText(t *testing.T) {
	r := all(t)
	for text, want := range map[string]string{
		"export AWS_ACCESS_KEY_ID=AKI~AIOSFODNN7EXAMPLE":                               "export AWS_ACCESS_KEY_ID=[key]",
		"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY":             "aws_secret_access_key = [key]",
		"gh~p_abcdefghijklmnopqrstuvwxyz0123456789":                                    "[key]",
		`{\"k\":\"\ngh~p_abcdefghijklmnopqrstuvwxyz0123456789\"}`:                      `{\"k\":\"\n[key]\"}`,
		`key\u003dgh~p_abcdefghijklmnopqrstuvwxyz0123456789`:                           `key\u003d[key]`,
		"?k%3Dgh~p_abcdefghijklmnopqrstuvwxyz0123456789&x=1":                           "?k%3D[key]&x=1",
		"密钥gh~p_abcdefghijklmnopqrstuvwxyz0123456789。":                                 "密钥[key]。",
		"github~_pat_11ABCDEFG0abcdefghijkl_0123456789abcdefghijklmnopqrstuv":          "[key]",
		"AI~zaSyA1234567890abcdefghijklmnopqrstuvw":                                    "[key]",
		"xo~xb-123456789012-abcdefABCDEF":                                              "[key]",
		"https://hooks.sl~ack.com/services/T00000000/B00000000/XXXXXXXXXXXX":           "https://[key]",
		"sk~-ant-api03-abcdefghijklmnopqrstuvwxyz":                                     "[key]",
		"sk~-proj-abcdefghij0123456789_-AB":                                            "[key]",
		"sk~_live_abcdefghij0123456789":                                                "[key]",
		"ey~JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmN":           "[key]",
		"-----BEGIN RSA PRIVATE~ KEY-----\nMIIEow==\n-----END RSA PRIVATE KEY----- ok": "[key] ok",
		`"-----BEGIN PRIVATE~ KEY-----\nMIIE\nabc`:                                     `"[key]`,
		"-----BEGIN PRIVATE~ KEY-----\nMIIE: a (cut)":                                  "[key](cut)",
		"-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----":                 "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
		"Authorization: Bearer abcdef123456.xyz":                                       "Authorization: Bearer [key]",
		"bearer understanding of the matter":                                           "bearer understanding of the matter",
		"authorization: Basic dXNlcjpwYXNzd29yZDE=":                                    "authorization: Basic [key]",
		"postgres://app:s3cr~et@db.example.com:5432/x":                                 "postgres://app:[key]:5432/x",
		"https://host.example.com:8080/a@b":                                            "https://host.example.com:8080/a@b",
		"DB_PASSWORD='hunt~er2!'":                                                      "DB_PASSWORD='[key]'",
		`{"apiKey": "abc~123def"}`:                                                     `{"apiKey": "[key]"}`,
		`{\"client_secret\":\"abc~123def\"}`:                                           `{\"client_secret\":\"[key]\"}`,
		"?access_token=abc~123def&page=2":                                              "?access_token=[key]&page=2",
		"password = os.getenv('PW1')":                                                  "password = os.getenv('PW1')",
		"password: ${DB_PW1}, secret: required":                                        "password: ${DB_PW1}, secret: required",
		"nextPageToken = abc123; max_tokens: 123456":                                   "nextPageToken = abc123; max_tokens: 123456",

		"4111 1111 1111 1111, 4111-1111-1111-1111 and 4111111111111111":                             "[card], [card] and [card]",
		"5500005555555559 378282246310005 3782 822463 10005 6011111111111117":                       "[card] [card] [card] [card]",
		"3530111333300000/30569309025904/6304000000000000":                                          "[card]/[card]/[card]",
		"order 2023 4111 1111 1111 1111.":                                                           "order 2023 [card].",
		"4111111111111112 14111111111111111 a4111111111111111 0.4111111111111111 41111111111111111": "4111111111111112 14111111111111111 a4111111111111111 0.4111111111111111 41111111111111111",
		"1700000000000 1700000000000000000 550e8400-e29b-41d4-a716-446655440000":                    "1700000000000 1700000000000000000 550e8400-e29b-41d4-a716-446655440000",
		"DE89 3704 0044 0532 0130 00 is mine, GB82WEST12345698765432 too":                           "[iban] is mine, [iban] too",
		"de89370400440532013000 DE88370400440532013000 XX8937040044":                                "[iban] DE88370400440532013000 XX8937040044",

		"mail ada.l+x@example.co.uk, or <o'brien@example.com>.": "mail [email], or <[email]>.",
		`\nada@example.com`:                                                        `\n[email]`,
		"@types/node pkg@1.2.3 user@localhost @a.b x@":                             "@types/node pkg@1.2.3 user@localhost @a.b x@",
		"call +49 30 901820 0, (212) 555-0123, 212-555-0123 or 1-212-555-0123":     "call [phone], [phone], [phone] or [phone]",
		"+15551234567 and +44 (0)20 7946 0958":                                     "[phone] and [phone]",
		"2023-555-0123 12-212-555-0123 x+15551234567 +0100 555-0123 212-555-01234": "2023-555-0123 12-212-555-0123 x+15551234567 +0100 555-0123 212-555-01234",
		"10.0.0.1:80, 2001:db8::1 and ::1; 12:30:45 1.2.3 256.1.1.1 std::ab::cd":   "[ip]:80, [ip] and [ip]; 12:30:45 1.2.3 256.1.1.1 std::ab::cd",
	} {
		text := split(text)
		if got := kinds(r.Text(text)); got != split(want) {
			t.Errorf("%q\nbecame %q\n  want %q", text, got, want)
		}
	}
}

// Equal secrets get the same placeholder, even if their case or punctuation differs. Different secrets get
// different placeholders.
func TestPlaceholdersAreStable(t *testing.T) {
	r := all(t)
	if a, b := r.Text("4111 1111 1111 1111"), r.Text("4111-1111-1111-1111"); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := r.Text("Ada@example.com"), r.Text("ada@Example.com"); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := r.Text("ada@example.com"), r.Text("bob@example.com"); a == b {
		t.Errorf("%s twice", a)
	}
	if a, b := r.Text("ada@example.com"), all(t).Text("ada@example.com"); a != b {
		t.Errorf("by one key %s and %s", a, b)
	}
	x, _ := redact.New(redact.Options{})
	y, _ := redact.New(redact.Options{})
	if a, b := x.Text("ada@example.com"), y.Text("ada@example.com"); a == b {
		t.Errorf("by two random keys %s twice", a)
	}
}

// A member of an object and a state value can be recognised as a secret by its key. If a number is a secret, its
// placeholder is a string.
func TestEvent(t *testing.T) {
	r := all(t)
	e, err := patch.ParseEvent([]byte(split(`{"id":"4111111111111111","author":"ada@example.com","content":{"parts":[
		{"functionCall":{"id":"ada@example.com","name":"login","args":{"password":"swordfish","pin":4111111111111111,"n":4111111111111112,"ada@example.com":1,"list":[4111111111111111.0]}}},
		{"text":"` + base64.StdEncoding.EncodeToString([]byte("mail to ada@example.com")) + `"}]},
		"actions":{"stateDelta":{"user:token":"abcdefghijklmnop1","token":"the","api_key":"x"}}}`)))
	if err != nil {
		t.Fatal(err)
	}
	got := testlog.Must(r.Event(e))(t)
	inside := base64.StdEncoding.EncodeToString([]byte(r.Text("mail to ada@example.com")))
	want := `{"id":"4111111111111111","author":"[email]","content":{"parts":[` +
		`{"functionCall":{"id":"ada@example.com","name":"login","args":{"password":"[key]","pin":"[card]","n":4111111111111112,"[email]":1,"list":["[card].0"]}}},` +
		`{"text":"` + inside + `"}]},"actions":{"stateDelta":{"user:token":"[key]","token":"the","api_key":"[key]"}}}`
	if kinds(got.String()) != want {
		t.Errorf("%s\n  want %s", kinds(got.String()), want)
	}
	again, err := r.Event(got)
	if err != nil || again != got {
		t.Errorf("again it became %s, %v", again, err)
	}
	var none *redact.Redactor
	if same, err := none.Event(e); same != e || err != nil || none.Text("ada@example.com") != "ada@example.com" || none.Names() != nil {
		t.Error("a nil redactor redacts")
	}
}

// Records, events and state are redacted in the same way. The arguments of the methods do not change.
func TestRecordsEventsAndState(t *testing.T) {
	r := all(t)
	says := func(id, text string) *patch.Event {
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: id, Content: patch.Text("user", text)}))(t)
		return e
	}
	plain, secret := says("e1", "hello"), says("e2", "write to ada@example.com")
	input := []*patch.Event{plain, secret}
	events, err := r.Events(input)
	if err != nil || len(events) != 2 || events[0] != plain || input[1] != secret ||
		kinds(events[1].String()) != `{"id":"e2","content":{"parts":[{"text":"write to [email]"}],"role":"user"}}` {
		t.Errorf("the events are %v, %v", events, err)
	}
	record, err := r.Record(patch.Record{Seq: 7, Patch: patch.NewSummarise(0, 2, secret).WithID("p")})
	if err != nil || record.Seq != 7 || record.ID() != "p" || record.Events()[0].String() != events[1].String() {
		t.Errorf("the record is %v, %v", record, err)
	}
	value := func(v any) patch.Value {
		out := testlog.Must(patch.NewValue(v))(t)
		return out
	}
	was := map[string]patch.Value{"mail": value("ada@example.com"), "ada@example.com": value([]any{int64(4111111111111111), "x"}), "n": value(1)}
	state, err := r.State(was)
	if err != nil || len(state) != 3 || kinds(state["mail"].String()) != `"[email]"` || !state["n"].Equal(value(1)) || was["mail"].String() != `"ada@example.com"` {
		t.Errorf("the state is %v, of %v, %v", state, was, err)
	}
	for key, v := range state {
		if key != "mail" && key != "n" && (kinds(key) != "[email]" || kinds(v.String()) != `["[card]","x"]`) {
			t.Errorf("%s is %s", key, v)
		}
	}
	var none *redact.Redactor
	same, err := none.State(was)
	if err != nil || len(same) != 3 || !same["mail"].Equal(was["mail"]) {
		t.Errorf("a nil redactor makes the state %v, %v", same, err)
	}
	if got, err := none.Record(record); err != nil || got != record {
		t.Errorf("a nil redactor makes the record %v, %v", got, err)
	}
}

func TestNewErrors(t *testing.T) {
	find := func(string) [][]int { return nil }
	for name, p := range map[string]redact.Pattern{
		"no name": {Find: find}, "no function": {Name: "x"}, "space": {Name: "a b", Find: find}, "bracket": {Name: "a]", Find: find},
	} {
		testlog.ErrorIs(t, testlog.ErrorOf(redact.New(redact.Options{Patterns: []redact.Pattern{p}})), patch.ErrInvalid, "%s", name)
	}
}

// A custom pattern may overlap other patterns and may return invalid ranges.
func TestCustomPatterns(t *testing.T) {
	ticket := regexp.MustCompile(`T-\d+( \S+@)?`)
	r, err := redact.New(redact.Options{Patterns: []redact.Pattern{
		{Name: "ticket", Find: func(text string) [][]int {
			return append(ticket.FindAllStringIndex(text, -1), []int{-5, 0}, []int{900, 901}, []int{2, 1}, nil)
		}}, redact.Emails(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := kinds(r.Text("see T-12 ada@example.com, T-13")); got != "see [ticket], [ticket]" {
		t.Error(got)
	}
	if got := fmt.Sprint(r.Names()); got != "[ticket email]" {
		t.Error(got)
	}
}

func secret(t *rapid.T) string {
	return split(rapid.OneOf(
		rapid.StringMatching(`AKI~A[A-Z0-9]{16}`), rapid.StringMatching(`gh~p_[a-zA-Z0-9]{36}`), rapid.StringMatching(`sk~-ant-api03-[a-zA-Z0-9]{20}[0-9]`),
		rapid.StringMatching(`xo~xb-[0-9]{12}-[a-zA-Z0-9]{24}`), rapid.StringMatching(`[a-z]{3,10}@[a-z]{3,10}\.(com|org)`),
		rapid.StringMatching(`\+49 30 [0-9]{7,8}`), rapid.StringMatching(`\([2-9][0-9]{2}\) [2-9][0-9]{2}-[0-9]{4}`),
		rapid.Custom(card), rapid.SampledFrom([]string{"DE89370400440532013000", "GB82 WEST 1234 5698 7654 32"}),
	).Draw(t, "secret"))
}

func card(t *rapid.T) string {
	number := rapid.StringMatching(`4[0-9]{14}`).Draw(t, "number")
	sum := 0
	for i := range 15 {
		d := int(number[i] - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	number += fmt.Sprint((10 - sum%10) % 10)
	if by := rapid.SampledFrom([]string{"", " ", "-"}).Draw(t, "by"); by != "" {
		number = number[:4] + by + number[4:8] + by + number[8:12] + by + number[12:]
	}
	return number
}

// Every secret between spaces, quotes, brackets or escapes is redacted. Redacting the result again changes
// nothing.
func TestPropertyFindsSecrets(t *testing.T) {
	r := all(t)
	rapid.Check(t, func(t *rapid.T) {
		s := secret(t)
		text := rapid.StringMatching(`([ -~é密]{0,20}[ "'(<,;:=])?`).Draw(t, "before") + rapid.SampledFrom([]string{"", "\n", `\n`, `\u0022`, "密"}).Draw(t, "escape") +
			s + rapid.StringMatching(`([ "')>,;][ -~é密]{0,20})?`).Draw(t, "after")
		got := r.Text(text)
		if strings.Contains(got, s) {
			t.Fatalf("%q: %q is in %q", text, s, got)
		}
		if again := r.Text(got); again != got {
			t.Fatalf("%q became %q, and that %q", text, got, again)
		}
	})
}

// Two goroutines that redact the same text get the same result. No text causes a panic.
func TestPropertyTakesAnyText(t *testing.T) {
	r := all(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[+()@:./="'\\ \-0-9a-fA-F]{0,80}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		var got [2]string
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() { got[i] = r.Text(text) })
		}
		wg.Wait()
		if got[0] != got[1] {
			t.Fatalf("%q and %q", got[0], got[1])
		}
	})
}
