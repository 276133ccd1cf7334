package inspector

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// export answers with a session as a file: its log as text, or a report.
func (i *Inspector) export(w http.ResponseWriter, r *http.Request) error {
	key, err := i.key(r, Read)
	if err != nil {
		return err
	}
	file := download{ResponseWriter: w}
	name := fileName(redactedKey(key, i.opts.Redact))
	switch form := r.FormValue("form"); form {
	case "", "jsonl", "visible":
		file.kind, file.name = "application/jsonl; charset=utf-8", name+".jsonl"
		err = i.store.Export(r.Context(), key, &file, store.ExportOptions{Visible: form == "visible", Redact: i.opts.Redact})
	case "html":
		file.kind, file.name = "text/html; charset=utf-8", name+".html"
		ctx, done := within(r)
		defer done()
		err = i.report(ctx, &file, key, ReportOptions{Redact: i.opts.Redact})
	default:
		return badRequest("form", "%q is none of jsonl, visible and html", present.PrintableUpTo(form, 40))
	}
	if err == nil || !file.begun {
		return err
	}
	// What has been sent looks like the beginning of a file. So that it is not taken for a whole one,
	// the connection ends in the middle of the answer.
	if r.Context().Err() == nil {
		i.opts.Logger.Error("inspector", "path", r.URL.Path, "session", key.String(), "err", fmt.Errorf("the file was cut short: %w", err))
	}
	panic(http.ErrAbortHandler)
}

// download is an answer that is a file. It has its headers from the first byte on.
type download struct {
	http.ResponseWriter
	kind, name string
	begun      bool
}

func (d *download) Write(text []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.Header().Set("Content-Type", d.kind)
		d.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.name}))
	}
	return d.ResponseWriter.Write(text)
}

// fileName is a file's name for a session, of letters, digits, dashes and dots between them, that
// no system takes for anything else.
func fileName(key store.Key) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, key.App+"-"+key.User+"-"+key.Session)
	name = name[:min(len(name), 100)]
	return "session-" + strings.Trim(name, ".-")
}
