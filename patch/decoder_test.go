package patch_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

func readAll(t testing.TB, text string) ([]patch.Record, map[string]patch.Value) {
	t.Helper()
	records, initial, err := readAllOf(patch.NewDecoder(strings.NewReader(text), "log.jsonl"))
	if err != nil {
		t.Fatalf("%.200q: %v", text, err)
	}
	return records, initial
}

// wantLine checks that reading text fails at a line with an error that matches the argument want, and that
// later calls return the same error.
func wantLine(t *testing.T, text string, line int, want error, names string) {
	t.Helper()
	records, initial, err := readAllOf(patch.NewDecoder(strings.NewReader(text), "dir/log.jsonl"))
	var at *patch.LineError
	if !errors.As(err, &at) || at.File != "dir/log.jsonl" || at.Line != line || !errors.Is(err, want) {
		t.Errorf("%.200q: %v, want one of line %d that matches %v", text, err, line, want)
		return
	}
	if prefix := fmt.Sprintf("dir/log.jsonl:%d: ", line); !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), names) {
		t.Errorf("the text %q does not begin with %q and name %q", err, prefix, names)
	}
	if records != nil || initial != nil {
		t.Errorf("%.200q: something is taken of it: %v, %v", text, records, initial)
	}
	d := patch.NewDecoder(strings.NewReader(text), "dir/log.jsonl")
	var first error
	for first == nil {
		_, first = d.Next()
	}
	if _, again := d.Next(); again != first {
		t.Errorf("the error %v is followed by %v", first, again)
	}
	if _, _, again := d.InitialState(); again != first {
		t.Errorf("the error %v is followed by %v", first, again)
	}
}

func TestDecoderHeaders(t *testing.T) {
	records, initial := readAll(t, `{"patchlog":1,"initialState":{"a":1.0,"b":null,"app:c":[9007199254740993]}}`+"\n"+`{"id":"x"}`+"\n")
	if len(records) != 1 || records[0].ID() != "x" || len(initial) != 3 || initial["a"].String() != "1.0" || initial["app:c"].String() != "[9007199254740993]" {
		t.Errorf("read %v, %v", records, initial)
	}
	for text, header := range map[string]bool{
		"":                                   false,
		"\n \r\n":                            false,
		`{"id":"x"}`:                         false,
		`{"patchlog":1}`:                     true,
		"\n\t{ \"patchlog\" : 1 }\n":         true,
		`{"later":true,"patchlog":1}` + "\n": true,
	} {
		d := patch.NewDecoder(strings.NewReader(text), "f")
		for range 2 {
			state, ok, err := d.InitialState()
			if err != nil || ok != header || len(state) != 0 || (state != nil) != header {
				t.Errorf("%q: state %v, header %v, %v", text, state, ok, err)
			}
			if ok {
				state["mine"] = patch.Value{}
			}
		}
	}
	wantLine(t, `{"patchlog":2,"initialState":{}}`+"\n"+`{"id":"x"}`, 1, patch.ErrInvalid, "version 2 ")
	wantLine(t, `{"patchlog":"1"}`, 1, patch.ErrInvalid, "patchlog")
	wantLine(t, `{"patchlog":1.0}`, 1, patch.ErrInvalid, "patchlog")
	wantLine(t, `{"patchlog":1,"initialState":[]}`, 1, patch.ErrInvalid, "initialState")
	wantLine(t, `{"patchlog":1,"patchlog":1}`, 1, patch.ErrInvalid, "patchlog")
	wantLine(t, `{"patchlog":1,"initialState":{"a":1,"a":1}}`, 1, patch.ErrInvalid, "initialState/a")
	wantLine(t, "{\"id\":\"x\"}\n\n{\"patchlog\":1,\"initialState\":{}}\n", 3, patch.ErrInvalid, "patchlog")
	wantLine(t, "{\"patchlog\":1}\n{\"patchlog\":1}\n", 2, patch.ErrInvalid, "patchlog")
}

func TestDecoderLines(t *testing.T) {
	const lines = "\n{\"id\":\"a\"}\r\n  \t\n{\"seq\":2,\"id\":\"b\"} \n{\"patchType\":\"splice\",\"id\":\"c\"}"
	for name, r := range map[string]io.Reader{
		"at once":        strings.NewReader(lines),
		"byte by byte":   iotest.OneByteReader(strings.NewReader(lines)),
		"data with EOF":  iotest.DataErrReader(strings.NewReader(lines)),
		"with an ending": strings.NewReader(lines + "\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			d := patch.NewDecoder(r, "f")
			for _, want := range []struct {
				id   string
				seq  uint64
				line int
			}{{"a", 0, 2}, {"b", 2, 4}, {"c", 0, 5}} {
				rec, err := d.Next()
				if err != nil || rec.ID() != want.id || rec.Seq != want.seq || d.Line != want.line {
					t.Fatalf("read %q, %d on line %d, %v; want %v", rec.ID(), rec.Seq, d.Line, err, want)
				}
			}
			for range 2 {
				if _, err := d.Next(); err != io.EOF {
					t.Errorf("at the end: %v", err)
				}
			}
		})
	}
	wantLine(t, "{\"id\":\"a\"}\nhello\n", 2, patch.ErrInvalid, "")
	wantLine(t, "\ufeff{\"id\":\"a\"}\n", 1, patch.ErrInvalid, "")
	wantLine(t, "{\"id\":\"a\"}\n\u00a0\n", 2, patch.ErrInvalid, "")
	wantLine(t, "{\"id\":\n\"a\"}\n", 1, patch.ErrInvalid, "")
	wantLine(t, "{\"id\":\"a\"} {\"id\":\"b\"}", 1, patch.ErrInvalid, "")
	wantLine(t, "{\"id\":\"a\"}\n\n\n{\"id\":\"b\",\"x\":{\"y\":\"\xff\"}}\n", 4, patch.ErrInvalid, "x/y")
	wantLine(t, "{\"id\":\"a\"}\n{\"id\":\"b\",\"x\":", 2, patch.ErrInvalid, "x")
	wantLine(t, "{\"id\":\"a\"}\n[1]\n", 2, patch.ErrInvalid, "")
}

func TestDecoderReadErrors(t *testing.T) {
	broken := errors.New("broken disk")
	for _, text := range []string{"", `{"id":"a"}` + "\n", `{"id":"a"}` + "\n" + `{"id`} {
		d := patch.NewDecoder(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), "f")
		var err error
		for err == nil {
			_, err = d.Next()
		}
		var at *patch.LineError
		if !errors.As(err, &at) || !errors.Is(err, broken) || at.Line != 1+strings.Count(text, "\n") {
			t.Errorf("after %q the error is %v", text, err)
		}
	}
}

func TestDecoderLongLines(t *testing.T) {
	line := func(n int) string { // returns a line of n bytes without the newline
		const around = `{"id":"","x":""}`
		id := fmt.Sprint(n)
		return `{"id":"` + id + `","x":"` + strings.Repeat("x", n-len(around)-len(id)) + `"}`
	}
	text := line(116_000) + "\n" + line(1<<20) + "\r\n" + line(200)
	records, _ := readAll(t, text)
	if len(records) != 3 || records[0].Size() != 116_000 || records[1].Size() != 1<<20 {
		t.Errorf("read %d records", len(records))
	}
	for _, limit := range []int{100, 1 << 16, 1<<16 + 1, 300_000} {
		for _, end := range []string{"", "\n", "\r\n"} {
			d := patch.NewDecoder(strings.NewReader("\n"+line(limit)+"\n"+line(limit-1)+end), "f")
			d.MaxLineBytes = limit
			if records, _, err := readAllOf(d); err != nil || len(records) != 2 {
				t.Errorf("lines of %d bytes: %v", limit, err)
			}
			d = patch.NewDecoder(strings.NewReader("\n"+line(limit)+"\n"+line(limit+1)+end), "f")
			d.MaxLineBytes = limit
			records, _, err := readAllOf(d)
			var at *patch.LineError
			if records != nil || !errors.Is(err, patch.ErrTooLarge) || !errors.As(err, &at) || at.Line != 3 {
				t.Errorf("a line of %d bytes, one more than allowed: %v", limit+1, err)
			}
		}
	}
	// A decoder reads an endless line only up to MaxLineBytes.
	endless := &counter{r: io.MultiReader(strings.NewReader("{\"id\":\"a\"}\n"), endlessly('x'))}
	_, _, err := readAllOf(patch.NewDecoder(endless, "f"))
	if !errors.Is(err, patch.ErrTooLarge) || endless.n > patch.DefaultMaxLineBytes+1<<20 {
		t.Errorf("an endless line: %v after %d bytes", err, endless.n)
	}
}

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += n
	return n, err
}

type endlessly byte

func (e endlessly) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte{byte(e)}, len(b)))
	return len(b), nil
}

func TestDecoderRefusesDuplicateID(t *testing.T) {
	const splice = `{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"r"}]}`
	for _, c := range []struct {
		lines []string
		line  int
		names string
	}{
		{[]string{`{"id":"a"}`, `{"id":"b"}`, `{"id":"a"}`}, 3, `"a" is already used on line 1`},
		{[]string{`{"id":"r"}`, splice}, 2, `"r" is already used on line 1`},
		{[]string{splice, `{"id":"r"}`}, 2, `"r" is already used on line 1`},
		{[]string{splice, `{"id":"p"}`}, 2, `"p" is already used on line 1`},
		{[]string{splice, strings.Replace(splice, `"p"`, `"q"`, 1)}, 2, `"r" is already used on line 1`},
		{[]string{`{"author":"a"}`, strings.Replace(splice, `"p"`, `"r"`, 1)}, 2, `"r" is already used on line 2`},
		{[]string{`{"id":"p","patchType":"splice","replacement":[{"id":"r"},{"id":"r"}]}`}, 1, `"r" is already used on line 1`},
		{[]string{`{"id":"p","patchType":"summarise","summaryEvent":{"id":"p"}}`}, 1, `"p" is already used on line 1`},
	} {
		wantLine(t, strings.Join(c.lines, "\n"), c.line, patch.ErrInvalid, c.names)
	}
}

func TestDecoderDerivesStableIDs(t *testing.T) {
	const text = "{\"patchlog\":1}\n" + `{"author":"a"}
{"author":"a"}

{ "author" : "a" }
{"patchType":"splice","start":0,"count":1,"replacement":[{},{"id":"mine"},{}]}
{"id":"p","patchType":"summarise","start":0,"count":1,"summaryEvent":{}}
`
	ids := func(text string) (all []string) {
		records, _ := readAll(t, text)
		for _, rec := range records {
			for id := range rec.IDs() {
				all = append(all, id)
			}
		}
		return all
	}
	first := ids(text)
	wantEqual(t, "ids of the same text", ids(text), first)
	seen := map[string]bool{}
	for _, id := range first {
		if seen[id] {
			t.Errorf("id %s occurs twice", id)
		}
		seen[id] = true
		if id == "mine" || id == "p" {
			continue
		}
		if u, err := uuid.Parse(id); err != nil || u.Version() != 5 || u.Variant() != uuid.RFC4122 {
			t.Errorf("id %q is no UUIDv5: %v", id, err)
		}
	}
	if len(first) != 9 {
		t.Errorf("%d ids, want 9: %v", len(first), first)
	}
	// White space in a line does not affect the ids derived from the line.
	wantEqual(t, "ids after changes of space", ids(strings.ReplaceAll(text, `{ "author" : "a" }`, `{"author":"a"}`)), first)
	if other := ids(strings.Replace(text, `"a"`, `"b"`, 1)); other[0] == first[0] || other[1] != first[1] {
		t.Errorf("another author: %v, was %v", other, first)
	}
	if other := ids("\n" + text); other[0] == first[0] {
		t.Error("another line number gives the same id")
	}
	// Earlier versions derived this id, and imported logs contain it.
	wantEqual(t, "the first id", first[0], "87acad43-89d2-5245-858d-fe369b07f452")
}

func readAllOf(d *patch.Decoder) ([]patch.Record, map[string]patch.Value, error) {
	return records.ReadAll(d)
}
