package browser

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/patch"
)

var screenshots = flag.Bool("screenshots", false, "write the screenshots of docs/ anew")

// shown are the views of which docs/ has screenshots.
var shown = []string{"sessions-desktop", "session-desktop", "summary-desktop", "session-phone-dark"}

func cutFirst() *patch.PatchEvent { return patch.NewSplice(0, 1) }

// Every view, on a desktop and a phone, light and dark: no fault on the page, nothing wider than the
// window, and nothing that axe-core finds to be a serious violation.
func TestViews(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{Write: true, Erase: true})
	f.session(ada, 160)
	v := f.view(ada)
	last := fmt.Sprint(v.Seq())
	summary, passed := 0, uint64(0)
	for i := range v.Len() {
		if v.Entry(i).Summary {
			summary = i
		}
	}
	for _, r := range f.records(ada, 1) {
		if r.Patch != nil && r.Patch.Type() == patch.Summarise && passed == 0 {
			passed = r.Seq
		}
	}
	views := []struct{ name, address string }{
		{"sessions", "./"},
		{"session", address("session", ada)},
		{"session-then", address("session", ada, "at", "50")},
		{"session-empty", address("session", ada, "at", "0")},
		{"record", address("record", ada, "seq", "3")},
		{"record-patch", address("record", ada, "seq", fmt.Sprint(passed))},
		{"summary", address("summary", ada, "at", last, "index", fmt.Sprint(summary))},
		{"diff", address("diff", ada, "from", fmt.Sprint(passed-1), "to", fmt.Sprint(passed))},
		{"search", address("search", ada, "q", "order")},
		{"search-everywhere", "search?q=order"},
		{"session-edit", address("session", ada, "edit", "1")},
		{"state", address("state", ada)},
		{"figures", address("figures", ada)},
		{"preview", address("act", ada, "act", "pin", "creation", v.Creation(), "at", last, "index", "0")},
		{"erase", address("act", ada, "act", "erase", "creation", v.Creation(), "at", last, "match", "order", "where", "everywhere")},
		{"search-none", address("search", ada, "q", "zyzzyva")},
	}
	for _, mode := range []struct {
		name string
		opts pageOptions
	}{
		{"desktop", pageOptions{Width: 1400, Height: 1000}},
		{"desktop-dark", pageOptions{Width: 1400, Height: 1000, Dark: true}},
		{"phone", phone()},
		{"phone-dark", func() pageOptions { o := phone(); o.Dark = true; return o }()},
	} {
		t.Run(mode.name, func(t *testing.T) {
			p := openPage(t, f.base, mode.opts)
			for _, view := range views {
				p.Go(view.address)
				p.Overflow()
				p.Axe()
				if *screenshots && slices.Contains(shown, view.name+"-"+mode.name) {
					p.Screenshot(filepath.Join("..", "..", "docs", "inspector-"+view.name+"-"+mode.name+".png"))
				}
			}
		})
	}
}
