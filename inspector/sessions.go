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

// listQuery is a request for the list of sessions.
type listQuery struct {
	Words string // search words, all of which a key must contain; "" lists all sessions
	Sort  string // name of a column; "-" before the name means descending order
	Page  int    // page number, from 1
}

type sessionRow struct {
	store.Info
	Problem string // describes damage, or ""; a damaged session has no counts, and perhaps no key
}

// HasKey reports whether the session's key could be read.
func (s sessionRow) HasKey() bool { return s.Key != (store.Key{}) }

// LastActivity returns the time of the session's last activity.
func (s sessionRow) LastActivity() time.Time { return present.LastActivity(s.Info) }

// VisiblePercent returns the percentage of tokens that are visible.
func (s sessionRow) VisiblePercent() float64 {
	return 100 * float64(s.VisibleTokens) / float64(max(s.Tokens, 1))
}

// column is a column that the list can be sorted by.
type column struct {
	name, title string
	compare     func(a, b sessionRow) int
}

var columns = []column{
	{"active", "last activity", func(a, b sessionRow) int { return a.LastActivity().Compare(b.LastActivity()) }},
	{"key", "name", func(a, b sessionRow) int { return cmp.Compare(a.Key.String(), b.Key.String()) }},
	{"logged", "tokens logged", func(a, b sessionRow) int { return cmp.Compare(a.Tokens, b.Tokens) }},
	{"visible", "tokens visible", func(a, b sessionRow) int { return cmp.Compare(a.VisibleTokens, b.VisibleTokens) }},
	{"records", "records", func(a, b sessionRow) int { return cmp.Compare(a.Seq, b.Seq) }},
	{"created", "created", func(a, b sessionRow) int { return a.Created.Compare(b.Created) }},
	{"compacted", "last compaction", func(a, b sessionRow) int { return a.Compacted.Compare(b.Compacted) }},
}

const newestFirst = "-active"

// sessionsBody is the page of all sessions. It lists the sessions whose keys match a search, then the events
// that match.
type sessionsBody struct {
	Query      listQuery
	All, Found int // number of readable sessions; number of matching sessions
	From, To   int // rows on this page, counted from 1
	Sorts      []sortLink
	Rows       []sessionRow
	Pages      []link // to other pages; the URL is "" if there is no such page
	Search     *searchBody
	Now        time.Time
}

// sortLink sorts the list by a column. If the list is sorted by it, the link reverses the order.
type sortLink struct {
	link
	Order string // "ascending", "descending" or ""
}

// maxSearchBytes is the maximum length of a search in bytes.
const maxSearchBytes = 2000

func parseListQuery(r *http.Request) (q listQuery, err error) {
	q = listQuery{Words: strings.TrimSpace(r.FormValue("q")), Sort: cmp.Or(r.FormValue("sort"), newestFirst)}
	page, _, err := formNumber(r, "page")
	q.Page = int(min(max(page, 1), 1<<30))
	switch {
	case err != nil:
		return q, err
	case len(q.Words) > maxSearchBytes:
		return q, badRequest("q", "it has %d bytes; the maximum is %d", len(q.Words), maxSearchBytes)
	case q.column() < 0:
		return q, badRequest("sort", "there is no column %q", present.PrintableUpTo(q.Sort, 40))
	}
	return q, nil
}

// column returns the index of the column that the list is sorted by, or -1 if there is no such column.
func (q listQuery) column() int {
	return slices.IndexFunc(columns, func(c column) bool { return c.name == strings.TrimPrefix(q.Sort, "-") })
}

func (q listQuery) url() template.URL {
	pairs := []any{"q", q.Words}
	if q.Sort != "" && q.Sort != newestFirst {
		pairs = append(pairs, "sort", q.Sort)
	}
	if q.Page > 1 {
		pairs = append(pairs, "page", q.Page)
	}
	return query("./", pairs...)
}

func (i *Inspector) sessionsPage(w http.ResponseWriter, r *http.Request) error {
	q, err := parseListQuery(r)
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(r.Context(), pageTimeout)
	defer done()
	b := sessionsBody{Query: q, Now: time.Now()}
	found, err := i.matchingSessions(ctx, r, q, &b.All)
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
	for _, c := range columns {
		h, to := sortLink{link: link{Text: c.title}}, q
		to.Sort, to.Page = "-"+c.name, 1 // largest first
		if c.name == "key" {
			to.Sort = c.name
		}
		switch q.Sort {
		case c.name:
			h.Order, to.Sort = "ascending", "-"+c.name
		case "-" + c.name:
			h.Order, to.Sort = "descending", c.name
		}
		h.URL = to.url()
		b.Sorts = append(b.Sorts, h)
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
	status := http.StatusOK
	if q.Words != "" {
		find := parseSearch(r)
		if status, err = i.runSearch(ctx, r, store.Info{}, &find); err != nil {
			return err
		}
		if b.Search = &find; find.Problem != "" && !find.HasFilters() && b.Found > 0 {
			b.Search, status = nil, http.StatusOK // the words match keys, so the problem of the search is not shown
		}
	}
	return i.render(w, r, status, "sessions", page{Title: "Sessions", Body: b})
}

// matchingSessions returns the sessions that the request may read and whose keys match q. It sets the variable all to
// the number of readable sessions.
func (i *Inspector) matchingSessions(ctx context.Context, r *http.Request, q listQuery, all *int) (found []sessionRow, err error) {
	words := strings.Fields(strings.ToLower(q.Words))
	for info, err := range i.store.List(ctx, store.ListOptions{}) {
		s := sessionRow{Info: info}
		switch {
		case errors.Is(err, store.ErrCorrupt): // a damaged session is listed with its problem
			s.Problem = problemText(info.Key, err)
		case err != nil:
			return nil, err
		}
		if !s.HasKey() && i.opts.Authorize != nil || !i.isAllowed(r, s.Key, Read) {
			continue // Authorize needs a key
		}
		*all++
		// Match the plain key and the escaped key.
		text := strings.ToLower(s.Key.App + "/" + s.Key.User + "/" + s.Key.Session + "\n" + s.Key.String())
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			found = append(found, s)
		}
	}
	return found, nil
}

// problemText returns the text of err without the session's key.
func problemText(key store.Key, err error) string {
	text := err.Error()
	if corrupt := (*store.CorruptError)(nil); errors.As(err, &corrupt) {
		text = fmt.Sprintf("record %d: %v", corrupt.Seq, corrupt.Err)
	}
	return present.PrintableUpTo(strings.TrimPrefix(text, fmt.Sprintf("session %s: ", key)), 300)
}

// Limits of a search.
const (
	searchHits     = 50    // results shown
	searchSessions = 1_000 // sessions searched
)

// searchBody is the panel of a search, with the form as it was sent.
type searchBody struct {
	Key, Query, Author, Tool string // Key is "" if all sessions are searched
	Hidden, Summaries, All   bool

	Searched bool   // the form was sent
	Problem  string // why there is no result
	Found    string
	Damaged  string // says how many sessions could not be searched
	Hits     []searchHit
	Erase    *store.Info // the session where an erasure of the matches can start, or nil
}

// HasFilters reports whether the form has more than a query.
func (b searchBody) HasFilters() bool {
	return b.Hidden || b.Summaries || b.All || b.Author+b.Tool != ""
}

type searchHit struct {
	recall.Hit[store.Key]
	InOtherSession bool // the event is in another session than the page's
}

func (h searchHit) Kind() present.Kind {
	return present.KindOf(fold.Entry{Event: h.Event, Summary: h.Summary})
}

// SnippetPieces returns the snippet, split into pieces at its marks.
func (h searchHit) SnippetPieces() []present.Piece {
	return present.Pieces(h.Snippet.Text, h.Snippet.Marks)
}

func parseSearch(r *http.Request) searchBody {
	return searchBody{
		Query: r.FormValue("q"), Author: r.FormValue("author"), Tool: r.FormValue("tool"),
		Hidden: r.FormValue("hidden") != "", Summaries: r.FormValue("summaries") != "", All: r.FormValue("all") != "",
	}
}

// searchPage answers with the search panel of a session. Without a session it answers with the page of all
// sessions.
func (i *Inspector) searchPage(w http.ResponseWriter, r *http.Request) error {
	if r.FormValue("key") == "" {
		return i.sessionsPage(w, r)
	}
	return i.sessionPage("search", i.searchPanel)(w, r)
}

func (i *Inspector) searchPanel(ctx context.Context, r *http.Request, b *sessionBody) (err error) {
	info := b.timeline.info
	info.Seq = b.Last
	find := parseSearch(r)
	find.Key, b.Title = b.Key.String(), "Search"
	b.status, err = i.runSearch(ctx, r, info, &find)
	b.Body = find
	return err
}

// runSearch runs the requested search, and returns the HTTP status for the page. If the request is at fault, the
// page shows why.
func (i *Inspector) runSearch(ctx context.Context, r *http.Request, session store.Info, b *searchBody) (status int, err error) {
	if b.Searched = b.Query != "" || b.HasFilters(); !b.Searched {
		return http.StatusOK, nil
	}
	err = i.search(ctx, r, session, b)
	if err == nil {
		return http.StatusOK, nil
	}
	if status = statusOf(err); status >= http.StatusInternalServerError {
		return status, err
	}
	b.Problem = err.Error()
	if fieldError := (*patch.FieldError)(nil); errors.As(err, &fieldError) {
		b.Problem = fieldError.Field + ": " + fieldError.Problem
	}
	for _, text := range []*string{&b.Query, &b.Author, &b.Tool} { // truncate to what the form accepts
		*text = (*text)[:min(len(*text), recall.MaxQueryBytes)]
	}
	return status, nil
}

// search searches a session. If session is zero or b.All is set, it searches all readable sessions.
func (i *Inspector) search(ctx context.Context, r *http.Request, session store.Info, b *searchBody) error {
	search := recall.Search{Query: b.Query, Hidden: b.Hidden, Limit: searchHits}
	search.Author, search.Tool, search.Summaries = b.Author, b.Tool, b.Summaries
	switch {
	case max(len(b.Query), len(b.Author), len(b.Tool)) > recall.MaxQueryBytes:
		return badRequest("search", "a field has more than %d bytes", recall.MaxQueryBytes)
	case recall.Parse(search.Query).IsZero() || strings.TrimSpace(search.Query) == "":
		return badRequest("query", "it has no word to search for")
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
			case info.Key == (store.Key{}) || !i.isAllowed(r, info.Key, Read):
			case err != nil:
				damaged++
			default:
				sessions = append(sessions, info)
			}
			if len(sessions) > searchSessions {
				return badRequest("all", "there are more than %d sessions, which is too many for a page; 'patchlog search --all' searches the sessions of a user", searchSessions)
			}
		}
	}
	var hits []recall.Hit[store.Key]
	for _, of := range sessions {
		found, err := i.finder.Search(ctx, of.Key, search)
		switch {
		case errors.Is(err, store.ErrCorrupt) && len(sessions) > 1:
			damaged++
		case errors.Is(err, store.ErrNotFound) && len(sessions) > 1: // deleted since it was listed
		case err != nil:
			return err
		}
		hits = append(hits, found...)
	}
	slices.SortStableFunc(hits, func(a, b recall.Hit[store.Key]) int { return cmp.Compare(b.Score, a.Score) })
	hits = hits[:min(len(hits), searchHits)]
	if damaged > 0 {
		b.Damaged = present.Counted(damaged, "damaged session") + " could not be searched; 'patchlog verify' reports details"
	}
	b.Found = present.Counted(len(hits), "event") + " found"
	if len(hits) == searchHits {
		b.Found = "the best " + present.Counted(len(hits), "event")
	}
	eraseSession := session // where an erasure can start
	for _, h := range hits {
		n := slices.IndexFunc(sessions, func(info store.Info) bool { return info.Key == h.Key })
		if eraseSession.Key == (store.Key{}) && n >= 0 && i.isAllowed(r, h.Key, Erase) {
			eraseSession = sessions[n]
		}
		b.Hits = append(b.Hits, searchHit{h, h.Key != session.Key})
	}
	if eraseSession.Key != (store.Key{}) && i.isAllowed(r, eraseSession.Key, Erase) {
		b.Erase = &eraseSession
	}
	return nil
}
