package inspector

import (
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// shape is an element of a drawing, with the text in it.
type shape struct {
	name  string
	attrs map[string]string
	inner []*shape
	text  string
}

// parsed reads a drawing as XML, which is stricter than HTML.
func parsed(t interface {
	Helper()
	Fatalf(string, ...any)
}, drawing template.HTML) *shape {
	t.Helper()
	root := &shape{name: "div"}
	open := []*shape{root}
	d := xml.NewDecoder(strings.NewReader("<div>" + string(drawing) + "</div>"))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return root
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, drawing)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &shape{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			parent := open[len(open)-1]
			parent.inner, open = append(parent.inner, e), append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, e := range open {
				e.text += string(token)
			}
		default:
			t.Fatalf("%T in\n%s", token, drawing)
		}
	}
}

// all are the elements with a class among theirs, or of a name.
func (e *shape) all(what string) (found []*shape) {
	for _, in := range e.inner {
		if in.name == what || slices.Contains(strings.Fields(in.attrs["class"]), what) {
			found = append(found, in)
		}
		found = append(found, in.all(what)...)
	}
	return found
}

func (e *shape) is(class string) bool {
	return slices.Contains(strings.Fields(e.attrs["class"]), class)
}

// drawnRecords is the log of a test: some events, of which a summary hides 2 to 5 and is taken back,
// a cut hides 7 and 8, what took the summary back is taken back, and patches of other kinds.
func drawnRecords(t *testing.T) []patch.Record {
	t.Helper()
	records := recorded.Log(t, 10)
	summary := testlog.Must(patch.NewEvent(patch.Fields{ID: "told", Author: "user", Content: patch.Text("user", "in short")}))(t)
	for _, p := range []*patch.PatchEvent{
		patch.NewSummarise(1, 4, summary).WithID("sum"),       // 11
		patch.NewSplice(3, 2).WithID("cut"),                   // 12
		patch.NewRevert("cut").WithID("cut back"),             // 13
		patch.NewRevert("sum").WithID("sum back"),             // 14
		patch.NewRevert("sum back").WithID("sum again"),       // 15
		patch.NewPin(records[9].Event.ID()).WithID("pinned"),  // 16
		patch.NewSplice(400, 1).WithID("too far"),             // 17
		patch.NewUnpin(records[9].Event.ID()).WithID("loose"), // 18
	} {
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: p})
	}
	return records
}

var drawnKey = store.Key{App: "shop", User: "ada", Session: "4711"}

// drawn is the drawing after a record.
func drawn(t *testing.T, records []patch.Record, at int) *shape {
	t.Helper()
	v := testlog.Must(fold.New("", nil).Apply(records[:at]...))(t)
	return parsed(t, htmlOf(t, newDrawing(grown(t, records), v, pointsOf(drawnKey))))
}

func pointsOf(key store.Key) func(uint64) template.URL {
	return func(seq uint64) template.URL { return sessionURL(key, seq) }
}

// htmlOf is a drawing as a page has it.
func htmlOf(t interface {
	Helper()
	Fatalf(string, ...any)
}, d *drawing) template.HTML {
	t.Helper()
	var out strings.Builder
	if err := templates.ExecuteTemplate(&out, "drawing", d); err != nil {
		t.Fatalf("%v", err)
	}
	return template.HTML(out.String())
}

func pointOf(t *testing.T, link *shape) (key string, at int) {
	t.Helper()
	u, err := url.Parse(link.attrs["href"])
	if err != nil || u.Path != "session" {
		t.Fatalf("%q, %v", link.attrs["href"], err)
	}
	at = testlog.Must(strconv.Atoi(u.Query().Get("at")))(t)
	return u.Query().Get("key"), at
}

func TestDrawingLinksItsPatches(t *testing.T) {
	d := drawn(t, drawnRecords(t), 18)
	var got []string
	for _, a := range d.all("arc") {
		key, at := pointOf(t, a)
		name := a.attrs["aria-label"]
		if key != "shop/ada/4711" || !strings.HasPrefix(name, fmt.Sprintf("record %d, ", at)) || a.all("title")[0].text != name {
			t.Errorf("%q leads to record %d of %s", name, at, key)
		}
		got = append(got, name+" | "+a.attrs["class"])
	}
	want := []string{
		"record 11, summarise: hid 4 events; put in 1 event | arc summary stands",
		"record 12, splice: hid 2 events; taken back since | arc patch undone",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if ticks := d.all("ticks")[0].attrs["d"]; strings.Count(ticks, "M") != 6 || !strings.Contains(d.all("hint")[0].text, "The ticks are 6 patches more.") {
		t.Errorf("the other patches are %s", ticks)
	}
	for _, word := range []string{"user", "summary", "patch"} {
		if !strings.Contains(d.all("legend")[0].text, word) {
			t.Errorf("the legend does not say %q: %s", word, d.all("legend")[0].text)
		}
	}
}

// At an earlier point, what came later is faint, and what was not taken back yet stands.
func TestDrawingThroughTime(t *testing.T) {
	records := drawnRecords(t)
	line := grown(t, records)
	for at := range len(records) + 1 {
		d := drawn(t, records, at)
		for _, a := range d.all("arc") {
			_, seq := pointOf(t, a)
			want := "stands"
			switch {
			case seq > at:
				want = "later"
			case seq == 11 && at == 14, seq == 12 && at >= 13:
				want = "undone"
			}
			if !a.is(want) || (want == "undone") != strings.Contains(a.attrs["aria-label"], "taken back since") {
				t.Errorf("after %d, record %d is %q, %q, and not %s", at, seq, a.attrs["class"], a.attrs["aria-label"], want)
			}
		}
		v := testlog.Must(fold.New("", nil).Apply(records[:at]...))(t)
		visible := map[int]bool{}
		for _, e := range v.Entries() {
			visible[int(e.Seq)] = true
		}
		cells := 0
		for _, c := range d.all("cell") {
			for _, place := range regexp.MustCompile(`M([0-9.]+) (\d+)H`).FindAllStringSubmatch(c.attrs["d"], -1) {
				cells++
				x, _ := strconv.ParseFloat(place[1], 64)
				seq := int(x) + 1
				want := "later"
				switch {
				case visible[seq]:
					want = "seen"
				case seq <= at:
					want = "gone"
				}
				if !c.is(want) || (place[2] == strconv.Itoa(cellTop)) != visible[seq] {
					t.Errorf("after %d, the cell of record %d is %q from %s on, and not %s", at, seq, c.attrs["class"], place[2], want)
				}
				kind := line.at(uint64(seq)).Kind
				if seq == 11 {
					kind = present.Summary
				}
				if !c.is(string(kind)) {
					t.Errorf("the cell of record %d is %q, and not %s", seq, c.attrs["class"], kind)
				}
			}
		}
		if cells != len(records) {
			t.Errorf("after %d, there are %d cells", at, cells)
		}
		if x := d.all("at")[0].attrs["x1"]; x != strconv.Itoa(at) {
			t.Errorf("the line of %d stands at %s", at, x)
		}
	}
}

// A cell for several records is tall if one of them is visible, and says of which kind that is.
func TestCellOfSeveral(t *testing.T) {
	user, model, call := step{Kind: present.User}, step{Kind: present.Model}, step{Kind: present.Call}
	line := &timeline{steps: []step{call, user, model, user, user, call, call}}
	seen := []bool{false, false, true, false, false, false, false}
	for _, c := range []struct {
		from, per int
		want      drawnCell
	}{
		{0, 4, drawnCell{present.Model, "seen", ""}}, {0, 2, drawnCell{present.User, "gone", ""}}, {3, 4, drawnCell{present.User, "gone", ""}},
		{4, 3, drawnCell{present.Call, "gone", ""}}, {5, 2, drawnCell{present.Call, "later", ""}},
	} {
		if got := (&drawing{Now: 5, Per: c.per}).cell(line, seen, c.from); got != c.want {
			t.Errorf("%d records from %d: %v, and not %v", c.per, c.from+1, got, c.want)
		}
	}
}

// What compaction cleared is its own, and no patch by hand.
func TestClearingIsCompaction(t *testing.T) {
	p := testlog.Must(patch.NewSplice(0, 2).WithID("pass").WithCustomMetadata(map[string]any{"patchlog": map[string]any{"trigger": "clear", "eventsBefore": 2}}))(t)
	arc := drawn(t, append(recorded.Log(t, 4), patch.Record{Seq: 5, Patch: p}), 5).all("arc")[0]
	if !arc.is("summary") || !strings.HasPrefix(arc.attrs["aria-label"], "record 5, compaction by clear: ") {
		t.Errorf("%v", arc.attrs)
	}
}

// The curves of sizes end where the figures are.
func TestDrawingSizes(t *testing.T) {
	records := append(recorded.Log(t, 9), patch.Record{Seq: 10, Patch: patch.NewSplice(0, 5).WithID("cut")})
	line := grown(t, records)
	d := newDrawing(line, line.view, pointsOf(drawnKey))
	end := line.at(10)
	if want := fmt.Sprintf("L10 %s", decimal(216-70*float64(end.Visible)/float64(end.Raw))); !strings.HasSuffix(d.Visible, want) || !strings.HasSuffix(d.Raw, "L10 146") || d.Most != present.Grouped(end.Raw) {
		t.Errorf("visible %s, raw %s, scale %s; the curve should end with %s", d.Visible, d.Raw, d.Most, want)
	}
}

// Whatever a log says is text in its drawings, at any point in time.
func TestPropertyDrawingsAreWellFormed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := fuzz.Records(fuzz.Options{}).Draw(rt, "records")
		line := grown(rt, records)
		at := rapid.IntRange(0, len(records)).Draw(rt, "at")
		v := testlog.Must(fold.New("", nil).Apply(records[:at]...))(rt)
		text := htmlOf(rt, newDrawing(line, v, pointsOf(drawnKey)))
		if parsed(rt, text); (text == "") != (len(records) == 0) || strings.Contains(string(text), "NaN") || strings.Contains(string(text), "Inf") || strings.Contains(string(text), "%!") {
			rt.Fatalf("%s", text)
		}
	})
}

// manyRecords is a log of n records of which about so many are patches of several types.
func manyRecords(t testing.TB, n, patches int) (records []patch.Record) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	say := func(role string) *patch.Event {
		author := map[string]string{"user": "user", "model": "agent"}[role]
		return testlog.Must(patch.NewEvent(patch.Fields{ID: fmt.Sprint("event", len(records)), Author: author, Content: patch.Text(role, strings.Repeat("word ", random.IntN(200)))}))(t)
	}
	add := func(r patch.Record) {
		r.Seq = uint64(len(records) + 1)
		records = append(records, r)
	}
	visible := 0
	for len(records) < n {
		if every := n / patches; len(records)%every != every-1 {
			add(patch.Record{Event: say([]string{"user", "model"}[len(records)%2])})
			visible++
			continue
		}
		p := patch.NewPin("event0")
		switch kind := random.IntN(4); {
		case kind == 0:
			p = patch.NewSplice(random.IntN(3), 2)
			visible -= 2
		case kind > 1:
			count := 2 + random.IntN(min(visible-2, 60))
			p = patch.NewSummarise(random.IntN(visible-count+1), count, say("user"))
			visible -= count - 1
			p = testlog.Must(p.WithCustomMetadata(map[string]any{"patchlog": map[string]any{"trigger": "interval", "eventsBefore": count}}))(t)
		}
		add(patch.Record{Patch: p.WithID(fmt.Sprint("patch", len(records)))})
	}
	return records
}

// A drawing stays small, however long the log and the session's name are, and says what it leaves
// out.
func TestDrawingsAreSmall(t *testing.T) {
	testlog.OneGoroutine(t)
	records := manyRecords(t, 100_000, 5_000)
	line := grown(t, records)
	if patches := slices.DeleteFunc(slices.Clone(line.steps), func(s step) bool { return s.Patch == nil }); len(patches) < 4_900 || len(records) < 99_000 {
		t.Fatalf("%d patches in %d records", len(patches), len(records))
	}
	long := strings.Repeat("é", 512)
	for _, key := range []store.Key{drawnKey, {App: long, User: long, Session: long}} {
		text := htmlOf(t, newDrawing(line, line.view, pointsOf(key)))
		root := parsed(t, text)
		arcs := root.all("arc")
		if len(text) > 200_000 || len(arcs) == 0 || len(arcs) > drawnArcs {
			t.Fatalf("%d bytes, %d arcs", len(text), len(arcs))
		}
		if _, at := pointOf(t, arcs[len(arcs)-1]); at < int(line.last())-200 {
			t.Errorf("the last arc is that of record %d", at)
		}
		// No patch is left out: what is no link is a tick.
		if hint := root.all("hint")[0].text; !regexp.MustCompile(`A cell stands for 100 records. The ticks are 4\d\d\d patches more`).MatchString(hint) || strings.Count(root.all("ticks")[0].attrs["d"], "M") < 300 {
			t.Errorf("it says %q", hint)
		}
		for _, class := range []string{"raw", "visible"} {
			if n := strings.Count(root.all(class)[0].attrs["d"], "L"); n > drawnPoints+1 || n < 50 {
				t.Errorf("%s has %d points", class, n)
			}
		}
	}
}
