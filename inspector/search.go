package inspector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// Bounds of a search.
const (
	searchHits     = 50    // are shown
	searchSessions = 1_000 // are searched at a time
)

// searchBody is the page of a search. Its texts are what was asked, as it was typed.
type searchBody struct {
	Key, Query, Author, Tool string // Key is "" where all sessions are searched
	Hidden, Summaries, All   bool

	Searched bool   // a search was made, or tried
	Problem  string // why there is nothing to show
	Found    string
	Damaged  string // what could not be searched
	Hits     []searchHit
}

// Filtered says that the form has more than a query.
func (b searchBody) Filtered() bool { return b.Author+b.Tool != "" || b.Hidden || b.Summaries || b.All }

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
	Snippet []present.Piece
}

func (i *Inspector) searchPage(w http.ResponseWriter, r *http.Request) error {
	b := searchBody{
		Query: r.FormValue("q"), Author: r.FormValue("author"), Tool: r.FormValue("tool"),
		Hidden: r.FormValue("hidden") != "", Summaries: r.FormValue("summaries") != "", All: r.FormValue("all") != "",
	}
	ctx, done := withTimeout(r)
	defer done()
	p := page{Title: "Search in all sessions"}
	if r.FormValue("key") != "" {
		key, err := i.key(r, Read)
		if err != nil {
			return err
		}
		if _, err := i.store.Info(ctx, key); err != nil {
			return err
		}
		b.Key, p.Key, p.Title = key.String(), &key, "Search in "+key.String()
	}
	status := http.StatusOK
	if b.Searched = b.Query != "" || b.Filtered(); b.Searched {
		if err := i.search(ctx, r, p.Key, &b); err != nil {
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

// search finds what is asked for in a session, or in all that the request may read.
func (i *Inspector) search(ctx context.Context, r *http.Request, key *store.Key, b *searchBody) error {
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
	keys, damaged := []store.Key{}, 0
	if key != nil && !b.All {
		keys = append(keys, *key)
	} else {
		for info, err := range i.store.List(ctx, store.ListOptions{}) {
			switch {
			case err != nil && !errors.Is(err, store.ErrCorrupt):
				return err
			case info.Key == (store.Key{}) || !i.may(r, info.Key, Read):
			case err != nil:
				damaged++
			default:
				keys = append(keys, info.Key)
			}
			if len(keys) > searchSessions {
				return badRequest("all", "there are more than %d sessions, too many for a page; 'patchlog search --all' searches those of a user", searchSessions)
			}
		}
	}
	var hits []store.Hit
	for _, of := range keys {
		found, err := i.store.Search(ctx, of, search)
		switch {
		case errors.Is(err, store.ErrCorrupt) && len(keys) > 1:
			damaged++
		case errors.Is(err, store.ErrNotFound) && len(keys) > 1: // it was deleted meanwhile
		case err != nil:
			return err
		}
		hits = append(hits, found...)
	}
	slices.SortStableFunc(hits, func(a, b store.Hit) int { return cmp.Compare(b.Score, a.Score) })
	hits = hits[:min(len(hits), searchHits)]
	if damaged > 0 {
		b.Damaged = present.Counted(damaged, "damaged session") + " could not be searched; 'patchlog verify' says more"
	}
	b.Found = present.Counted(len(hits), "event") + " found"
	if len(hits) == searchHits {
		b.Found = "the best " + present.Counted(len(hits), "event")
	}
	for _, h := range hits {
		hit := searchHitOf(h)
		hit.Other = key == nil || h.Key != *key
		b.Hits = append(b.Hits, hit)
	}
	return nil
}

func searchHitOf(h store.Hit) searchHit {
	e := h.Event
	return searchHit{
		Key: h.Key.String(), Seq: h.Seq, ID: e.ID(),
		Kind: present.KindOf(fold.Entry{Event: e, Summary: h.Summary}), Author: cmp.Or(e.Author(), "(no author)"),
		Time: when(e.Timestamp()), Score: fmt.Sprintf("%.2f", h.Score), Summary: h.Summary,
		Visible: h.Place.Index >= 0, Index: h.Place.Index, By: h.Place.HiddenBy, BySeq: h.Place.HiddenBySeq,
		Snippet: present.Pieces(h.Snippet.Text, h.Snippet.Marks),
	}
}
