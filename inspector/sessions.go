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
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// listing is what the page of all sessions is asked for.
type listing struct {
	Words string // all of them must be in the key; "" means all
	Sort  string // a column; "-" before it turns the order round
	Page  int    // from 1 on
}

// listed is a session in the list.
type listed struct {
	store.Info
	Problem string // what is wrong, if it is damaged: then the key alone is known, or not even that
}

// Named reports whether the session's key is known.
func (s listed) Named() bool { return s.Key != (store.Key{}) }

// Used returns when the session was active last.
func (s listed) Used() time.Time { return present.LastActivity(s.Info) }

// Share returns which part of the tokens is visible.
func (s listed) Share() string {
	return present.Sizes{Raw: s.Tokens, Visible: s.VisibleTokens}.Share()
}

// column is a column of the list, by which it can be sorted.
type column struct {
	name, title string
	number      bool
	compare     func(a, b listed) int
}

// columns are those of the list, in order.
var columns = []column{
	{"key", "Session", false, func(a, b listed) int { return cmp.Compare(a.Key.String(), b.Key.String()) }},
	{"active", "Last activity", false, func(a, b listed) int { return a.Used().Compare(b.Used()) }},
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
	Rows       []listed
	Pages      []link // to other pages; without an address if there is none
}

type heading struct {
	Title  string
	Number bool
	Order  string // "ascending", "descending" or "none"
	URL    template.URL
}

// So long is a search.
const longestSearch = 2000

func parseListing(r *http.Request) (q listing, err error) {
	q = listing{Words: strings.TrimSpace(r.FormValue("q")), Sort: cmp.Or(r.FormValue("sort"), newestFirst)}
	page, _, err := number(r, "page")
	q.Page = int(min(max(page, 1), 1<<30))
	switch {
	case err != nil:
		return q, err
	case len(q.Words) > longestSearch:
		return q, badRequest("q", "it has %d bytes; at most %d are searched for", len(q.Words), longestSearch)
	case q.column() < 0:
		return q, badRequest("sort", "there is no column %q", present.PrintableUpTo(q.Sort, 40))
	}
	return q, nil
}

// column returns the index of the column that the list is sorted by; -1 if there is no such column.
func (q listing) column() int {
	return slices.IndexFunc(columns, func(c column) bool { return c.name == strings.TrimPrefix(q.Sort, "-") })
}

func (q listing) url() template.URL {
	pairs := []any{"q", q.Words}
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
	b.Rows = found[first:min(first+pageRows, len(found))]
	b.From, b.To = first+1, first+len(b.Rows)
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
	return i.render(w, r, http.StatusOK, "sessions", page{Title: "Sessions", Body: b})
}

// listed returns the sessions that are asked for, of those that may be seen, of which it counts all.
func (i *Inspector) listed(ctx context.Context, r *http.Request, q listing, all *int) (found []listed, err error) {
	words := strings.Fields(strings.ToLower(q.Words))
	for info, err := range i.store.List(ctx, store.ListOptions{}) {
		s := listed{Info: info}
		switch {
		case errors.Is(err, store.ErrCorrupt): // the others are still worth a listing
			s.Problem = problemText(info.Key, err)
		case err != nil:
			return nil, err
		}
		if !s.Named() && i.opts.Authorize != nil || !i.may(r, s.Key, Read) {
			continue // without its name, a session cannot be authorized
		}
		*all++
		// As it is, or as it is written.
		text := strings.ToLower(s.Key.App + "/" + s.Key.User + "/" + s.Key.Session + "\n" + s.Key.String())
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
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

// Bounds of a search.
const (
	searchHits     = 50    // are shown
	searchSessions = 1_000 // are searched at a time
)

// searchBody is the page of a search. It has the query as typed.
type searchBody struct {
	Key, Query, Author, Tool string // Key is "" where all sessions are searched
	Hidden, Summaries, All   bool

	Searched bool   // a search was made, or tried
	Problem  string // why there is nothing to show
	Found    string
	Damaged  string // what could not be searched
	Hits     []searchHit
	Erasing  []eraseForm
}

// eraseForm is a form that erases hits of a session. Forms are numbered from 1.
type eraseForm struct {
	Key, Creation string
	At            uint64
}

// Filtered says that the form has more than a query.
func (b searchBody) Filtered() bool { return b.Author+b.Tool != "" || b.Hidden || b.Summaries || b.All }

// searchHit is an event that was found.
type searchHit struct {
	recall.Hit[store.Key]
	Other bool // it is of another session than the page
	Form  int  // the number of the form that erases it; 0 if it may not be erased
}

// Kind returns what kind of entry the event is.
func (h searchHit) Kind() present.Kind {
	return present.KindOf(fold.Entry{Event: h.Event, Summary: h.Summary})
}

// Said returns the snippet in pieces.
func (h searchHit) Said() []present.Piece { return present.Pieces(h.Snippet.Text, h.Snippet.Marks) }

func (i *Inspector) searchPage(w http.ResponseWriter, r *http.Request) error {
	b := searchBody{
		Query: r.FormValue("q"), Author: r.FormValue("author"), Tool: r.FormValue("tool"),
		Hidden: r.FormValue("hidden") != "", Summaries: r.FormValue("summaries") != "", All: r.FormValue("all") != "",
	}
	ctx, done := withTimeout(r)
	defer done()
	p, info := page{Title: "Search in all sessions"}, store.Info{}
	if r.FormValue("key") != "" {
		key, err := i.key(r, Read)
		if err != nil {
			return err
		}
		if info, err = i.store.Info(ctx, key); err != nil {
			return err
		}
		b.Key, p.Key, p.Title = key.String(), &key, "Search in "+key.String()
	}
	status := http.StatusOK
	if b.Searched = b.Query != "" || b.Filtered(); b.Searched {
		if err := i.search(ctx, r, info, &b); err != nil {
			if status = statusOf(err); status >= http.StatusInternalServerError {
				return err
			}
			b.Problem = err.Error()
			if wrong := (*patch.FieldError)(nil); errors.As(err, &wrong) {
				b.Problem = wrong.Field + ": " + wrong.Problem
			}
			for _, text := range []*string{&b.Query, &b.Author, &b.Tool} { // to what a form can hold
				*text = (*text)[:min(len(*text), recall.MaxQueryBytes)]
			}
		}
	}
	p.Body = b
	return i.render(w, r, status, "search", p)
}

// search searches a session, or all sessions that the request may read if the session is zero or b.All is set.
func (i *Inspector) search(ctx context.Context, r *http.Request, session store.Info, b *searchBody) error {
	search := recall.Search{Query: b.Query, Hidden: b.Hidden, Limit: searchHits}
	search.Author, search.Tool, search.Summaries = b.Author, b.Tool, b.Summaries
	switch {
	case max(len(b.Query), len(b.Author), len(b.Tool)) > recall.MaxQueryBytes:
		return badRequest("search", "a field has more than %d bytes", recall.MaxQueryBytes)
	case recall.Parse(search.Query).IsZero() || strings.TrimSpace(search.Query) == "":
		return badRequest("search for", "a word is missing")
	}
	if err := search.Validate(); err != nil {
		return err
	}
	sessions, damaged := []store.Info{}, 0
	if b.Key != "" && !b.All {
		sessions = append(sessions, session)
	} else {
		for info, err := range i.store.List(ctx, store.ListOptions{}) {
			switch {
			case err != nil && !errors.Is(err, store.ErrCorrupt):
				return err
			case info.Key == (store.Key{}) || !i.may(r, info.Key, Read):
			case err != nil:
				damaged++
			default:
				sessions = append(sessions, info)
			}
			if len(sessions) > searchSessions {
				return badRequest("all", "there are more than %d sessions, too many for a page; 'patchlog search --all' searches those of a user", searchSessions)
			}
		}
	}
	var hits []recall.Hit[store.Key]
	for _, of := range sessions {
		found, err := i.finder.Search(ctx, of.Key, search)
		switch {
		case errors.Is(err, store.ErrCorrupt) && len(sessions) > 1:
			damaged++
		case errors.Is(err, store.ErrNotFound) && len(sessions) > 1: // it was deleted meanwhile
		case err != nil:
			return err
		}
		hits = append(hits, found...)
	}
	slices.SortStableFunc(hits, func(a, b recall.Hit[store.Key]) int { return cmp.Compare(b.Score, a.Score) })
	hits = hits[:min(len(hits), searchHits)]
	if damaged > 0 {
		b.Damaged = present.Counted(damaged, "damaged session") + " could not be searched; 'patchlog verify' says more"
	}
	b.Found = present.Counted(len(hits), "event") + " found"
	if len(hits) == searchHits {
		b.Found = "the best " + present.Counted(len(hits), "event")
	}
	for _, h := range hits {
		hit := searchHit{Hit: h, Other: h.Key != session.Key}
		if i.may(r, h.Key, Erase) {
			hit.Form = b.eraseForm(h.Key, sessions)
		}
		b.Hits = append(b.Hits, hit)
	}
	return nil
}

// eraseForm returns the number of a session's form, and adds the form if it is missing.
func (b *searchBody) eraseForm(key store.Key, sessions []store.Info) int {
	n := slices.IndexFunc(b.Erasing, func(f eraseForm) bool { return f.Key == key.String() })
	if n < 0 {
		of := sessions[slices.IndexFunc(sessions, func(info store.Info) bool { return info.Key == key })]
		n = len(b.Erasing)
		b.Erasing = append(b.Erasing, eraseForm{key.String(), of.Creation, of.Seq})
	}
	return n + 1
}
