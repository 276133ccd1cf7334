package inspector

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Limits of the page of a summary.
const (
	coveredRows  = 200     // covered events
	coveredFold  = 600     // bytes of a covered event's text that is folded
	coveredText  = 6_000   // bytes of the page for a covered event's text
	coveredBytes = 350_000 // bytes of the page for all covered events
	lossNames    = 500     // identifiers shown per list
	lossLength   = 120     // runes shown per identifier
)

// summaryBody is the panel of a summary, or of a cleared copy.
type summaryBody struct {
	At       uint64
	Index    int
	Seq      uint64 // seq of the record that added the event
	Before   uint64 // seq of the record before Seq
	Cleared  bool   // the event is a cleared copy
	Facts    []fact
	Siblings []fact     // other events that the same patch added
	Totals   string     // totals
	Loss     []lostList // the lost and invented identifiers
	Text     eventContent
	Covered  struct {
		Rows             []coveredRow
		First, Next, All int
	}
	Earlier template.URL
	Later   template.URL
	URL     template.URL // URL of the event's record
}

// lostList lists identifiers of one kind of loss, the most valuable first.
type lostList struct {
	What  string
	Mark  string
	N     int
	Names []fact // each with a link to a covered event that contains it
	More  int
}

// coveredRow is an event that a summary covers.
type coveredRow struct {
	Seq     uint64
	URL     template.URL
	Kind    present.Kind
	Content eventContent
}

// summaryPanel shows a summary or a cleared copy: which events it covers, and what it lost.
func (i *Inspector) summaryPanel(ctx context.Context, r *http.Request, b *sessionBody) error {
	key := b.Key
	v, at, err := i.requestedSummary(ctx, r, b)
	if err != nil {
		return err
	}
	history, err := i.store.History(ctx, key, v)
	if err != nil {
		return err
	}
	index := at[0]
	entry := v.Entry(index)
	covered := slices.DeleteFunc(slices.Clone(history), func(e fold.Entry) bool { return e.Index != index })
	coversItself := len(covered) == 1 && covered[0].Event == entry.Event
	cleared := isClearedCopy(entry.Event) && !entry.Summary
	if !entry.Summary && (!cleared || coversItself) {
		return &explainedError{badRequest("index", "event %d is not a summary", index), explanation{
			Text: fmt.Sprintf("The event at index %d represents no other event.", index), Advice: "It is not a summary, and none of its results were cleared or shortened.",
			Link: &link{recordURL(key, entry.Seq, entry.Event.ID()), "The event"},
		}}
	}
	if coversItself {
		covered = nil
	}
	body := summaryBody{
		At: v.Seq(), Index: index, Seq: entry.Seq, Before: entry.Seq - 1, Cleared: cleared,
		URL: recordURL(key, entry.Seq, entry.Event.ID()), Facts: summaryFacts(key, entry, cleared),
	}
	for _, n := range at[1:] {
		body.Siblings = append(body.Siblings, fact{Text: fmt.Sprintf("At index %d: %s", n, present.Clip(present.EntryText(v.Entry(n)), nameRunes)), URL: summaryURL(key, v.Seq(), n, 0)})
	}
	coveredMarks, summaryMarks := map[string]string{}, map[string]string{}
	if entry.Summary && len(covered) > 0 {
		for _, l := range compaction.Losses(v, history, index) {
			body.addLoss(present.LossOf(key, v, l), covered, coveredMarks, summaryMarks)
		}
	}
	show := contentRenderer{BytesLeft: textBytes, Fold: textBytes, Raw: rawURL(key), Marks: newMarks(summaryMarks)}
	body.Text = show.event(entry.Event, entry.Seq)
	body.Text.Notes = nil // Facts has the relevant notes
	for n, b := range body.Text.Blocks {
		if b.Plain {
			body.Text.Blocks[n].Lines = markdown(b.Runs)
		}
	}
	if err := body.addCovered(r, key, covered, coveredMarks); err != nil {
		return err
	}
	if b.Title = "Summary"; cleared {
		b.Title = "Cleared result"
	}
	b.Body = body
	return nil
}

// requestedSummary returns the view and the indices that the request names. The request names either an index
// in the page's view, or a patch. For a patch, the indices are those of the summaries and cleared copies that
// the patch added.
func (i *Inspector) requestedSummary(ctx context.Context, r *http.Request, b *sessionBody) (v fold.View, at []int, err error) {
	v = b.view
	id := r.FormValue("patch")
	if id == "" {
		index, given, err := formNumber(r, "index")
		switch {
		case err != nil:
			return v, nil, err
		case !given:
			return v, nil, badRequest("index", "it is missing; it names the visible event, unless patch names the patch that added it")
		case index >= uint64(v.Len()):
			return v, nil, fmt.Errorf("session %s: index %d: %w: %s visible after record %d", b.Key, index, fold.ErrOutOfRange, present.Counted(v.Len(), "event"), v.Seq())
		}
		return v, []int{int(index)}, nil
	}
	v, ids, err := present.SummariesAddedBy(ctx, i.store, b.Key, v, id)
	if err != nil {
		return v, nil, err
	}
	for n, e := range v.Entries() {
		if slices.Contains(ids, e.Event.ID()) && (e.Summary || isClearedCopy(e.Event)) {
			at = append(at, n)
		}
	}
	if len(at) == 0 {
		return v, nil, badRequest("patch", "patch %q added no summary", present.Clip(id, nameRunes))
	}
	return v, at, nil
}

func summaryURL(key store.Key, at uint64, index, from int) template.URL {
	begin := ""
	if from > 0 {
		begin = strconv.Itoa(from)
	}
	return query("summary", "key", key, "at", at, "index", index, "from", begin)
}

// isClearedCopy reports whether an event is a copy of another event with cleared or shortened results.
func isClearedCopy(e *patch.Event) bool {
	_, ok := e.Origin()
	return ok
}

// addLoss adds what the summary lost and invented. It sets coveredMarks for the identifiers in the covered
// events, and summaryMarks for the identifiers in the summary.
func (b *summaryBody) addLoss(doc present.Loss, covered []fold.Entry, coveredMarks, summaryMarks map[string]string) {
	b.Totals = fmt.Sprintf("It covers %s of %s, about %s → %s tokens. %d of %s can be seen.", present.Counted(doc.Events, "event"), present.Counted(doc.Invocations, "turn"),
		present.Grouped(doc.Tokens), present.Grouped(doc.Summary.EstimatedTokens()), doc.Identifiers-len(doc.NotVisible), present.Counted(doc.Identifiers, "identifier"))
	in := map[string]*patch.Event{} // the first event that contains each identifier
	seqs := map[string]uint64{}
	for _, e := range covered {
		for _, id := range identifiers.NewIndex(identifiers.Text(e.Event)).Identifiers() {
			if in[id] == nil {
				in[id], seqs[id] = e.Event, e.Seq
			}
		}
	}
	for _, l := range doc.Lists() {
		list := lostList{What: l.What, N: len(l.Names)}
		for _, name := range l.Names {
			switch mark := strings.ReplaceAll(l.What, " ", "-"); mark {
			case markNotVisible, markInOtherEvents:
				coveredMarks[name], list.Mark = mark, mark
			case markInvented:
				summaryMarks[name], list.Mark = mark, mark
			}
			if len(list.Names) == lossNames {
				list.More++
				continue
			}
			f := fact{Text: present.Clip(name, lossLength)}
			if e := in[name]; e != nil {
				f.URL = recordURL(doc.Key, seqs[name], e.ID())
			}
			list.Names = append(list.Names, f)
		}
		b.Loss = append(b.Loss, list)
	}
}

// summaryFacts returns the fields of a summary or cleared copy, and what it records about its origin.
func summaryFacts(key store.Key, entry fold.Entry, cleared bool) []fact {
	facts := eventFacts(entry)
	if cleared {
		o, _ := entry.Event.Origin()
		facts = append(facts, fact{Name: "tokens as logged", Text: "about " + present.Grouped(o.Tokens)})
		if o.Seq > 0 && o.Seq < entry.Seq { // the event's own claim, which may be wrong
			facts = append(facts, fact{"original", fmt.Sprintf("an event of record %d", o.Seq), recordURL(key, o.Seq, o.ID)})
		}
		return facts
	}
	l, recorded := compaction.ParseLineage(entry.Event)
	if !recorded {
		return append(facts, fact{Name: "lineage", Text: "not recorded"})
	}
	facts = append(facts, fact{Name: "level", Text: fmt.Sprint(l.Level)})
	if l.Events > 0 {
		facts = append(facts, fact{Name: "raw events", Text: present.Grouped(l.Events)})
	}
	if l.From > 0 && l.From <= l.To {
		facts = append(facts,
			fact{"from record", fmt.Sprint(l.From), recordURL(key, l.From, "")},
			fact{"to record", fmt.Sprint(l.To), recordURL(key, l.To, "")})
	}
	return facts
}

// addCovered lists the covered events that fit a page, with their identifiers marked.
func (b *summaryBody) addCovered(r *http.Request, key store.Key, covered []fold.Entry, coveredMarks map[string]string) error {
	from, _, err := formNumber(r, "from")
	if err != nil {
		return err
	}
	b.Covered.All = len(covered)
	b.Covered.First = int(min(from, uint64(max(len(covered)-1, 0))))
	b.Covered.Next = b.Covered.First
	show := contentRenderer{BytesLeft: coveredBytes, Fold: coveredFold, MaxText: coveredText, Raw: rawURL(key), Marks: newMarks(coveredMarks)}
	if b.Cleared {
		show.Fold, show.MaxText = 0, 0
	}
	for _, e := range covered[b.Covered.First:min(b.Covered.First+coveredRows, len(covered))] {
		if len(b.Covered.Rows) > 0 && show.BytesLeft < 2*coveredText {
			break
		}
		row := coveredRow{e.Seq, recordURL(key, e.Seq, e.Event.ID()), present.KindOf(e), show.event(e.Event, e.Seq)}
		row.Content.State, row.Content.Notes = nil, nil // shown on the event's own page
		b.Covered.Rows = append(b.Covered.Rows, row)
		b.Covered.Next++
	}
	if b.Covered.First > 0 {
		b.Earlier = summaryURL(key, b.At, b.Index, max(b.Covered.First-coveredRows, 0)) + "#covered"
	}
	if b.Covered.Next < len(covered) {
		b.Later = summaryURL(key, b.At, b.Index, b.Covered.Next) + "#covered"
	}
	return nil
}
