package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
)

// actRows is the most rows on a page of lists that can have thousands.
const actRows = 200

// actPage is a page about an action: what it would do, did, or why it cannot be done.
type actPage struct {
	Key         string
	Heading     string
	Problem     string
	Notices     []string
	Lines       []string // what a problem or a notice is about
	Plan        []present.Row
	Records     []actRecord // that were logged
	RecordsMore int
	Differences []shownDifference
	Links       []link
	Erased      []actErased
	OutOfReach  []string
	Forms       []actForm
}

func (p *actPage) notice(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		p.Notices = append(p.Notices, text)
	}
}

func (p *actPage) line(format string, args ...any) {
	if len(p.Lines) < actRows {
		p.Lines = append(p.Lines, fmt.Sprintf(format, args...))
	}
}

// actField is a hidden field.
type actField struct{ Name, Value string }

// actForm asks for something, with what a person can tick or type.
type actForm struct {
	Text   string // before it
	Button string
	Strong bool
	Danger bool // it cannot be undone
	Fields []actField
	Allow  *actAllow
	Input  *actInput
}

// actAllow is something to be ticked.
type actAllow struct{ Name, Label string }

// actInput is something to be typed.
type actInput struct{ Name, Label, Value string }

// actRecord is a record that was logged.
type actRecord struct {
	Seq              uint64
	Type             patch.Type
	ID, Author, Text string
	Pass             string // what the pass of compaction did, if it is one
}

// refusal is an error that says why an action was not done.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

// refuse makes the page of a refusal that a person can do something about, or returns the error.
func (i *Inspector) refuse(ctx context.Context, a *action, p *actPage, err error) (status int, _ error) {
	var (
		refused  *refusal
		unfit    *ops.EditError
		orphans  *fold.OrphanError
		pinned   *fold.PinnedError
		blocked  *fold.BlockedError
		conflict *fold.ConflictError
	)
	status = http.StatusConflict
	again := func(button string, but ...string) *actForm {
		p.Forms = append(p.Forms, actForm{Button: button, Fields: a.fields(stepPreview, but...)})
		return &p.Forms[len(p.Forms)-1]
	}
	switch {
	case errors.As(err, &refused):
		status, p.Problem = refused.status, refused.text
		again("Preview it again")
	case errors.As(err, &unfit):
		status, p.Problem = http.StatusUnprocessableEntity, capital(unfit.Problem)+"."
		if unfit.Whole.Count > 0 {
			v, err := i.store.ViewAt(ctx, a.key, a.at)
			if err != nil {
				return 0, err
			}
			again("Select the whole stretch instead", "ids", idsText(idsOf(v, unfit.Whole)))
		}
	case errors.As(err, &orphans):
		status = http.StatusUnprocessableEntity
		p.Problem = "This would part function calls from their responses, or leave what a model's API refuses."
		for _, o := range orphans.Orphans {
			p.line("%s", clip(o.String(), lineRunes))
		}
		v, err := i.store.ViewAt(ctx, a.key, a.at)
		if err != nil {
			return 0, err
		}
		span := compaction.Span{Start: orphans.Start, Count: orphans.Count}
		if orphans.Suggested && span.Count > 0 {
			again("Select these instead", "ids", idsText(idsOf(v, span))).Text = "What passes: events " + present.IndexRange(span.Start, span.Count) + "."
		} else if len(a.ids) > 0 {
			p.notice("No wider stretch is known that passes.")
		}
		again("Preview it so").Allow = &actAllow{"allow_orphans", "Split calls all the same"}
	case errors.As(err, &pinned):
		status = http.StatusUnprocessableEntity
		p.Problem = fmt.Sprintf("This would hide %s.", present.Counted(len(pinned.Events), "pinned event"))
		for _, e := range pinned.Events {
			p.line("event %d, id %s: %s", e.Index, clip(e.Event.ID(), nameRunes), clip(present.Describe(e.Event), nameRunes))
		}
		again("Preview it so").Allow = &actAllow{"allow_pinned", "Hide pinned events all the same"}
	case errors.As(err, &blocked):
		p.Problem = fmt.Sprintf("Record %d, patch %s, stands on what this patch put in. It has to be taken back first.", blocked.BlockingSeq, clip(blocked.Blocking, nameRunes))
		if blocked.TakenBack {
			p.Problem = fmt.Sprintf("The patch has been taken back already, by record %d, revert %s. Taking that back does again what the patch did.", blocked.BlockingSeq, clip(blocked.Blocking, nameRunes))
		}
		p.Links = append(p.Links, link{recordURL(a.key, blocked.BlockingSeq, ""), fmt.Sprintf("Record %d", blocked.BlockingSeq)})
		again(fmt.Sprintf("Preview taking record %d back", blocked.BlockingSeq), "act", "revert", "seq", fmt.Sprint(blocked.BlockingSeq))
	case errors.As(err, &conflict):
		p.Problem = "Another patch was logged since the preview, so that this might do something else than it showed. Nothing was written."
		seen, err := i.store.ViewAt(ctx, a.key, a.at)
		if err != nil {
			return 0, err
		}
		now, err := i.store.View(ctx, a.key)
		if err != nil {
			return 0, err
		}
		p.Differences = append(p.Differences, shownDifferenceOf(a.key, "What changed since the preview", present.DifferenceOf(seen, now), 0))
		p.Links = append(p.Links, link{recordURL(a.key, conflict.Newest, ""), fmt.Sprintf("Record %d, which came between", conflict.Newest)})
		again("Preview it anew")
	default:
		return 0, err
	}
	p.Heading = "Not done: " + a.title
	if len(p.Records) > 0 {
		p.Heading = "Done in part: " + a.title
	}
	return status, nil
}

func idsOf(v fold.View, s compaction.Span) []string {
	var ids []string
	for n := range s.Count {
		ids = append(ids, v.At(s.Start+n).ID())
	}
	return ids
}

// namesText lists names in a line, a few of them.
func namesText(names []string) string {
	shown := make([]string, min(len(names), 10))
	for n := range shown {
		shown[n] = clip(names[n], nameRunes)
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// capital is a sentence whose first letter is large.
func capital(text string) string {
	r, size := utf8.DecodeRuneInString(text)
	return strings.ToUpper(string(r)) + text[size:]
}

func tokenCount(n int) string {
	if n == 1 {
		return "1 token"
	}
	return present.Grouped(n) + " tokens"
}

// answers keeps the recent answers to requests that act, so that a second click, or a page that is loaded again, does
// nothing more and shows the same.
type answers struct {
	mu   sync.Mutex
	made []*answer // the newest last
}

type answer struct {
	form   string
	done   chan struct{} // closed when it is made
	status int
	text   []byte
	err    error
}

// mostAnswers is the number of recent answers that are kept.
const mostAnswers = 32

// once returns the answer to a form, and makes it unless it was made, or is being made. An answer of a request that did
// nothing is not kept.
func (c *answers) once(ctx context.Context, form string, act func() (int, []byte, error)) (int, []byte, error) {
	c.mu.Lock()
	at := slices.IndexFunc(c.made, func(a *answer) bool { return a.form == form })
	if at < 0 {
		a := &answer{form: form, done: make(chan struct{}), err: errors.New("the action was not finished")} // if it panics
		c.made = append(c.made[max(len(c.made)-mostAnswers+1, 0):], a)
		c.mu.Unlock()
		defer close(a.done)
		a.status, a.text, a.err = act()
		if a.err != nil || a.status != http.StatusOK {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.made = slices.DeleteFunc(c.made, func(other *answer) bool { return other == a })
		}
		return a.status, a.text, a.err
	}
	a := c.made[at]
	c.mu.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	if a.err != nil || a.status != http.StatusOK {
		return c.once(ctx, form, act)
	}
	return a.status, a.text, nil
}
