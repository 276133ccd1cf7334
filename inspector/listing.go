package inspector

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/inspector/figures"
	"github.com/patchlog-dev/patchlog/store"
)

// listingQuery is what the page of all sessions is asked for.
type listingQuery struct {
	Words string // all of which a key must have
	App   string // "" means all
	User  string
	Sort  string // a column's name; "-" before it turns the order round
	Page  uint64 // from 1 on
	Wait  uint64 // seconds that reading logs for figures may take; 0 means [firstWait]
}

// Reading logs may take so long for a page that is opened, and at most so long for one that goes
// on with it. No session may take more than a part of that, so that it does not keep others out.
const (
	firstWait   = 600 * time.Millisecond
	longestWait = 16 // seconds
	waitPart    = 4
)

// So long a search may be, in bytes.
const longestSearch = 2000

func listingQueryOf(r *http.Request) (q listingQuery, err error) {
	q = listingQuery{Words: strings.TrimSpace(r.FormValue("q")), App: r.FormValue("app"), User: r.FormValue("user"), Sort: r.FormValue("sort")}
	switch {
	case len(q.Words) > longestSearch:
		return q, badRequest("q", "it has %d bytes; at most %d are searched for", len(q.Words), longestSearch)
	case max(len(q.App), len(q.User)) > store.MaxKeyPartBytes:
		return q, badRequest("app, user", "no part of a session's key has more than %d bytes", store.MaxKeyPartBytes)
	}
	if q.Sort == "" {
		q.Sort = columns[0].name
	}
	if _, ok := q.column(); !ok {
		return q, badRequest("sort", "there is no column %q", figures.PrintableUpTo(q.Sort, 40))
	}
	if q.Page, _, err = number(r, "page"); err != nil {
		return q, err
	}
	q.Page = max(q.Page, 1)
	q.Wait, _, err = number(r, "wait")
	q.Wait = min(q.Wait, longestWait)
	return q, err
}

func (q listingQuery) descending() bool { return strings.HasPrefix(q.Sort, "-") }

func (q listingQuery) column() (column, bool) {
	name := strings.TrimPrefix(q.Sort, "-")
	n := slices.IndexFunc(columns, func(c column) bool { return c.name == name })
	if n < 0 {
		return column{}, false
	}
	return columns[n], true
}

func (q listingQuery) wait() time.Duration {
	if q.Wait == 0 {
		return firstWait
	}
	return time.Duration(q.Wait) * time.Second
}

// url is the address of the page that is asked for.
func (q listingQuery) url() template.URL {
	if q.Sort == columns[0].name {
		q.Sort = ""
	}
	pairs := []any{"q", q.Words, "app", q.App, "user", q.User, "sort", q.Sort}
	if q.Page > 1 {
		pairs = append(pairs, "page", q.Page)
	}
	if q.Wait > 0 {
		pairs = append(pairs, "wait", q.Wait)
	}
	url, _ := query("./", pairs...) // of pairs
	return url
}

func (q listingQuery) to(page int) template.URL {
	q.Page, q.Wait = uint64(page), 0
	return q.url()
}

// further is the address of the same page after more reading.
func (q listingQuery) further() template.URL {
	q.Wait = min(max(2*q.Wait, 2), longestWait)
	return q.url()
}

// candidate is a session that a page may show, with its figures as far as they are known.
type candidate struct {
	*listed
	*measured
}

// sound reports whether the figures of a session are known.
func (c candidate) sound() bool {
	return c.listed.problem == "" && c.measured != nil && c.measured.problem == ""
}

// wrong says what is wrong with a session, as far as it is known.
func (c candidate) wrong() string {
	if c.listed.problem == "" && c.measured != nil {
		return c.measured.problem
	}
	return c.listed.problem
}

// settled reports whether reading the log would tell nothing new.
func (c candidate) settled() bool { return c.listed.problem != "" || c.measured != nil }

func settledOf(sessions []candidate) int {
	n := 0
	for _, s := range sessions {
		if s.settled() {
			n++
		}
	}
	return n
}

// column is one that the list can be sorted by.
type column struct {
	name, title, hint string
	number            bool
	falls             bool // the largest come first, unless asked for otherwise
	measured          bool // it needs figures
	compare           func(a, b candidate) int
}

// columns are those of the page, in order. The first is the order of the list.
var columns = []column{
	{name: "key", title: "Session", compare: func(a, b candidate) int { return 0 }},
	{name: "created", title: "Created", falls: true, compare: func(a, b candidate) int { return a.Created.Compare(b.Created) }},
	{name: "records", title: "Records", number: true, falls: true, compare: func(a, b candidate) int { return cmp.Compare(a.Seq, b.Seq) }},
	{name: "events", title: "Visible events", number: true, falls: true, measured: true, compare: by(func(m *measured) int64 { return int64(m.events) })},
	{name: "raw", title: "Tokens logged", hint: "about; of all events ever logged", number: true, falls: true, measured: true, compare: by(func(m *measured) int64 { return int64(m.tokens.Raw) })},
	{name: "visible", title: "Tokens visible", hint: "about; of what a model sees", number: true, falls: true, measured: true, compare: by(func(m *measured) int64 { return int64(m.tokens.Visible) })},
	{name: "compaction", title: "Last compaction", falls: true, measured: true, compare: func(a, b candidate) int { return passTime(a.measured).Compare(passTime(b.measured)) }},
	{name: "skipped", title: "Skipped patches", number: true, falls: true, measured: true, compare: by(func(m *measured) int64 { return int64(m.skipped) })},
	{name: "problems", title: "Problems", falls: true, measured: true, compare: func(a, b candidate) int { return cmp.Compare(a.wrong(), b.wrong()) }},
}

func by(figure func(*measured) int64) func(a, b candidate) int {
	return func(a, b candidate) int { return cmp.Compare(figure(a.measured), figure(b.measured)) }
}

// passTime is when the last compaction was; the zero time if there was none.
func passTime(m *measured) time.Time {
	if m.pass == nil {
		return time.Time{}
	}
	return m.pass.time
}

// sorted reports whether the column can say where a session belongs.
func (c column) sorted(s candidate) bool {
	switch {
	case c.name == "problems":
		return s.settled()
	case c.measured:
		return s.sound()
	case c.name == "key":
		return true
	}
	return s.listed.problem == ""
}

// sort puts sessions in the order of a column. Those of which it says nothing come last. Of
// equals, the order stays.
func (c column) sort(sessions []candidate, descending bool) {
	slices.SortStableFunc(sessions, func(a, b candidate) int {
		switch x, y := c.sorted(a), c.sorted(b); {
		case !x || !y:
			return cmp.Compare(rank(y), rank(x))
		case descending:
			return c.compare(b, a)
		}
		return c.compare(a, b)
	})
}

func rank(known bool) int {
	if known {
		return 1
	}
	return 0
}

// sessionsBody is the page of all sessions.
type sessionsBody struct {
	Query   listingQuery
	Filters bool     // not all sessions are asked for
	Apps    []string // to choose from; nil if they are too many
	All     int      // sessions that may be seen
	Found   int
	From    int // the first row's number, from 1 on; 0 if there are no rows
	To      int
	Read    string // when the list was read

	Columns []heading
	Rows    []sessionRow
	Pages   []link // to other pages; without an address if there is none

	Unknown int          // rows without figures, which reading on would show
	Further template.URL // reads on; "" if nothing is left that can be read

	ByFigures bool // it is sorted by figures
	Known     int  // of so many sessions, where it is
	Full      bool // figures of more are not kept
}

// heading is a column's.
type heading struct {
	Title, Hint string
	Order       string // "ascending", "descending" or "none"
	Number      bool
	URL         template.URL
}

// sessionRow is a session.
type sessionRow struct {
	Place   int // in the page
	Key     string
	App     string
	User    string
	Session string
	AppURL  template.URL // the list of its sessions
	UserURL template.URL
	Created string
	Records uint64
	Listed  bool // created and records are known
	Wrong   string
	Figures *figureCells // nil if they are not known
	Waits   bool         // they may come to be
}

// figureCells are a session's figures, as the page has them.
type figureCells struct {
	Events, Skipped int
	Raw, Visible    string
	Share           string
	Pass            *passCells
}

type passCells struct {
	When, Trigger, Did, Outcome string
	Seq                         uint64
	Applied                     bool
}

// So many apps can be chosen from; among more, one is typed.
const mostApps = 100

func (i *Inspector) sessionsPage(w http.ResponseWriter, r *http.Request) error {
	q, err := listingQueryOf(r)
	if err != nil {
		return err
	}
	ctx, done := within(r)
	defer done()
	list, err := i.sessions(ctx)
	if err != nil {
		return err
	}
	b := sessionsBody{Query: q, Filters: q.Words != "" || q.App != "" || q.User != "", Read: when(list.read)}
	found := i.choose(r, list, q, &b)
	b.Found = len(found)
	if err := i.order(ctx, found, q, &b); err != nil {
		return err
	}
	pages := max((len(found)+pageRows-1)/pageRows, 1)
	q.Page = min(q.Page, uint64(pages))
	b.Query = q
	first := (int(q.Page) - 1) * pageRows
	shown := found[first:min(first+pageRows, len(found))]
	if len(shown) > 0 {
		b.From, b.To = first+1, first+len(shown)
	}
	if !b.ByFigures {
		if err := i.measureShown(ctx, shown, q, &b); err != nil {
			return err
		}
	}
	b.Columns, b.Pages = headings(q), pageLinks(q, pages)
	for n, c := range shown {
		b.Rows = append(b.Rows, rowOf(n, c, b.Further != ""))
	}
	return i.render(w, r, http.StatusOK, "sessions", page{Title: "Sessions", Body: b})
}

// choose returns the sessions that are asked for, of those that may be seen.
func (i *Inspector) choose(r *http.Request, list *sessionList, q listingQuery, b *sessionsBody) []candidate {
	words := strings.Fields(strings.ToLower(q.Words))
	slices.Sort(words)
	words = slices.Compact(words)
	found := make([]candidate, 0, len(list.sessions))
	app := ""
	for n := range list.sessions {
		s := &list.sessions[n]
		if s.Key == (store.Key{}) && i.opts.Authorize != nil || !i.may(r, s.Key, Read) {
			continue // of a session without a name nobody can say who may see it
		}
		b.All++
		if s.Key.App != app {
			app = s.Key.App
			b.Apps = append(b.Apps, app)
		}
		if (q.App == "" || s.Key.App == q.App) && (q.User == "" || s.Key.User == q.User) && hasWords(s.Key, words) {
			found = append(found, candidate{listed: s})
		}
	}
	if q.App != "" && !slices.Contains(b.Apps, q.App) {
		b.Apps = append(b.Apps, q.App)
	}
	if len(b.Apps) > mostApps {
		b.Apps = nil
	}
	return found
}

// hasWords reports whether a key has all of the words, which are in lower case, as it is or as it
// is written.
func hasWords(key store.Key, words []string) bool {
	if len(words) == 0 {
		return true
	}
	plain, written := strings.ToLower(key.App+"/"+key.User+"/"+key.Session), ""
	for _, word := range words {
		if strings.Contains(plain, word) {
			continue
		}
		if written == "" {
			written = strings.ToLower(key.String())
		}
		if !strings.Contains(written, word) {
			return false
		}
	}
	return true
}

// order sorts the sessions. For a column of figures it reads logs first, as many as it has time
// for: those come first whose figures are likely to.
func (i *Inspector) order(ctx context.Context, found []candidate, q listingQuery, b *sessionsBody) error {
	c, _ := q.column()
	if c.measured {
		b.ByFigures = true
		for n := range found {
			found[n].measured = i.listing.known(found[n].listed)
		}
		before := settledOf(found)
		if err := i.measureSome(ctx, found, q, q.descending(), true); err != nil {
			return err
		}
		b.Known = settledOf(found)
		b.Unknown = b.Found - b.Known
		b.Full = b.Unknown > 0 && i.listing.full()
		if b.Unknown > 0 && !b.Full && (b.Known > before || q.Wait < longestWait) {
			b.Further = q.further()
		}
	}
	if c.name == columns[0].name {
		if q.descending() {
			slices.Reverse(found)
		}
		return nil
	}
	c.sort(found, q.descending())
	return nil
}

// measureShown reads the logs of the sessions that a page shows.
func (i *Inspector) measureShown(ctx context.Context, shown []candidate, q listingQuery, b *sessionsBody) error {
	for n := range shown {
		if m := i.listing.known(shown[n].listed); m != nil && m.problem == "" {
			shown[n].measured = m // one that was damaged is looked at again
		}
	}
	if err := i.measureSome(ctx, shown, q, false, false); err != nil {
		return err
	}
	b.Unknown = len(shown) - settledOf(shown)
	if b.Unknown > 0 && q.Wait < longestWait {
		b.Further = q.further()
	}
	return nil
}

// measureSome reads logs of sessions whose figures are not known, while there is time, and, where
// kept says so, room to keep what it finds: the longest first or the shortest.
func (i *Inspector) measureSome(ctx context.Context, sessions []candidate, q listingQuery, longest, kept bool) error {
	bounded, done := context.WithTimeout(ctx, q.wait())
	defer done()
	var unknown []*candidate
	for n := range sessions {
		if !sessions[n].settled() {
			unknown = append(unknown, &sessions[n])
		}
	}
	slices.SortStableFunc(unknown, func(a, b *candidate) int {
		if longest {
			a, b = b, a
		}
		return cmp.Compare(a.Seq, b.Seq)
	})
	for _, s := range unknown {
		if bounded.Err() != nil || kept && i.listing.full() {
			break
		}
		one, end := context.WithTimeout(bounded, q.wait()/waitPart)
		m, err := i.figuresOf(one, s.listed)
		late := one.Err() != nil && errors.Is(err, one.Err())
		end()
		switch {
		case err == nil:
			s.measured = m
		case !late:
			return err
		}
	}
	return nil
}

func headings(q listingQuery) []heading {
	out := make([]heading, len(columns))
	for n, c := range columns {
		h := heading{Title: c.title, Hint: c.hint, Order: "none", Number: c.number}
		to := q
		to.Sort = c.name
		if c.falls {
			to.Sort = "-" + c.name
		}
		switch q.Sort {
		case c.name:
			h.Order, to.Sort = "ascending", "-"+c.name
		case "-" + c.name:
			h.Order, to.Sort = "descending", c.name
		}
		h.URL = to.to(1)
		out[n] = h
	}
	return out
}

// pageLinks lead to other pages of the list.
func pageLinks(q listingQuery, pages int) []link {
	if pages == 1 {
		return nil
	}
	at := int(q.Page)
	links := []link{{Text: "First"}, {Text: "Previous"}, {Text: "Next"}, {Text: "Last"}}
	if at > 1 {
		links[0].URL, links[1].URL = q.to(1), q.to(at-1)
	}
	if at < pages {
		links[2].URL, links[3].URL = q.to(at+1), q.to(pages)
	}
	return links
}

func rowOf(place int, c candidate, waits bool) sessionRow {
	key := c.Key
	row := sessionRow{
		Place: place, App: key.App, User: key.User, Session: key.Session, Listed: c.listed.problem == "", Wrong: c.wrong(),
		Created: when(c.Created), Records: c.Seq, Waits: waits && !c.settled(),
	}
	if key != (store.Key{}) {
		row.Key = key.String()
		row.AppURL, row.UserURL = listingQuery{App: key.App}.url(), listingQuery{App: key.App, User: key.User}.url()
	}
	if !c.sound() {
		return row
	}
	m := c.measured
	row.Figures = &figureCells{
		Events: m.events, Skipped: m.skipped, Raw: figures.Grouped(m.tokens.Raw), Visible: figures.Grouped(m.tokens.Visible), Share: m.tokens.Share(),
	}
	if p := m.pass; p != nil {
		row.Figures.Pass = &passCells{
			When: when(p.time), Trigger: p.trigger, Did: p.did, Outcome: p.outcome, Seq: p.seq, Applied: p.outcome == outcomeApplied,
		}
	}
	return row
}
