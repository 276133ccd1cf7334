package inspector

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// pageRows is the number of rows of either log on a page.
const pageRows = 100

// sessionBody is the page of a session, as it stood after a record.
type sessionBody struct {
	Key      string
	At, Last uint64
	Newest   bool
	Creation string

	Before, After           uint64 // the records beside it
	PatchBefore, PatchAfter uint64 // the patches before and after it; 0 if there is none
	CompareFrom             uint64 // the record before the newest patch up to it, to compare with
	Turn, Turns             int    // the turn that it is of, and how many there are
	Kind                    string // of the records that the log shows; "" is all

	Headline string
	Stats    []present.Row
	Drawing  *drawing
	Log      rows[logRow]
	Visible  rows[visibleRow]
	State    []stateRow

	StateAll, StateMore int // keys there are, and of them those that are not shown

}

// Kinds are those that the log can be filtered by.
func (sessionBody) Kinds() []present.Kind { return cellKinds }

// rows are some of the rows that there are.
type rows[T any] struct {
	Rows             []T
	First, Next, All int  // the first row's place, that of the one behind the last, and how many there are
	Earlier, Later   *int // where to begin, to see others; nil if there are none
}

// cutRows are the rows of a page that begins at a place, or else ends with the last row.
func cutRows(from uint64, given bool, all int) (first, next int, earlier, later *int) {
	first = max(all-pageRows, 0)
	if given {
		first = int(min(from, uint64(max(all-1, 0))))
	}
	next = min(first+pageRows, all)
	if first > 0 {
		n := max(first-pageRows, 0)
		earlier = &n
	}
	if next < all {
		n := next
		later = &n
	}
	return first, next, earlier, later
}

// logRow is a record in the raw log.
type logRow struct {
	Seq     uint64
	Kind    present.Kind
	ID      string
	Author  string
	Text    string
	Time    string
	Tokens  string // about how many it takes; "" if none
	Turn    int    // its turn, if it is another one than that of the row before
	Visible bool
	Index   int    // among the visible events
	By      uint64 // the record of the patch that hides it; 0 if none does
	Erased  bool
	Receipt uint64 // the record of the receipt by which it was erased; 0 if none is known

	Erasable bool

	Patch *patchRow
}

// patchRow is what the log says of a patch, in the words of the audit.
type patchRow struct {
	Type    patch.Type
	Applied bool
	Notes   []present.Note
	Summary bool // it put in summaries that can be opened
}

// visibleRow is an event that a model sees.
type visibleRow struct {
	Index   int
	Seq     uint64
	Kind    present.Kind
	ID      string
	Author  string
	Text    string
	Time    string
	Tokens  string // about how many it takes, and all events up to it
	Turn    int    // as of a log row
	Pinned  bool
	Summary bool
	Erased  bool
}

// stateRow is a key of the state.
type stateRow struct {
	Key, Value string
	Shared     bool // with other sessions, and so without a past
}

func (i *Inspector) sessionPage(w http.ResponseWriter, r *http.Request) error {
	key, err := i.key(r, Read)
	if err != nil {
		return err
	}
	ctx, done := withTimeout(r)
	defer done()
	t, err := i.timeline(ctx, key)
	if err != nil {
		return err
	}
	if _, given, err := number(r, "after"); err != nil || given {
		return i.news(ctx, w, r, key, t, err)
	}
	b, err := i.sessionBody(ctx, r, key, t)
	if err != nil {
		return err
	}
	return i.render(w, r, http.StatusOK, "session", page{Title: key.String(), Key: &key, Body: b})
}

// news answers with the rows that came after a record, for a page that follows; without content if a patch changed
// others, or if they are many.
func (i *Inspector) news(ctx context.Context, w http.ResponseWriter, r *http.Request, key store.Key, t *timeline, err error) error {
	after, _, numberErr := number(r, "after")
	if err = cmp.Or(err, numberErr); err != nil {
		return err
	}
	after = min(after, t.last())
	if t.last()-after > pageRows || slices.ContainsFunc(t.steps[after:], func(s step) bool { return s.Patch != nil }) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	v, err := i.store.ViewAt(ctx, key, t.last())
	if err != nil {
		return err
	}
	b := sessionBody{Key: key.String(), At: t.last(), Last: t.last(), Newest: true, Headline: t.headline(v), Turns: t.at(t.last()).Turn}
	b.Log.All, b.Visible.All = int(t.last()), v.Len()
	err = i.eachRow(ctx, key, t, v, int(after), int(t.last()), nil, func(_ patch.Record, row logRow) { b.Log.Rows = append(b.Log.Rows, row) })
	if err != nil {
		return err
	}
	b.Visible.Rows = rowsOf(t, v, t.at(after).Events, v.Len())
	return i.render(w, r, http.StatusOK, "news", page{Key: &key, Body: b})
}

// sessionBody is the session as it stood after the record that a request asks for, or the newest.
func (i *Inspector) sessionBody(ctx context.Context, r *http.Request, key store.Key, t *timeline) (b sessionBody, err error) {
	at, given, err := number(r, "at")
	if err != nil {
		return b, err
	}
	turn, ofTurn, err := number(r, "turn")
	if err != nil {
		return b, err
	}
	if !given {
		at = t.last()
	}
	if ofTurn {
		given = true
		if at, err = t.turnEnd(int(turn)); err != nil {
			return b, fmt.Errorf("session %s: %w", key, err)
		}
	}
	session, shared, err := i.sessionAt(ctx, key, at, t.last())
	if err != nil {
		return b, err
	}
	v := session.View
	b = sessionBody{
		Key: key.String(), At: at, Last: t.last(), Newest: !given, Creation: t.info.Creation,
		Before: max(at, 1) - 1, After: at + 1, Drawing: newDrawing(t, v, func(seq uint64) template.URL { return sessionURL(key, seq) }), State: stateRows(v, shared),
		Headline: t.headline(v), Stats: t.stats(session), Turn: t.at(at).Turn, Kind: r.FormValue("kind"),
	}
	if at > 0 {
		b.Turns = slices.MaxFunc(t.steps, func(a, b step) int { return a.Turn - b.Turn }).Turn
	}
	b.StateAll = len(b.State)
	b.State, b.StateMore = cutState(b.State)
	for _, s := range t.steps {
		switch {
		case s.Patch == nil:
		case s.Seq < at:
			b.PatchBefore = s.Seq
		case s.Seq > at && b.PatchAfter == 0:
			b.PatchAfter = s.Seq
		}
		if s.Patch != nil && s.Seq <= at {
			b.CompareFrom = s.Seq - 1
		}
	}
	if b.Log, err = i.logRows(ctx, r, key, t, v); err != nil {
		return b, err
	}
	b.Visible, err = visibleRows(r, t, v)
	return b, err
}

// turnEnd is the last record before the turn after one begins.
func (t *timeline) turnEnd(turn int) (uint64, error) {
	n := slices.IndexFunc(t.steps, func(s step) bool { return s.Turn > turn })
	switch {
	case n > 0:
		return t.steps[n-1].Seq, nil
	case t.last() == 0 || slices.IndexFunc(t.steps, func(s step) bool { return s.Turn >= turn }) < 0:
		return 0, fmt.Errorf("%w: there is no turn %d", store.ErrNotFound, turn)
	}
	return t.last(), nil
}

// headline says in a sentence how much of the log a model sees, and how many identifiers the visible summaries lost, as
// counted when they were written.
func (t *timeline) headline(v fold.View) string {
	s, events, passes, lost := t.at(v.Seq()), 0, 0, 0
	for _, s := range t.steps[:v.Seq()] {
		switch {
		case s.Patch == nil:
			events++
		case s.Patch.Pass != nil && s.Patch.Applied:
			passes++
		}
	}
	var summarised []uint64 // the records that put in a visible summary
	for _, e := range v.Entries() {
		if e.Summary && !slices.Contains(summarised, e.Seq) {
			summarised = append(summarised, e.Seq)
			if p := t.at(e.Seq).Patch; p != nil && p.Pass != nil {
				lost += p.Pass.Lost
			}
		}
	}
	text := fmt.Sprintf("The model sees %s of %s and about %s of %s tokens · %s",
		present.Grouped(s.Events), present.Counted(events, "event"), present.Grouped(s.Visible), present.Grouped(s.Raw), present.Counted(passes, "compaction"))
	if lost > 0 {
		text += " · " + present.Counted(lost, "identifier") + " not in sight"
	}
	return text
}

// stats are a session's figures as 'patchlog stats' shows them, or, of an earlier time, those of
// them that a view and its log tell.
func (t *timeline) stats(session store.Session) []present.Row {
	v := session.View
	at := v.Seq()
	var rows []present.Row
	if at == t.last() {
		rows = t.tally.Stats(t.info, session).Rows()
	} else {
		s := t.at(at)
		rows = []present.Row{
			{Name: "records", Text: fmt.Sprint(at)},
			{Name: "skipped patches", Text: fmt.Sprint(v.SkippedCount())},
			{Name: "visible events", Text: fmt.Sprint(v.Len())},
			{Name: "tokens, about", Text: present.Sizes{Raw: s.Raw, Visible: s.Visible}.String()},
			{Name: "prompt", Text: present.PromptOf(v).String()},
		}
	}
	var out []present.Row
	for _, r := range rows {
		if r.Name == "session" {
			continue // it is the heading
		}
		name := strings.TrimLeft(r.Name, " ")
		out = append(out, present.Row{Name: strings.ToUpper(name[:1]) + name[1:], Text: r.Text})
	}
	return out
}

// sessionAt returns the session with its view after a record, and the values that it shares with
// others, if the record is the newest.
func (i *Inspector) sessionAt(ctx context.Context, key store.Key, at, last uint64) (store.Session, map[string]patch.Value, error) {
	if at > last {
		return store.Session{}, nil, fmt.Errorf("session %s: %w: there is no record %d", key, store.ErrNotFound, at)
	}
	if at < last {
		v, err := i.store.ViewAt(ctx, key, at)
		return store.Session{Key: key, View: v}, nil, err
	}
	session, err := i.store.Get(ctx, key)
	if err != nil {
		return store.Session{}, nil, err
	}
	shared := session.Values()
	maps.DeleteFunc(shared, func(name string, _ patch.Value) bool { return statekey.ScopeOf(name) == statekey.Session })
	if session.View.Seq() != at { // it has grown since
		session.View, err = i.store.ViewAt(ctx, key, at)
	}
	return session, shared, err
}

// logRows are the records up to the view's, of a kind if one is asked for, as many as a page has.
func (i *Inspector) logRows(ctx context.Context, r *http.Request, key store.Key, t *timeline, v fold.View) (rows[logRow], error) {
	from, given, err := number(r, "log")
	if err != nil {
		return rows[logRow]{}, err
	}
	kind := present.Kind(r.FormValue("kind"))
	var seqs []uint64
	for _, s := range t.steps[:v.Seq()] {
		if kind == "" || kindOfCell(s) == kind {
			seqs = append(seqs, s.Seq)
		}
	}
	out := rows[logRow]{All: len(seqs)}
	first, _ := slices.BinarySearch(seqs, max(from, 1))
	out.First, out.Next, out.Earlier, out.Later = cutRows(uint64(first), given, len(seqs))
	for _, place := range []*int{out.Earlier, out.Later} { // they are told by their records
		if place != nil {
			*place = int(seqs[*place]) - 1
		}
	}
	if out.First == out.Next {
		return out, nil
	}
	seqs = seqs[out.First:out.Next]
	err = i.eachRow(ctx, key, t, v, int(seqs[0])-1, int(seqs[len(seqs)-1]), seqs, func(_ patch.Record, row logRow) { out.Rows = append(out.Rows, row) })
	return out, err
}

// eachRow calls do for records of the view's log: those behind the first ones, up to the one with
// the seq next, of them those with some seqs if these are not nil.
func (i *Inspector) eachRow(ctx context.Context, key store.Key, t *timeline, v fold.View, first, next int, seqs []uint64, do func(patch.Record, logRow)) error {
	if first == next {
		return nil
	}
	places, err := v.Places()
	if err != nil {
		return err
	}
	receipts, turn := t.receiptsByID(), t.at(uint64(first)).Turn
	for rec, err := range i.store.RawEvents(ctx, key, uint64(first)+1) {
		if err != nil {
			return err
		}
		if rec.Seq > uint64(next) {
			break
		}
		if seqs != nil && !slices.Contains(seqs, rec.Seq) {
			continue
		}
		s := t.at(rec.Seq)
		row := logRow{Seq: rec.Seq, ID: rec.ID(), Kind: s.Kind, Time: when(s.Time), Tokens: tokensText(s.Tokens), Erasable: erasable(rec)}
		if s.Turn != turn {
			row.Turn, turn = s.Turn, s.Turn
		}
		if by, erased := records.Envelope(rec).Erased(); erased {
			row.Erased, row.Receipt = true, receipts[by]
		}
		if e := rec.Event; e != nil {
			row.Author, row.Text = e.Author(), present.EntryText(fold.Entry{Event: e, Summary: e.IsSummary()})
			place, _ := places.Of(rec.Seq, 0)
			row.Visible, row.Index, row.By = place.Index >= 0, place.Index, place.HiddenBySeq
		} else {
			row.Author, row.Text = rec.Patch.Author(), present.PatchText(rec.Patch)
			row.Patch = patchRowOf(s.Patch, rec.Patch)
		}
		do(rec, row)
	}
	return nil
}

// tokensText says about how many tokens a row takes.
func tokensText(tokens int) string {
	if tokens == 0 {
		return ""
	}
	return tokenCount(tokens)
}

func patchRowOf(s *patchStep, p *patch.PatchEvent) *patchRow {
	return &patchRow{p.Type(), s.Applied, s.Notes, putsInSummary(p, p.NewEvents())}
}

// visibleRows are the events that a model sees, as many as a page has.
func visibleRows(r *http.Request, t *timeline, v fold.View) (rows[visibleRow], error) {
	from, given, err := number(r, "visible")
	if err != nil {
		return rows[visibleRow]{}, err
	}
	out := rows[visibleRow]{All: v.Len()}
	out.First, out.Next, out.Earlier, out.Later = cutRows(from, given, out.All)
	out.Rows = rowsOf(t, v, out.First, out.Next)
	return out, nil
}

// rowsOf are the visible events with the indices from first up to, but without, next.
func rowsOf(t *timeline, v fold.View, first, next int) []visibleRow {
	var out []visibleRow
	sum, turn := 0, 0
	for n := range next {
		e := v.Entry(n)
		tokens, before := e.Event.EstimatedTokens(), turn
		sum, turn = sum+tokens, t.at(e.Seq).Turn
		if n < first {
			continue
		}
		_, erased := e.Event.Erased()
		row := visibleRow{
			Index: n, Seq: e.Seq, Kind: present.KindOf(e), ID: e.Event.ID(), Author: e.Event.Author(), Text: present.EntryText(e),
			Time: when(e.Event.Timestamp()), Tokens: tokenCount(tokens) + ", " + present.Grouped(sum) + " so far", Pinned: e.Pinned, Summary: e.Summary, Erased: erased,
		}
		if turn != before {
			row.Turn = turn
		}
		out = append(out, row)
	}
	return out
}

// stateBytes is about the most bytes that the state takes of a page.
const stateBytes = 300_000

// cutState are the first keys of a state, as many as a page has room for, and how many more there are.
func cutState(all []stateRow) (shown []stateRow, more int) {
	left := stateBytes
	for n, row := range all {
		if left -= blockBytes + len(html.EscapeString(indented(row.Value))); left < 0 && n > 0 {
			return all[:n], len(all) - n
		}
	}
	return all, 0
}

// stateRows are the state's keys in order, as they were replayed, and those of the shared values.
func stateRows(v fold.View, shared map[string]patch.Value) []stateRow {
	var out []stateRow
	for name, value := range v.Values() {
		out = append(out, stateRow{name, value.String(), false})
	}
	for name, value := range shared {
		out = append(out, stateRow{name, value.String(), true})
	}
	slices.SortFunc(out, func(a, b stateRow) int { return strings.Compare(a.Key, b.Key) })
	return out
}
