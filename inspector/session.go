package inspector

import (
	"context"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

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
	Log      rows[row]
	Visible  rows[row]
	State    []stateRow

	StateAll, StateMore int // keys there are, and of them those that are not shown
}

// Kinds are those that the log can be filtered by.
func (sessionBody) Kinds() []present.Kind {
	return []present.Kind{present.User, present.Model, present.Call, present.Response, present.Summary, present.Patch}
}

// kindOfStep is a record's kind for the filter and the drawing: a patch of compaction, or one that put in a summary,
// counts as a summary.
func kindOfStep(s step) present.Kind {
	if p := s.Patch; p != nil && p.Applied && (p.Type == patch.Summarise || p.Pass != nil) {
		return present.Summary
	}
	return s.Kind
}

// rows are some of the rows that there are.
type rows[T any] struct {
	Rows             []T
	First, Next, All int  // the first row's place, that of the one behind the last, and how many there are
	Earlier, Later   *int // where to begin, to see others; nil if there are none
}

// cutRows are the rows of a page that begins at a place, or else ends with the last row.
func cutRows(from uint64, given bool, all int) rows[row] {
	out := rows[row]{All: all, First: max(all-pageRows, 0)}
	if given {
		out.First = int(min(from, uint64(max(all-1, 0))))
	}
	out.Next = min(out.First+pageRows, all)
	if out.First > 0 {
		n := max(out.First-pageRows, 0)
		out.Earlier = &n
	}
	if out.Next < all {
		n := out.Next
		out.Later = &n
	}
	return out
}

// row is a record in the raw log, or an event that a model sees.
type row struct {
	Seq     uint64
	Kind    present.Kind
	ID      string
	Author  string
	Text    string
	Time    string
	Tokens  string // about how many it takes, and of a visible event all up to it
	Turn    int    // its turn, if it is another one than that of the row before
	Index   int    // among the visible events
	Visible bool
	Pinned  bool
	Summary bool
	Erased  bool

	By       uint64 // the record of the patch that hides it; 0 if none does
	Receipt  uint64 // the record of the receipt by which it was erased; 0 if none is known
	Erasable bool
	Patch    *patchRow
}

// patchRow is what the log says of a patch, in the words of the audit.
type patchRow struct {
	Type    patch.Type
	Applied bool
	Notes   []present.Note
	Summary bool // it put in summaries that can be opened
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
	if len(r.Form) > 1 { // a wrong parameter besides the key is reported by the status, which begin sends
		return i.showSession(ctx, w, r, key)
	}
	unread, err := i.unread(ctx, key)
	if err != nil {
		return err
	}
	if unread <= progressRecords {
		return i.showSession(ctx, w, r, key)
	}
	if w, err = i.begin(w, r, page{Title: key.String(), Key: &key}, unread); err != nil {
		return err
	}
	if err := i.showSession(ctx, w, r, key); err != nil {
		i.fail(w, r, err)
	}
	return nil
}

// progressRecords is how many records a session page reads before its start is sent. More are read afterwards, when
// an error can no longer set the status.
const progressRecords = 20_000

func (i *Inspector) showSession(ctx context.Context, w http.ResponseWriter, r *http.Request, key store.Key) error {
	t, err := i.timeline(ctx, key)
	if err != nil {
		return err
	}
	after, follows, err := number(r, "after")
	if err != nil {
		return err
	}
	if follows {
		return i.news(ctx, w, r, key, t, min(after, t.last()))
	}
	b, err := i.sessionBody(ctx, r, key, t)
	if err != nil {
		return err
	}
	return i.render(w, r, http.StatusOK, "session", page{Title: key.String(), Key: &key, Body: b})
}

// news answers with the rows that came after a record, for a page that follows; without content if a patch changed
// others, or if they are many.
func (i *Inspector) news(ctx context.Context, w http.ResponseWriter, r *http.Request, key store.Key, t *timeline, after uint64) error {
	if t.last()-after > pageRows || slices.ContainsFunc(t.steps[after:], func(s step) bool { return s.Patch != nil }) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	v, err := i.store.ViewAt(ctx, key, t.last())
	if err != nil {
		return err
	}
	b := sessionBody{Key: key.String(), At: t.last(), Last: t.last(), Newest: true, Headline: t.headline(v, i.opts.Price), Turns: t.at(t.last()).Turn}
	b.Log.All, b.Visible.All = int(t.last()), v.Len()
	if b.Log.Rows, err = i.recordRows(ctx, key, t, v, after, t.last(), nil); err != nil {
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
		Before: max(at, 1) - 1, After: at + 1, Drawing: newDrawing(t, v), State: stateRows(v, shared), Headline: t.headline(v, i.opts.Price), Turn: t.at(at).Turn, Kind: r.FormValue("kind"),
	}
	if at > 0 {
		b.Turns = slices.MaxFunc(t.steps, func(a, b step) int { return a.Turn - b.Turn }).Turn
	}
	b.StateAll = len(b.State)
	b.Stats = t.stats(v, b.StateAll)
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

// headline says in a sentence how much of the log a model sees, what that saves at a price of a million tokens, and how
// many identifiers the visible summaries lost, as counted when they were written.
func (t *timeline) headline(v fold.View, price float64) string {
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
	if saved := float64(s.Raw-s.Visible) * price / 1e6; saved >= 0.0001 {
		text += fmt.Sprintf(" · each prompt costs about %.4f less", saved)
	}
	if lost > 0 {
		text += " · " + present.Counted(lost, "identifier") + " not in sight"
	}
	return text
}

// stats are a session's figures after a record, as 'patchlog stats' shows them.
func (t *timeline) stats(v fold.View, stateKeys int) (rows []present.Row) {
	stats := present.Stats{Patches: map[patch.Type]int{}}
	for _, s := range t.steps[:v.Seq()] {
		if p := s.Patch; p != nil {
			stats.CountPatch(s.Seq, p.Type, s.Time, p.Pass)
		}
	}
	stats.Tokens.Raw = t.at(v.Seq()).Raw
	stats.Complete(t.info, v, stateKeys)
	for _, r := range stats.Rows()[1:] { // the first one is the heading
		name := strings.TrimLeft(r.Name, " ")
		rows = append(rows, present.Row{Name: strings.ToUpper(name[:1]) + name[1:], Text: r.Text})
	}
	return rows
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
func (i *Inspector) logRows(ctx context.Context, r *http.Request, key store.Key, t *timeline, v fold.View) (rows[row], error) {
	from, given, err := number(r, "log")
	if err != nil {
		return rows[row]{}, err
	}
	kind := present.Kind(r.FormValue("kind"))
	var seqs []uint64
	for _, s := range t.steps[:v.Seq()] {
		if kind == "" || kindOfStep(s) == kind {
			seqs = append(seqs, s.Seq)
		}
	}
	first, _ := slices.BinarySearch(seqs, max(from, 1))
	out := cutRows(uint64(first), given, len(seqs))
	for _, place := range []*int{out.Earlier, out.Later} { // they are told by their records
		if place != nil {
			*place = int(seqs[*place]) - 1
		}
	}
	if out.First == out.Next {
		return out, nil
	}
	seqs = seqs[out.First:out.Next]
	out.Rows, err = i.recordRows(ctx, key, t, v, seqs[0]-1, seqs[len(seqs)-1], seqs)
	return out, err
}

// recordRows returns the rows of the view's records after the record after, up to the record last. If seqs is not nil,
// only those records get a row.
func (i *Inspector) recordRows(ctx context.Context, key store.Key, t *timeline, v fold.View, after, last uint64, seqs []uint64) (out []row, err error) {
	if after == last {
		return nil, nil
	}
	places, err := v.Places()
	if err != nil {
		return nil, err
	}
	receipts, turn := t.receiptsByID(), t.at(after).Turn
	for rec, err := range i.store.RawEvents(ctx, key, after+1) {
		if err != nil {
			return nil, err
		}
		if rec.Seq > last {
			break
		}
		if seqs != nil && !slices.Contains(seqs, rec.Seq) {
			continue
		}
		s := t.at(rec.Seq)
		shown := row{Seq: rec.Seq, ID: rec.ID(), Kind: s.Kind, Time: when(s.Time), Erasable: erasable(rec)}
		if s.Turn != turn {
			shown.Turn, turn = s.Turn, s.Turn
		}
		if by, erased := records.Envelope(rec).ErasedBy(); erased {
			shown.Erased, shown.Receipt = true, receipts[by]
		}
		if e := rec.Event; e != nil {
			shown.Tokens = tokenCount(s.Tokens)
			shown.Author, shown.Text = e.Author(), present.EntryText(fold.Entry{Event: e, Summary: e.IsSummary()})
			place, _ := places.Of(rec.Seq, 0)
			shown.Visible, shown.Index, shown.By = place.Index >= 0, place.Index, place.HiddenBySeq
		} else {
			shown.Author, shown.Text = rec.Patch.Author(), present.PatchText(rec.Patch)
			shown.Patch = patchRowOf(s.Patch, rec.Patch)
		}
		out = append(out, shown)
	}
	return out, nil
}

func patchRowOf(s *patchStep, p *patch.PatchEvent) *patchRow {
	return &patchRow{p.Type(), s.Applied, s.Notes, putsInSummary(p, p.NewEvents())}
}

// visibleRows are the events that a model sees, as many as a page has.
func visibleRows(r *http.Request, t *timeline, v fold.View) (rows[row], error) {
	from, given, err := number(r, "visible")
	if err != nil {
		return rows[row]{}, err
	}
	out := cutRows(from, given, v.Len())
	out.Rows = rowsOf(t, v, out.First, out.Next)
	return out, nil
}

// rowsOf are the visible events with the indices from first up to, but without, next.
func rowsOf(t *timeline, v fold.View, first, next int) []row {
	var out []row
	sum, turn := 0, 0
	for n := range next {
		e := v.Entry(n)
		tokens, before := e.Event.EstimatedTokens(), turn
		sum, turn = sum+tokens, t.at(e.Seq).Turn
		if n < first {
			continue
		}
		_, erased := e.Event.ErasedBy()
		shown := row{
			Index: n, Seq: e.Seq, Kind: present.KindOf(e), ID: e.Event.ID(), Author: e.Event.Author(), Text: present.EntryText(e),
			Time: when(e.Event.Timestamp()), Tokens: tokenCount(tokens) + ", " + present.Grouped(sum) + " so far", Pinned: e.Pinned, Summary: e.Summary, Erased: erased,
		}
		if turn != before {
			shown.Turn = turn
		}
		out = append(out, shown)
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

// drawnPlaces is the maximum number of cells and of ticks of a kind, whatever the log's length.
const drawnPlaces = 600

// Where parts of a drawing are, in pixels from its top.
const (
	cellTop = 2 // cells of visible events begin here,
	cellLow = 20
	cellEnd = 38 // and all end here
)

// drawing shows a log from its first record at the left to its last. Cells are tall where an event is visible to the
// model after the record Now, and ticks mark patches.
type drawing struct {
	Label               string
	Last, Now           uint64
	Per                 int    // records that a cell stands for
	Seen, Hidden, Later string // paths of cells
	Compactions, Manual ticks
}

// ticks are the number of patches of a kind, and a path with one tick for each place that has some.
type ticks struct {
	N    int
	Path string
}

// newDrawing draws the log as it stood after the view's record.
func newDrawing(t *timeline, v fold.View) *drawing {
	if t.last() == 0 {
		return nil
	}
	d := &drawing{Last: t.last(), Now: v.Seq(), Per: (len(t.steps) + drawnPlaces - 1) / drawnPlaces}
	d.Label = fmt.Sprintf("The raw log: %s. After record %d, of %s the model sees %s.",
		present.Counted(d.Last, "record"), d.Now, present.Counted(d.Now, "record"), present.Counted(v.Len(), "event"))
	seen := make([]bool, len(t.steps))
	for _, e := range v.Entries() {
		seen[e.Seq-1] = true
	}
	for n, s := range t.steps {
		if n%d.Per == 0 {
			d.cell(n, seen[n:min(n+d.Per, len(seen))])
		}
		if s.Patch != nil && kindOfStep(s) == present.Summary {
			d.Compactions.add(s.Seq, d.Last)
		} else if s.Patch != nil {
			d.Manual.add(s.Seq, d.Last)
		}
	}
	return d
}

// cell adds a cell for the records that seen is of; from is the index of the first.
func (d *drawing) cell(from int, seen []bool) {
	path, top := &d.Later, cellLow
	if slices.Contains(seen, true) {
		path, top = &d.Seen, cellTop
	} else if from < int(d.Now) {
		path = &d.Hidden
	}
	*path += fmt.Sprintf("M%d %dh%dV%dH%dz", from, top, len(seen), cellEnd, from)
}

// add counts a patch, and adds a tick unless the place has one.
func (t *ticks) add(seq, last uint64) {
	t.N++
	place := seq * drawnPlaces / last
	if tick := fmt.Sprintf("M%d %dv6", (place*last+drawnPlaces-1)/drawnPlaces, cellEnd+2); !strings.HasSuffix(t.Path, tick) {
		t.Path += tick
	}
}

const (
	// So often at most a page is told that the log has grown, whatever is logged: reading costs
	// the writers next to nothing then.
	liveInterval = 250 * time.Millisecond

	// So often a page is told that nothing has happened, so that what stands between does not
	// close the connection, and one that is dead shows.
	liveBeat = 20 * time.Second
)

// live tells a page, as server-sent events, up to which record the session's log has grown: events
// "records", whose data and id are a seq. A page that lost the connection says with the id where it
// was. When the session is deleted, or its log is another one, "gone" comes, and nothing more.
func (i *Inspector) live(w http.ResponseWriter, r *http.Request) error {
	key, err := i.key(r, Read)
	if err != nil {
		return err
	}
	after, _, err := number(r, "after")
	if err != nil {
		return err
	}
	if seen, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 63); err == nil {
		after = seen
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // a server's limits are for pages; this one ends when its reader leaves, or reads no more
	send := func(format string, args ...any) error {
		control.SetWriteDeadline(time.Now().Add(pageTimeout))
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return err
		}
		return control.Flush()
	}
	for ctx := r.Context(); ctx.Err() == nil; {
		info, err := i.store.Info(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound), err == nil && info.Creation != r.FormValue("creation"):
			return ignoreGone(send("event: gone\nid: 0\ndata: 0\n\n"))
		case err != nil:
			if ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
				i.opts.Logger.Error("inspector: following a session", "key", key.String(), "err", err)
			}
			return nil
		case !i.may(r, key, Read):
			return nil
		case info.Seq > after:
			after = info.Seq
			err = send("event: records\nid: %d\ndata: %[1]d\n\n", after)
		default:
			err = send(":\n\n") // so that the page knows that it is connected
		}
		if err != nil {
			return nil // the reader has left
		}
		select {
		case <-time.After(liveInterval):
		case <-ctx.Done():
		}
		wait, cancel := context.WithTimeout(ctx, liveBeat)
		for range i.store.Watch(wait, key, after+1) {
			break // a record, or an error, which Info tells as well
		}
		cancel()
	}
	return nil
}
