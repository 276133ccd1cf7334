package inspector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// Bounds of a search.
const (
	searchHits     = 50    // are shown
	searchSessions = 1_000 // of a user are searched at a time
	filterBytes    = 1_000 // may be in a filter
)

// searchBody is the page of a search. Its texts are what was asked, as it was typed.
type searchBody struct {
	Key                        string
	Query                      string
	At, From, To, Since, Until string
	Author, Tool               string
	Hidden, Summaries, All     bool

	Asked   bool   // a search was made, or tried
	Problem string // why there is nothing to show
	Found   string
	Damaged string // what could not be searched
	Hits    []searchHit
}

// Filtered says that the form has more than a query.
func (b searchBody) Filtered() bool {
	return b.At+b.From+b.To+b.Since+b.Until+b.Author+b.Tool != "" || b.Hidden || b.Summaries || b.All
}

// searchHit is an event that was found.
type searchHit struct {
	Key     string
	Other   bool // it is of another session than the page
	Seq     uint64
	ID      string
	Kind    present.Kind
	Author  string
	Time    string
	Score   string
	Summary bool
	Visible bool
	Index   int
	By      string // the id of the patch that hides it
	BySeq   uint64
	Snippet []snippetPiece
}

// snippetPiece is a stretch of a snippet, all of which was asked for or nothing.
type snippetPiece struct {
	Text string
	Mark bool
}

func (i *Inspector) searchPage(w http.ResponseWriter, r *http.Request) error {
	key, err := i.key(r, Read)
	if err != nil {
		return err
	}
	ctx, done := within(r)
	defer done()
	if _, err := i.store.Info(ctx, key); err != nil {
		return err
	}
	b := searchBody{
		Key: key.String(), Query: r.FormValue("q"), At: r.FormValue("at"), From: r.FormValue("from"), To: r.FormValue("to"),
		Since: r.FormValue("since"), Until: r.FormValue("until"), Author: r.FormValue("author"), Tool: r.FormValue("tool"),
		Hidden: r.FormValue("hidden") != "", Summaries: r.FormValue("summaries") != "", All: r.FormValue("all") != "",
	}
	b.Asked = b.Query != "" || b.Filtered()
	status := http.StatusOK
	if b.Asked {
		if err := i.search(ctx, r, key, &b); err != nil {
			if status = statusOf(err); status >= http.StatusInternalServerError {
				return err
			}
			b.Problem = problemOf(err)
			b.trim()
		}
	}
	return i.render(w, r, status, "search", page{Title: "Search in " + key.String(), Key: &key, Body: b})
}

// problemOf says what is wrong with what was typed into a form.
func problemOf(err error) string {
	if wrong := (*patch.FieldError)(nil); errors.As(err, &wrong) {
		return strings.ToLower(strings.TrimPrefix(wrong.Field, "Search.")) + ": " + wrong.Problem
	}
	return err.Error()
}

// trim shortens what was typed to what a form can hold.
func (b *searchBody) trim() {
	for _, text := range []*string{&b.At, &b.From, &b.To, &b.Since, &b.Until, &b.Author, &b.Tool} {
		*text = (*text)[:min(len(*text), filterBytes)]
	}
	b.Query = b.Query[:min(len(b.Query), recall.MaxQueryBytes)]
}

// search finds what is asked for.
func (i *Inspector) search(ctx context.Context, r *http.Request, key store.Key, b *searchBody) error {
	search, at, err := parseSearch(r, b)
	if err != nil {
		return err
	}
	if at != nil {
		v, err := i.store.ViewAt(ctx, key, *at)
		if err != nil {
			return err
		}
		search.On = &v
	}
	var hits []store.Hit
	if b.All {
		hits, err = i.searchUser(ctx, r, key, search, b)
	} else {
		hits, err = i.store.Search(ctx, key, search)
	}
	if err != nil {
		return err
	}
	b.Found = present.Counted(len(hits), "event") + " found"
	if len(hits) == search.Limit {
		b.Found = "the best " + present.Counted(len(hits), "event")
	}
	for _, h := range hits {
		b.Hits = append(b.Hits, searchHitOf(key, h))
	}
	return nil
}

// parseSearch reads the form. at is nil if it is to be the newest record.
func parseSearch(r *http.Request, b *searchBody) (s recall.Search, at *uint64, err error) {
	for _, f := range []struct {
		name, text string
		most       int
	}{
		{"q", b.Query, recall.MaxQueryBytes}, {"author", b.Author, filterBytes}, {"tool", b.Tool, filterBytes},
		{"since", b.Since, filterBytes}, {"until", b.Until, filterBytes},
	} {
		if len(f.text) > f.most {
			return s, nil, badRequest(f.name, "it has %d bytes, more than %d", len(f.text), f.most)
		}
	}
	s = recall.Search{Query: b.Query, Hidden: b.Hidden, Limit: searchHits}
	s.Author, s.Tool, s.Summaries = b.Author, b.Tool, b.Summaries
	n, given, err := number(r, "at")
	if err != nil {
		return s, nil, err
	}
	if given {
		at = &n
	}
	for _, f := range []struct {
		name string
		to   *uint64
	}{{"from", &s.From}, {"to", &s.To}} {
		n, given, err := number(r, f.name)
		if err != nil {
			return s, nil, err
		}
		if given && n == 0 {
			return s, nil, badRequest(f.name, "the first record has the number 1")
		}
		*f.to = n
	}
	for _, f := range []struct {
		name, text string
		to         *time.Time
	}{{"since", b.Since, &s.Since}, {"until", b.Until, &s.Until}} {
		if *f.to, err = moment(f.name, f.text); err != nil {
			return s, nil, err
		}
	}
	switch {
	case recall.Parse(s.Query).IsZero() || strings.TrimSpace(s.Query) == "":
		return s, nil, badRequest("search for", "a word is missing")
	case b.All && at != nil:
		return s, nil, badRequest("at", "it is a record of one session; it does not go with all sessions")
	}
	return s, at, s.Validate()
}

// moment reads a time, or a date, which is the time when it begins in UTC. "" is none.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, badRequest(name, "%q is not a time such as 2025-01-02T15:04:05Z, or a date", present.PrintableUpTo(text, 40))
}

// searchUser searches all sessions of a user that the request may read. Others do not even count
// in the ranking.
func (i *Inspector) searchUser(ctx context.Context, r *http.Request, key store.Key, search recall.Search, b *searchBody) ([]store.Hit, error) {
	var except []store.Key
	readable := 0
	for info, err := range i.store.List(ctx, store.ListOptions{App: key.App, User: key.User}) {
		switch {
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			return nil, err
		case err != nil: // the search says so
		case !i.may(r, info.Key, Read):
			except = append(except, info.Key)
		default:
			readable++
		}
		if readable > searchSessions {
			return nil, badRequest("all", "the user has more than %d sessions, too many for a page; 'patchlog search --all' searches them", searchSessions)
		}
	}
	damaged := 0
	hits, err := i.store.SearchUser(ctx, key.App, key.User, search, store.SearchUserOptions{Except: except, LeftOut: func(key store.Key, err error) {
		if i.opts.Authorize == nil || key.Validate() == nil && i.may(r, key, Read) {
			damaged++
		}
	}})
	if damaged > 0 {
		b.Damaged = present.Counted(damaged, "damaged session") + " could not be searched; 'patchlog verify' says more"
	}
	allowed := hits[:0]
	for _, h := range hits { // one may have been created since the list
		if i.may(r, h.Key, Read) {
			allowed = append(allowed, h)
		}
	}
	return allowed, err
}

func searchHitOf(key store.Key, h store.Hit) searchHit {
	e := h.Event
	out := searchHit{
		Key: h.Key.String(), Other: h.Key != key, Seq: h.Seq, ID: e.ID(),
		Kind: present.KindOf(fold.Entry{Event: e, Summary: h.Summary}), Author: cmp.Or(e.Author(), "(no author)"),
		Time: when(e.Timestamp()), Score: fmt.Sprintf("%.2f", h.Score), Summary: h.Summary,
		Visible: h.Place.Index >= 0, Index: h.Place.Index, By: h.Place.HiddenBy, BySeq: h.Place.HiddenBySeq,
	}
	text, marks := present.PrintableMarks(h.Snippet.Text, h.Snippet.Marks)
	at := 0
	piece := func(end int, mark bool) {
		if end > at {
			out.Snippet = append(out.Snippet, snippetPiece{text[at:end], mark})
			at = end
		}
	}
	for _, m := range marks {
		piece(m[0], false)
		piece(m[1], true)
	}
	piece(len(text), false)
	return out
}
