package page

import (
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Click clicks on the first element that a selector matches, once that is in sight, is not
// disabled, and nothing lies over it. It does not wait for what comes of it: [Page.Follow]
// does.
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
		if (!hit) return selector + " is out of sight"
		if (!e.contains(hit)) return selector + " lies under " + hit.cloneNode().outerHTML
		return {value: {X, Y}}
	}`, selector)
	mouse := input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: at.X, Y: at.Y}
	send(p, input.DispatchMouseEvent, mouse)
	mouse.Button, mouse.ClickCount = input.MouseButtonLeft, 1
	mouse.Type, mouse.Buttons = input.DispatchMouseEventTypeMousePressed, 1
	send(p, input.DispatchMouseEvent, mouse)
	mouse.Type, mouse.Buttons = input.DispatchMouseEventTypeMouseReleased, 0
	send(p, input.DispatchMouseEvent, mouse)
}

// Follow does what leads to another page, or to the same anew, and waits until that is loaded.
func (p *Page) Follow(act func()) {
	p.t.Helper()
	var before float64
	p.Eval("performance.timeOrigin", &before)
	act()
	p.await(nil, `before => performance.timeOrigin === before ? "no other page is opened" :
		document.readyState === "complete" ? {} : "the page is not loaded"`, before)
}

// Type clicks on the field that a selector matches, and types a text in place of what it
// holds.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.Click(selector)
	p.await(nil, `selector => {
		const e = document.querySelector(selector)
		if (document.activeElement !== e) return selector + " has not the focus"
		if (e.select) e.select()
		return {}
	}`, selector)
	if text == "" {
		p.Key("Delete")
	}
	for _, r := range text {
		p.Key(string(r))
	}
}

var modifiers = []struct {
	name string
	bit  int64
}{{"Alt+", 1}, {"Control+", 2}, {"Meta+", 4}, {"Shift+", 8}}

const shift = 8

// Key presses keys where the focus is, one after another. A key is a character, or what a
// KeyboardEvent calls it (Enter, Tab, Escape, ArrowDown), with Alt+, Control+, Meta+ or Shift+ before
// it for those that are held down.
func (p *Page) Key(keys ...string) {
	p.t.Helper()
	for _, name := range keys {
		p.press(name)
	}
}

func (p *Page) press(name string) {
	p.t.Helper()
	key, held := name, int64(0)
	for again := true; again; {
		again = false
		for _, m := range modifiers {
			if rest, is := strings.CutPrefix(key, m.name); is && rest != "" {
				key, held, again = rest, held|m.bit, true
			}
		}
	}
	k := keyNamed(key)
	if k == nil {
		if len([]rune(key)) != 1 {
			p.t.Fatalf("there is no key %q", name)
		}
		send(p, input.InsertText, input.InsertTextParams{Text: key}) // no keyboard has it
		return
	}
	if k.Shift {
		held |= shift
	}
	down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Modifiers: held,
		Key: k.Key, Code: k.Code, WindowsVirtualKeyCode: k.Windows, NativeVirtualKeyCode: k.Native}
	up := down
	up.Type = input.DispatchKeyEventTypeKeyUp
	if k.Text != "" && held&^shift == 0 {
		down.Type, down.Text, down.UnmodifiedText = input.DispatchKeyEventTypeKeyDown, k.Text, k.Unmodified
	}
	send(p, input.DispatchKeyEvent, down)
	send(p, input.DispatchKeyEvent, up)
}

// keyNamed returns a key by its character or name; nil if no keyboard has it.
func keyNamed(name string) *kb.Key {
	if runes := []rune(name); len(runes) == 1 {
		return kb.Keys[runes[0]]
	}
	var found *kb.Key
	var by rune
	for r, k := range kb.Keys {
		if k.Key == name && (found == nil || r < by) {
			found, by = k, r
		}
	}
	return found
}

// send sends a command to the tab and returns its result, or ends the test.
func send[P, R any](p *Page, c cdp.Command[P, R], params P) R {
	p.t.Helper()
	ctx, stop := p.answerable()
	defer stop()
	result, err := chromedp.Call(ctx, c, params)
	if err != nil {
		p.t.Fatalf("%s: %v", c.Method, err)
	}
	return result
}
