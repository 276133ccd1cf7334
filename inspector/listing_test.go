package inspector

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// listingEnv is an inspector of a store.
type listingEnv struct {
	testing.TB
	store     *store.Store
	inspector *Inspector
	lines     map[store.Key][]string
}

func listingOf(t testing.TB, b backend.Backend, opts Options) *listingEnv {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	day := time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC)
	created := 0
	s, err := store.New(b, store.Options{Logger: quiet, Now: func() time.Time {
		created++
		return day.Add(time.Duration(created*7919%10007) * time.Minute)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	opts.Logger = quiet
	i, err := New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &listingEnv{t, s, i, map[store.Key][]string{}}
}

// add puts lines into a session, and has the list read anew.
func (e *listingEnv) add(key store.Key, lines ...string) {
	e.Helper()
	e.lines[key] = append(e.lines[key], lines...)
	if _, err := e.store.Import(e.Context(), key, strings.NewReader(strings.Join(e.lines[key], "\n")), store.ImportOptions{}); err != nil {
		e.Fatal(err)
	}
	e.inspector.listing.list = nil
}

func (e *listingEnv) create(key store.Key) {
	e.Helper()
	if _, err := e.store.Create(e.Context(), key, nil); err != nil {
		e.Fatal(err)
	}
	e.inspector.listing.list = nil
}

// get returns the page at an address, which must have a status.
func (e *listingEnv) get(address string, status int) string {
	e.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(e.Context(), http.MethodGet, "http://localhost/"+strings.TrimPrefix(address, "./"), nil)
	e.inspector.ServeHTTP(w, r)
	if w.Code != status {
		e.Fatalf("GET %s: status %d, want %d:\n%s", address, w.Code, status, w.Body)
	}
	return w.Body.String()
}

var (
	listingRow  = regexp.MustCompile(`(?s)<tr[^>]*>\s*<th scope="row">.*?</tr>`)
	listingLink = regexp.MustCompile(`href="(session\?[^"]*)"`)
	listingCell = regexp.MustCompile(`(?s)<t[dh][^>]*>(.*?)</t[dh]>`)
	listingTag  = regexp.MustCompile(`<[^>]*>`)
	listingHref = regexp.MustCompile(`href="(\./[^"]*)">([^<]*)</a>`)
)

// rowsOf are the rows of a page: the session that each leads to, or "", and the texts of its cells.
func (e *listingEnv) rowsOf(page string) (keys []string, cells [][]string) {
	e.Helper()
	for _, row := range listingRow.FindAllString(page, -1) {
		key := ""
		if m := listingLink.FindStringSubmatch(row); m != nil {
			u, err := url.Parse(html.UnescapeString(m[1]))
			if err != nil {
				e.Fatal(err)
			}
			key = u.Query().Get("key")
		}
		var texts []string
		for _, c := range listingCell.FindAllStringSubmatch(row, -1) {
			text := html.UnescapeString(listingTag.ReplaceAllString(c[1], " "))
			texts = append(texts, strings.Join(strings.Fields(text), " "))
		}
		keys, cells = append(keys, key), append(cells, texts)
	}
	return keys, cells
}

// all are the sessions of all pages, from an address on by the links to the next.
func (e *listingEnv) all(address string) (keys []string) {
	e.Helper()
	for range 100 {
		page := e.get(address, http.StatusOK)
		some, _ := e.rowsOf(page)
		keys = append(keys, some...)
		address = ""
		for _, m := range listingHref.FindAllStringSubmatch(page, -1) {
			if m[2] == "Next" {
				address = html.UnescapeString(m[1])
			}
		}
		if address == "" {
			return keys
		}
	}
	e.Fatal("the pages have no end")
	return nil
}

// has fails the test unless the page has the text.
func (e *listingEnv) has(page, text string) {
	e.Helper()
	if !strings.Contains(page, text) {
		e.Errorf("the page lacks %q:\n%s", text, page[max(strings.Index(page, "<main"), 0):])
	}
}

func (e *listingEnv) hasNot(page, text string) {
	e.Helper()
	if strings.Contains(page, text) {
		e.Errorf("the page has %q:\n%s", text, page[max(strings.Index(page, "<main"), 0):])
	}
}

func (e *listingEnv) same(what string, got, want any) {
	e.Helper()
	if !reflect.DeepEqual(got, want) {
		e.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func sessionOf(n int) store.Key {
	return store.Key{App: fmt.Sprint("app", n%3), User: fmt.Sprint("user", n%7), Session: fmt.Sprintf("s%04d", n)}
}

func says(id, author, text string) string {
	role := "model"
	if author == "user" {
		role = "user"
	}
	return fmt.Sprintf(`{"id":%q,"invocationId":%q,"author":%q,"content":{"role":%q,"parts":[{"text":%q}]}}`, id, "i"+id, author, role, text)
}

func passLine(id string, start, count, minute int) string {
	return fmt.Sprintf(`{"id":%q,"patchType":"summarise","timestamp":"2025-01-02T03:%02d:06Z","start":%d,"count":%d,`+
		`"summaryEvent":{"id":"s-%s","author":"user","content":{"role":"user","parts":[{"text":"in short"}]},"customMetadata":{"patchlog":{"level":1}}},`+
		`"customMetadata":{"patchlog":{"trigger":"tokens","level":1,"eventsBefore":%[4]d,"eventsAfter":1,"tokensBefore":2000,"tokensAfter":3,"ratio":0.0015}}}`, id, minute, start, count, id)
}

func revertLine(id, target string) string {
	return fmt.Sprintf(`{"id":%q,"patchType":"revert","patchId":%q}`, id, target)
}

// drawnLines are lines to add to a log of n records.
func drawnLines(draw *rand.Rand, n int) (lines []string) {
	for range draw.IntN(12) {
		id := fmt.Sprint("r", n+len(lines))
		other := fmt.Sprint("r", draw.IntN(n+len(lines)+1))
		switch draw.IntN(9) {
		case 0:
			lines = append(lines, fmt.Sprintf(`{"id":%q,"patchType":"splice","start":%d,"count":%d}`, id, draw.IntN(6), 1+draw.IntN(3)))
		case 1:
			lines = append(lines, passLine(id, draw.IntN(4), 1+draw.IntN(4), draw.IntN(60)))
			if draw.IntN(2) == 0 {
				lines = append(lines, revertLine(fmt.Sprint("r", n+len(lines)), id))
			}
		case 2:
			lines = append(lines, revertLine(id, other))
		case 3:
			lines = append(lines, fmt.Sprintf(`{"id":%q,"patchType":"truncate_before","eventId":%q}`, id, other))
		default:
			lines = append(lines, says(id, []string{"user", "agent"}[draw.IntN(2)], strings.Repeat("word ", draw.IntN(40))))
		}
	}
	return lines
}

// statsOf are the cells of a session, by what 'patchlog stats' says of it.
func (e *listingEnv) statsOf(key store.Key) []string {
	e.Helper()
	st, err := present.Measure(e.Context(), e.store, key, nil)
	if err != nil {
		e.Fatal(err)
	}
	visible := present.Grouped(st.Tokens.Visible)
	if _, share, ok := strings.Cut(st.Tokens.String(), "("); ok {
		visible += " " + strings.TrimSuffix(share, ")")
	}
	pass := "none"
	if l := st.Compaction.Last; l != nil {
		var rows []string
		for _, r := range st.Compaction.Rows() {
			if strings.HasPrefix(r.Name, "  ") {
				rows = append(rows, r.Text)
			}
		}
		last := strings.Split(rows[0], ", ") // when, record n, by whom
		pass = fmt.Sprintf("%s %s, %s %s, %s", last[0], last[2], last[1], rows[1], rows[2])
	}
	return []string{
		key.Session + " " + key.App + " / " + key.User, st.Created.Format(time.RFC3339), fmt.Sprint(st.Records), fmt.Sprint(st.Visible),
		present.Grouped(st.Tokens.Raw), visible, pass, fmt.Sprint(st.Skipped), "none",
	}
}

// The figures are those of 'patchlog stats', also when sessions have grown.
func TestListingSaysWhatStatsSay(t *testing.T) {
	e := listingOf(t, &memory.Backend{}, Options{})
	draw := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		e.create(sessionOf(n))
	}
	outcomes := map[string]int{}
	for round := range 8 {
		for n := range 40 {
			if key := sessionOf(n); draw.IntN(3) > 0 && n > 0 {
				e.add(key, drawnLines(draw, len(e.lines[key]))...)
			}
		}
		keys, cells := e.rowsOf(e.get("", http.StatusOK))
		if len(keys) != 40 {
			t.Fatalf("%d rows", len(keys))
		}
		for n, text := range keys {
			key, err := store.ParseKey(text)
			if err != nil {
				t.Fatal(err)
			}
			if cells[n][6] != "none" {
				when := strings.Index(cells[n][6], " 2025-")
				outcomes[cells[n][6][:when]]++
				cells[n][6] = cells[n][6][when+1:]
			}
			e.same(fmt.Sprintf("round %d, %s", round, key), cells[n], e.statsOf(key))
		}
	}
	if outcomes[outcomeApplied] == 0 || outcomes[outcomeReverted] == 0 || outcomes["skipped: out of range"] == 0 {
		t.Errorf("what became of the passes: %v", outcomes)
	}
}

// What became of the newest pass follows what is logged after it.
func TestListingOutcomeOfTheLastPass(t *testing.T) {
	e := listingOf(t, &memory.Backend{}, Options{})
	key := sessionOf(1)
	for _, c := range []struct{ line, want string }{
		{says("a", "user", "one"), "none"},
		{says("b", "agent", "two"), "none"},
		{passLine("p1", 0, 2, 1), "applied 2025"},
		{says("c", "user", "three"), "applied 2025"},
		{revertLine("p2", "p1"), "reverted since 2025"},
		{says("d", "agent", "four"), "reverted since 2025"},
		{revertLine("p3", "p2"), "applied 2025"},
		{passLine("p4", 7, 2, 2), "skipped: out of range 2025"},
		{passLine("p5", 0, 2, 3), "applied 2025"},
		{revertLine("p6", "p1"), "applied 2025"}, // blocked, by the newer one
	} {
		e.add(key, c.line)
		_, cells := e.rowsOf(e.get("", http.StatusOK))
		if got := cells[0][6]; !strings.HasPrefix(got, c.want) {
			t.Errorf("after %s: %q, want %q", c.line, got, c.want)
		}
	}
}

// A pass of which a part was taken back does not count as applied.
func TestListingOutcomeOfAPartOfAGroup(t *testing.T) {
	e := listingOf(t, &memory.Backend{}, Options{})
	e.add(sessionOf(1), says("a", "user", "one"), says("b", "agent", "two"), says("c", "user", "three"),
		strings.Replace(passLine("p1", 0, 1, 1), `{`, `{"group":"g",`, 1),
		`{"id":"p2","group":"g","patchType":"splice","start":1,"count":1}`,
		revertLine("r2", "p2"), revertLine("r1", "p1"), revertLine("r3", "r2"))
	_, cells := e.rowsOf(e.get("", http.StatusOK))
	if got := cells[0][6]; !strings.HasPrefix(got, outcomeReverted) {
		t.Errorf("it says %q", got)
	}
}

// Where not all can be measured, sorting measures first what is likely to come first.
func TestListingMeasuresWhatComesFirst(t *testing.T) {
	for _, sort := range []string{"raw", "-raw"} {
		e := listingOf(t, &memory.Backend{}, Options{CacheBytes: 8 << 10})
		for n := range 40 {
			var lines []string
			for m := range 1 + n*7%40 {
				lines = append(lines, says(fmt.Sprint(m), "user", "hello"))
			}
			e.add(sessionOf(n), lines...)
		}
		page := e.get("./?wait=16&sort="+sort, http.StatusOK)
		e.has(page, "There is no room to keep more")
		_, cells := e.rowsOf(page)
		for n := range 5 {
			if want := map[string]string{"raw": fmt.Sprint(1 + n), "-raw": fmt.Sprint(40 - n)}[sort]; cells[n][3] != want {
				t.Errorf("%s: session %d has %s events, want %s", sort, n, cells[n][3], want)
			}
		}
	}
}

// plainOrder sorts sessions by figures that are measured one by one.
func (e *listingEnv) plainOrder(keys []store.Key, column string, descending bool) (out []string) {
	e.Helper()
	stats := map[store.Key]present.Stats{}
	for _, key := range keys {
		st, err := present.Measure(e.Context(), e.store, key, nil)
		if err != nil {
			e.Fatal(err)
		}
		stats[key] = st
	}
	value := func(key store.Key) int64 {
		st := stats[key]
		switch column {
		case "created":
			return st.Created.UnixNano()
		case "records":
			return int64(st.Records)
		case "events":
			return int64(st.Visible)
		case "raw":
			return int64(st.Tokens.Raw)
		case "visible":
			return int64(st.Tokens.Visible)
		case "compaction":
			if st.Compaction.Last == nil {
				return 0
			}
			return st.Compaction.Last.Time.UnixNano()
		case "skipped":
			return int64(st.Skipped)
		}
		return 0 // nothing is wrong with any
	}
	byKey := func(a, b store.Key) int {
		return cmp.Or(strings.Compare(a.App, b.App), strings.Compare(a.User, b.User), strings.Compare(a.Session, b.Session))
	}
	slices.SortFunc(keys, func(a, b store.Key) int {
		x, y := value(a), value(b)
		if descending {
			x, y = y, x
			if column == "key" {
				return byKey(b, a)
			}
		}
		return cmp.Or(cmp.Compare(x, y), byKey(a, b))
	})
	for _, key := range keys {
		out = append(out, key.String())
	}
	return out
}

// Every column sorts both ways, and the pages have each session once.
func TestListingSorts(t *testing.T) {
	e := listingOf(t, &memory.Backend{}, Options{})
	draw := rand.New(rand.NewPCG(3, 4))
	var keys []store.Key
	for n := range 230 {
		key := sessionOf(n)
		keys = append(keys, key)
		e.create(key)
		e.add(key, drawnLines(draw, 0)...)
	}
	for e.inspector.listing.known(&listed{Info: infoOf(e, keys[0])}) == nil || strings.Contains(e.get("./?sort=raw", http.StatusOK), "Go on measuring") {
		e.get("./?sort=-raw&wait=16", http.StatusOK) // a loaded machine may take several
	}
	for _, c := range columns {
		for _, sort := range []string{c.name, "-" + c.name} {
			got := e.all("./?sort=" + sort)
			e.same(sort, got, e.plainOrder(keys, c.name, sort != c.name))
			page := e.get("./?page=2&sort="+sort, http.StatusOK)
			e.has(page, "101 to 200 of 230")
			order := map[bool]string{true: "descending", false: "ascending"}[sort != c.name]
			if n := strings.Count(page, `aria-sort="`+order+`"`); n != 1 || strings.Count(page, `aria-sort="none"`) != len(columns)-1 {
				t.Errorf("%s: the headings say %s %d times", sort, order, n)
			}
		}
	}
	page := e.get("./?page=9999999999999999", http.StatusOK)
	e.has(page, "201 to 230 of 230")
	for _, bad := range []string{"sort=none", "sort=--raw", "page=-1", "page=x", "wait=x", "q=" + strings.Repeat("x", 2001), "app=" + strings.Repeat("x", 1025)} {
		e.get("./?"+bad, http.StatusBadRequest)
	}
}

func infoOf(e *listingEnv, key store.Key) store.Info {
	info, err := e.store.Info(e.Context(), key)
	if err != nil {
		e.Fatal(err)
	}
	return info
}

// All words must be in the key, whatever their case; app and user are meant as a whole.
func TestListingSearch(t *testing.T) {
	e := listingOf(t, &memory.Backend{}, Options{})
	for _, key := range []store.Key{{App: "shop", User: "Ada", Session: "Order 1"}, {App: "shop", User: "bob", Session: "order/2"}, {App: "shop2", User: "ada", Session: "chat"}} {
		e.create(key)
	}
	one, two, three := "shop/Ada/Order%201", "shop/bob/order%2F2", "shop2/ada/chat"
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"q=ada", []string{one, three}},
		{"q=ADA+order", []string{one}},
		{"q=order+ada+ORDER", []string{one}},
		{"q=order/2", []string{two}},
		{"q=" + url.QueryEscape("shop/bob/order%2f2"), []string{two}},
		{"q=none", nil},
		{"app=shop", []string{one, two}},
		{"app=shop&user=Ada", []string{one}},
		{"user=ada", []string{three}},
		{"user=ad", nil},
		{"app=shop&q=order&sort=-key", []string{two, one}},
	} {
		page := e.get("./?"+c.query, http.StatusOK)
		keys, _ := e.rowsOf(page)
		e.same(c.query, keys, c.want)
		if c.want == nil {
			e.has(page, "None of 3 sessions matches")
		} else {
			e.has(page, fmt.Sprintf("1 to %d of %d</strong> that match, of 3", len(c.want), len(c.want)))
		}
	}
	// What was asked for stays in the form and in the links.
	page := e.get("./?q=o&app=shop&user=bob", http.StatusOK)
	for _, text := range []string{`name="q" value="o"`, `<option value="shop" selected>`, `name="user" value="bob"`, `href="./?app=shop&amp;q=o&amp;sort=-records&amp;user=bob"`} {
		e.has(page, text)
	}
}

// What may not be read is nowhere, nor counted; each session is asked about once.
func TestListingAuthorize(t *testing.T) {
	var asked []string
	e := listingOf(t, &memory.Backend{}, Options{Authorize: func(r *http.Request, key store.Key, want Access) bool {
		asked = append(asked, key.String())
		return want == Read && r.Header.Get("Cookie") == "" && key.User == "ada"
	}})
	for n, user := range []string{"ada", "mallory", "ada", "mallory"} {
		e.create(store.Key{App: "app-of-" + user, User: user, Session: fmt.Sprint(n)})
	}
	for _, query := range []string{"", "?sort=-raw", "?q=0", "?user=mallory", "?app=nothing"} {
		asked = nil
		page := e.get("./"+query, http.StatusOK)
		e.hasNot(strings.ReplaceAll(page, `name="user" value="mallory"`, ""), "mallory")
		e.same("asked", asked, []string{"app-of-ada/ada/0", "app-of-ada/ada/2", "app-of-mallory/mallory/1", "app-of-mallory/mallory/3"})
	}
	e.has(e.get("", http.StatusOK), "1 to 2 of 2<")
	e.has(e.get("./?user=mallory", http.StatusOK), "None of 2 sessions matches")
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://localhost/?sort=-raw", nil)
	r.Header.Set("Cookie", "who=somebody")
	e.inspector.ServeHTTP(w, r)
	e.has(w.Body.String(), "There is no session yet")
	e.hasNot(w.Body.String(), "ada")
}

// Damaged sessions are listed with what is wrong, and hide no others.
func TestListingDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		text := says("a", "user", "hello") + "\n" + says("b", "agent", "hi")
		if _, err := s.Import(t.Context(), sessionOf(n), strings.NewReader(text), store.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damageRecords(t, path)
	s, err = store.Open(path, store.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	i, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := &listingEnv{t, s, i, nil}
	for _, query := range []string{"", "?sort=problems", "?sort=-problems", "?sort=raw", "?sort=-created"} {
		page := e.get("./"+query, http.StatusOK)
		keys, cells := e.rowsOf(page)
		if len(keys) != 4 {
			t.Fatalf("%s: sessions %q", query, keys)
		}
		problems := 0
		for n, key := range keys {
			k, _ := store.ParseKey(key)
			switch got := cells[n]; key {
			case "app0/user0/s0000":
				if !strings.HasPrefix(got[8], "record 2: corrupt") || got[1] != "–" || got[4] != "–" {
					t.Errorf("%s: one without an end: %q", query, got)
				}
			case "app1/user1/s0001":
				if !strings.HasPrefix(got[8], "record 1: ") || !strings.Contains(got[8], "checksum") || strings.Contains(got[8], "user1") || got[2] != "2" || got[4] != "–" {
					t.Errorf("%s: one with a damaged record: %q", query, got)
				}
			default:
				e.same(query+" "+key, got, e.statsOf(k))
				continue
			}
			problems |= 1 << n
		}
		want := map[string]int{"?sort=-problems": 0b0011, "?sort=problems": 0b1100, "?sort=raw": 0b1100}[query]
		if want != 0 && problems != want {
			t.Errorf("%s: damaged sessions at %04b, want %04b", query, problems, want)
		}
		e.hasNot(page, "not measured yet")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	e.inspector.listing.list = nil
	e.get("", http.StatusServiceUnavailable)
}

// damageRecords takes the last record from the session that was made first, and flips a bit of
// the first record of the next.
func damageRecords(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("records"))
		rows := map[string][]byte{}
		err := b.ForEach(func(k, v []byte) error {
			rows[string(k)] = bytes.Clone(v)
			return nil
		})
		for k, v := range rows {
			switch session, seq := binary.BigEndian.Uint64([]byte(k)), binary.BigEndian.Uint64([]byte(k[8:])); {
			case session == 1 && seq == 2:
				err = errors.Join(err, b.Delete([]byte(k)))
			case session == 2 && seq == 1:
				v[len(v)/2] ^= 1
				err = errors.Join(err, b.Put([]byte(k), v))
			}
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// nameless is a backend that lists a session whose name damage has made another.
type nameless struct{ memory.Backend }

func (b *nameless) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	out, err := b.Backend.List(ctx, prefix, after, limit)
	return append(out, backend.Listed{Session: "\xffno \u202ename"}), err
}

// A session without a name is listed to whoever may see all, and leads nowhere.
func TestListingWithoutAName(t *testing.T) {
	for _, all := range []bool{true, false} {
		opts := Options{}
		if !all {
			opts.Authorize = func(*http.Request, store.Key, Access) bool { return true }
		}
		e := listingOf(t, &nameless{}, opts)
		e.create(sessionOf(1))
		for _, query := range []string{"", "?sort=-problems"} {
			page := e.get("./"+query, http.StatusOK)
			keys, cells := e.rowsOf(page)
			e.hasNot(page, "\u202e")
			if !all {
				e.same("sessions", keys, []string{sessionOf(1).String()})
				continue
			}
			slices.Sort(keys)
			e.same("sessions", keys, []string{"", sessionOf(1).String()})
			for n, key := range keys {
				if key == "" && query != "" {
					e.same("name", cells[n][0], "a session without a name")
					e.has(cells[n][8], "no \\u202ename")
				}
			}
		}
		keys, _ := e.rowsOf(e.get("./?q=s", http.StatusOK))
		e.same("of a search", keys, []string{sessionOf(1).String()})
	}
}

// Whatever names are made of, they are text, and lead to their own session.
func TestListingHostileNames(t *testing.T) {
	names := []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "a/b", "a%2Fb", "a%252Fb", "..", ".", "\u202egnp.exe", "javascript:alert(1)",
		"{{.Key}}", "a&b=c", "?#", "\x1b[31mred", " ", "\x00", "\x00\x01", "𝔘", strings.Repeat("w", store.MaxKeyPartBytes), "+", "'';--",
	}
	e := listingOf(t, &memory.Backend{}, Options{})
	var want []string
	for n, name := range names {
		key := store.Key{App: name, User: names[(n+3)%len(names)], Session: names[(n+7)%len(names)]}
		e.create(key)
		want = append(want, key.String())
	}
	page := e.get("", http.StatusOK)
	got, _ := e.rowsOf(page)
	slices.Sort(got)
	slices.Sort(want)
	e.same("sessions", got, want)
	for _, bad := range []string{"<script>alert", "<img", "\u202e", "\x1b", "\x00", `href="javascript`, strings.Repeat("w", 200) + "<"} {
		e.hasNot(page[strings.Index(page, "<table"):], bad)
	}
	e.hasNot(page, "<script>alert")
	// The links to an app and a user lead to its sessions alone.
	followed := 0
	for _, row := range listingRow.FindAllString(page, -1) {
		link := listingLink.FindStringSubmatch(row)
		u, _ := url.Parse(html.UnescapeString(link[1]))
		for _, m := range listingHref.FindAllStringSubmatch(row, -1) {
			keys, _ := e.rowsOf(e.get(html.UnescapeString(m[1]), http.StatusOK))
			e.same("what "+m[1]+" leads to", keys, []string{u.Query().Get("key")})
			followed++
		}
	}
	if followed != 2*len(names) {
		t.Errorf("%d links", followed)
	}
}

func TestListingEmpty(t *testing.T) {
	e := listingOf(t, &memory.Backend{}, Options{})
	for _, query := range []string{"", "?sort=-raw", "?page=7", "?q=x"} {
		page := e.get("./"+query, http.StatusOK)
		e.has(page, "There is no session yet")
		e.has(page, "patchlog import")
	}
}

// slow is a backend that does not answer, or not at once, for logs of some sessions, and that
// counts.
type slow struct {
	memory.Backend
	stuck   atomic.Pointer[string] // part of the names
	damaged atomic.Pointer[string] // part of the names
	reads   atomic.Int64
	from    atomic.Uint64 // of the last read
	reading atomic.Int64
	readers atomic.Int64 // the most at a time
	lists   atomic.Int64
	listing atomic.Int64
	most    atomic.Int64
	pause   time.Duration
}

func (b *slow) Read(ctx context.Context, name, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	b.reads.Add(1)
	b.from.Store(seqs[0])
	b.readers.Store(max(b.readers.Load(), b.reading.Add(1)))
	defer b.reading.Add(-1)
	if b.pause > 0 {
		time.Sleep(time.Millisecond)
	}
	switch part := b.stuck.Load(); {
	case part != nil && strings.Contains(name, *part):
		<-ctx.Done()
		return nil, ctx.Err()
	case b.damaged.Load() != nil && strings.Contains(name, *b.damaged.Load()):
		return nil, backend.ErrDamaged
	}
	return b.Backend.Read(ctx, name, creation, seqs, maxBytes)
}

func (b *slow) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	b.lists.Add(1)
	b.most.Store(max(b.most.Load(), b.listing.Add(1)))
	defer b.listing.Add(-1)
	time.Sleep(b.pause)
	return b.Backend.List(ctx, prefix, after, limit)
}

// A session that takes long to read keeps neither the page nor the others' figures.
func TestListingBoundsMeasuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{}
		e := listingOf(t, b, Options{})
		for n := range 20 {
			e.add(sessionOf(n), says("a", "user", "hello"))
		}
		stuck := "s0007"
		b.stuck.Store(&stuck)
		began := time.Now()
		address := "./"
		for _, want := range []struct {
			wait time.Duration
			next string
		}{{firstWait, "2"}, {2 * time.Second, "4"}, {4 * time.Second, "8"}, {8 * time.Second, "16"}, {16 * time.Second, ""}} {
			page := e.get(address, http.StatusOK)
			if took := time.Since(began); took != want.wait/waitPart {
				t.Fatalf("%s took %v", address, took)
			}
			keys, cells := e.rowsOf(page)
			for n, key := range keys {
				switch known := cells[n][3] == "1"; {
				case known == strings.Contains(key, stuck):
					t.Errorf("%s: %s has figures %q", address, key, cells[n])
				case !known && (cells[n][3] == "…") != (want.next != ""):
					t.Errorf("%s: what is not measured is %q", address, cells[n][3])
				}
			}
			began = time.Now()
			address = "./?wait=" + want.next
			if want.next == "" {
				e.hasNot(page, "hx-trigger")
				e.has(page, "takes too long for a list")
				break
			}
			e.has(page, "Figures of 1 session are not measured yet")
			e.has(page, `hx-get="`+address+`" hx-trigger="load"`)
		}
		// Sorting by figures leaves it out, and says so.
		page := e.get("./?sort=-raw&wait=999", http.StatusOK)
		e.has(page, "Figures of 19 of 20 sessions are known; this sorts those. Measuring the others takes too long for a list.")
		keys, _ := e.rowsOf(page)
		if len(keys) != 20 || !strings.HasSuffix(keys[19], stuck) {
			t.Errorf("the last one of %d is %s", len(keys), keys[len(keys)-1])
		}
		if took := time.Since(began); took != 16*time.Second/waitPart {
			t.Errorf("it took %v", took)
		}
		b.stuck.Store(nil)
		e.hasNot(e.get("./?sort=-raw", http.StatusOK), "sorts those")
	})
}

// A request whose sender leaves ends.
func TestListingEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{}
		e := listingOf(t, b, Options{})
		e.add(sessionOf(1), says("a", "user", "hello"))
		stuck := "s0001"
		b.stuck.Store(&stuck)
		ctx, leave := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(time.Millisecond, leave)
		e.inspector.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/?wait=16", nil))
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// The list is read by one at a time, and not again while it is new; figures of sessions that have
// not changed are not read again.
func TestListingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{}
		e := listingOf(t, b, Options{})
		for n := range 10 {
			e.add(sessionOf(n), says("a", "user", "hello"))
		}
		b.pause = 100 * time.Millisecond
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { e.get("./?sort=-raw", http.StatusOK) })
		}
		all.Wait()
		reads := b.reads.Load()
		if b.lists.Load() != 1 || reads != 10 || b.readers.Load() != 1 {
			t.Errorf("8 requests listed %d times and read %d logs, %d at once", b.lists.Load(), reads, b.readers.Load())
		}
		// Twenty times as long as reading took.
		time.Sleep(1900 * time.Millisecond)
		e.get("", http.StatusOK)
		if b.lists.Load() != 1 {
			t.Errorf("listed %d times within two seconds", b.lists.Load())
		}
		time.Sleep(200 * time.Millisecond)
		for range 8 {
			all.Go(func() { e.get("", http.StatusOK) })
		}
		all.Wait()
		if b.lists.Load() != 2 || b.most.Load() != 1 || b.reads.Load() != reads {
			t.Errorf("listed %d times, %d at once, and read %d logs anew", b.lists.Load(), b.most.Load(), b.reads.Load()-reads)
		}
		// A list that is read at once is shown for a second.
		b.pause = 0
		time.Sleep(3 * time.Second)
		e.get("", http.StatusOK)
		time.Sleep(900 * time.Millisecond)
		e.get("", http.StatusOK)
		if b.lists.Load() != 3 {
			t.Errorf("listed %d times, want 3", b.lists.Load())
		}
		if err := e.store.Delete(t.Context(), sessionOf(3)); err != nil {
			t.Fatal(err)
		}
		e.has(e.get("", http.StatusOK), "1 to 10 of 10<")
		time.Sleep(200 * time.Millisecond)
		e.has(e.get("", http.StatusOK), "1 to 9 of 9<")
	})
}

// A session that went, or was created again, since the list was read, says so.
func TestListingOfWhatIsGone(t *testing.T) {
	e := listingOf(t, &memory.Backend{}, Options{})
	for n := range 3 {
		e.add(sessionOf(n), says("a", "user", "hello"))
	}
	e.inspector.listing.list = nil
	list, err := e.inspector.sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list.until = time.Now().Add(time.Hour)
	for n := range 2 {
		if err := e.store.Delete(t.Context(), sessionOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	e.lines[sessionOf(1)] = nil
	e.add(sessionOf(1), says("b", "user", strings.Repeat("more ", 40)))
	e.inspector.listing.list = list
	_, cells := e.rowsOf(e.get("", http.StatusOK))
	for n, want := range []string{"deleted since this list was read", "deleted since this list was read", "none"} {
		e.same("session", cells[n][8], want)
	}
	// The figures of one that was are not those of the one of its name.
	before := e.statsOf(sessionOf(1))
	e.inspector.listing.list = nil
	_, cells = e.rowsOf(e.get("", http.StatusOK))
	e.same("created again", cells[0], before)
	if err := e.store.Delete(t.Context(), sessionOf(1)); err != nil {
		t.Fatal(err)
	}
	e.lines[sessionOf(1)] = nil
	e.add(sessionOf(1), says("c", "user", "less"))
	_, cells = e.rowsOf(e.get("", http.StatusOK))
	e.same("and again", cells[0], e.statsOf(sessionOf(1)))
}

// Of a session that has grown by events, these are read; one that could not be read is tried
// again when it is shown.
func TestListingReadsWhatIsNew(t *testing.T) {
	b := &slow{}
	e := listingOf(t, b, Options{})
	key := sessionOf(1)
	e.add(key, says("a", "user", "hello"), passLine("p", 0, 1, 1))
	e.get("", http.StatusOK)
	reads := b.reads.Load()
	e.add(key, says("b", "agent", "hi"))
	reads += b.reads.Load() - reads // those of the import
	e.get("", http.StatusOK)
	if b.reads.Load() != reads+1 || b.from.Load() != 3 {
		t.Errorf("%d reads, the last from record %d", b.reads.Load()-reads, b.from.Load())
	}
	e.add(key, says("c", "agent", "hi"))
	damaged := key.Session
	b.damaged.Store(&damaged)
	for _, query := range []string{"", "?sort=-raw", "?sort=-problems"} {
		_, cells := e.rowsOf(e.get("./"+query, http.StatusOK))
		if !strings.HasPrefix(cells[0][8], "record 4: corrupt") || cells[0][4] != "–" {
			t.Errorf("%s: damaged: %q", query, cells[0])
		}
	}
	b.damaged.Store(nil)
	_, cells := e.rowsOf(e.get("", http.StatusOK))
	cells[0][6] = strings.TrimPrefix(cells[0][6], outcomeApplied+" ")
	e.same("mended", cells[0], e.statsOf(key))
}

// A failure that is not the session's own is the page's.
func TestListingFailure(t *testing.T) {
	e := listingOf(t, &slow{}, Options{})
	e.add(sessionOf(1), says("a", "user", "hello"))
	e.get("", http.StatusOK)
	if err := e.store.Close(); err != nil {
		t.Fatal(err)
	}
	e.inspector.listing.figures = map[store.Key]*measured{}
	e.get("", http.StatusServiceUnavailable)
}

// What is kept is bounded, and so is what sorting by figures reads.
func TestListingCacheIsBounded(t *testing.T) {
	for _, limit := range []int64{-1, 8 << 10} {
		b := &slow{}
		e := listingOf(t, b, Options{CacheBytes: limit})
		for n := range 60 {
			e.add(sessionOf(n), says("a", "user", "hello"))
		}
		l := &e.inspector.listing
		for range 3 {
			e.inspector.listing.list = nil
			_, cells := e.rowsOf(e.get("./?wait=16", http.StatusOK))
			for _, c := range cells {
				if c[3] != "1" {
					t.Fatalf("limit %d: figures %q", limit, c)
				}
			}
			size := int64(0)
			for key, m := range l.figures {
				size += m.footprint(key)
			}
			if size != l.bytes || size > max(limit, 0) {
				t.Fatalf("limit %d: %d sessions' figures take %d bytes; %d are counted", limit, len(l.figures), size, l.bytes)
			}
		}
		// What was shown last is kept, at the cost of others.
		for n := range 60 {
			e.get("./?q="+sessionOf(n).Session, http.StatusOK)
			if l.known(&listed{Info: infoOf(e, sessionOf(n))}) == nil != (limit < 0) {
				t.Fatalf("limit %d: are the figures kept that were shown last? %v", limit, limit < 0)
			}
		}
		lists := b.lists.Load()
		e.get("", http.StatusOK)
		if got := b.lists.Load() - lists; (got > 0) != (limit < 0) {
			t.Errorf("limit %d: %d lists", limit, got)
		}
		reads := b.reads.Load()
		page := e.get("./?sort=raw&wait=16", http.StatusOK)
		if known := len(l.figures); known < 60 {
			e.has(page, fmt.Sprintf("Figures of %d of 60 sessions are known", known))
			e.has(page, "There is no room to keep more")
		}
		if b.reads.Load() != reads {
			t.Errorf("limit %d: sorting read %d logs of which it could not keep anything", limit, b.reads.Load()-reads)
		}
		// Figures of what is deleted make room.
		for n := range 50 {
			if err := e.store.Delete(t.Context(), sessionOf(n)); err != nil {
				t.Fatal(err)
			}
		}
		l.list = nil
		e.get("./?sort=raw&wait=16", http.StatusOK)
		if len(l.figures) > 10 {
			t.Errorf("limit %d: %d figures of 10 sessions", limit, len(l.figures))
		}
	}
}

// 100 rows are a page of a moderate size.
func TestListingWeighs(t *testing.T) {
	e := listingOf(t, &memory.Backend{}, Options{})
	for n := range 150 {
		key := sessionOf(n)
		key.Session += strings.Repeat("<", 500)
		e.add(key, says("a", "user", "hello"), passLine("p", 0, 1, 1))
	}
	if page := e.get("", http.StatusOK); len(page) > 1<<20 {
		t.Errorf("it has %d bytes", len(page))
	}
}
