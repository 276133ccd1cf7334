package inspector

import (
	"bytes"
	"testing"
)

// Images are served as what they are, and nothing else is.
func TestMedia(t *testing.T) {
	jpeg, gif, webp, avif := []byte("\xff\xd8\xff\xe0 and so on"), []byte("GIF89a and so on"), []byte("RIFF\x00\x00\x00\x00WEBPVP8 "), []byte("\x00\x00\x00\x1cftypavif and so on")
	svg := []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`)
	parts := []struct {
		mimeType string
		content  []byte
		served   string // "" if it is not
	}{
		{"image/png", png, "image/png"},
		{"image/jpeg", jpeg, "image/jpeg"},
		{"image/gif", gif, "image/gif"},
		{"image/webp", webp, "image/webp"},
		{"image/avif", avif, "image/avif"},
		{"IMAGE/PNG; x=y", png, "image/png"},
		{"image/svg+xml", svg, ""},
		{"image/png", svg, ""},
		{"image/png", jpeg, ""},
		{"image/png", []byte("<!doctype html><script>alert(1)</script>"), ""},
		{"image/png", nil, ""},
		{"text/html", png, ""},
		{"", png, ""},
		{"image/bmp", []byte("BM and so on"), ""},
	}
	var all string
	for _, p := range parts {
		if all != "" {
			all += ","
		}
		all += data(p.mimeType, p.content)
	}
	_, i := shownLog(t, Options{},
		event("q", "user", all+`,`+text("no data")),
		`{"id":"p","patchType":"splice","start":1,"count":0,"replacement":[`+event("a", "user", text("a"))+`,`+event("b", "user", data("image/gif", gif))+`]}`)
	for n, p := range parts {
		w := ask(t, i, "media", "seq", 1, "id", "q", "part", n)
		if p.served == "" {
			if w.Code != 404 || bytes.Contains(w.Body.Bytes(), p.content) && len(p.content) > 0 {
				t.Errorf("part %d, of type %q: status %d: %s", n, p.mimeType, w.Code, w.Body)
			}
			continue
		}
		if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), p.content) || w.Header().Get("Content-Type") != p.served {
			t.Errorf("part %d: status %d, type %s, %q", n, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		if got := w.Header()["Content-Security-Policy"]; len(got) != 1 || got[0] != "sandbox; default-src 'none'" {
			t.Errorf("part %d: %q", n, got)
		}
		if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("part %d: %q", n, got)
		}
	}
	if w := ask(t, i, "media", "seq", 2, "id", "b", "part", 0); w.Code != 200 || !bytes.Equal(w.Body.Bytes(), gif) {
		t.Errorf("of a patch: status %d: %s", w.Code, w.Body)
	}
	for _, url := range [][]any{
		{"media", "seq", 1, "part", 14}, {"media", "seq", 1, "part", 99}, {"media", "seq", 9, "part", 0},
		{"media", "seq", 2, "part", 0}, {"media", "seq", 2, "id", "q", "part", 0},
	} {
		shows(t, i, 404, url)
	}
	shows(t, i, 400, []any{"media", "seq", 1, "part", "-1"}, "part")
}
