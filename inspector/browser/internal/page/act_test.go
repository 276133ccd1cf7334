package page

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestReading(t *testing.T) {
	t.Parallel()
	base := serve(t, "", map[string]string{"/": document(
		`<ul><li class="a"> One </li><li>Two<span hidden> unseen</span></li></ul>` +
			`<script>setTimeout(() => document.querySelector("ul").insertAdjacentHTML("afterend", "<p id=late>Late</p>"), 100)</script>`)})
	p := Open(t, base, Options{})
	p.Go("/")
	if got := p.Text("#late"); got != "Late" { // waited for
		t.Errorf("%q", got)
	}
	if got := p.Texts("li"); !slices.Equal(got, []string{"One", "Two"}) {
		t.Errorf("%q", got)
	}
	if got := p.Texts("ol"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if a, none := p.Attr("li", "class"), p.Attr("li", "id"); a != "a" || none != "" {
		t.Errorf("%q, %q", a, none)
	}
	if n := p.Count("li"); n != 2 {
		t.Errorf("%d", n)
	}
	var sum struct{ Sum float64 }
	p.Eval("Promise.resolve({Sum: 1.5 + 2})", &sum)
	if sum.Sum != 3.5 {
		t.Errorf("%v", sum)
	}
	p.WaitText("li", "Two")
	p.WaitFor("Promise.resolve(document.querySelectorAll('li').length === 2)")
}

// What is not there ends the test, and says what it looked for.
func TestMissing(t *testing.T) {
	t.Parallel()
	base := serve(t, "", map[string]string{"/": document(`<p>One</p><button disabled>Off</button><a hidden href="/">Hidden</a>` +
		`<a id="under" href="/">Under</a><div id="over" style="position: fixed; inset: 0"></div>`)})
	p := Open(t, base, Options{})
	p.Go("/")
	for want, act := range map[string]func(p *Page){
		"nothing matches #x (after 1ms)":                       func(p *Page) { p.Text("#x") },
		"nothing matches #y":                                   func(p *Page) { p.Attr("#y", "id") },
		"nothing matches #z":                                   func(p *Page) { p.Click("#z") },
		`no p has "Two"; their texts: ["One"]`:                 func(p *Page) { p.WaitText("p", "Two") },
		"it does not hold that 1 === 2":                        func(p *Page) { p.WaitFor("1 === 2") },
		"it does not hold that none.x: ReferenceError":         func(p *Page) { p.WaitFor("none.x") },
		"evaluate none.x: ReferenceError: none is not defined": func(p *Page) { p.Eval("none.x", nil) },
		"evaluate 'x': json":                                   func(p *Page) { p.Eval("'x'", new(int)) },
		"SyntaxError":                                          func(p *Page) { p.Count("p[") },
		"button is disabled":                                   func(p *Page) { p.Click("button") },
		"[hidden] is not shown":                                func(p *Page) { p.Click("[hidden]") },
		`#under lies under <div id="over"`:                     func(p *Page) { p.Click("#under") },
		`there is no key "Nokey"`:                              func(p *Page) { p.Key("Nokey") },
		"no other page is opened":                              func(p *Page) { p.Follow(func() {}) },
	} {
		mustFail(t, func(t testing.TB) {
			trying := *p
			trying.t, trying.opts.Patience = t, time.Millisecond
			act(&trying)
		}, want)
	}
}

func TestActing(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"/": document(`<a href="/two">Two</a><p style="height: 3000px">Tall</p>
			<form action="/found"><label>Words <input id="q" name="q" value="old"></label></form>
			<label><input type="checkbox" id="box"> Box</label><p id="told"></p>
			<script>
				const keys = []
				addEventListener("keydown", e => { keys.push((e.ctrlKey ? "^" : "") + (e.shiftKey ? "+" : "") + e.key); told.innerText = keys.join(" ") })
			</script>`),
		"/two":   document(`<a href="/">Back</a><p>Two</p>`),
		"/found": document(`<p id="found">Found</p>`),
	}
	for _, opts := range []Options{{}, Phone(), {NoScript: true}} {
		t.Run(fmt.Sprintf("%+v", opts), func(t *testing.T) {
			base := serve(t, "", pages)
			p := Open(t, base, opts)
			p.Go("/")
			p.Follow(func() { p.Click("a") })
			if got := p.Text("p"); got != "Two" {
				t.Errorf("%q", got)
			}
			p.Follow(func() { p.Click("a") })
			p.Click("#box") // beyond what is in sight
			p.WaitFor("document.querySelector('#box').checked")
			if !opts.NoScript {
				p.Key("j", "Shift+Tab", "Control+k", "Escape", "ArrowDown", "K")
				p.WaitText("#told", "j +Tab ^k Escape ArrowDown +K")
			}
			p.Type("#q", "")
			p.WaitFor("document.querySelector('#q').value === ''")
			p.Type("#q", "Größe+ €日 a")
			p.WaitFor("document.querySelector('#q').value === 'Größe+ €日 a'")
			p.Key("Alt+x", "Control+k", "Meta+j") // types nothing
			p.WaitFor("document.querySelector('#q').value === 'Größe+ €日 a'")
			p.Type("#q", "new")
			p.Follow(func() { p.Key("Enter") })
			var query string
			p.Eval("location.search", &query)
			if query != "?q=new" || p.Text("#found") != "Found" {
				t.Errorf("%q", query)
			}
		})
	}
}
