package inspector

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// media answers with an image that a part of an event holds.
func (i *Inspector) media(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := within(r)
	defer cancel()
	key, rec, err := i.recordAsked(ctx, r)
	if err != nil {
		return err
	}
	part, _, err := number(r, "part")
	if err != nil {
		return err
	}
	e, _, err := eventOf(rec, r.FormValue("id"))
	if err != nil {
		return fmt.Errorf("session %s: %w", key, err)
	}
	for n, p := range e.Content().Parts() {
		if uint64(n) != part || p.Kind != patch.PartData {
			continue
		}
		data, mimeType, ok := imageOf(p)
		if !ok {
			break
		}
		h := w.Header()
		h.Set("Content-Type", mimeType)
		h.Set("Content-Length", strconv.Itoa(len(data)))
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		_, err := w.Write(data)
		return ignoreGone(err)
	}
	return fmt.Errorf("session %s, record %d: %w: part %d holds no image that is shown", key, rec.Seq, store.ErrNotFound, part)
}

// eventOf returns the event with an id that a record brought, and its index among those; without
// an id the first.
func eventOf(rec patch.Record, id string) (e *patch.Event, index int, err error) {
	for n, e := range rec.Events() {
		if id == "" || e.ID() == id {
			return e, n, nil
		}
	}
	return nil, 0, fmt.Errorf("record %d: %w: it brought no event %q", rec.Seq, store.ErrNotFound, id)
}
