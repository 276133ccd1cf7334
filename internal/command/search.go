package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) searchCommand() *cobra.Command {
	cmd := command(`search KEY QUERY...
Find events by their text, also hidden ones

QUERY is words, ids, paths or numbers. The best matches come first. Each event is shown with its index in the visible log,
or with the patch that hides it. TIME is such as 2025-01-02T15:04:05Z, or a date, which means its first moment in UTC.

With --json each event is a line {"key", "seq", "index", "event", "summary", "score", "snippet", "place"}. index is
the position of the event in its record. place is {"index", "hiddenBy", "hiddenBySeq"}. If the event is hidden, this index is -1. snippet
is {"text", "marks"}, where marks are byte offsets.

$ patchlog search shop/ada/4711 TR-88-1234567 --hidden`)
	fs := cmd.Flags()
	search := recall.Search{Limit: recall.DefaultLimit}
	all := fs.Bool("all", false, "search all sessions of KEY's user")
	fs.BoolVar(&search.Hidden, "hidden", false, "only events that a model does not see")
	textVar(fs, &search.Author, "author", "only events of this `AUTHOR`")
	textVar(fs, &search.Tool, "tool", "only calls and results of the tool `NAME`")
	timeVar(fs, &search.Since, "since", "only events of this `TIME` or later")
	timeVar(fs, &search.Until, "until", "only events before this `TIME`")
	fs.BoolVar(&search.Summaries, "summaries", false, "also summaries")
	numberVar(fs, &search.Limit, 1, "limit", fmt.Sprintf("only the best `N` events, %d at most", recall.MaxLimit))
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		search.Query = strings.Join(args[1:], " ")
		var wrong *patch.FieldError
		switch err := search.Validate(); {
		case errors.As(err, &wrong):
			return usagef("--%s: %s", strings.ToLower(strings.TrimPrefix(wrong.Field, "Search.")), wrong.Problem)
		case recall.Parse(search.Query).IsZero() || strings.TrimSpace(search.Query) == "":
			return usagef("QUERY has no word")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := parseKey("KEY", args[0])
		if err != nil {
			return err
		}
		only := []store.Key{key}
		if *all {
			only = nil
		}
		return a.withStore(cmd.Context(), database.Reading, func(s *store.Store) error {
			return suggestSession(cmd.Context(), s, key, a.search(cmd.Context(), s, key, search, *all))
		}, only...)
	}
	return cmd
}

const snippetIndent = 2

func (a *app) search(ctx context.Context, s *store.Store, key store.Key, search recall.Search, all bool) error {
	most := max(a.out.Columns()-snippetIndent, terminal.LeastWide)
	if !a.json {
		search.Snippet = most - 2 // leaves room for an ellipsis at the beginning and at the end
	}
	var hits []recall.Hit[store.Key]
	var skipped damaged
	var err error
	where := key.String()
	if all {
		where = "all sessions of " + where[:strings.LastIndexByte(where, '/')]
		hits, err = a.searchAll(ctx, s, key, search, &skipped)
	} else {
		hits, err = recall.NewFinder(s, 0).Search(ctx, key, search)
	}
	if err != nil {
		return err
	}
	if !a.json {
		found := present.Counted(len(hits), "event") + " found"
		if len(hits) == search.Limit {
			found = "the best " + present.Counted(len(hits), "event")
		}
		a.out.Linef("%s: %s", where, found)
	}
	for _, h := range hits {
		a.showHit(h, all, most)
	}
	return skipped.err()
}

// searchAll searches all sessions of the user in key. If the session in key does not exist, searchAll fails. Otherwise
// a mistyped key would look like a search without hits.
func (a *app) searchAll(ctx context.Context, s *store.Store, key store.Key, search recall.Search, skipped *damaged) ([]recall.Hit[store.Key], error) {
	if _, err := s.Info(ctx, key); err != nil && !errors.Is(err, store.ErrCorrupt) {
		return nil, err
	}
	leftOut := func(_ store.Key, err error) bool {
		return skipped.is(a, err) || errors.Is(err, store.ErrNotFound) // the session may have been deleted during the search
	}
	keys := func(yield func(store.Key, error) bool) {
		for info, err := range s.List(ctx, store.ListOptions{App: key.App, User: key.User}) {
			if !(err != nil && leftOut(info.Key, err)) && !yield(info.Key, err) {
				return
			}
		}
	}
	return recall.NewFinder(s, 0).SearchAll(ctx, keys, leftOut, search)
}

// showHit writes a found event. The argument most limits the width of its snippet.
func (a *app) showHit(h recall.Hit[store.Key], keyed bool, most int) {
	if a.json {
		h.Score = math.Round(h.Score*100) / 100
		a.out.Document(h)
		return
	}
	record := fmt.Sprintf("record %d", h.Seq)
	if keyed {
		record = h.Key.String() + ", " + record
	}
	place := fmt.Sprintf("index %d", h.Place.Index)
	if h.Place.Index < 0 {
		place = fmt.Sprintf("hidden by patch %d", h.Place.HiddenBySeq)
	}
	author := eventCells(fold.Entry{Event: h.Event})[1]
	kind := ""
	if h.Summary {
		kind = " (summary)"
	}
	a.out.Line()
	a.out.Line(record, ", ", place, ", ", a.out.Paint(author.Style, cmp.Or(author.Text, "(no author)")), kind, ", ", h.Event.Timestamp().Format(time.DateTime), fmt.Sprintf(", score %.2f", h.Score))
	a.out.Line(strings.Repeat(" ", snippetIndent), a.out.Highlight(present.Pieces(h.Snippet.Text, h.Snippet.Marks), most))
}
