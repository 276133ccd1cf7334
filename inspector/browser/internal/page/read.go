package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// pause is the time between two looks at what is waited for.
const pause = 20 * time.Millisecond

// Text returns the text that a reader sees of the first element that a selector matches,
// without space around it.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	var text string
	p.await(&text, `selector => {
		const e = document.querySelector(selector)
		return e ? {value: e.innerText.trim()} : "nothing matches " + selector
	}`, selector)
	return text
}

// Texts returns the texts of all elements that a selector matches now, as [Page.Text] does. It
// waits for none.
func (p *Page) Texts(selector string) []string {
	p.t.Helper()
	var texts []string
	p.await(&texts, `selector => ({value: Array.from(document.querySelectorAll(selector), e => e.innerText.trim())})`, selector)
	return texts
}

// Attr returns an attribute of the first element that a selector matches; "" if it has none.
func (p *Page) Attr(selector, name string) string {
	p.t.Helper()
	var value string
	p.await(&value, `(selector, name) => {
		const e = document.querySelector(selector)
		return e ? {value: e.getAttribute(name) ?? ""} : "nothing matches " + selector
	}`, selector, name)
	return value
}

// Count returns how many elements a selector matches now.
func (p *Page) Count(selector string) int {
	p.t.Helper()
	var n int
	p.await(&n, `selector => ({value: document.querySelectorAll(selector).length})`, selector)
	return n
}

// Eval evaluates JavaScript in the page, whatever its policy allows, and decodes what it comes to
// into a value as encoding/json does; nil takes nothing. A promise is awaited. Undefined leaves the
// value as it is.
func (p *Page) Eval(script string, into any) {
	p.t.Helper()
	ctx, stop := p.answerable()
	defer stop()
	value, err := evaluate(ctx, script)
	if err == nil && into != nil && len(value) > 0 {
		err = json.Unmarshal(value, into)
	}
	if err != nil {
		p.t.Fatalf("evaluate %s: %v", script, err)
	}
}

// WaitText waits until an element that a selector matches has a text in what a reader sees of it.
func (p *Page) WaitText(selector, text string) {
	p.t.Helper()
	p.await(nil, `(selector, text) => {
		const all = Array.from(document.querySelectorAll(selector), e => e.innerText)
		return all.some(t => t.includes(text)) ? {} : "no " + selector + " has " + JSON.stringify(text) + "; their texts: " + JSON.stringify(all)
	}`, selector, text)
}

// WaitFor waits until a condition holds, which is an expression of JavaScript. While it throws, or is
// a promise that is rejected, it does not hold.
func (p *Page) WaitFor(condition string) {
	p.t.Helper()
	p.await(nil, `async said => {
		try {
			return await (`+condition+`) ? {} : "it does not hold that " + said
		} catch (e) {
			return "it does not hold that " + said + ": " + e
		}
	}`, condition)
}

// await calls a function of JavaScript again and again, until it returns an object, whose value it
// decodes. A string that the function returns says what is missing.
func (p *Page) await(into any, function string, args ...any) {
	p.t.Helper()
	var list []string
	for _, a := range args {
		text, err := json.Marshal(a)
		if err != nil {
			p.t.Fatal(err)
		}
		list = append(list, string(text))
	}
	call := fmt.Sprintf("(%s)(%s)", function, strings.Join(list, ", "))
	for deadline := time.Now().Add(p.opts.Patience); ; time.Sleep(pause) {
		missing, err := p.look(call, into)
		var failed *thrown
		switch {
		case errors.As(err, &failed):
			p.t.Fatal(err)
		case err != nil: // the page is being replaced by another
			missing = err.Error()
		case missing == "":
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s (after %v)", missing, p.opts.Patience)
		}
	}
}

// look evaluates a call once. It returns the string that the call does, or decodes the value of
// the object.
func (p *Page) look(call string, into any) (missing string, err error) {
	ctx, stop := p.answerable()
	defer stop()
	answer, err := evaluate(ctx, call)
	if err != nil || json.Unmarshal(answer, &missing) == nil {
		return missing, err
	}
	var found struct{ Value json.RawMessage }
	if err := json.Unmarshal(answer, &found); err != nil || into == nil {
		return "", err
	}
	return "", json.Unmarshal(found.Value, into)
}
