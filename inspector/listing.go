package inspector

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

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
		Events: m.events, Skipped: m.skipped, Raw: present.Grouped(m.tokens.Raw), Visible: present.Grouped(m.tokens.Visible), Share: m.tokens.Share(),
	}
	if p := m.pass; p != nil {
		row.Figures.Pass = &passCells{
			When: when(p.time), Trigger: p.trigger, Did: p.did, Outcome: p.outcome, Seq: p.seq, Applied: p.outcome == outcomeApplied,
		}
	}
	return row
}
