package inspector

import (
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/present"
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
		return q, badRequest("sort", "there is no column %q", present.PrintableUpTo(q.Sort, 40))
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
