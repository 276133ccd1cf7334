package browser

import (
	"strconv"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (f *fixture) newest() patch.Record {
	f.t.Helper()
	return f.records(ada, f.view(ada).Seq())[0]
}

// selectEvents selects visible events by their checkboxes.
func selectEvents(p *Page, indices ...string) {
	p.Go(address("session", ada, "edit", "1"))
	for _, i := range indices {
		p.Click("#seen input[name=index][value='" + i + "']")
	}
}

// checkPreview calls press, which leads to another page, and checks that page.
func checkPreview(p *Page, press func()) {
	p.Follow(press)
	p.Overflow()
	p.Axe()
}

const confirmButton = "form.confirm button"

func TestActions(t *testing.T) {
	t.Parallel()
	for _, mode := range []pageOptions{{NoScript: true}, func() pageOptions { o := phone(); o.NoScript = true; return o }(), {NoScript: true, Dark: true}} {
		f := newFixture(t, inspector.Options{Write: true})
		f.session(ada, 60)
		p := openPage(t, f.base, mode)
		v := f.view(ada)

		// A preview writes nothing. Confirming the preview logs the patch that it showed.
		selectEvents(p, "1", "2")
		checkPreview(p, func() { p.Click("#acting button[value=splice]") })
		removed := p.Texts(".changes .removed .text")
		if len(removed) != 2 || f.view(ada).Seq() != v.Seq() {
			t.Fatalf("the preview takes out %q, and the log ends at record %d, not %d", removed, f.view(ada).Seq(), v.Seq())
		}
		checkPreview(p, func() { p.Click(confirmButton) })
		cut := f.newest().Patch
		if cut == nil || cut.Type() != patch.Splice || cut.Start() != 1 || cut.Count() != 2 || cut.Author() != "inspector" {
			t.Fatalf("logged is %v", cut)
		}
		p.WaitText(".notice", "Hid 2 events")

		// The action can be undone, and so can the undo.
		checkPreview(p, func() { p.Click(".notice button") })
		if back := f.newest().Patch; back == nil || back.Type() != patch.Revert || back.PatchID() != cut.ID() {
			t.Errorf("logged is %v", back)
		}
		checkPreview(p, func() { p.Click(".notice button") })

		// If a patch was logged after the preview, the page shows the patch and offers another preview.
		p.Go(address("record", ada, "seq", decimal(f.newest().Seq)))
		p.Follow(func() { p.Click("#panel a[href*='act=revert']") })
		f.apply(ada, patch.NewSplice(0, 1).WithID("somebody-else"))
		p.Follow(func() { p.Click(confirmButton) })
		p.Expect("409")
		p.WaitText("main", "Another patch was logged after the preview")
		if got := f.newest().ID(); got != "somebody-else" {
			t.Fatalf("logged is %s", got)
		}
		p.Overflow()
		p.Axe()
		p.Follow(func() { p.Click("form.offer button") }) // previews the action again
		p.Follow(func() { p.Click(confirmButton) })
		if back := f.newest().Patch; back == nil || back.Type() != patch.Revert {
			t.Errorf("logged is %v", back)
		}

		// The page names the patch that blocks a revert, and offers to revert that patch first.
		f.apply(ada, patch.NewSummarise(0, 2, testlog.Text("", "", "user", "both")))
		first := f.newest()
		f.apply(ada, patch.NewSplice(0, 1).WithID("in-the-way"))
		p.Go(address("record", ada, "seq", decimal(first.Seq)))
		p.Follow(func() { p.Click("#panel a[href*='act=revert']") })
		p.Expect("409")
		p.WaitText("main", "in-the-way")
		p.Follow(func() { p.Click("form.offer button") })
		p.Follow(func() { p.Click(confirmButton) })
		if back := f.newest().Patch; back == nil || back.Type() != patch.Revert || back.PatchID() != "in-the-way" {
			t.Errorf("logged is %v", back)
		}
	}
}

// With scripts, a preview appears in the page without scrolling, and has the same effect as without scripts.
func TestActionsInPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{Write: true, Erase: true})
	f.session(ada, 160)
	p := openPage(t, f.base, pageOptions{})
	p.Go(address("session", ada))
	p.Eval("window.stays = true", nil)
	back := "" // selector of the link that reverts the newest summary
	for _, r := range f.records(ada, 1) {
		if r.Patch == nil || r.Patch.Type() != patch.Summarise {
			continue
		}
		if _, err := f.Revert(t.Context(), ada, r.ID(), store.UndoOptions{DryRun: true}); err == nil {
			back = "#seen a[href*='act=revert'][href*='seq=" + decimal(r.Seq) + "']"
		}
	}
	p.Click(back)
	p.WaitFor("document.querySelector('form.confirm')")
	p.Axe()
	p.WaitFor("window.stays")
	p.Eval("history.back()", nil)
	p.WaitFor("!document.querySelector('form.confirm') && document.querySelector('#panel-log')")
	p.Click(back)
	p.WaitFor("document.querySelector('form.confirm')")
	p.Follow(func() { p.Click(confirmButton) })
	p.WaitText(".notice", "Reverted")
	p.Follow(func() { p.Click(".notice button") })
	if back := f.newest().Patch; back == nil || back.Type() != patch.Revert {
		t.Errorf("logged is %v", back)
	}

	// A search offers to erase its text in all sessions.
	p.Type("#q", "order")
	p.Key("Enter")
	p.WaitFor("document.querySelector('#panel a[href*=\"where=everywhere\"]')")
	p.Click("#panel a[href*='where=everywhere']")
	p.WaitFor("document.querySelector('form.confirm button.danger')")
	p.Axe()
}

func TestKeyboard(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{Write: true})
	f.session(ada, 60)
	p := openPage(t, f.base, pageOptions{})
	p.Go(address("session", ada))
	// reach presses Tab until an element has the focus.
	reach := func(selector string) {
		t.Helper()
		for range 400 {
			var there bool
			p.Eval("document.activeElement.matches("+strconv.Quote(selector)+")", &there)
			if there {
				return
			}
			p.Key("Tab")
		}
		t.Fatalf("%s cannot be reached", selector)
	}
	reach("#edit")
	p.Key("Enter")
	p.WaitFor("document.querySelector('#acting')")
	p.Eval("document.body.focus()", nil)
	reach("#seen input[name=index][value='0']")
	p.Key(" ")
	reach("#acting button[value=pin]")
	p.Key("Enter")
	p.WaitFor("document.querySelector('form.confirm')")
	reach(confirmButton)
	// After Back, a browser may restore a page whose form was sent. The form can be sent again.
	p.Eval("(document.querySelector('.confirm').dataset.sent = 'yes', dispatchEvent(new Event('pageshow')))", nil)
	p.Follow(func() { p.Key("Enter") })
	if pin := f.newest().Patch; pin == nil || pin.Type() != patch.Pin || pin.EventID() != f.view(ada).At(0).ID() {
		t.Errorf("logged is %v", f.newest())
	}

	// The keys j and k move between rows, / searches, g t goes to a turn, and ? shows the keys.
	p.Go(address("session", ada))
	focused := func(selector string) {
		t.Helper()
		p.WaitFor("document.activeElement.matches(" + strconv.Quote(selector) + ")")
	}
	p.Key("j", "j")
	focused("#seen .row:nth-of-type(1n) a.text")
	p.Key("k", "/")
	focused("#q")
	p.Eval("document.activeElement.blur()", nil)
	p.Key("g", "t")
	focused("#turn")
	p.Eval("document.activeElement.blur()", nil)
	p.Key("?")
	p.WaitFor("document.getElementById('help').open")
	p.Axe()
}
