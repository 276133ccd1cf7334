package page

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOverflow(t *testing.T) {
	t.Parallel()
	wide := `<pre id="wide">` + strings.Repeat("word ", 60) + `</pre>`
	base := serve(t, "", map[string]string{
		"/wide":  document(wide),
		"/both":  document(wide + `<div style="overflow: auto"><pre id="inner">` + strings.Repeat("word ", 60) + `</pre></div>`),
		"/inner": document(`<div style="overflow: auto">` + wide + `</div>`), // scrolls by itself
		"/plain": `<!doctype html><title>No viewport</title><link rel="icon" href="data:,"><p>Words`,
	})
	for _, path := range []string{"/wide", "/plain"} {
		mustFail(t, func(t testing.TB) {
			p := Open(t, base, Phone())
			p.Go(path)
			p.Overflow()
		}, "pixels wide in a window of 360")
	}
	if got := try(t, func(t testing.TB) {
		p := Open(t, base, Options{Width: 360})
		p.Go("/both")
		p.Overflow()
	}).failures; len(got) != 1 || !strings.HasSuffix(got[0], ` <pre id="wide"></pre>`) {
		t.Errorf("it fails with %q", got)
	}
	p := Open(t, base, Phone())
	p.Go("/inner")
	p.Overflow()
}

func TestScreenshot(t *testing.T) {
	t.Parallel()
	base := serve(t, "", map[string]string{"/": document(`<p style="height: 3000px">Tall</p>`)})
	p := Open(t, base, Options{Width: 400, Height: 300})
	p.Go("/")
	for _, whole := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "new", "page.png")
		p.Screenshot(path, whole)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.DecodeConfig(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if picture.Width != 400 || whole != (picture.Height > 3000) || !whole && picture.Height != 300 {
			t.Errorf("whole %v: %d by %d", whole, picture.Width, picture.Height)
		}
	}
}
