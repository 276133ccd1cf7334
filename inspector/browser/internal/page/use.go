package page

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Click clicks on the first element that a selector matches, once it is visible and enabled and nothing covers it.
// To wait for the page that it leads to, use [Page.Follow].
func (p *Page) Click(selector string) {
	p.t.Helper()
	var at struct{ X, Y float64 }
	p.await(&at, `selector => {
		const e = document.querySelector(selector)
		if (!e) return "nothing matches " + selector
		if (e.disabled) return selector + " is disabled"
		e.scrollIntoView({block: "center", inline: "center", behavior: "instant"})
		const box = e.getClientRects()[0]
		if (!box || !box.width || !box.height) return selector + " is not shown"
		const X = box.x + box.width/2, Y = box.y + box.height/2
		const hit = document.elementFromPoint(X, Y)
		if (!e.contains(hit)) return selector + " is covered by " + hit?.cloneNode().outerHTML
		return {value: {X, Y}}
	}`, selector)
	p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at.X, at.Y), chromedp.MouseClickXY(at.X, at.Y))
}

// Follow calls act, which leads to another page, and waits until that page is loaded.
func (p *Page) Follow(act func()) {
	p.t.Helper()
	var before float64
	p.Eval("performance.timeOrigin", &before)
	act()
	p.WaitFor(fmt.Sprintf("performance.timeOrigin !== %v && document.readyState === 'complete'", before))
}

// Type clicks on the field that a selector matches, and replaces its value by a text.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.Click(selector)
	p.Eval("document.activeElement.select()", nil)
	p.do(chromedp.KeyEvent(text))
}

var keys = map[string]string{
	"ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight, "Home": kb.Home, "End": kb.End, "Enter": kb.Enter, "Tab": kb.Tab, " ": " ",
}

// Key presses keys one after another, with Shift+ before the name of a key for both.
func (p *Page) Key(names ...string) {
	p.t.Helper()
	for _, name := range names {
		key, shift := strings.CutPrefix(name, "Shift+")
		if keys[key] == "" {
			p.t.Fatalf("there is no key %q", name)
		}
		var held []chromedp.KeyOption
		if shift {
			held = append(held, chromedp.KeyModifiers(chromedp.ModifierShift))
		}
		p.do(chromedp.KeyEvent(keys[key], held...))
	}
}

// Text returns the text that a reader sees of the first element that a selector matches, without space around it.
func (p *Page) Text(selector string) (text string) {
	p.t.Helper()
	p.await(&text, `selector => {
		const e = document.querySelector(selector)
		return e ? {value: e.innerText.trim()} : "nothing matches " + selector
	}`, selector)
	return text
}

// Texts returns the texts of all elements that a selector matches now, as [Page.Text] does.
func (p *Page) Texts(selector string) (texts []string) {
	p.t.Helper()
	p.await(&texts, `selector => ({value: Array.from(document.querySelectorAll(selector), e => e.innerText.trim())})`, selector)
	return texts
}

// Count returns how many elements a selector matches now.
func (p *Page) Count(selector string) int { p.t.Helper(); return len(p.Texts(selector)) }

// Eval evaluates JavaScript in the page, whatever its policy allows, and decodes its value as encoding/json does, unless
// into is nil. A promise is awaited. Undefined leaves the value as it is.
func (p *Page) Eval(script string, into any) {
	p.t.Helper()
	value, err := p.evaluate(script)
	if err == nil && into != nil && len(value) > 0 {
		err = json.Unmarshal(value, into)
	}
	if err != nil {
		p.t.Fatalf("evaluate %.200s: %v", script, err)
	}
}

// WaitText waits until a reader sees a text in an element that a selector matches.
func (p *Page) WaitText(selector, text string) {
	p.t.Helper()
	p.await(nil, `(selector, text) => {
		const all = Array.from(document.querySelectorAll(selector), e => e.innerText)
		return all.some(t => t.includes(text)) ? {} : "no " + selector + " has " + JSON.stringify(text) + "; their texts: " + JSON.stringify(all)
	}`, selector, text)
}

// WaitFor waits until a condition holds, which is an expression of JavaScript. While it throws, it does not hold.
func (p *Page) WaitFor(condition string) {
	p.t.Helper()
	p.await(nil, `condition => {
		try { if (`+condition+`) return {} } catch {}
		return "it does not hold that " + condition
	}`, condition)
}

// await calls a function of JavaScript until it returns an object, whose value it decodes. A string that the
// function returns says what is missing.
func (p *Page) await(into any, function string, args ...any) {
	p.t.Helper()
	list, err := json.Marshal(args)
	if err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(p.patience); ; time.Sleep(pause) {
		answer, err := p.evaluate(fmt.Sprintf("(%s)(...%s)", function, list))
		var missing string
		var found struct{ Value json.RawMessage }
		var thrown *chromedp.ExceptionError
		switch {
		case errors.As(err, &thrown):
			p.t.Fatal(err)
		case err != nil: // another page replaces this one
			missing = err.Error()
		case json.Unmarshal(answer, &missing) != nil:
			if err = json.Unmarshal(answer, &found); err == nil && into != nil {
				err = json.Unmarshal(found.Value, into)
			}
			if err != nil {
				p.t.Fatal(err)
			}
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s (after %v)", missing, p.patience)
		}
	}
}

//go:embed testdata/axe-core/axe.min.js
var axeScript string

// Axe fails the test for each rule of axe-core that the page breaks with an impact that is serious or critical, and names
// the elements. It works whatever the page's policy allows, and without JavaScript too.
func (p *Page) Axe() {
	p.t.Helper()
	if p.opts.NoScript { // axe waits by timers, which do not run then
		if err := p.allowScripts(true); err != nil {
			p.t.Fatal(err)
		}
		defer p.allowScripts(false)
	}
	var result struct {
		Passed     int
		Violations []string
	}
	p.Eval("if (!window.axe) {"+axeScript+"\n}", nil)
	p.Eval(`axe.run(document, {iframes: false, preload: false}).then(r => ({
		Passed: r.passes.length,
		Violations: r.violations.filter(v => v.impact === "serious" || v.impact === "critical")
			.map(v => v.id + " (" + v.impact + "): " + v.help + v.nodes.map(n => "\n" + n.html + "\n  " + n.failureSummary).join(""))
	}))`, &result)
	if result.Passed == 0 {
		p.t.Error("axe has judged nothing of the page")
	}
	for _, v := range result.Violations {
		p.t.Errorf("axe: %s", v)
	}
}

// Overflow fails the test if the page is wider than the window, so that a reader would have to scroll sideways. It names
// the innermost elements that stick out.
func (p *Page) Overflow() {
	p.t.Helper()
	var out []string
	p.await(&out, `window => {
		const root = document.scrollingElement
		const width = Math.min(window || root.clientWidth, root.clientWidth)
		if (root.scrollWidth <= width) return {value: []}
		const wide = Array.from(document.querySelectorAll("body *")).filter(e => e.getBoundingClientRect().left + e.scrollWidth > width)
		const inner = wide.filter(e => !wide.some(other => other !== e && e.contains(other)))
		return {value: ["the page is " + root.scrollWidth + " pixels wide in a window of " + width, ...inner.map(e => e.cloneNode().outerHTML.slice(0, 200))].slice(0, 6)}
	}`, p.opts.Width)
	if len(out) > 0 {
		p.t.Error(strings.Join(out, "\n"))
	}
}

// Screenshot writes a picture of the window as PNG.
func (p *Page) Screenshot(path string) {
	p.t.Helper()
	picture, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	if err == nil {
		err = os.WriteFile(path, picture.Data, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
