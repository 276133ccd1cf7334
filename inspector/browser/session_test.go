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

// stands waits until a page shows a session as it stood after a record, in all its parts.
func (f *fixture) stands(p *Page, key store.Key, at uint64) {
	f.t.Helper()
	p.WaitFor(fmt.Sprintf("document.readyState === 'complete' && document.getElementById('session').dataset.at === '%d'", at))
	v := testlog.Must(f.ViewAt(f.t.Context(), key, at))(f.t)
	want := fmt.Sprintf("%d events", v.Len())
	if v.Len() == 1 {
		want = "1 event"
	}
	if got := p.Text("#visible h2 small"); got != want {
		f.t.Errorf("after record %d the model is said to see %s, want %s", at, got, want)
	}
	if rows := p.Count("#visible .row"); rows != min(v.Len(), 100) {
		f.t.Errorf("after record %d, %d rows of %d events", at, rows, v.Len())
	}
	if got, want := p.Text("#raw h2 small"), fmt.Sprintf("%d record", at); !strings.HasPrefix(got, want) {
		f.t.Errorf("after record %d the raw log is said to have %s", at, got)
	}
	values := 0
	for range v.Values() {
		values++
	}
	if rows := p.Count("#state tbody tr") - p.Count("#state tbody .badge"); rows != values {
		f.t.Errorf("after record %d the state has %d rows, want %d", at, rows, values)
	}
}

func TestTimeTravel(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{})
	f.session(ada, 120)
	last := f.view(ada).Seq()
	p := openPage(t, f.base, pageOptions{})
	p.Go(address("session", ada))
	f.stands(p, ada, last)
	if n := p.Count("#copy"); n != 1 {
		t.Errorf("there are %d buttons to copy", n)
	}

	p.Key("ArrowLeft")
	f.stands(p, ada, last-1)
	p.Key("ArrowLeft", "ArrowLeft", "ArrowLeft") // faster than pages come
	f.stands(p, ada, last-4)
	p.Key("ArrowRight")
	f.stands(p, ada, last-3)
	if got, want := p.Text("#now"), fmt.Sprintf("As it stood after record %d of %d", last-3, last); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	var to string
	p.Eval("new URL(location.href).searchParams.get('at')", &to)
	if to != fmt.Sprint(last-3) {
		t.Errorf("the address has record %q", to)
	}
	p.Key("Home", "End") // which scroll the page
	f.stands(p, ada, last-3)

	// The slider, by its own keys and by what it is set to.
	p.Eval("document.getElementById('slider').focus()", nil)
	p.Key("Home")
	f.stands(p, ada, 0)
	p.Eval("document.getElementById('slider').focus()", nil)
	p.Key("End")
	f.stands(p, ada, last)
	p.Eval("document.getElementById('slider').focus()", nil)
	p.Key("ArrowLeft")
	f.stands(p, ada, last-1)
	p.Eval("{ const s = document.getElementById('slider'); s.value = 17; s.dispatchEvent(new Event('input', {bubbles: true})) }", nil)
	f.stands(p, ada, 17)
	var apart float64 // the middle of the thumb, 16 pixels wide, and the drawing's line
	p.Eval(`(() => {
		document.getElementById("drawing").open = true;
		const s = document.getElementById("slider"), box = s.getBoundingClientRect(), line = document.querySelector("#drawing line.at").getBoundingClientRect();
		return Math.abs(box.x + 8 + (box.width - 16) * s.value / s.max - line.x - line.width / 2);
	})()`, &apart)
	if apart > 2 {
		t.Errorf("the slider stands %g pixels from the drawing's line", apart)
	}

	// The number, and links to records.
	p.Type("#at", "63")
	p.Key("Enter")
	f.stands(p, ada, 63)
	p.Click("#r60 .seq")
	f.stands(p, ada, 60)
	p.Eval("history.back()", nil)
	f.stands(p, ada, 63)

	// From patch to patch.
	var patches []uint64
	for _, r := range f.records(ada, 1) {
		if r.Patch != nil {
			patches = append(patches, r.Seq)
		}
	}
	p.Go(address("session", ada, "at", fmt.Sprint(patches[1]-1)))
	p.Click("#patch-on")
	f.stands(p, ada, patches[1])
	p.Key("Shift+ArrowRight")
	f.stands(p, ada, patches[2])
	p.Click("#patch-back")
	f.stands(p, ada, patches[1])
	p.Key("Shift+ArrowLeft")
	f.stands(p, ada, patches[0])

	// What the keys do not take: somebody who types.
	p.Type("#q", "orders")
	p.Key("ArrowLeft", "Home")
	f.stands(p, ada, patches[0])
}

// What a person did last decides what the page shows, whichever answer comes first.
func TestAnswersOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, news := range []bool{false, true} {
		f := newFixture(t, inspector.Options{})
		f.session(ada, 40)
		last := f.view(ada).Seq()
		p := openPage(t, f.base, pageOptions{})
		p.Go(address("session", ada))
		// The first answer waits until it is released. taken says that the page has read it.
		p.Eval(`{
			const get = fetch
			window.fetch = async (url) => {
				const answer = await get(url), text = await answer.text(), first = !window.release
				if (first) await new Promise(resolve => { window.release = resolve })
				return {status: answer.status, text: async () => { setTimeout(() => { window.taken = first }); return text }}
			}
		}`, nil)
		want := last - 1
		if news {
			f.say(ada, "user", "said while somebody looks")
		} else {
			p.Key("ArrowLeft")
			want--
		}
		p.WaitFor("window.release")
		p.Key("ArrowLeft")
		f.stands(p, ada, want)
		f.say(ada, "user", "said later")
		p.WaitText("#now", fmt.Sprintf("The log has grown to record %d", f.view(ada).Seq()))
		p.Eval("release()", nil)
		p.WaitFor("window.taken")
		f.stands(p, ada, want)
	}
}

// Everything can be read, and gone to, without scripts.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{})
	f.session(ada, 120)
	last := f.view(ada).Seq()
	p := openPage(t, f.base, pageOptions{NoScript: true})
	p.Go(address("session", ada))
	f.stands(p, ada, last)
	p.Follow(func() { p.Click("#back") })
	f.stands(p, ada, last-1)
	p.Follow(func() { p.Type("#at", "40"); p.Key("Enter") })
	f.stands(p, ada, 40)
	p.Follow(func() { p.Click("#newest") })
	f.stands(p, ada, last)
	p.Follow(func() { p.Click("#raw .more a") })
	if first := p.Text("#raw .row .seq"); first != "1" {
		t.Errorf("the earlier records begin with %s", first)
	}
}

func TestFollowing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{})
	f.session(ada, 60)
	last := f.view(ada).Seq()
	p := openPage(t, f.base, pageOptions{})
	p.Go(address("session", ada))
	f.stands(p, ada, last)

	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 20 {
			f.say(ada, "user", fmt.Sprintf("said while somebody looks, %d", n))
		}
	}()
	p.WaitText("#visible .row:last-child", "said while somebody looks, 19")
	<-done
	f.stands(p, ada, last+20)
	f.apply(ada, cutFirst())
	p.WaitText("#raw .row:last-child .kind", "splice")
	f.stands(p, ada, last+21)

	// Who looks at another time is told, and left there.
	p.Key("ArrowLeft")
	f.stands(p, ada, last+20)
	f.say(ada, "agent", "and an answer")
	p.WaitText("#now", fmt.Sprintf("The log has grown to record %d", last+22))
	f.stands(p, ada, last+20)
	p.Click("#newest")
	f.stands(p, ada, last+22)

	testlog.NoError(t, f.Delete(t.Context(), ada))
	p.WaitText("#now", "This session is gone")
}
