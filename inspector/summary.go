package inspector

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/identifiers"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Bounds on what the page of a summary shows.
const (
	toldRows   = 200     // events that it stands for
	toldFold   = 600     // bytes of a text of theirs that is not folded
	toldText   = 6_000   // bytes of the page, that one text of theirs takes
	toldBytes  = 350_000 // bytes of the page, that all of them take
	rowNames   = 12      // identifiers that are named below one of them
	lossNames  = 500     // identifiers that are named of one sort
	lossLength = 120     // runes of one of them
)

// summaryBody is the page of what stands for others: a summary, or an event of which results
// were cleared or shortened.
type summaryBody struct {
	Key      string
	At       uint64
	Index    int
	Seq      uint64 // of the record that put it in
	Before   uint64 // the record before
	Cleared  bool   // it is no summary
	Facts    []fact
	Lines    [][]run // what 'patchlog loss' says of it
	Cut      bool    // some identifiers are left out there
	Text     shownEvent
	Nested   []nestedSummary
	More     int // nested ones
	Told     rows[toldRow]
	Earlier  template.URL
	Later    template.URL
	URL      template.URL // of its event
	Whole    int          // how many events it stands for
	ShownAll bool
}

// nestedSummary is a summary that another one replaced.
type nestedSummary struct {
	URL   template.URL
	Level int
	Text  string
}

// toldRow is an event that a summary stands for.
type toldRow struct {
	Seq             uint64
	URL             template.URL
	Kind            present.Kind
	Author          string
	Time            string
	Gone, Elsewhere []string
	GoneMore        int
	ElsewhereMore   int
	Content         shownEvent
}

// summariesBody is the page of what a patch put in that stands for others.
type summariesBody struct {
	Key  string
	At   uint64
	Seq  uint64 // of the patch
	Of   []summaryLines
	More int
}

// summaryLines say what a summary stands for, and lead to it.
type summaryLines struct {
	URL   template.URL
	Title string
	Lines [][]run
}

func (i *Inspector) summaryPage(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := within(r)
	defer cancel()
	key, err := i.key(r, Read)
	if err != nil {
		return err
	}
	if id := r.FormValue("patch"); id != "" {
		return i.summariesOf(ctx, w, r, key, id)
	}
	at, given, err := number(r, "at")
	if err != nil {
		return err
	}
	index, hasIndex, err := number(r, "index")
	if err != nil {
		return err
	}
	if !hasIndex {
		return badRequest("index", "it is missing; it names the visible event, or patch the patch that put it in")
	}
	var v fold.View
	if given {
		v, err = i.store.ViewAt(ctx, key, at)
	} else {
		v, err = i.store.View(ctx, key)
	}
	if err != nil {
		return err
	}
	if index >= uint64(v.Len()) {
		return fmt.Errorf("session %s: index %d: %w: %s visible after record %d", key, index, store.ErrOutOfRange, present.Counted(v.Len(), "event"), v.Seq())
	}
	parts, err := i.store.HistoryParts(ctx, key, v)
	if err != nil {
		return err
	}
	return i.showSummary(ctx, w, r, key, v, parts, int(index))
}

// summariesOf shows what a patch and its group put in that stands for others.
func (i *Inspector) summariesOf(ctx context.Context, w http.ResponseWriter, r *http.Request, key store.Key, id string) error {
	t, err := i.timeline(ctx, key)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(t.steps, func(s step) bool { return s.Patch != nil && s.ID == id })
	if at < 0 {
		return fmt.Errorf("session %s: %w: there is no patch %q", key, store.ErrNotFound, id)
	}
	of := t.steps[at]
	if !slices.ContainsFunc(t.steps, func(s step) bool {
		return s.Patch != nil && s.Patch.Added > 0 && (s.Seq == of.Seq || s.Patch.Group != "" && s.Patch.Group == of.Patch.Group)
	}) {
		return badRequest("patch", "record %d put in no event", of.Seq)
	}
	v, err := i.store.View(ctx, key)
	if err != nil {
		return err
	}
	v, ids, err := present.SummariesBy(ctx, i.store, key, v, id)
	if err != nil {
		return err
	}
	parts, err := i.store.HistoryParts(ctx, key, v)
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, id := range ids {
		has[id] = true
	}
	var found []int
	for n, e := range v.Entries() {
		if has[e.Event.ID()] && (e.Summary || standsIn(e.Event)) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return badRequest("patch", "what record %d put in stands for itself: it is no summary", of.Seq)
	case 1:
		return i.showSummary(ctx, w, r, key, v, parts, found[0])
	}
	losses, err := lossesBy(v, parts)
	if err != nil {
		return err
	}
	body := summariesBody{Key: key.String(), At: v.Seq(), Seq: of.Seq}
	found, body.More = cutTo(found, listedRows)
	for _, n := range found {
		s := summaryLines{Title: fmt.Sprintf("At index %d: %s", n, clip(present.EntryText(present.EntryAt(v, n)), lineRunes))}
		if s.URL, err = query("summary", "key", key, "at", v.Seq(), "index", n); err != nil {
			return err
		}
		if l, ok := losses[n]; ok {
			s.Lines, _ = lossLines(present.LossOf(key, v, l), 20)
		}
		body.Of = append(body.Of, s)
	}
	return i.render(w, r, http.StatusOK, "summaries", page{Title: fmt.Sprintf("What record %d put in", of.Seq), Key: &key, Body: body})
}

// standsIn reports whether an event says that it stands for another one, of which it leaves out
// results.
func standsIn(e *patch.Event) bool {
	_, ok := e.Origin()
	return ok
}

// lossesBy returns the losses of a view's summaries, by their indices.
func lossesBy(v fold.View, parts [][]fold.Entry) (map[int]compaction.Loss, error) {
	all, err := compaction.Losses(v, parts)
	if err != nil {
		return nil, err
	}
	by := make(map[int]compaction.Loss, len(all))
	for _, l := range all {
		by[l.Index] = l
	}
	return by, nil
}

// lossOf returns the loss of the visible summary with an index, and whether it stands for events.
func lossOf(v fold.View, parts [][]fold.Entry, index int) (compaction.Loss, bool, error) {
	// What another summary lost does not count here. What its events say does where this one has
	// something that its own events have not.
	alone := make([][]fold.Entry, len(parts))
	alone[index] = parts[index]
	losses, err := lossesBy(v, alone)
	if l, ok := losses[index]; err != nil || !ok || len(l.Invented) == 0 {
		return l, ok, err
	}
	losses, err = lossesBy(v, parts)
	l, ok := losses[index]
	return l, ok, err
}

// showSummary shows what the visible event with an index stands for.
func (i *Inspector) showSummary(ctx context.Context, w http.ResponseWriter, r *http.Request, key store.Key, v fold.View, parts [][]fold.Entry, index int) error {
	entry, told := present.EntryAt(v, index), parts[index]
	itself := len(told) == 1 && told[0].Event == entry.Event
	cleared := standsIn(entry.Event) && !entry.Summary
	if !entry.Summary && (!cleared || itself) {
		return &advised{badRequest("index", "event %d is no summary", index), explanation{
			Text: fmt.Sprintf("The event at index %d stands for itself.", index), Advice: "It is no summary, and none of its results were cleared or shortened.",
			Link: &link{recordURL(key, entry.Seq, entry.Event.ID()), "The event"},
		}}
	}
	if itself {
		told = nil
	}
	body := summaryBody{
		Key: key.String(), At: v.Seq(), Index: index, Seq: entry.Seq, Before: entry.Seq - 1, Cleared: cleared,
		URL: recordURL(key, entry.Seq, entry.Event.ID()), Whole: len(told), Facts: summaryFacts(key, entry, cleared),
	}
	how := map[string]string{}
	var invented map[string]string
	if entry.Summary && len(told) > 0 {
		l, ok, err := lossOf(v, parts, index)
		if err != nil {
			return err
		}
		if ok {
			body.Lines, body.Cut = lossLines(present.LossOf(key, v, l), lossNames)
			for _, id := range l.Gone {
				how[id] = markGone
			}
			for _, id := range l.Elsewhere {
				how[id] = markElsewhere
			}
			invented = make(map[string]string, len(l.Invented))
			for _, id := range l.Invented {
				invented[id] = markInvented
			}
		}
	}
	show := showing{Left: textBytes, Image: imageURL(key), Raw: rawURL(key), Marks: newMarks(invented)}
	body.Text = show.event(entry.Event, entry.Seq)
	body.Text.Notes = nil // the facts say what matters of them
	if err := i.nest(ctx, key, &body, entry); err != nil {
		return err
	}
	if err := body.tell(r, key, told, how); err != nil {
		return err
	}
	title := fmt.Sprintf("Summary at index %d", index)
	if cleared {
		title = fmt.Sprintf("What stands at index %d for a result", index)
	}
	return i.render(w, r, http.StatusOK, "summary", page{Title: title, Key: &key, Body: body})
}

// summaryFacts say what a summary says of its origin.
func summaryFacts(key store.Key, entry fold.Entry, cleared bool) []fact {
	facts := named("id", entry.Event.ID())
	facts = append(facts, named("author", entry.Event.Author())...)
	facts = append(facts, fact{Name: "time", Text: when(entry.Event.Timestamp())},
		fact{Name: "tokens", Text: "about " + present.Grouped(entry.Event.EstimatedTokens())})
	if cleared {
		o, _ := entry.Event.Origin()
		facts = append(facts, fact{Name: "tokens as logged", Text: "about " + present.Grouped(o.Tokens)})
		if o.Seq > 0 && o.Seq < entry.Seq { // what it says itself, which may be anything
			facts = append(facts, fact{"stands for", fmt.Sprintf("an event of record %d", o.Seq), recordURL(key, o.Seq, o.ID)})
		}
		return facts
	}
	facts = append(facts, named("branch", entry.Event.Branch())...)
	facts = append(facts, named("scope", entry.Event.IsolationScope())...)
	l, said := compaction.SaidLineage(entry.Event)
	if !said {
		return append(facts, fact{Name: "lineage", Text: "it says none"})
	}
	facts = append(facts,
		fact{Name: "level", Text: fmt.Sprint(l.Level)},
		fact{Name: "made of", Text: fmt.Sprintf("%s of raw events", present.Counted(l.Windows, "summary"))},
		fact{Name: "passes", Text: fmt.Sprintf("%d, of what went through most", l.Passes)},
	)
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

// nest lists the summaries that the patch replaced by this one.
func (i *Inspector) nest(ctx context.Context, key store.Key, body *summaryBody, entry fold.Entry) error {
	rec, err := i.record(ctx, key, entry.Seq)
	if err != nil || rec.Patch == nil || !entry.Summary {
		return err
	}
	f, before, err := i.effect(ctx, key, rec)
	if err != nil {
		return err
	}
	several := len(f.Added) > 1 // each stands for events of its branch and scope
	for n, e := range f.Hid {
		at := present.EntryAt(before, f.Start+n)
		if !at.Summary || several && !alike(e, entry.Event) {
			continue
		}
		if len(body.Nested) == listedRows {
			body.More++
			continue
		}
		url, err := query("summary", "key", key, "at", before.Seq(), "index", f.Start+n)
		if err != nil {
			return err
		}
		body.Nested = append(body.Nested, nestedSummary{url, compaction.LineageOf(e).Level, clip(present.Describe(e), lineRunes)})
	}
	return nil
}

// alike reports whether one summary can stand for both events.
func alike(a, b *patch.Event) bool {
	return records.BranchWithoutRuns(a.Branch()) == records.BranchWithoutRuns(b.Branch()) && a.IsolationScope() == b.IsolationScope()
}

// tell lists events that the summary stands for, as many as a page has, with their identifiers
// marked.
func (b *summaryBody) tell(r *http.Request, key store.Key, told []fold.Entry, how map[string]string) error {
	from, _, err := number(r, "from")
	if err != nil {
		return err
	}
	b.Told.All = len(told)
	b.Told.First = int(min(from, uint64(max(len(told)-1, 0))))
	b.Told.Next = b.Told.First
	show := showing{Left: toldBytes, Fold: toldFold, Most: toldText, Image: imageURL(key), Raw: rawURL(key), Marks: newMarks(how)}
	if b.Cleared {
		show.Fold, show.Most = 0, 0
	}
	for _, e := range told[b.Told.First:min(b.Told.First+toldRows, len(told))] {
		if len(b.Told.Rows) > 0 && show.Left < 2*toldText {
			break
		}
		row := toldRow{
			Seq: e.Seq, URL: recordURL(key, e.Seq, e.Event.ID()), Kind: present.KindOf(e), Author: clip(e.Event.Author(), nameRunes),
			Time: when(e.Event.Timestamp()), Content: show.event(e.Event, e.Seq),
		}
		row.Content.State, row.Content.Notes = nil, nil // the event's own page has them
		if len(how) > 0 {
			for _, id := range identifiers.NewIndex(identifiers.Text(e.Event)).Identifiers() {
				shown := clip(id, lossLength)
				switch how[id] {
				case markGone:
					row.Gone = append(row.Gone, shown)
				case markElsewhere:
					row.Elsewhere = append(row.Elsewhere, shown)
				}
			}
			row.Gone, row.GoneMore = cutTo(row.Gone, rowNames)
			row.Elsewhere, row.ElsewhereMore = cutTo(row.Elsewhere, rowNames)
			for _, id := range slices.Concat(row.Gone, row.Elsewhere) {
				show.Left -= len(id) + markBytes
			}
		}
		b.Told.Rows = append(b.Told.Rows, row)
		b.Told.Next++
	}
	b.ShownAll = len(b.Told.Rows) == len(told)
	at := func(from int) template.URL {
		url, _ := query("summary", "key", key, "at", b.At, "index", b.Index, "from", from)
		return url + "#told"
	}
	if b.Told.First > 0 {
		b.Earlier = at(max(b.Told.First-toldRows, 0))
	}
	if b.Told.Next < len(told) {
		b.Later = at(b.Told.Next)
	}
	return nil
}

// lossLines are the lines of [present.LossDocument.Lines] with the identifiers marked: of each
// sort most at most. cut says whether some were left out.
func lossLines(d present.LossDocument, most int) (lines [][]run, cut bool) {
	lists := []struct {
		mark  string
		names *[]string
	}{{markGone, &d.Gone}, {markElsewhere, &d.Elsewhere}, {markInvented, &d.Invented}, {"", &d.Numbers}}
	plain := d.Lines()
	const heads = 2 // lines without a list
	for _, l := range plain[:heads] {
		lines = append(lines, []run{{Text: l}})
	}
	rest := plain[heads:]
	for _, list := range lists {
		if len(*list.names) == 0 {
			continue
		}
		head, names := rest[0], *list.names
		rest = rest[1:]
		line := []run{}
		head = head[:len(head)-joinedLen(names)]
		line = append(line, run{Text: head})
		names, more := cutTo(names, most)
		for n, name := range names {
			if n > 0 {
				line = append(line, run{Text: ", "})
			}
			shown := clip(name, lossLength)
			cut = cut || shown != present.Printable(name)
			line = append(line, run{shown, list.mark})
		}
		if more > 0 {
			cut = true
			line = append(line, run{Text: fmt.Sprintf(" … and %d more", more)})
		}
		lines = append(lines, line)
	}
	return lines, cut
}

// joinedLen is how many bytes names take in a line.
func joinedLen(names []string) int {
	n := len(", ") * (len(names) - 1)
	for _, name := range names {
		n += len(present.Printable(name))
	}
	return n
}
