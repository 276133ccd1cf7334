package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// So many bytes may a request to act have.
const actBytes = 1 << 20

// So many events may be selected: their ids come along with what is to be done.
const mostSelected = 20_000

// The steps of an act: a preview writes nothing.
const (
	stepPreview = "preview"
	stepDo      = "do"
)

// The fields that a request to act may have. All but index stand once.
const (
	fieldStep     = "step"
	fieldAct      = "act"
	fieldKey      = "key"
	fieldCreation = "creation"
	fieldAt       = "at"      // the record after which the session stood that the author saw
	fieldIndex    = "index"   // of selected events, as they stood then
	fieldFrom     = "from"    // the index of the first event of a stretch that is selected too
	fieldThrough  = "through" // that of its last event
	fieldIDs      = "ids"     // of selected events, as a JSON array
	fieldText     = "text"
	fieldRole     = "role"
	fieldState    = "state"
	fieldFocus    = "focus"
	fieldSeq      = "seq" // the record that a revert, a rewind or a fork is about
	fieldTo       = "to"  // the key of a new session
	fieldDraw     = "draw"
	fieldOrphans  = "allow_orphans"
	fieldPinned   = "allow_pinned"
	fieldReason   = "reason" // of an erasing, like the two that follow
	fieldValues   = "values"
	fieldPlan     = "plan" // a digest of what the preview showed
)

var actFields = []string{
	fieldStep, fieldAct, fieldKey, fieldCreation, fieldAt, fieldIndex, fieldFrom, fieldThrough, fieldIDs, fieldText, fieldRole,
	fieldState, fieldFocus, fieldSeq, fieldTo, fieldDraw, fieldOrphans, fieldPinned,
	fieldReason, fieldValues, fieldPlan,
}

// asked is what a request wants to be done, and what its author was looking at.
type asked struct {
	step, act, title string
	key              store.Key
	creation         string
	at               uint64
	indices          []int
	ids              []string
	text, role       string
	state            patch.StatePolicy // "" is the patch's default
	focus, to        string
	seq              uint64
	draw             uuid.UUID // the ids of what is logged come from it, so that trying again finds it there
	orphans, pinned  bool      // allowed to be split, and to be hidden
	author           string
	reason, plan     string
	values           patch.Values
	may              func(key store.Key, want Access) bool // whether the request may
}

// deed is something that can be done to a session. v is the view that its author looks at; the
// body is the page that says what would be done, or was.
type deed interface {
	preview(ctx context.Context, v fold.View, b *actBody) error
	do(ctx context.Context, v fold.View, b *actBody) error
}

// verbs are the acts by name, with what a page calls them.
var verbs = map[string]struct {
	title string
	of    func(i *Inspector, a *asked) deed
}{
	"splice":    {"Cut events out", newChange},
	"replace":   {"Replace events by a text", newChange},
	"truncate":  {"Cut all events before one", newChange},
	"summarise": {"Summarise events by a text", newChange},
	"pin":       {"Pin events", newChange},
	"unpin":     {"Unpin events", newChange},
	"revert":    {"Take a patch back", newChange},
	"rewind":    {"Rewind to before an invocation", newChange},
	"fork":      {"Fork the session", func(i *Inspector, a *asked) deed { return forking{i, a} }},
	"compact":   {"Compact the session now", func(i *Inspector, a *asked) deed { return compactingNow{i, a} }},
	actErase:    {"Erase what events say", func(i *Inspector, a *asked) deed { return erasing{i, a} }},
}

// actErase is the act that takes an access of its own.
const actErase = "erase"

// act previews something that a person wants to be done to a session, or does it.
func (i *Inspector) act(w http.ResponseWriter, r *http.Request) error {
	a, err := i.asked(w, r)
	if err != nil {
		return err
	}
	limit := pageTimeout
	switch a.act {
	case "compact":
		limit = compactTimeout
	case actErase:
		limit = eraseTimeout
	}
	ctx, done := context.WithTimeout(r.Context(), limit)
	defer done()
	info, err := i.store.Info(ctx, a.key)
	if err != nil {
		return err
	}
	if info.Creation != a.creation {
		return fmt.Errorf("session %s: %w: it was deleted and created again since the page was made; nothing was written", a.key, store.ErrConflict)
	}
	b := actBody{Key: a.key.String()}
	if a.step == stepDo {
		err = i.doAct(ctx, r, a, &b)
	} else {
		err = i.previewAct(ctx, r, a, &b)
	}
	status := http.StatusOK
	if err != nil {
		if status, err = i.refuse(ctx, a, &b, err); err != nil {
			return err
		}
	}
	return i.render(w, r, status, "act", page{Title: b.Heading, Key: &a.key, Body: b})
}

// previewAct previews on the newest view: again, if a patch is logged meanwhile.
func (i *Inspector) previewAct(ctx context.Context, r *http.Request, a *asked, b *actBody) error {
	if err := i.name(ctx, a); err != nil {
		return err
	}
	if err := i.mayFork(r, a); err != nil {
		return err
	}
	a.draw = uuid.New()
	seen, wasAt := a.ids, a.at
	for try := 0; ; try++ {
		v, err := i.store.View(ctx, a.key)
		if err != nil {
			return err
		}
		*b = actBody{Key: b.Key, Heading: "Preview: " + a.title}
		a.ids, a.at = seen, v.Seq()
		if v.PatchSeq() > wasAt {
			b.notice("A patch was logged since the page was made that you come from. This is about the session as it is now.")
		}
		if err = i.leaveOut(ctx, a, v, wasAt, b); err == nil {
			err = verbs[a.act].of(i, a).preview(ctx, v, b)
		}
		if try < 3 && errors.Is(err, store.ErrConflict) {
			continue
		}
		return err
	}
}

// doAct does what was previewed on the view after a record.
func (i *Inspector) doAct(ctx context.Context, r *http.Request, a *asked, b *actBody) error {
	b.Heading = a.title
	if a.draw == uuid.Nil || len(a.indices) > 0 {
		return badRequest(fieldStep, "what is to be done comes from its preview, which says %s and %s", fieldDraw, fieldIDs)
	}
	if err := i.mayFork(r, a); err != nil {
		return err
	}
	v, err := i.store.ViewAt(ctx, a.key, a.at)
	if err != nil {
		return err
	}
	return verbs[a.act].of(i, a).do(ctx, v, b)
}

// name names selected events by their ids: what has an index now may be another one then.
func (i *Inspector) name(ctx context.Context, a *asked) error {
	if len(a.indices) == 0 {
		return nil
	}
	v, err := i.store.ViewAt(ctx, a.key, a.at)
	if err != nil {
		return err
	}
	for _, n := range a.indices {
		if n >= v.Len() {
			return fmt.Errorf("%w: there is no visible event %d; the last one was %d", store.ErrOutOfRange, n, v.Len()-1)
		}
		a.ids = append(a.ids, v.At(n).ID())
	}
	a.indices = nil
	return nil
}

// leaveOut leaves out selected events that are not visible any more, and says which.
func (i *Inspector) leaveOut(ctx context.Context, a *asked, v fold.View, wasAt uint64, b *actBody) error {
	if len(a.ids) == 0 || a.act == actErase { // which takes hidden ones too
		return nil
	}
	at := places(v)
	var left, gone []string
	for _, id := range a.ids {
		if _, visible := at[id]; visible {
			left = append(left, id)
		} else {
			gone = append(gone, id)
		}
	}
	a.ids = left
	if len(gone) == 0 {
		return nil
	}
	lines, err := i.goneLines(ctx, a, gone, wasAt)
	if err != nil {
		return err
	}
	b.Lines = lines
	if len(left) == 0 {
		return &unfit{text: "None of the selected events is visible any more, so that there is nothing to do."}
	}
	b.notice("%s of those that were selected cannot be seen any more, and stay out of this:", present.Counted(len(gone), "event"))
	return nil
}

// goneLines name events that are not visible any more, as they were when they were selected.
func (i *Inspector) goneLines(ctx context.Context, a *asked, gone []string, wasAt uint64) ([]string, error) {
	was, err := i.store.ViewAt(ctx, a.key, wasAt)
	if err != nil {
		return nil, err
	}
	at := places(was)
	var lines []string
	for _, id := range gone {
		line := "id " + clip(id, 80)
		if n, ok := at[id]; ok {
			line = fmt.Sprintf("event %d, %s: %s", n, line, clip(present.EntryText(present.EntryAt(was, n)), 200))
		}
		lines = append(lines, line)
	}
	return shorten(lines), nil
}

// places are the indices of visible events by their ids.
func places(v fold.View) map[string]int {
	at := make(map[string]int, v.Len())
	for n, e := range v.Events() {
		if _, twice := at[e.ID()]; !twice {
			at[e.ID()] = n
		}
	}
	return at
}

// fields are the hidden fields of a form that asks for the same.
func (a *asked) fields(step string) []actField {
	fields := []actField{
		{fieldStep, step}, {fieldAct, a.act}, {fieldKey, a.key.String()}, {fieldCreation, a.creation}, {fieldAt, strconv.FormatUint(a.at, 10)},
	}
	add := func(name, value string) {
		if value != "" {
			fields = append(fields, actField{name, value})
		}
	}
	if len(a.ids) > 0 {
		ids, _ := json.Marshal(a.ids) // of strings, which it can always write
		add(fieldIDs, string(ids))
	}
	if a.seq > 0 {
		add(fieldSeq, strconv.FormatUint(a.seq, 10))
	}
	add(fieldText, a.text)
	add(fieldRole, a.role)
	add(fieldState, string(a.state))
	add(fieldFocus, a.focus)
	if a.act != "fork" { // whose key a person can still change
		add(fieldTo, a.to)
	}
	if a.orphans {
		add(fieldOrphans, "yes")
	}
	if a.pinned {
		add(fieldPinned, "yes")
	}
	add(fieldValues, string(a.values))
	if step == stepPreview {
		add(fieldReason, a.reason) // which a person types when it is done
	}
	if step == stepDo {
		add(fieldPlan, a.plan)
		add(fieldDraw, a.draw.String())
	}
	return fields
}

// drawn is an id that comes from the preview: the same each time that it is done.
func (a *asked) drawn(what string, n int) string {
	return uuid.NewSHA1(a.draw, fmt.Appendf(nil, "%s %d", what, n)).String()
}

// unfit is an error that says why an act cannot be done now, or to what was selected. ids, if there
// are any, are a selection that it can be done to.
type unfit struct {
	text string
	ids  []string
	busy bool // it can be done later
}

func (e *unfit) Error() string { return e.text }

// So long may a compaction take that somebody waits for.
const compactTimeout = 10 * time.Minute

// So long may an erasing take, of which the plan looks at every session of the store.
const eraseTimeout = 10 * time.Minute
