package inspector

import (
	"context"
	"fmt"
	"html/template"
	"io"
	"iter"
	"log/slog"

	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// fileBody is the data of a session's HTML file: the session's page, and all records with their contents.
type fileBody struct {
	sessionBody
	Records iter.Seq[fileRow]
}

// fileRow is a record with the contents of its events.
type fileRow struct {
	Row    *row
	Events []eventContent
}

// WriteHTML writes a session as one HTML page with its picture, the visible log and the raw log. The page needs
// no other files and no scripts, and can be printed. If the redactor is not nil, it replaces secrets by
// placeholders. Errors come from the store, the redactor or the writer.
func WriteHTML(ctx context.Context, s *store.Store, key store.Key, w io.Writer, redactor *redact.Redactor) error {
	i, err := New(s, Options{CacheBytes: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	b := sessionBody{Key: key, Newest: true, File: true, redactor: redactor}
	if b.timeline, err = i.timeline(ctx, key); err != nil {
		return err
	}
	if err := i.fillSession(ctx, &b, b.timeline.last()); err != nil {
		return err
	}
	b.Key = redactKey(redactor, key)
	style, err := files.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	var recordErr error
	body := fileBody{b, func(yield func(fileRow) bool) {
		for rec, err := range s.RawEvents(ctx, key, 1) {
			if err == nil && rec.Seq > b.At {
				return
			}
			if err == nil {
				rec, err = redactor.Record(rec)
			}
			if recordErr = err; err != nil {
				return
			}
			row := fileRow{Row: b.logRow(rec)}
			for _, e := range rec.Events() {
				show := contentRenderer{BytesLeft: pageBytes, Fold: pageBytes}
				row.Events = append(row.Events, show.event(e, rec.Seq))
			}
			if !yield(row) {
				return
			}
		}
	}}
	err = templates.ExecuteTemplate(w, "file.html", page{Title: b.Key.Session, Key: &b.Key, Body: body, File: true, Style: template.CSS(style)})
	if recordErr != nil {
		return fmt.Errorf("session %s: %w", key, recordErr)
	}
	return err
}

func redactKey(redactor *redact.Redactor, key store.Key) store.Key {
	return store.Key{App: redactor.Text(key.App), User: redactor.Text(key.User), Session: redactor.Text(key.Session)}
}
