package inspector

import (
	"context"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// pageRows is the number of rows per page. The last page may have up to half as many more.
const pageRows = 100

// sessionBody is the page of a session as of record At: its picture, the visible log, and a side panel.
type sessionBody struct {
	Key      store.Key
	At, Last uint64
	Newest   bool
	Creation string
	EditMode bool // events can be selected
	File     bool // see page.File
	First    int  // index of the first row, if the request names one; else -1

	Turn, Turns int
	Time        time.Time // time of record At

	Headline headline
	Picture  *picture
	Visible  rows
	Notice   *notice

	status int // HTTP status of the response

	Panel      string // template of the side panel
	Title      string // title of a panel that has no tab
	Body       any
	OpenRecord uint64 // seq of the record in the panel, or 0
	ConfirmBar *actPage

	timeline *timeline
	redactor *redact.Redactor // redacts texts if not nil
	view     fold.View
	targets  []target
}

// headline says how much of the raw log the model sees.
type headline struct {
	Visible, Raw string
	Events       string // "18 of 1,000 events"
	Changes      []string
	Saved        string
	Lost         int // identifiers that the visible summaries lost, as compaction counted them
	LostIndex    int // index of the first summary that lost identifiers, or -1
}

type notice struct {
	Text          string
	DifferenceURL template.URL // URL of the difference
	Undo          []actField   // fields of the undo form; nil if the action cannot be undone
}

type rows struct {
	Items            []item
	First, Next, All int // index of the first row, index after the last row, number of all rows
}

// Earlier returns the first row of the previous page, or -1 if there is none.
func (r rows) Earlier() int {
	if r.First == 0 {
		return -1
	}
	return max(r.First-pageRows, 0)
}

// Later returns the first row of the next page, or -1 if there is none.
func (r rows) Later() int {
	if r.Next >= r.All {
		return -1
	}
	return r.Next
}

// paginate returns the page that starts at the row with index from. If this index is -1, paginate returns the last
// page. As a log grows, the start of the last page moves in steps of half a page.
func paginate(from, all int) rows {
	out := rows{All: all, First: max((all-pageRows)/(pageRows/2)*(pageRows/2), 0)}
	if out.Next = all; from >= 0 {
		out.First = min(from, max(all-1, 0))
		out.Next = min(out.First+pageRows, all)
	}
	return out
}

// PageURL returns the URL of another page of the session. It keeps the record, the selection mode and the position.
func (b sessionBody) PageURL(path string, pairs ...any) template.URL {
	all := []any{"key", b.Key, "at", "", "edit", "", "visible", ""}
	if !b.Newest {
		all[3] = b.At
	}
	if b.EditMode {
		all[5] = 1
	}
	if b.First >= 0 {
		all[7] = b.First
	}
	return query(path, append(all, pairs...)...)
}

// URLAtOffset returns the URL of the session as of the record At+offset.
func (b sessionBody) URLAtOffset(offset int) template.URL {
	return query("session", "key", b.Key, "at", int(b.At)+offset)
}

// ActionURL returns the URL of the preview of an action on a record.
func (b sessionBody) ActionURL(act string, seq uint64) template.URL {
	return query("act", "act", act, "key", b.Key, "creation", b.Creation, "at", b.Last, "seq", seq)
}

// TabRecord returns the seq of the record that the tab "Record" opens.
func (b sessionBody) TabRecord() uint64 {
	if b.OpenRecord > 0 {
		return b.OpenRecord
	}
	return max(b.At, 1)
}

// panel fills the side panel of a session's page.
type panel func(ctx context.Context, r *http.Request, b *sessionBody) error

// sessionPage answers with a session's page. It calls fill to fill in the panel with the given name.
func (i *Inspector) sessionPage(name string, fill panel) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		key, err := i.authorizedKey(r, Read)
		if err != nil {
			return err
		}
		ctx, done := context.WithTimeout(r.Context(), pageTimeout)
		defer done()
		b, err := i.newSessionBody(ctx, r, key)
		if err != nil {
			return err
		}
		b.Panel, b.status = name, http.StatusOK
		if err := fill(ctx, r, &b); err != nil {
			return err
		}
		return i.renderSession(w, r, b)
	}
}

func (i *Inspector) renderSession(w http.ResponseWriter, r *http.Request, b sessionBody) error {
	title := present.Printable(b.Key.Session)
	if b.Title != "" {
		title = b.Title + " · " + title
	}
	return i.render(w, r, b.status, "session", page{Title: title, Key: &b.Key, Body: b})
}

// newSessionBody returns the page of a session as of the record that the request names, or of the newest one. The
// panel is not filled.
func (i *Inspector) newSessionBody(ctx context.Context, r *http.Request, key store.Key) (b sessionBody, err error) {
	b = sessionBody{Key: key, EditMode: r.FormValue("edit") != "" && (i.isAllowed(r, key, Write) || i.isAllowed(r, key, Erase)), First: -1}
	if b.timeline, err = i.timeline(ctx, key); err != nil {
		return b, err
	}
	at, given, err := formNumber(r, "at")
	if err != nil {
		return b, err
	}
	turn, hasTurn, err := formNumber(r, "turn")
	if err != nil {
		return b, err
	}
	if hasTurn {
		if at, err = b.timeline.turnEnd(int(turn)); err != nil {
			return b, fmt.Errorf("session %s: %w", key, err)
		}
	} else if !given {
		at = b.timeline.last()
	}
	b.Newest = !given && !hasTurn
	from, given, err := formNumber(r, "visible")
	if err != nil {
		return b, err
	}
	if given {
		b.First = int(min(from, math.MaxInt32))
	}
	if err := i.fillSession(ctx, &b, at); err != nil {
		return b, err
	}
	b.Notice, err = i.newNotice(ctx, r, &b)
	return b, err
}

// fillSession fills in the page of a session. The argument at is the seq of the last record to show.
func (i *Inspector) fillSession(ctx context.Context, b *sessionBody, at uint64) (err error) {
	t := b.timeline
	if at > t.last() {
		return fmt.Errorf("session %s: %w: there is no record %d", b.Key, store.ErrNotFound, at)
	}
	if b.view, err = i.store.ViewAt(ctx, b.Key, at); err != nil {
		return err
	}
	if b.targets, err = t.targets(b.view); err != nil {
		return err
	}
	b.At, b.Last, b.Creation, b.Turn = at, t.last(), t.info.Creation, t.at(at).Turn
	for _, s := range t.steps {
		b.Turns = max(b.Turns, s.Turn)
	}
	if at > 0 {
		b.Time = t.at(at).Time
	}
	b.Headline = t.headline(b.view, i.opts.Price)
	b.Picture = newPicture(t, b.view, b.targets)
	switch b.Visible = paginate(b.First, b.view.Len()); {
	case b.File:
		b.Visible = rows{Next: b.view.Len(), All: b.view.Len()}
	case b.First >= 0:
		b.First = b.Visible.First
	}
	return i.conversationItems(ctx, b)
}

// headline returns how much of the raw log the model sees, and the numbers of active changes. If price, the
// price per million tokens, is above 0, it also returns what the changes save.
func (t *timeline) headline(v fold.View, price float64) headline {
	s, events, compactions, cuts, rewinds := t.at(v.Seq()), 0, 0, 0, 0
	reverted := map[string]bool{}
	for _, s := range slices.Backward(t.steps[:v.Seq()]) {
		switch p := s.Patch; {
		case p == nil:
			events++
		case !p.Applied || reverted[p.ID]:
		case p.Type == patch.Revert:
			reverted[p.Target] = true
		case p.Pass != nil:
			compactions++
		case p.RewoundTo >= 0:
			rewinds++
		case p.Hid > 0:
			cuts++
		}
	}
	h := headline{Visible: shortTokens(s.Visible), Raw: shortTokens(s.Raw), Events: present.Grouped(s.Events) + " of " + present.Counted(events, "event"), LostIndex: -1}
	for n, thing := range []string{"compaction", "cut", "rewind"} {
		if times := []int{compactions, cuts, rewinds}[n]; times > 0 {
			h.Changes = append(h.Changes, present.Counted(times, thing))
		}
	}
	var summarised []uint64 // seqs of the patches that added a visible summary
	for n, e := range v.Entries() {
		if p := t.at(e.Seq).Patch; e.Summary && p != nil && p.Pass != nil && !slices.Contains(summarised, e.Seq) {
			summarised = append(summarised, e.Seq)
			if h.Lost += p.Pass.Lost; h.Lost > 0 && h.LostIndex < 0 {
				h.LostIndex = n
			}
		}
	}
	if saved := float64(s.Raw-s.Visible) * price / 1e6; saved >= 0.0001 {
		h.Saved = fmt.Sprintf("each prompt costs about %.4f less", saved)
	}
	return h
}

// newNotice describes what the last action did. The request names the records that the action wrote as
// "first-last".
func (i *Inspector) newNotice(ctx context.Context, r *http.Request, b *sessionBody) (*notice, error) {
	text := r.FormValue("done")
	if text == "" || !b.Newest {
		return nil, nil
	}
	if text == "fork" {
		return &notice{Text: fmt.Sprintf("The new session begins with %s.", present.Counted(b.timeline.last(), "record"))}, nil
	}
	var first, last uint64
	if _, err := fmt.Sscanf(text, "%d-%d", &first, &last); err != nil || first < 1 || last < first || last > b.timeline.last() {
		return nil, badRequest("done", "%q is not a range of records", present.PrintableUpTo(text, 40))
	}
	step := b.timeline.at(last)
	if step.Patch == nil {
		return nil, badRequest("done", "record %d is an event", last)
	}
	n := &notice{Text: capitalize(b.timeline.describePatches(first, last)) + "."}
	if step.Patch.Type == patch.Erase {
		n.Text += " This cannot be undone."
		return n, nil
	}
	before, after, err := i.views(ctx, b.Key, first-1, last)
	if err != nil {
		return nil, err
	}
	n.Text += " " + present.DifferenceOf(before, after).Sentence() + "."
	n.DifferenceURL = b.PageURL("diff", "from", first-1, "to", last)
	if back, revertErr := b.view.RevertTargets(step.Patch.ID); revertErr == nil && slices.Contains(back, step.Patch.ID) && i.isAllowed(r, b.Key, Write) {
		n.Undo = []actField{{"act", "revert"}, {"key", b.Key.String()}, {"creation", b.Creation}, {"at", fmt.Sprint(b.Last)}, {"seq", fmt.Sprint(last)}}
	}
	return n, nil
}

type logBody struct {
	rows
	Kind  string
	Kinds []present.Kind
	Seqs  []uint64 // seqs of all records of the kind
}

// logPanel shows the raw log up to record At, or only the records of a kind.
func (i *Inspector) logPanel(ctx context.Context, r *http.Request, b *sessionBody) error {
	from, given, err := formNumber(r, "log")
	if err != nil {
		return err
	}
	l := logBody{Kind: r.FormValue("kind"), Kinds: []present.Kind{present.User, present.Model, present.Call, present.Response, present.Summary, present.Patch}}
	for _, s := range b.timeline.steps[:b.At] {
		if l.Kind == "" || string(stepKind(s)) == l.Kind {
			l.Seqs = append(l.Seqs, s.Seq)
		}
	}
	first := -1
	if given {
		first, _ = slices.BinarySearch(l.Seqs, max(from, 1))
	}
	l.rows = paginate(first, len(l.Seqs))
	l.Items, err = i.logItems(ctx, b, l.Seqs[l.First:l.Next])
	b.Body = l
	return err
}

// stepKind returns the kind of a record in the filter. Patches of compaction, and patches that added a
// summary, count as summaries.
func stepKind(s step) present.Kind {
	if p := s.Patch; p != nil && p.Applied && (p.Type == patch.Summarise || p.Pass != nil) {
		return present.Summary
	}
	return s.Kind
}

type stateBody struct {
	Rows []stateRow
	More int // number of keys not shown
}

// stateRow is a key of the state with its value.
type stateRow struct {
	Key    string
	Shared bool // shared with other sessions, and therefore without a history
	Value  block
}

func (i *Inspector) statePanel(ctx context.Context, _ *http.Request, b *sessionBody) error {
	shared, err := i.sharedValues(ctx, b)
	if err != nil {
		return err
	}
	rows, all := stateRows(b.view, shared)
	b.Body = stateBody{rows, all - len(rows)}
	return nil
}

func (i *Inspector) figuresPanel(ctx context.Context, _ *http.Request, b *sessionBody) error {
	shared, err := i.sharedValues(ctx, b)
	if err != nil {
		return err
	}
	_, keys := stateRows(b.view, shared)
	b.Body = b.timeline.stats(b.view, keys)
	return nil
}

// sharedValues returns the shared state if the page shows the newest record, and nil otherwise.
func (i *Inspector) sharedValues(ctx context.Context, b *sessionBody) (map[string]patch.Value, error) {
	if b.At < b.Last {
		return nil, nil
	}
	session, err := i.store.Get(ctx, b.Key)
	if err != nil {
		return nil, err
	}
	shared := session.Values()
	maps.DeleteFunc(shared, func(name string, _ patch.Value) bool { return statekey.ScopeOf(name) == statekey.Session })
	return shared, nil
}

// turnEnd returns the seq of the last record of a turn.
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

// stats returns the figures of 'patchlog stats' as of the view v.
func (t *timeline) stats(v fold.View, stateKeys int) (rows []present.Row) {
	stats := present.Stats{Patches: map[patch.Type]int{}}
	for _, s := range t.steps[:v.Seq()] {
		if p := s.Patch; p != nil {
			stats.CountPatch(s.Seq, p.Type, s.Time, p.Pass)
		}
	}
	stats.Tokens.Raw = t.at(v.Seq()).Raw
	stats.Complete(t.info, v, stateKeys)
	for _, r := range stats.Rows()[1:] { // the first row is the heading
		name := strings.TrimLeft(r.Name, " ")
		rows = append(rows, present.Row{Name: strings.ToUpper(name[:1]) + name[1:], Text: r.Text})
	}
	return rows
}

// stateBytes is the approximate maximum size of the state on a page.
const stateBytes = 300_000

// stateRows returns the state and the shared values in the order of their keys, as many as fit a page. It also
// returns the number of all keys.
func stateRows(v fold.View, shared map[string]patch.Value) (rows []stateRow, all int) {
	values := maps.Collect(v.Values())
	maps.Copy(values, shared)
	show := contentRenderer{BytesLeft: stateBytes}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if show.BytesLeft < blockBytes && len(rows) > 0 {
			break
		}
		show.BytesLeft -= blockBytes
		_, isShared := shared[name]
		rows = append(rows, stateRow{present.Clip(name, nameRunes), isShared, show.json("", "", values[name].String())})
	}
	return rows, len(values)
}
