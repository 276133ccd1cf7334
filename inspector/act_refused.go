package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
)

// refuse makes the page of a refusal that a person can do something about, or returns the error.
func (i *Inspector) refuse(ctx context.Context, a *asked, b *actBody, err error) (status int, _ error) {
	var (
		misfit   *unfit
		failed   *notCompacted
		orphans  *fold.OrphanError
		pinned   *fold.PinnedError
		blocked  *fold.BlockedError
		conflict *fold.ConflictError
	)
	switch {
	case errors.As(err, &misfit):
		b.Problem = misfit.text
		if len(misfit.ids) > 0 {
			b.Forms = append(b.Forms, a.again("Select the whole stretch instead", func(a *asked) { a.ids = misfit.ids }))
		}
		b.cannot(a)
		if misfit.busy {
			return http.StatusConflict, nil
		}
		return http.StatusUnprocessableEntity, nil
	case errors.As(err, &failed):
		b.Problem = failed.Error()
		b.Forms = append(b.Forms, a.again("Preview it again", nil))
		b.cannot(a)
		return http.StatusBadGateway, nil
	case errors.As(err, &orphans):
		return http.StatusUnprocessableEntity, i.refuseOrphans(ctx, a, b, orphans)
	case errors.As(err, &pinned):
		b.Problem = fmt.Sprintf("This would hide %s.", present.Counted(len(pinned.Events), "pinned event"))
		for _, e := range pinned.Events {
			b.Lines = append(b.Lines, fmt.Sprintf("event %d, id %s: %s", e.Index, clip(e.Event.ID(), 80), clip(present.Describe(e.Event), 200)))
		}
		b.Lines = shorten(b.Lines)
		form := a.again("Preview it so", nil)
		form.Allow = &actAllow{fieldPinned, "Hide pinned events all the same"}
		b.Forms = append(b.Forms, form)
		b.cannot(a)
		return http.StatusUnprocessableEntity, nil
	case errors.As(err, &blocked):
		return http.StatusConflict, i.refuseBlocked(a, b, blocked)
	case errors.As(err, &conflict):
		return http.StatusConflict, i.refuseConflict(ctx, a, b)
	}
	return 0, err
}

// cannot heads a page about something that was not done.
func (b *actBody) cannot(a *asked) {
	b.Heading = "Not done: " + a.title
	if len(b.Records) > 0 {
		b.Heading = "Done in part: " + a.title
	}
}

// again is a form that previews the same anew, but for a change.
func (a *asked) again(button string, change func(*asked)) actForm {
	other := *a
	if change != nil {
		change(&other)
	}
	return actForm{Button: button, Fields: other.fields(stepPreview)}
}

func (i *Inspector) refuseOrphans(ctx context.Context, a *asked, b *actBody, refused *fold.OrphanError) error {
	b.cannot(a)
	b.Problem = "This would part function calls from their responses, or leave what a model's API refuses."
	for _, o := range refused.Orphans {
		b.Lines = append(b.Lines, clip(o.String(), 300))
	}
	b.Lines = shorten(b.Lines)
	if a.act != "revert" {
		v, err := i.store.ViewAt(ctx, a.key, a.at)
		if err != nil {
			return err
		}
		if ids := a.widened(v, refused); len(ids) > 0 {
			form := a.again("Select these instead", func(a *asked) { a.ids = ids })
			form.Text = "What passes: " + selectionText(v, ids, a.act) + "."
			b.Forms = append(b.Forms, form)
		} else {
			b.notice("No wider stretch is known that passes.")
		}
	}
	form := a.again("Preview it so", nil)
	form.Allow = &actAllow{fieldOrphans, "Split calls all the same"}
	b.Forms = append(b.Forms, form)
	return nil
}

// selectionText names events by their indices.
func selectionText(v fold.View, ids []string, act string) string {
	indices, err := (&asked{ids: ids}).selected(v)
	if err != nil {
		return "other events"
	}
	if act == "truncate" {
		return fmt.Sprintf("all before event %d", indices[0])
	}
	text := ""
	for n, s := range stretches(indices) {
		switch {
		case n == 10:
			return text + " and others"
		case n > 0:
			text += ", and "
		default:
			text = "events "
		}
		text += present.IndexRange(s.Start, s.Count)
	}
	return text
}

func (i *Inspector) refuseBlocked(a *asked, b *actBody, refused *fold.BlockedError) error {
	b.cannot(a)
	b.Problem = fmt.Sprintf("Record %d, patch %s, stands on what this patch put in. It has to be taken back first.", refused.BlockingSeq, clip(refused.Blocking, 80))
	if refused.TakenBack {
		b.Problem = fmt.Sprintf("The patch has been taken back already, by record %d, revert %s. Taking that back does again what the patch did.", refused.BlockingSeq, clip(refused.Blocking, 80))
	}
	url, err := query("record", "key", a.key, "seq", refused.BlockingSeq)
	if err != nil {
		return err
	}
	b.Links = append(b.Links, link{url, fmt.Sprintf("Record %d", refused.BlockingSeq)})
	b.Forms = append(b.Forms, a.again(fmt.Sprintf("Preview taking record %d back", refused.BlockingSeq), func(a *asked) { a.act, a.seq = "revert", refused.BlockingSeq }))
	return nil
}

// refuseConflict says what was logged since the preview, and what that made of the session.
func (i *Inspector) refuseConflict(ctx context.Context, a *asked, b *actBody) error {
	b.cannot(a)
	b.Problem = "Another patch was logged since the preview, so that this might do something else than it showed. Nothing was written."
	seen, err := i.store.ViewAt(ctx, a.key, a.at)
	if err != nil {
		return err
	}
	now, err := i.store.View(ctx, a.key)
	if err != nil {
		return err
	}
	since, err := i.patchesSince(ctx, a.key, seen.PatchSeq())
	if err != nil {
		return err
	}
	before, err := i.store.ViewAt(ctx, a.key, seen.PatchSeq())
	if err != nil {
		return err
	}
	b.RecordsTitle = "Logged since the preview"
	if b.Records, _, err = i.actRecords(ctx, a, before, since); err != nil {
		return err
	}
	at := places(now)
	var gone []string
	for _, id := range a.ids {
		if _, visible := at[id]; !visible {
			gone = append(gone, id)
		}
	}
	if len(gone) > 0 {
		b.notice("%s of those that were selected cannot be seen any more:", present.Counted(len(gone), "event"))
		if b.Lines, err = i.goneLines(ctx, a, gone, a.at); err != nil {
			return err
		}
	}
	b.Differences = append(b.Differences, newActDifference("What is different from what the preview was made of", present.DifferenceOf(seen, now), 0))
	if len(a.ids) == 0 || len(gone) < len(a.ids) {
		b.Forms = append(b.Forms, a.again("Preview it anew", nil))
	}
	return nil
}
