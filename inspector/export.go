package inspector

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// export answers with a session as a file: its log or the visible events as text.
func (i *Inspector) export(w http.ResponseWriter, r *http.Request) error {
	key, err := i.key(r, Read)
	if err != nil {
		return err
	}
	form := r.FormValue("form")
	if !slices.Contains([]string{"", "jsonl", "visible"}, form) {
		return badRequest("form", "%q is neither jsonl nor visible", present.PrintableUpTo(form, 40))
	}
	by := i.opts.Redact
	file := download{ResponseWriter: w, name: fileName(store.Key{App: by.Text(key.App), User: by.Text(key.User), Session: by.Text(key.Session)}) + ".jsonl"}
	err = i.store.Export(r.Context(), key, &file, store.ExportOptions{Visible: form == "visible", Redact: by})
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
	name  string
	begun bool
}

func (d *download) Write(text []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.Header().Set("Content-Type", "application/jsonl; charset=utf-8")
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
