package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

func (f *fixture) view(key store.Key) fold.View {
	f.t.Helper()
	return testlog.Must(f.View(f.t.Context(), key))(f.t)
}

// waitForRecord waits until all parts of a page show a session as of a record.
func (f *fixture) waitForRecord(p *Page, key store.Key, at uint64) {
	f.t.Helper()
	p.WaitFor(fmt.Sprintf("document.readyState === 'complete' && document.getElementById('session').dataset.at === '%d'", at))
	v := testlog.Must(f.ViewAt(f.t.Context(), key, at))(f.t)
	want := fmt.Sprintf("%d events · ", v.Len())
	if v.Len() == 1 {
		want = "1 event · "
	}
	if got := p.Text("#seen-count"); !strings.HasPrefix(got, want) {
		f.t.Errorf("after record %d the model is said to see %s, want %s", at, got, want)
	}
	if rows := p.Count("#seen .row"); rows < min(v.Len(), 100) || rows > min(v.Len(), 150) {
		f.t.Errorf("after record %d, %d rows of %d events", at, rows, v.Len())
	}
	if got, want := p.Text("#now"), fmt.Sprintf("record %d of ", at); !strings.HasPrefix(got, want) {
		f.t.Errorf("it says %q, want %q", got, want)
	}
}

func TestTimeTravel(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{})
	f.session(ada, 120)
	last := f.view(ada).Seq()
	p := openPage(t, f.base, pageOptions{})
	p.Go(address("session", ada))
	f.waitForRecord(p, ada, last)
	p.Key("ArrowLeft")
	f.waitForRecord(p, ada, last-1)
	p.Key("ArrowLeft", "ArrowLeft", "ArrowLeft") // faster than pages load
	f.waitForRecord(p, ada, last-4)
	p.Key("ArrowRight")
	f.waitForRecord(p, ada, last-3)
	var to string
	p.Eval("new URL(location.href).searchParams.get('at')", &to)
	if to != fmt.Sprint(last-3) {
		t.Errorf("the address has record %q", to)
	}
	p.Key("Home", "End") // these scroll the page
	f.waitForRecord(p, ada, last-3)

	// The slider moves if its keys are pressed, or if the upper row of the picture is clicked.
	focus := func() { p.Eval("document.getElementById('knob').focus()", nil) }
	focus()
	p.Key("Home")
	f.waitForRecord(p, ada, 0)
	focus()
	p.Key("End")
	f.waitForRecord(p, ada, last)
	focus()
	p.Key("ArrowLeft")
	f.waitForRecord(p, ada, last-1)
	var seq uint64
	p.Eval("Number(document.querySelector('#film .cell:nth-of-type(9)').dataset.seq)", &seq)
	p.Click("#film .cell:nth-of-type(9)")
	f.waitForRecord(p, ada, seq)
	var apart float64 // distance of the slider's knob from the end of the cell
	p.Eval(`Math.abs(document.querySelector("#knob line").getBoundingClientRect().x - document.querySelector("#film .cell:nth-of-type(9)").getBoundingClientRect().right)`, &apart)
	if apart > 2 {
		t.Errorf("the knob stands %g pixels from the end of the cell", apart)
	}

	// The page moves by turns, forward and back.
	p.Type("#turn", "3")
	p.Key("Enter")
	p.WaitText("#now", "turn 3 of")
	p.Key("Shift+ArrowRight")
	p.WaitText("#now", "turn 4 of")
	p.Eval("history.back()", nil)
	p.WaitText("#now", "turn 3 of")

	// A record opens beside the conversation, with its own URL. Back closes it.
	p.Go(address("session", ada))
	p.Click("#seen .row:not(.summary) a.text")
	p.WaitText("#panel h2", "Record ")
	var path string
	p.Eval("location.pathname", &path)
	if path != "/record" {
		t.Errorf("the address is %s", path)
	}
	p.Eval("history.back()", nil)
	p.WaitFor("document.querySelector('#panel-log')")

	// Keys in a text field do not navigate.
	p.Type("#q", "orders")
	p.Key("ArrowLeft", "Home")
	f.waitForRecord(p, ada, last)
}

// The user's last action decides what the page shows, even if the responses arrive in another order.
func TestResponsesOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		f := newFixture(t, inspector.Options{})
		f.session(ada, 40)
		last := f.view(ada).Seq()
		p := openPage(t, f.base, pageOptions{})
		p.Go(address("session", ada))
		// The first response is delayed until the test releases it. The variable taken is true once the page
		// has read the response.
		p.Eval(`{
			const get = fetch
			window.fetch = async (url) => {
				const answer = await get(url), text = await answer.text(), first = !window.release
				if (first) await new Promise(resolve => { window.release = resolve })
				return {status: answer.status, text: async () => { setTimeout(() => { window.taken = first }); return text }}
			}
		}`, nil)
		want := last - 1
		if live {
			f.appendText(ada, "user", "said while a page is open")
		} else {
			p.Key("ArrowLeft")
			want--
		}
		p.WaitFor("window.release")
		p.Key("ArrowLeft")
		f.waitForRecord(p, ada, want)
		f.appendText(ada, "user", "said later")
		p.WaitText("#newest", fmt.Sprintf("record %d", f.view(ada).Seq()))
		p.Eval("release()", nil)
		p.WaitFor("window.taken")
		f.waitForRecord(p, ada, want)
	}
}

// Everything can be read and reached without scripts.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{})
	f.session(ada, 200)
	last := f.view(ada).Seq()
	p := openPage(t, f.base, pageOptions{NoScript: true})
	p.Go(address("session", ada))
	f.waitForRecord(p, ada, last)
	p.Follow(func() { p.Click("#back") })
	f.waitForRecord(p, ada, last-1)
	p.Follow(func() { p.Type("#turn", "2"); p.Key("Enter") })
	p.WaitText("#now", "turn 2 of")
	p.Follow(func() { p.Click("#newest") })
	f.waitForRecord(p, ada, last)
	p.Follow(func() { p.Click("#panel .more a") })
	first := ""
	if p.Eval("document.querySelector('#panel .row .seq').textContent", &first); first != "1" {
		t.Errorf("the earlier records begin with %s", first)
	}
	for _, tab := range []string{"Record", "State", "Figures", "Raw log"} {
		p.Follow(func() {
			p.Click("#panel .tabs li:nth-child(" + map[string]string{"Raw log": "1", "Record": "2", "State": "3", "Figures": "4"}[tab] + ") a")
		})
		if now := p.Text("#panel .tabs [aria-current]"); now != tab {
			t.Errorf("the tab is %q, want %q", now, tab)
		}
	}
}

func TestLiveUpdates(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{})
	f.session(ada, 160)
	last := f.view(ada).Seq()
	p := openPage(t, f.base, pageOptions{})
	p.Go(address("session", ada))
	f.waitForRecord(p, ada, last)

	// If the reader has scrolled up, the scroll position, the selection and open items stay. The page shows the
	// number of new records.
	p.Eval(`{
		scrollTo({top: 500, behavior: "instant"})
		const row = document.querySelectorAll("#seen .row a.text")[3]
		row.focus({preventScroll: true})
		getSelection().selectAllChildren(row)
		document.querySelector("#panel details").open = true
		window.marked = {row, top: row.getBoundingClientRect().top, said: getSelection().toString(), open: document.querySelector("#panel details")}
	}`, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 20 {
			f.appendText(ada, "user", fmt.Sprintf("said while a page is open, %d", n))
		}
	}()
	p.WaitText("#seen .row:last-child", "said while a page is open, 19")
	<-done
	f.waitForRecord(p, ada, last+20)
	p.WaitText("#pill", "20 new")
	kept := `marked.row.isConnected && document.activeElement === marked.row && Math.abs(marked.row.getBoundingClientRect().top - marked.top) < 2 && getSelection().toString() === marked.said && marked.open.isConnected && marked.open.open`
	p.WaitFor(kept)
	f.apply(ada, hideFirstEvent())
	p.WaitText("#panel-log > .rows > li:last-child .kind", "cut")
	f.waitForRecord(p, ada, last+21)
	p.WaitFor(kept)
	p.Click("#pill")
	p.WaitFor("document.getElementById('pill').hidden")
	f.appendText(ada, "user", "at the end")
	p.WaitText("#seen .row:last-child", "at the end")
	p.WaitFor("document.querySelector('#seen .row:last-child').getBoundingClientRect().bottom <= innerHeight + 40")

	// A reader of an earlier record sees a notice, and the page stays at that record.
	p.Eval("document.activeElement.blur()", nil)
	p.Key("ArrowLeft")
	f.waitForRecord(p, ada, last+21)
	f.appendText(ada, "agent", "and an answer")
	p.WaitText("#newest", fmt.Sprintf("record %d", last+23))
	f.waitForRecord(p, ada, last+21)
	p.Click("#newest")
	f.waitForRecord(p, ada, last+23)

	testlog.NoError(t, f.Delete(t.Context(), ada))
	p.WaitText("#now", "This session was deleted")
}
