package browser

import (
	"strconv"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// newest returns the newest record.
func (f *fixture) newest() patch.Record {
	f.t.Helper()
	return f.records(ada, f.view(ada).Seq())[0]
}

// ticks opens what changes a session, and selects visible events.
func ticks(p *Page, indices ...string) {
	p.Go(address("session", ada))
	p.Click("details.acting > summary")
	for _, i := range indices {
		p.Click("#v" + i + " input[type=checkbox]")
	}
}

const do = "form.offer button.strong"

func TestActing(t *testing.T) {
	t.Parallel()
	for _, mode := range []pageOptions{{}, phone(), {NoScript: true, Dark: true}} {
		f := newFixture(t, inspector.Options{Write: true})
		f.session(ada, 60)
		p := openPage(t, f.base, mode)
		v := f.view(ada)

		// A preview writes nothing; what it says is what is then done.
		ticks(p, "1", "2")
		p.Follow(func() { p.Click("#acting button[value=splice]") })
		p.Overflow()
		p.Axe()
		removed := p.Texts("table.changes tr.removed td:last-child")
		if len(removed) != 2 || f.view(ada).Seq() != v.Seq() {
			t.Fatalf("the preview takes out %q, and the log ends at record %d, not %d", removed, f.view(ada).Seq(), v.Seq())
		}
		p.Follow(func() { p.Click(do) })
		p.Overflow()
		p.Axe()
		cut := f.newest().Patch
		if cut == nil || cut.Type() != patch.Splice || cut.Start() != 1 || cut.Count() != 2 || cut.Author() != "inspector" {
			t.Fatalf("logged is %v", cut)
		}
		if !strings.Contains(p.Text("main"), cut.ID()) {
			t.Errorf("the page does not name the record: %s", p.Text("main"))
		}

		// Somebody else was faster: it is said what they did, and the same can be looked at anew.
		p.Go(address("session", ada))
		p.Click("#r" + decimal(f.newest().Seq) + " .menu summary")
		p.Follow(func() { p.Click("button[form=reverting][value='" + decimal(f.newest().Seq) + "']") })
		f.apply(ada, patch.NewSplice(0, 1).WithID("somebody-else"))
		p.Follow(func() { p.Click(do) })
		p.Expect("409")
		p.WaitText("main", "which came between")
		if got := f.newest().ID(); got != "somebody-else" {
			t.Fatalf("logged is %s", got)
		}
		p.Overflow()
		p.Axe()
		p.Follow(func() { p.Click("form.offer button") }) // which previews
		p.Follow(func() { p.Click(do) })
		if back := f.newest().Patch; back == nil || back.Type() != patch.Revert || back.PatchID() != cut.ID() {
			t.Errorf("logged is %v", back)
		}

		// What stands in the way is named, and can be taken back first.
		f.apply(ada, patch.NewSummarise(0, 2, testlog.Text("", "", "user", "both")))
		first := f.newest()
		f.apply(ada, patch.NewSplice(0, 1).WithID("in-the-way"))
		p.Go(address("session", ada))
		p.Click("#r" + decimal(first.Seq) + " .menu summary")
		p.Follow(func() { p.Click("button[form=reverting][value='" + decimal(first.Seq) + "']") })
		p.Expect("409")
		p.WaitText("main", "in-the-way")
		p.Follow(func() { p.Click("form.offer button") })
		p.Follow(func() { p.Click(do) })
		if back := f.newest().Patch; back == nil || back.Type() != patch.Revert || back.PatchID() != "in-the-way" {
			t.Errorf("logged is %v", back)
		}
	}
}

// All can be done by keys alone.
func TestActingByKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{Write: true})
	f.session(ada, 40)
	p := openPage(t, f.base, pageOptions{})
	p.Go(address("session", ada))
	// reach goes on with Tab until an element has the focus.
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
	reach("details.acting > summary")
	p.Key("Enter")
	reach("#acting button[value=pin]")
	reach("#v2 input[type=checkbox]")
	p.Key(" ")
	p.Eval("document.querySelector('#acting button[value=pin]').focus()", nil)
	p.Follow(func() { p.Key("Enter") })
	reach(do)
	// After Back, the browser may show the page as it was left, with its form sent.
	p.Eval("(document.querySelector('.offer').dataset.sent = 'yes', dispatchEvent(new Event('pageshow')))", nil)
	p.Follow(func() { p.Key("Enter") })
	if pin := f.newest().Patch; pin == nil || pin.Type() != patch.Pin || pin.EventID() != f.view(ada).At(2).ID() {
		t.Errorf("logged is %v", f.newest())
	}
}
