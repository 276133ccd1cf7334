package inspector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// listing is what the page of all sessions is asked for.
type listing struct {
	Words, App, User string // all of the words must be in the key; "" means all
	Sort             string // a column; "-" before it turns the order round
	Page             int    // from 1 on
}

// listed is a session in the list.
type listed struct {
	store.Info
	problem string // what is wrong, if it is damaged: then the key alone is known, or not even that
}

// columns are those of the list, in order.
var columns = []struct {
	name, title string
	number      bool
	compare     func(a, b listed) int
}{
	{"key", "Session", false, func(a, b listed) int { return cmp.Compare(a.Key.String(), b.Key.String()) }},
	{"active", "Last activity", false, func(a, b listed) int { return present.LastActivity(a.Info).Compare(present.LastActivity(b.Info)) }},
	{"created", "Created", false, func(a, b listed) int { return a.Created.Compare(b.Created) }},
	{"records", "Records", true, func(a, b listed) int { return cmp.Compare(a.Seq, b.Seq) }},
	{"events", "Visible events", true, func(a, b listed) int { return cmp.Compare(a.Visible, b.Visible) }},
	{"logged", "Tokens logged", true, func(a, b listed) int { return cmp.Compare(a.Tokens, b.Tokens) }},
	{"visible", "Tokens visible", true, func(a, b listed) int { return cmp.Compare(a.VisibleTokens, b.VisibleTokens) }},
	{"compacted", "Last compaction", false, func(a, b listed) int { return a.Compacted.Compare(b.Compacted) }},
}

// newestFirst is the order unless another is asked for.
const newestFirst = "-active"

// sessionsBody is the page of all sessions.
type sessionsBody struct {
	Query      listing
	All, Found int // sessions that may be seen, and those of them that match
	From, To   int // the rows, from 1 on
	Columns    []heading
	Rows       []sessionRow
	Pages      []link // to other pages; without an address if there is none
}

type heading struct {
	Title  string
	Number bool
	Order  string // "ascending", "descending" or "none"
	URL    template.URL
}

// sessionRow is a session.
type sessionRow struct {
	Key, App, User, Session  string
	AppURL, UserURL          template.URL // the list of its sessions
	Used, Created, Compacted string
	Records                  uint64
	Events                   int
	Logged, Seen             int // tokens
	Share                    string
	Problem                  string
}

// So long is a search.
const longestSearch = 2000

func parseListing(r *http.Request) (q listing, err error) {
	q = listing{Words: strings.TrimSpace(r.FormValue("q")), App: r.FormValue("app"), User: r.FormValue("user"), Sort: cmp.Or(r.FormValue("sort"), newestFirst)}
	page, _, err := number(r, "page")
	q.Page = int(min(max(page, 1), 1<<30))
	switch {
	case err != nil:
		return q, err
	case len(q.Words) > longestSearch:
		return q, badRequest("q", "it has %d bytes; at most %d are searched for", len(q.Words), longestSearch)
	case max(len(q.App), len(q.User)) > store.MaxKeyPartBytes:
		return q, badRequest("app, user", "no part of a session's key has more than %d bytes", store.MaxKeyPartBytes)
	case q.column() < 0:
		return q, badRequest("sort", "there is no column %q", present.PrintableUpTo(q.Sort, 40))
	}
	return q, nil
}

// column is the index of the column that the list is sorted by.
func (q listing) column() int {
	for n, c := range columns {
		if c.name == strings.TrimPrefix(q.Sort, "-") {
			return n
		}
	}
	return -1
}

func (q listing) url() template.URL {
	pairs := []any{"q", q.Words, "app", q.App, "user", q.User}
	if q.Sort != "" && q.Sort != newestFirst {
		pairs = append(pairs, "sort", q.Sort)
	}
	if q.Page > 1 {
		pairs = append(pairs, "page", q.Page)
	}
	url, _ := query("./", pairs...) // of pairs
	return url
}

func (i *Inspector) sessionsPage(w http.ResponseWriter, r *http.Request) error {
	q, err := parseListing(r)
	if err != nil {
		return err
	}
	ctx, done := withTimeout(r)
	defer done()
	b := sessionsBody{Query: q}
	found, err := i.listed(ctx, r, q, &b.All)
	if err != nil {
		return err
	}
	b.Found = len(found)
	slices.SortStableFunc(found, columns[q.column()].compare)
	if strings.HasPrefix(q.Sort, "-") {
		slices.Reverse(found)
	}
	pages := max((len(found)+pageRows-1)/pageRows, 1)
	q.Page = min(q.Page, pages)
	first := (q.Page - 1) * pageRows
	shown := found[first:min(first+pageRows, len(found))]
	b.From, b.To = first+1, first+len(shown)
	for n, c := range columns {
		h, to := heading{Title: c.title, Number: c.number, Order: "none"}, q
		to.Sort, to.Page = c.name, 1
		if n > 0 {
			to.Sort = "-" + c.name // the largest come first
		}
		switch q.Sort {
		case c.name:
			h.Order, to.Sort = "ascending", "-"+c.name
		case "-" + c.name:
			h.Order, to.Sort = "descending", c.name
		}
		h.URL = to.url()
		b.Columns = append(b.Columns, h)
	}
	for _, p := range []struct {
		text string
		page int
	}{{"First", 1}, {"Previous", q.Page - 1}, {"Next", q.Page + 1}, {"Last", pages}} {
		l, to := link{Text: p.text}, q
		if to.Page = p.page; p.page != q.Page && p.page >= 1 && p.page <= pages {
			l.URL = to.url()
		}
		if pages > 1 {
			b.Pages = append(b.Pages, l)
		}
	}
	for _, s := range shown {
		b.Rows = append(b.Rows, s.row())
	}
	return i.render(w, r, http.StatusOK, "sessions", page{Title: "Sessions", Body: b})
}

// listed returns the sessions that are asked for, of those that may be seen, of which it counts all.
func (i *Inspector) listed(ctx context.Context, r *http.Request, q listing, all *int) (found []listed, err error) {
	words := strings.Fields(strings.ToLower(q.Words))
	for info, err := range i.store.List(ctx, store.ListOptions{}) {
		s := listed{Info: info}
		switch {
		case errors.Is(err, store.ErrCorrupt): // the others are still worth a listing
			s.problem = problemText(info.Key, err)
		case err != nil:
			return nil, err
		}
		if s.Key == (store.Key{}) && i.opts.Authorize != nil || !i.may(r, s.Key, Read) {
			continue // without its name, a session cannot be authorized
		}
		*all++
		// As it is, or as it is written.
		text := strings.ToLower(s.Key.App + "/" + s.Key.User + "/" + s.Key.Session + "\n" + s.Key.String())
		if (q.App == "" || s.Key.App == q.App) && (q.User == "" || s.Key.User == q.User) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			found = append(found, s)
		}
	}
	return found, nil
}

// problemText says what is wrong with a session, beside its name.
func problemText(key store.Key, err error) string {
	text := err.Error()
	if corrupt := (*store.CorruptError)(nil); errors.As(err, &corrupt) {
		text = fmt.Sprintf("record %d: %v", corrupt.Seq, corrupt.Err)
	}
	return present.PrintableUpTo(strings.TrimPrefix(text, fmt.Sprintf("session %s: ", key)), 300)
}

func (s listed) row() sessionRow {
	key := s.Key
	row := sessionRow{
		App: key.App, User: key.User, Session: key.Session, Problem: s.problem, Used: when(present.LastActivity(s.Info)), Created: when(s.Created), Records: s.Seq,
		Events: s.Visible, Logged: s.Tokens, Seen: s.VisibleTokens, Share: present.Sizes{Raw: s.Tokens, Visible: s.VisibleTokens}.Share(),
	}
	if !s.Compacted.IsZero() {
		row.Compacted = when(s.Compacted)
	}
	if key != (store.Key{}) {
		row.Key, row.AppURL, row.UserURL = key.String(), listing{App: key.App}.url(), listing{App: key.App, User: key.User}.url()
	}
	return row
}
