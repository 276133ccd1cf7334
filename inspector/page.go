package inspector

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"html/template"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// page is the data of every template. Body is the data that the template itself needs.
type page struct {
	Title   string
	Key     *store.Key // key of the page's session, or nil
	Version string
	Write   bool // the request may write to the session
	Erase   bool // the request may erase in the session
	Body    any

	File  bool         // the page is a file: it contains its style and needs no server
	Style template.CSS // style sheet of a file
}

// pagePart is the data of a template that needs a part of a page and the page itself.
type pagePart struct{ Page, Part any }

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"printable":  present.Printable,
	"counted":    present.Counted[int],
	"grouped":    present.Grouped[int],
	"when":       formatTime,
	"query":      query,
	"part":       func(page, of any) pagePart { return pagePart{page, of} },
	"inc":        func(n int) int { return n + 1 },
	"clip":       present.Clip,
	"short":      shortTokens,
	"clock":      timeFormatter("15:04"),
	"day":        timeFormatter("2 Jan 2006 15:04"),
	"instant":    timeFormatter("2 Jan 2006 15:04:05"),
	"ago":        timeAgo,
	"tokens":     tokensTitle,
	"percent":    func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) + "%" },
	"unit":       func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) },
	"changeName": func(sign present.Sign) string { return changeNames[sign] },
}).ParseFS(files, "templates/*.html"))

// formatTime formats a time as RFC 3339, or as a dash if it is zero.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.RFC3339)
}

// query returns a URL with parameters, which are alternating names and values. Parameters with an empty value
// are omitted.
func query(path string, pairs ...any) template.URL {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			values.Set(fmt.Sprint(pairs[i]), text)
		}
	}
	if len(values) == 0 {
		return template.URL(path)
	}
	return template.URL(path + "?" + values.Encode()) // escaped by Encode
}

type link struct {
	URL  template.URL
	Text string
}

// render executes a template with the data p, and answers with the result.
func (i *Inspector) render(w http.ResponseWriter, r *http.Request, status int, name string, p page) error {
	p.Write, p.Erase = i.opts.Write, i.opts.Erase
	if p.Key != nil {
		p.Write, p.Erase = i.isAllowed(r, *p.Key, Write), i.isAllowed(r, *p.Key, Erase)
	}
	p.Version = version
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name+".html", p); err != nil {
		i.opts.Logger.Error("inspector: rendering a page failed", "template", name, "err", err)
		http.Error(w, "this page could not be rendered; see the log of the server", http.StatusInternalServerError)
		return nil
	}
	w.Header().Set("Vary", "Accept-Encoding")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	body := io.Writer(w)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		defer compressed.Close()
		body = compressed
	}
	w.WriteHeader(status)
	_, _ = body.Write(out.Bytes()) // fails only if the client has disconnected
	return nil
}

// formNumber parses a parameter as a non-negative integer. If the parameter is missing, given is false.
func formNumber(r *http.Request, name string) (n uint64, given bool, err error) {
	text := r.FormValue(name)
	if text == "" {
		return 0, false, nil
	}
	n, err = parseNumber(name, text)
	return n, true, err
}

func parseNumber(name, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, badRequest(name, "%q is not a whole number, 0 or greater", present.PrintableUpTo(text, 40))
	}
	return n, nil
}

// export answers with a session as a file: the raw log or the visible events as JSON lines, or an HTML page.
func (i *Inspector) export(w http.ResponseWriter, r *http.Request) error {
	key, err := i.authorizedKey(r, Read)
	if err != nil {
		return err
	}
	form := r.FormValue("form")
	if !slices.Contains([]string{"", "jsonl", "visible", "html"}, form) {
		return badRequest("form", "%q is not jsonl, visible or html", present.PrintableUpTo(form, 40))
	}
	redactor := i.opts.Redact
	file := download{ResponseWriter: w, name: fileName(redactKey(redactor, key)) + ".jsonl"}
	if form == "html" {
		file.name, file.kind = strings.TrimSuffix(file.name, ".jsonl")+".html", "text/html; charset=utf-8"
		err = WriteHTML(r.Context(), i.store, key, &file, redactor)
	} else {
		err = i.store.Export(r.Context(), key, &file, store.ExportOptions{Visible: form == "visible", Redact: redactor})
	}
	if err == nil || !file.started {
		return err
	}
	// The client cannot tell a truncated file from a whole one, so abort the connection.
	if r.Context().Err() == nil {
		i.opts.Logger.Error("inspector: an export failed", "path", r.URL.Path, "session", key.String(), "err", fmt.Errorf("the download is incomplete: %w", err))
	}
	panic(http.ErrAbortHandler)
}

// download sends a response as a file. It sets the headers before the first byte.
type download struct {
	http.ResponseWriter
	name    string
	kind    string // MIME type; "" means JSON lines
	started bool
}

func (d *download) Write(text []byte) (int, error) {
	if !d.started {
		d.started = true
		d.Header().Set("Content-Type", cmp.Or(d.kind, "application/jsonl; charset=utf-8"))
		d.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.name}))
	}
	return d.ResponseWriter.Write(text)
}

var unsafeInName = regexp.MustCompile(`[^a-zA-Z0-9._-]`)

// fileName returns a file name for a session that is valid on every system: letters, digits, dashes and inner
// dots.
func fileName(key store.Key) string {
	name := unsafeInName.ReplaceAllString(key.App+"-"+key.User+"-"+key.Session, "-")
	name = name[:min(len(name), 100)]
	return "session-" + strings.Trim(name, ".-")
}
