package inspector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

func TestExport(t *testing.T) {
	s := openShop(t)
	i := newInspector(t, s, inspector.Options{Authorize: func(_ *http.Request, key store.Key, _ inspector.Access) bool { return key == shopKey }})
	get := func(query string) *http.Response {
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/export?"+query, nil))
		return w.Result()
	}
	var want, visible bytes.Buffer
	testlog.NoError(t, errors.Join(s.Export(t.Context(), shopKey, &want, store.ExportOptions{}), s.Export(t.Context(), shopKey, &visible, store.ExportOptions{Visible: true})))
	for form, want := range map[string]string{
		"":              want.String(),
		"&form=jsonl":   want.String(),
		"&form=visible": visible.String(),
	} {
		got := get("key=" + url.QueryEscape(shopKey.String()) + form)
		body, err := io.ReadAll(got.Body)
		if err != nil || got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "application/jsonl; charset=utf-8" ||
			got.Header.Get("Content-Disposition") != "attachment; filename=session-shop-ada-1-2.jsonl" || string(body) != want {
			t.Errorf("%q: %d, %v, %v:\n%s", form, got.StatusCode, got.Header, err, body)
		}
	}
	for query, want := range map[string]int{
		"key=a/u/s&form=jsonl":        http.StatusNotFound, // it may not be read
		"key=shop/ada/1%252F2&form=x": http.StatusBadRequest,
		"form=visible":                http.StatusBadRequest,
	} {
		if got := get(query); got.StatusCode != want || got.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d, want %d, %v", query, got.StatusCode, want, got.Header)
		}
	}
}

// Names of files have nothing in them that a system takes for more than a name.
func TestExportNames(t *testing.T) {
	s := openShop(t)
	for key, want := range map[store.Key]string{
		{App: "..", User: "/etc/passwd", Session: "a\"b\r\nX: y;ü"}: "session-etc-passwd-a-b--X--y.jsonl",
		{App: "....", User: "....", Session: "...."}:                "session-.jsonl",
		{App: strings.Repeat("a", 200), User: "u", Session: "s"}:    "session-" + strings.Repeat("a", 100) + ".jsonl",
	} {
		importLog(t, s, key, "")
		w := httptest.NewRecorder()
		newInspector(t, s, inspector.Options{}).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/export?key="+url.QueryEscape(key.String()), nil))
		if got := w.Header().Get("Content-Disposition"); got != "attachment; filename="+want {
			t.Errorf("%v: %d, %s, want %s", key, w.Code, got, want)
		}
	}
}

// breaking is a backend that fails once its number of reads is used up.
type breaking struct {
	backend.Backend
	reads atomic.Int64
}

func (b *breaking) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	if b.reads.Add(-1) < 0 {
		return nil, errors.New("the disk is gone")
	}
	return b.Backend.Read(ctx, session, creation, seqs, maxBytes)
}

// A file that was cut short does not look like a whole one.
func TestExportCutShort(t *testing.T) {
	b := &breaking{Backend: new(memory.Backend)}
	var log bytes.Buffer
	s := testlog.Must(store.New(b, store.Options{}))(t)
	defer s.Close()
	key := store.Key{App: "a", User: "u", Session: "s"}
	importLog(t, s, key, "")
	for n := range 600 {
		saySomething(t, s, key, fmt.Sprint(n)+strings.Repeat(" long", 1_000))
	}
	server := httptest.NewServer(newInspector(t, s, inspector.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer server.Close()
	if got, err := http.Get(server.URL + "/export?key=a/u/s"); err != nil || got.StatusCode != http.StatusInternalServerError || got.Header.Get("Content-Disposition") != "" {
		t.Errorf("nothing can be read: %v, %v", got, err)
	}
	b.reads.Store(2) // the third page cannot be read
	got := testlog.Must(http.Get(server.URL + "/export?key=a/u/s"))(t)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err == nil || got.StatusCode != http.StatusOK || len(text) == 0 || !strings.Contains(log.String(), "cut short") {
		t.Errorf("%d, %d bytes, %v, log %s", got.StatusCode, len(text), err, &log)
	}
}
