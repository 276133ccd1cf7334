package page

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
)

// Overflow fails the test if the page is wider than the window, so that a reader would have to
// scroll sideways. It names what sticks out.
func (p *Page) Overflow() {
	p.t.Helper()
	var found struct {
		Width, Window float64
		Out           []string
	}
	p.await(&found, `window => {
		const root = document.scrollingElement || document.documentElement
		const Window = Math.min(window, root.clientWidth)
		const visible = e => getComputedStyle(e).overflowX === "visible"
		const clipped = e => { // by an element that scrolls for itself
			for (let up = e.parentElement; up && up !== document.body; up = up.parentElement) if (!visible(up)) return true
		}
		const edge = e => {
			const box = e.getBoundingClientRect()
			return Math.round(box.left + Math.max(box.width, visible(e) ? e.scrollWidth : 0))
		}
		const wide = Array.from(document.querySelectorAll("body *")).filter(e => edge(e) > Window && !clipped(e))
		const Out = wide.filter(e => !wide.some(inner => inner !== e && e.contains(inner)))
			.map(e => edge(e) + " " + e.cloneNode().outerHTML.slice(0, 200))
		return {value: {Width: root.scrollWidth, Window, Out: Out.slice(0, 5)}}
	}`, p.opts.Width)
	if found.Width > found.Window {
		p.t.Errorf("the page is %v pixels wide in a window of %v; what sticks out, with its right edge:\n%s",
			found.Width, found.Window, strings.Join(found.Out, "\n"))
	}
}

// Screenshot writes a picture of the window, or of the whole page, as PNG. It makes the folder
// if there is none.
func (p *Page) Screenshot(path string, whole bool) {
	p.t.Helper()
	params := page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}
	if whole {
		yes := true
		size := send(p, page.GetLayoutMetrics, cdp.Empty{}).CSSContentSize
		params.CaptureBeyondViewport = &yes
		params.Clip = &page.Viewport{Width: size.Width, Height: size.Height, Scale: 1}
	}
	picture := send(p, page.CaptureScreenshot, params)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, picture.Data, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
