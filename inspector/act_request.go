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

// asked reads a request, which must be allowed to write to its session, or to erase in it.
func (i *Inspector) asked(w http.ResponseWriter, r *http.Request) (*asked, error) {
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
		case name != fieldIndex && len(values) > 1:
			return nil, badRequest(name, "it is there %d times", len(values))
		}
	}
	want := Write
	if r.PostForm.Get(fieldAct) == actErase {
		want = Erase
	}
	key, err := i.key(r, want)
	if err != nil {
		return nil, err
	}
	a := &asked{key: key, author: i.opts.Author(r), may: func(key store.Key, want Access) bool { return i.may(r, key, want) }}
	return a, a.read(r)
}

// read reads the fields.
func (a *asked) read(r *http.Request) error {
	field := func(name string) string { return r.PostForm.Get(name) }
	oneOf := func(name string, allowed ...string) (string, error) {
		if text := field(name); slices.Contains(allowed, text) {
			return text, nil
		}
		return "", badRequest(name, "%q is none of %q", present.PrintableUpTo(field(name), 40), allowed)
	}
	verb, known := verbs[field(fieldAct)]
	if !known {
		return badRequest(fieldAct, "%q is no act", present.PrintableUpTo(field(fieldAct), 40))
	}
	a.act, a.title = field(fieldAct), verb.title
	var err error
	if a.step, err = oneOf(fieldStep, stepPreview, stepDo); err != nil {
		return err
	}
	if a.creation = field(fieldCreation); a.creation == "" {
		return badRequest(fieldCreation, "it is missing; it says which session of the key was looked at")
	}
	at, given, err := number(r, fieldAt)
	if err == nil && !given {
		err = badRequest(fieldAt, "it is missing; it says after which record the session was looked at")
	}
	if err != nil {
		return err
	}
	a.at = at
	if a.seq, _, err = number(r, fieldSeq); err != nil {
		return err
	}
	if a.role, err = oneOf(fieldRole, "", "user", "model"); err != nil {
		return err
	}
	state, err := oneOf(fieldState, "", string(patch.Keep), string(patch.Drop))
	if err != nil {
		return err
	}
	a.state = patch.StatePolicy(state)
	orphans, err := oneOf(fieldOrphans, "", "yes")
	if err != nil {
		return err
	}
	pinned, err := oneOf(fieldPinned, "", "yes")
	if err != nil {
		return err
	}
	values, err := oneOf(fieldValues, "", string(patch.KeepValues), string(patch.NullValues))
	if err != nil {
		return err
	}
	a.values, a.plan = patch.Values(values), field(fieldPlan)
	a.orphans, a.pinned = orphans != "", pinned != ""
	if text := field(fieldDraw); text != "" {
		if a.draw, err = uuid.Parse(text); err != nil {
			return badRequest(fieldDraw, "it is not what a preview gave")
		}
	}
	a.to = strings.TrimSpace(field(fieldTo))
	if a.text, err = typed(r, fieldText); err != nil {
		return err
	}
	if a.focus, err = typed(r, fieldFocus); err != nil {
		return err
	}
	if a.reason, err = typed(r, fieldReason); err != nil {
		return err
	}
	return a.readSelection(r)
}

func (a *asked) readSelection(r *http.Request) error {
	if text := r.PostForm.Get(fieldIDs); text != "" {
		if err := json.Unmarshal([]byte(text), &a.ids); err != nil {
			return badRequest(fieldIDs, "it is not a JSON array of ids")
		}
	}
	for _, text := range r.PostForm[fieldIndex] {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return badRequest(fieldIndex, "%q is not the index of an event", present.PrintableUpTo(text, 40))
		}
		a.indices = append(a.indices, int(n))
	}
	from, begins, err := number(r, fieldFrom)
	if err != nil {
		return err
	}
	through, ends, err := number(r, fieldThrough)
	switch {
	case err != nil:
		return err
	case begins != ends:
		return badRequest(fieldThrough, "a stretch of events needs its first and its last index")
	case begins && from > through:
		return badRequest(fieldThrough, "no stretch goes from event %d through %d", from, through)
	case begins && through-from >= mostSelected:
		return badRequest(fieldThrough, "it may be %d events that are selected, and from %d through %d are more", mostSelected, from, through)
	}
	for n := from; begins && n <= through; n++ {
		a.indices = append(a.indices, int(n))
	}
	slices.Sort(a.indices)
	a.indices = slices.Compact(a.indices)
	if len(a.ids) > 0 && len(a.indices) > 0 {
		return badRequest(fieldIDs, "events are selected by ids or by indices, not both")
	}
	return nil
}

// typed reads a text of a person's own. Lines end with \n, however they were sent.
func typed(r *http.Request, name string) (string, error) {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(r.PostForm.Get(name))
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
