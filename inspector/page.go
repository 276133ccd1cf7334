package inspector

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// page is what every page has. Body is its template's own.
type page struct {
	Title   string
	Key     *store.Key // of the session that it is about, if it is about one
	Version string
	Write   bool // whether the session may be written to
	Erase   bool // whether it may be erased in
	Body    any
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"printable": present.Printable,
	"counted":   present.Counted[int],
	"grouped":   present.Grouped[int],
	"grouped64": present.Grouped[uint64],
	"percent":   present.Percent,
	"when":      when,
	"query":     query,
	"pager":     pager,
	"inc":       func(n int) int { return n + 1 },
	"indented":  indented,
	"clip":      clip,

	"action": actionButton,
	"recordActs": func() map[string]string { // by the forms that rows of the log have buttons of
		return map[string]string{"reverting": "revert", "rewinding": "rewind", "forking": "fork", "erasing": actErase}
	},
	"changeWord": func(sign present.Sign) string { return changeWords[sign] },
}).ParseFS(files, "templates/*.html"))

// when is a time as a page shows it.
func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.RFC3339)
}

// query is the address of a page with parameters: names and values in turn. Those without a value
// are left out.
func query(path string, pairs ...any) (template.URL, error) {
	if len(pairs)%2 != 0 {
		return "", fmt.Errorf("query %s: a value is missing", path)
	}
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			values.Set(fmt.Sprint(pairs[i]), text)
		}
	}
	if len(values) == 0 {
		return template.URL(path), nil
	}
	return template.URL(path + "?" + values.Encode()), nil // escaped by Encode
}

// link is an address and what leads there.
type link struct {
	URL  template.URL
	Text string
}

// pager leads to other rows of a log, from the place on that the parameter of this name says,
// counted from base; at and what other parameters say stays. It is the zero link if there is none.
func pager(b sessionBody, to *int, name string, base int, text string) (link, error) {
	if to == nil {
		return link{}, nil
	}
	pairs := []any{"key", b.Key, name, *to + base}
	if !b.Newest {
		pairs = append(pairs, "at", b.At)
	}
	pairs = append(pairs, "kind", b.Kind)
	url, err := query("session", pairs...)
	return link{url + template.URL("#"+map[string]string{"log": "raw"}[name]), text}, err
}

// actionForm is a button that previews what can be done about a record.
type actionForm struct {
	Key, Creation, Act, Text string
	At, Seq                  uint64
}

// actionButton returns a button on a page that was made of the newest record.
func actionButton(body any, act string, seq uint64, text string) actionForm {
	a := actionForm{Act: act, Seq: seq, Text: text}
	switch b := body.(type) {
	case recordBody:
		a.Key, a.Creation, a.At = b.Key, b.Creation, b.Last
	case summaryBody:
		a.Key, a.Creation, a.At = b.Key, b.Creation, b.Last
	}
	return a
}

// clip is the beginning of a text, in one printable line.
func clip(text string, runes int) string {
	short := present.PrintableUpTo(text, runes)
	if len(short) < len(text) {
		short += " …"
	}
	return short
}

// indented is JSON for people to read, as it shows; a very long one is not told to its end.
func indented(text string) string {
	whole, read := indentJSON(text, textBytes)
	shown, _, said := lines(whole, textBytes)
	if read < len(text) || said < len(whole) {
		shown += " …"
	}
	return shown
}

// render answers with a page: the template of its name, in the frame that all have.
func (i *Inspector) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) error {
	text, err := i.page(r, name, p)
	if err != nil {
		i.opts.Logger.Error("inspector", "template", name, "err", err)
		http.Error(w, "this page cannot be made; the log says why", http.StatusInternalServerError)
		return nil
	}
	return send(w, r, status, text)
}

// page makes a page for a request.
func (i *Inspector) page(r *http.Request, name string, p page) ([]byte, error) {
	p.Write, p.Erase = i.opts.Write, i.opts.Erase
	if p.Key != nil {
		p.Write, p.Erase = i.may(r, *p.Key, Write), i.may(r, *p.Key, Erase)
	}
	return execute(name, p)
}

// execute makes a page.
func execute(name string, p page) ([]byte, error) {
	p.Version = version
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, name+".html", p)
	return out.Bytes(), err
}

// send answers with a page, compressed if the reader takes that.
func send(w http.ResponseWriter, r *http.Request, status int, text []byte) error {
	w.Header().Set("Vary", "Accept-Encoding")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, err := w.Write(text)
		return ignoreGone(err)
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzip.NewWriter(w)
	_, err := z.Write(text)
	return ignoreGone(cmp.Or(err, z.Close()))
}

// ignoreGone leaves out the error of a reader who has left.
func ignoreGone(error) error { return nil }

// withTimeout returns the request's context, with an end.
func withTimeout(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), pageTimeout)
}

// number reads a parameter that is a whole number from 0 on. given says whether it is there.
func number(r *http.Request, name string) (n uint64, given bool, err error) {
	text := r.FormValue(name)
	if text == "" {
		return 0, false, nil
	}
	n, err = strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, true, badRequest(name, "%q is not a whole number from 0 on", present.PrintableUpTo(text, 40))
	}
	return n, true, nil
}
