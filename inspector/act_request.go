package inspector

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// actBytes is the most bytes of a request that acts.
const actBytes = 1 << 20

// mostSelected is the most events that a request may select; it carries their ids.
const mostSelected = 20_000

// The steps of an action: a preview writes nothing.
const (
	stepPreview = "preview"
	stepDo      = "do"
)

// actFields are the fields that a request to act may have. All but index stand once.
var actFields = []string{
	"step", "act", "key", "creation", // which session of the key was looked at,
	"at",                              // after which record,
	"ids", "index", "from", "through", // and which events are selected: by ids, a JSON array, or by indices
	"seq", // the record that it is about
	"text", "state", "focus", "to", "allow_orphans", "allow_pinned", "values", "reason",
	"draw", // what ids are made of, so that trying again finds what was logged
	"plan", // a digest of what the preview of an erasure showed
}

// choices are the fields that take one of a few values.
var choices = map[string][]string{
	"step": {stepPreview, stepDo}, "state": {"", string(patch.Keep), string(patch.Drop)},
	"allow_orphans": {"", "yes"}, "allow_pinned": {"", "yes"}, "values": {"", string(patch.KeepValues), string(patch.NullValues)},
}

// action reads a request, which must be allowed to write to its session, or to erase in it.
func (i *Inspector) action(w http.ResponseWriter, r *http.Request) (*action, error) {
	r.Body = http.MaxBytesReader(w, r.Body, actBytes) // whatever reads it: the page of an error does, too
	if r.URL.RawQuery != "" {
		return nil, badRequest("address", "an act has its fields in the body, not in the address")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, badRequest("Content-Type", "%q is not that of a form", present.PrintableUpTo(r.Header.Get("Content-Type"), 80))
	}
	if err := r.ParseForm(); err != nil {
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			return nil, fmt.Errorf("%w: a request to act may have %d bytes; select fewer events, or shorten the text", store.ErrTooLarge, large.Limit)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("the request's body did not arrive within %v: %w", i.bodyTimeout, os.ErrDeadlineExceeded)
		}
		return nil, badRequest("form", "%s", present.PrintableUpTo(err.Error(), 200))
	}
	for name, values := range r.PostForm {
		switch {
		case !slices.Contains(actFields, name):
			return nil, badRequest("form", "it has a field %q, which no act has", present.PrintableUpTo(name, 40))
		case name != "index" && len(values) > 1:
			return nil, badRequest(name, "it is there %d times", len(values))
		}
	}
	want := Write
	if r.PostForm.Get("act") == actErase {
		want = Erase
	}
	key, err := i.key(r, want)
	if err != nil {
		return nil, err
	}
	a := &action{form: r.PostForm, key: key, author: i.opts.Author(r), may: func(key store.Key, want Access) bool { return i.may(r, key, want) }}
	return a, a.read(r)
}

// read reads the fields.
func (a *action) read(r *http.Request) (err error) {
	n := slices.IndexFunc(actionKinds, func(v actionKind) bool { return v.name == a.form.Get("act") })
	if n < 0 {
		return badRequest("act", "%q is no act", present.PrintableUpTo(a.form.Get("act"), 40))
	}
	a.actionKind = &actionKinds[n]
	for name, allowed := range choices {
		if text := a.form.Get(name); !slices.Contains(allowed, text) {
			return badRequest(name, "%q is none of %q", present.PrintableUpTo(text, 40), allowed)
		}
	}
	for _, name := range []string{"creation", "at"} {
		if a.form.Get(name) == "" {
			return badRequest(name, "it is missing; it says which session was looked at, and after which record")
		}
	}
	if a.at, _, err = number(r, "at"); err != nil {
		return err
	}
	if a.seq, _, err = number(r, "seq"); err != nil {
		return err
	}
	if text := a.form.Get("draw"); text != "" {
		if a.draw, err = uuid.Parse(text); err != nil {
			return badRequest("draw", "it is not what a preview gave")
		}
	}
	for _, name := range []string{"text", "focus", "reason", "to"} {
		text, err := typed(name, a.form.Get(name))
		if err != nil {
			return err
		}
		a.form.Set(name, text)
	}
	return a.readSelection(r)
}

func (a *action) readSelection(r *http.Request) error {
	if text := a.form.Get("ids"); text != "" {
		if err := json.Unmarshal([]byte(text), &a.ids); err != nil {
			return badRequest("ids", "it is not a JSON array of ids")
		}
	}
	for _, text := range a.form["index"] {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return badRequest("index", "%q is not the index of an event", present.PrintableUpTo(text, 40))
		}
		a.indices = append(a.indices, int(n))
	}
	from, begins, err := number(r, "from")
	if err != nil {
		return err
	}
	through, ends, err := number(r, "through")
	switch {
	case err != nil:
		return err
	case begins != ends:
		return badRequest("through", "a stretch of events needs its first and its last index")
	case begins && from > through:
		return badRequest("through", "no stretch goes from event %d through %d", from, through)
	case begins && through-from >= mostSelected:
		return badRequest("through", "it may be %d events that are selected, and from %d through %d are more", mostSelected, from, through)
	}
	for n := from; begins && n <= through; n++ {
		a.indices = append(a.indices, int(n))
	}
	slices.Sort(a.indices)
	a.indices = slices.Compact(a.indices)
	if len(a.ids) > 0 && len(a.indices) > 0 {
		return badRequest("ids", "events are selected by ids or by indices, not both")
	}
	return nil
}

// typed is a text of a person's own. Lines end with \n, however they were sent.
func typed(name, text string) (string, error) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	if !utf8.ValidString(text) {
		return "", badRequest(name, "it is not UTF-8")
	}
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return "", badRequest(name, "it has the control character %U", c)
		}
	}
	return strings.TrimSpace(text), nil
}
