package browser

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var screenshots = flag.Bool("screenshots", false, "write the screenshots of docs/")

// TestScreenshots writes the screenshots for docs/ from the session of the command's demo.
func TestScreenshots(t *testing.T) {
	if !*screenshots {
		t.Skip("without -screenshots")
	}
	f := newFixture(t, inspector.Options{Write: true, Erase: true})
	demo := store.Key{App: "airline", User: "omar", Session: "trip"}
	log := testlog.Must(os.ReadFile(filepath.Join("..", "..", "internal", "command", "demo", "session.jsonl")))(t)
	testlog.Must(f.Import(t.Context(), demo, bytes.NewReader(log), store.ImportOptions{}))(t)
	cfg := compaction.DefaultConfig()
	cfg.TokenThreshold, cfg.CompactionInterval, cfg.EventRetentionSize = 4_000, 0, 10
	c := testlog.Must(compaction.New(f.Store, cfg, compaction.Options[store.Key]{Logger: slog.New(slog.DiscardHandler)}))(t)
	testlog.Must(c.Compact(t.Context(), demo, compaction.Run{Force: true}))(t)
	for n, name := range []string{"shop/ada/order-4711", "shop/ben/floral-dress", "support/maria/garden", "coding/dev/fix-the-renderer"} {
		key := testlog.Must(store.ParseKey(name))(t)
		f.session(key, 60+50*n)
	}
	v := f.view(demo)
	last, summary := decimal(v.Seq()), uint64(0)
	for _, r := range f.records(demo, 1) {
		if r.Patch != nil {
			summary = r.Seq
		}
	}
	views := map[string]string{
		"sessions": "./", "session": address("session", demo), "record": address("record", demo, "seq", "12"), "summary": address("summary", demo, "index", "0"),
		"search": address("search", demo, "q", "business economy"), "preview": address("act", demo, "act", "revert", "creation", v.Creation(), "at", last, "seq", decimal(summary)),
	}
	for mode, opts := range map[string]pageOptions{
		"desktop": {Width: 1440, Height: 900}, "desktop-dark": {Width: 1440, Height: 900, Dark: true}, "phone": {Width: 390, Height: 844, Mobile: true}, "phone-dark": {Width: 390, Height: 844, Mobile: true, Dark: true},
	} {
		p := openPage(t, f.base, opts)
		for name, at := range views {
			p.Go(at)
			path := filepath.Join("..", "..", "docs", "inspector-"+name+"-"+mode+".png")
			p.Screenshot(path)
			compress(t, path)
		}
	}
}

// compress reduces a picture to its 64 most frequent colours.
func compress(t *testing.T, path string) {
	t.Helper()
	from := testlog.Must(png.Decode(bytes.NewReader(testlog.Must(os.ReadFile(path))(t))))(t)
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA {
		r, g, b, _ := from.At(x, y).RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
	}
	size := from.Bounds()
	for y := range size.Dy() {
		for x := range size.Dx() {
			count[at(x, y)]++
		}
	}
	weight := func(c color.RGBA) int { // prefers colours to greys
		return count[c] * (4 + int(max(c.R, c.G, c.B)-min(c.R, c.G, c.B)))
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return weight(b) - weight(a) })
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 64)] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	to := image.NewPaletted(size, palette)
	for y := range size.Dy() {
		for x := range size.Dx() {
			c := at(x, y)
			if _, ok := nearest[c]; !ok {
				nearest[c] = uint8(palette.Index(c))
			}
			to.SetColorIndex(x, y, nearest[c])
		}
	}
	var out bytes.Buffer
	testlog.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	testlog.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
}

func hideFirstEvent() *patch.PatchEvent { return patch.NewSplice(0, 1) }

// On desktops and phones, in light and dark colours, every page is free of faults and not wider than the
// window. No page seriously violates the rules of axe-core.
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
		{"desktop", pageOptions{Width: 1440, Height: 900}},
		{"desktop-dark", pageOptions{Width: 1440, Height: 900, Dark: true}},
		{"phone", phone()},
		{"phone-dark", func() pageOptions { o := phone(); o.Dark = true; return o }()},
	} {
		t.Run(mode.name, func(t *testing.T) {
			p := openPage(t, f.base, mode.opts)
			for _, view := range views {
				p.Go(view.address)
				p.Overflow()
				p.Axe()
			}
		})
	}
}
