package quality

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// snippetRunes is the maximum length of an event's text in a result of [recall.SearchTool].
var snippetRunes = recall.PieceRunes(recall.DefaultCallTokens, recall.DefaultResults) - 2 // without the ellipsis at each end

// call is a recorded function call whose arguments contain identifiers of earlier events.
type call struct {
	words  string // name of the function, and the names and values of its arguments
	needed []string
}

// callOf returns the call in a part. It reports whether the arguments of the call contain identifiers that occur in
// the earlier text.
func callOf(part patch.Part, earlier string) (c call, needs bool) {
	values := identifiers.Values(records.JSON(part.Args))
	for _, id := range identifiers.Find(values) {
		if identifiers.Occurs(earlier, id) {
			c.needed = append(c.needed, id)
		}
	}
	c.words = part.Name + "\n" + values
	return c, len(c.needed) > 0
}

// measureReach measures how many of the hidden identifiers that a call needs are found by a search.
func (r *replay) measureReach(ctx context.Context, c call, hidden []string) error {
	n, err := r.countFound(ctx, c.words, hidden)
	if err != nil {
		return err
	}
	r.figures.Reached += n
	n, err = r.countFound(ctx, removeIDs(c.words, hidden), hidden)
	r.figures.ReachedBlind += n
	return err
}

// countFound returns how many of ids are found by a search of hidden events for query.
func (r *replay) countFound(ctx context.Context, query string, ids []string) (n int, err error) {
	hits, err := r.finder.Search(ctx, "", recall.Search{
		Query: query, Hidden: true, Represented: true, Limit: recall.DefaultResults, Snippet: snippetRunes,
	})
	var found strings.Builder
	for _, h := range hits {
		found.WriteString(h.Snippet.Text + "\n")
	}
	for _, id := range ids {
		if identifiers.Occurs(found.String(), id) {
			n++
		}
	}
	return n, err
}

// removeIDs removes identifiers from a text, the longest first because they may contain others.
func removeIDs(text string, ids []string) string {
	for _, id := range slices.SortedFunc(slices.Values(ids), func(a, b string) int { return cmp.Compare(len(b), len(a)) }) {
		text = strings.ReplaceAll(text, id, " ")
	}
	return text
}
