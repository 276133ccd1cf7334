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
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/present"
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
	summary, err := patch.NewEvent(patch.Fields{ID: "told", Author: "user", Content: patch.Text("user", "in short")})
	if err != nil {
		t.Fatal(err)
	}
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

// drawn is a strip after a record.
func drawn(t *testing.T, records []patch.Record, at int) *shape {
	t.Helper()
	v, err := fold.Fold(fold.New("", nil), records[:at])
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, strip(grown(t, records), v, points(drawnKey)))
}

func pointOf(t *testing.T, link *shape) (key string, at int) {
	t.Helper()
	u, err := url.Parse(link.attrs["href"])
	if err != nil || u.Path != "session" {
		t.Fatalf("%q, %v", link.attrs["href"], err)
	}
	at, err = strconv.Atoi(u.Query().Get("at"))
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("key"), at
}

func TestStripLinksItsPatches(t *testing.T) {
	d := drawn(t, drawnRecords(t), 18)
	var got []string
	for _, a := range slices.Concat(d.all("arc"), d.all("mark")) {
		if a.name != "a" {
			continue // of the legend
		}
		key, at := pointOf(t, a)
		name := a.attrs["aria-label"]
		if key != "shop/ada/4711" || !strings.HasPrefix(name, fmt.Sprintf("record %d, ", at)) || a.all("title")[0].text != name {
			t.Errorf("%q leads to record %d of %s", name, at, key)
		}
		got = append(got, name+" | "+a.attrs["class"])
	}
	pinned := drawnRecords(t)[9].Event.ID()
	want := []string{
		"record 11, summarise: hid 4 events, records 2 to 5; put in 1 event | arc summary stands",
		"record 12, splice: hid 2 events, records 7 to 8; taken back since | arc patch undone",
		"record 13, revert of cut: brought back 2 events | mark stands",
		"record 14, revert of sum: hid 1 event, record 11; brought back 4 events; taken back since | mark undone",
		"record 15, revert of sum back: hid 4 events, records 2 to 5; brought back 1 event | mark stands",
		"record 16, pin of " + pinned + " | mark stands",
		"record 17, splice: skipped, out of range | mark stands",
		"record 18, unpin of " + pinned + " | mark stands",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var glyphs []string
	for _, m := range d.all("mark") {
		if m.name == "a" {
			glyphs = append(glyphs, m.all("path")[0].attrs["class"])
		}
	}
	if want := []string{"revert", "revert", "revert", "pin", "skipped", "unpin"}; !slices.Equal(glyphs, want) {
		t.Errorf("glyphs %v", glyphs)
	}
	for _, word := range []string{"user", "summary", "revert", "pin", "unpin", "skipped", "taken back"} {
		if !strings.Contains(d.all("legend")[0].text, word) {
			t.Errorf("the legend does not say %q: %s", word, d.all("legend")[0].text)
		}
	}
	for i, r := range slices.DeleteFunc(d.all("a"), func(a *shape) bool { return len(a.all("region")) == 0 }) {
		if _, at := pointOf(t, r); at != i+1 || r.attrs["aria-label"] != fmt.Sprint("record ", at) || r.inner[1].attrs["x"] != fmt.Sprint(i) {
			t.Errorf("cell %d: %v leads to %d", i, r.attrs, at)
		}
	}
}

// At an earlier point, what came later is faint, and what was not taken back yet stands.
func TestStripThroughTime(t *testing.T) {
	records := drawnRecords(t)
	line := grown(t, records)
	for at := range len(records) + 1 {
		d := drawn(t, records, at)
		for _, a := range slices.Concat(d.all("arc"), d.all("mark")) {
			if a.name != "a" {
				continue
			}
			_, seq := pointOf(t, a)
			want := "stands"
			switch {
			case seq > at:
				want = "later"
			case seq == 11 && at == 14, seq == 12 && at >= 13, seq == 14 && at >= 15:
				want = "undone"
			}
			if !a.is(want) || (want == "undone") != strings.Contains(a.attrs["aria-label"], "taken back since") {
				t.Errorf("after %d, record %d is %q, %q, and not %s", at, seq, a.attrs["class"], a.attrs["aria-label"], want)
			}
		}
		v, err := fold.Fold(fold.New("", nil), records[:at])
		if err != nil {
			t.Fatal(err)
		}
		visible := map[int]bool{}
		for _, e := range v.Entries() {
			visible[int(e.Seq)] = true
		}
		cells := 0
		for _, c := range d.all("cell") {
			for _, place := range regexp.MustCompile(`M([0-9.]+) (\d+)h`).FindAllStringSubmatch(c.attrs["d"], -1) {
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
				if !c.is(want) || (place[2] == strconv.Itoa(stripCell)) != visible[seq] {
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
func TestStripCellOfSeveral(t *testing.T) {
	user, model, call := step{Kind: present.User}, step{Kind: present.Model}, step{Kind: present.Call}
	s := &logStrip{timeline: &timeline{steps: []step{call, user, model, user, user, call, call}}, seen: []bool{false, false, true, false, false, false, false}, now: 5}
	for _, c := range []struct {
		from, to int
		want     cell
	}{
		{0, 4, cell{present.Model, "seen"}}, {0, 2, cell{present.User, "gone"}}, {3, 7, cell{present.User, "gone"}}, {4, 7, cell{present.Call, "gone"}}, {5, 7, cell{present.Call, "later"}},
	} {
		if got := s.cell(c.from, c.to); got != c.want {
			t.Errorf("records %d to %d: %v, and not %v", c.from+1, c.to, got, c.want)
		}
	}
}

// What hid a summary stands above what put that in.
func TestStripNests(t *testing.T) {
	records := recorded.Log(t, 30)
	summary := func(id string) *patch.Event {
		e, err := patch.NewEvent(patch.Fields{ID: id, Author: "user", Content: patch.Text("user", id)})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for i, p := range []*patch.PatchEvent{
		patch.NewSummarise(0, 25, summary("s1")), patch.NewSummarise(1, 2, summary("s2")), patch.NewSummarise(0, 2, summary("s3")), patch.NewSummarise(0, 2, summary("s4")),
	} {
		records = append(records, patch.Record{Seq: uint64(31 + i), Patch: p.WithID(fmt.Sprint("p", i))})
	}
	line := grown(t, records)
	levels := newLogStrip(line, line.view, points(drawnKey)).levels()
	if len(levels) != 4 || !(levels[31] > levels[32] && levels[33] > levels[31] && levels[34] > levels[33] && levels[34] <= 1) {
		t.Errorf("%v", levels)
	}
}

// Whatever a log says is text in its drawings, at any point in time.
func TestPropertyDrawingsAreWellFormed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := fuzz.Records(fuzz.Options{}).Draw(rt, "records")
		line := grown(rt, records)
		at := rapid.IntRange(0, len(records)).Draw(rt, "at")
		v, err := fold.Fold(fold.New("", nil), records[:at])
		if err != nil {
			rt.Fatal(err)
		}
		s, c := strip(line, v, points(drawnKey)), chart(line, uint64(at), points(drawnKey))
		if len(records) == 0 {
			if s != "" || c != "" {
				rt.Fatalf("of an empty log: %s %s", s, c)
			}
			return
		}
		parsed(rt, s)
		parsed(rt, c)
		if strings.Contains(string(s+c), "NaN") || strings.Contains(string(s+c), "Inf") || strings.Contains(string(s+c), "%!") {
			rt.Fatalf("%s %s", s, c)
		}
	})
}

func TestDrawingsEscape(t *testing.T) {
	const hostile = "\"'><script>alert(1)</script>&\x1b[31m\u202e\x00"
	key := store.Key{App: `a"'<b>&`, User: "u u", Session: "javascript:alert(1)\u202e"}
	records := recorded.Log(t, 4)
	p, err := patch.NewSplice(0, 2).WithID(hostile).WithAuthor(hostile).WithCustomMetadata(map[string]any{"patchlog": map[string]any{"trigger": hostile, "eventsBefore": 2}})
	if err != nil {
		t.Fatal(err)
	}
	records = append(records, patch.Record{Seq: 5, Patch: p}, patch.Record{Seq: 6, Patch: patch.NewRevert(hostile).WithID("back" + hostile)},
		patch.Record{Seq: 7, Patch: patch.NewPin(hostile).WithID("pin")})
	line := grown(t, records)
	for name, d := range map[string]template.HTML{"strip": strip(line, line.view, points(key)), "chart": chart(line, 3, points(key))} {
		root := parsed(t, d)
		if strings.ContainsAny(string(d), "\x1b\u202e\x00") || len(root.all("script")) > 0 {
			t.Errorf("%s: %s", name, d)
		}
		links := root.all("a")
		if len(links) == 0 {
			t.Errorf("%s: no link", name)
		}
		for _, a := range links {
			if got, _ := pointOf(t, a); got != key.String() {
				t.Errorf("%s: %q leads to %q", name, a.attrs["href"], got)
			}
		}
		for _, e := range slices.Concat(root.all("svg"), root.all("path"), links) {
			for attr := range e.attrs {
				if attr == "style" || strings.HasPrefix(attr, "on") {
					t.Errorf("%s: attribute %s", name, attr)
				}
			}
		}
	}
	if !strings.Contains(string(chart(line, 3, points(key))), "&lt;script&gt;") {
		t.Error("the trigger is not shown")
	}
}

// manyRecords is a log of n records of which about so many are patches of several types.
func manyRecords(t testing.TB, n, patches int) (records []patch.Record) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	say := func(role string) *patch.Event {
		author := map[string]string{"user": "user", "model": "agent"}[role]
		e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("event", len(records)), Author: author, Content: patch.Text(role, strings.Repeat("word ", random.IntN(200)))})
		if err != nil {
			t.Fatal(err)
		}
		return e
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
			var err error
			if p, err = p.WithCustomMetadata(map[string]any{"patchlog": map[string]any{"trigger": "interval", "eventsBefore": count}}); err != nil {
				t.Fatal(err)
			}
		}
		add(patch.Record{Patch: p.WithID(fmt.Sprint("patch", len(records)))})
	}
	return records
}

// A drawing stays small, however long the log and the session's name are, and says what it leaves
// out.
func TestDrawingsAreSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long with the race detector")
	}
	records := manyRecords(t, 100_000, 5_000)
	line := grown(t, records)
	if patches := slices.DeleteFunc(slices.Clone(line.steps), func(s step) bool { return s.Patch == nil }); len(patches) < 4_900 || len(records) < 99_000 {
		t.Fatalf("%d patches in %d records", len(patches), len(records))
	}
	long := strings.Repeat("é", 512)
	for _, key := range []store.Key{drawnKey, {App: long, User: long, Session: long}} {
		began := time.Now()
		s, c := strip(line, line.view, points(key)), chart(line, line.last(), points(key))
		t.Logf("strip %d bytes, chart %d bytes, in %v", len(s), len(c), time.Since(began))
		if len(s) > 150_000 || len(c) > 150_000 {
			t.Errorf("strip %d bytes, chart %d bytes", len(s), len(c))
		}
		root := parsed(t, s)
		arcs := root.all("arc")
		if len(arcs) == 0 || len(arcs) > stripArcs {
			t.Fatalf("%d arcs", len(arcs))
		}
		if _, at := pointOf(t, arcs[len(arcs)-1]); at < int(line.last())-200 {
			t.Errorf("the last arc is that of record %d", at)
		}
		text := root.all("hint")[0].text
		if !strings.Contains(text, "A cell stands for 100 records") || !regexp.MustCompile(`Of the patches \d+ are drawn, .* 4\d\d\d are left out`).MatchString(text) {
			t.Errorf("it says %q", text)
		}
		for _, class := range []string{"raw", "visible", "spent", "alone"} {
			for _, path := range parsed(t, c).all(class) {
				if n := strings.Count(path.attrs["d"], "L") + 1; n > chartPoints || n < 50 && path.attrs["d"] != "M0 6H24" {
					t.Errorf("%s has %d points", class, n)
				}
			}
		}
	}
}

// What is thinned keeps its ends and extremes, in order.
func TestPropertyThinned(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 300).Draw(rt, "values")
		most := rapid.IntRange(6, 60).Draw(rt, "most")
		var points []point
		for i, v := range values {
			points = append(points, point{uint64(i), float64(v)})
		}
		got := thinned(slices.Clone(points), most)
		if len(got) > most || len(points) <= most && len(got) != len(points) {
			rt.Fatalf("%d of %d", len(got), len(points))
		}
		for i, p := range got {
			if points[p.seq] != p || i > 0 && got[i-1].seq >= p.seq {
				rt.Fatalf("%v", got)
			}
		}
		byValue := func(a, b point) int { return int(a.value - b.value) }
		if got[0] != points[0] || got[len(got)-1] != points[len(points)-1] ||
			slices.MinFunc(got, byValue).value != slices.MinFunc(points, byValue).value ||
			slices.MaxFunc(got, byValue).value != slices.MaxFunc(points, byValue).value {
			rt.Fatalf("%v of %v", got, points)
		}
	})
}

func TestChartSaysItsFigures(t *testing.T) {
	records := recorded.Log(t, 40)
	p, err := patch.NewSplice(0, 20).WithID("pass").WithCustomMetadata(map[string]any{"patchlog": map[string]any{
		"trigger": "interval", "eventsBefore": 20, "usage": map[string]any{"calls": 1, "promptTokens": 1000, "answerTokens": 100},
	}})
	if err != nil {
		t.Fatal(err)
	}
	records = slices.Insert(records, 30, patch.Record{Patch: p}, patch.Record{Patch: patch.NewSplice(0, 1).WithID("cut")})
	for i := range records {
		records[i].Seq = uint64(i + 1)
	}
	line := grown(t, records)
	pass, end := line.at(31), line.at(42)
	if spent := pass.Cost - line.at(30).Cost; spent != 1000+5*100 {
		t.Errorf("the summarizer cost %v", spent)
	}
	d := parsed(t, chart(line, 42, points(drawnKey)))
	if want := fmt.Sprintf("have cost %s of what the prompts would have cost with nothing patched (in tokens of plain input: %s of %s)",
		present.Percent(end.Cost/end.Alone), present.Grouped(int(end.Cost)), present.Grouped(int(end.Alone))); !strings.Contains(d.text, want) {
		t.Errorf("it does not say %q", want)
	}
	if want := "costs 0.1, since it is cached, any other 1.25; one that a summarizer reads 1 and one that it writes 5"; !strings.Contains(d.text, want) {
		t.Errorf("it does not say %q", want)
	}
	links := d.all("pass")
	if len(links) != 1 {
		t.Fatalf("%d passes", len(links))
	}
	if _, at := pointOf(t, links[0]); at != 31 {
		t.Errorf("the pass leads to record %d", at)
	}
	if n := strings.Count(d.all("ticks")[0].attrs["d"], "M"); n != 1 {
		t.Errorf("%d other patches", n)
	}
	var rows []string
	for _, tr := range d.all("tr") {
		var cells []string
		for _, cell := range tr.inner {
			cells = append(cells, cell.text)
		}
		rows = append(rows, strings.Join(cells, " | "))
	}
	row := func(s step, what string, before int) string {
		prompt := "–"
		for _, other := range line.steps[:s.Seq] {
			if other.Prompt > 0 {
				prompt = present.Grouped(other.Prompt)
			}
		}
		return fmt.Sprintf("%d | %s | %s | %s | %s | %s | %s | %s", s.Seq, what, present.Grouped(s.Raw), present.Grouped(before), present.Grouped(s.Visible),
			prompt, present.Grouped(int(s.Cost)), present.Grouped(int(s.Alone)))
	}
	want := []string{
		"Record | What | Logged | Visible before | Visible | Newest prompt | Cost | With nothing patched",
		row(pass, "pass, by interval", line.at(30).Visible), row(end, "the end", line.at(41).Visible),
	}
	if !slices.Equal(rows, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	// The lines are where the figures are, at the pass too.
	visible := d.all("visible")
	path := visible[1].attrs["d"] // the first is the area
	y := func(value int) string {
		return decimal(180 * (1 - float64(value)/(1.02*float64(slices.MaxFunc(line.steps, func(a, b step) int {
			return max(a.Raw, a.Prompt) - max(b.Raw, b.Prompt)
		}).Raw))))
	}
	for _, s := range []step{line.at(30), pass, end} {
		if point := fmt.Sprintf("L%d %s", s.Seq, y(s.Visible)); !strings.Contains(path+"L", point+"L") {
			t.Errorf("%s is not in %s", point, path)
		}
	}

	cost := func(value float64) string { return decimal(120 * (1 - value/(1.02*max(end.Cost, end.Alone)))) }
	for class, value := range map[string]float64{"spent": end.Cost, "alone": end.Alone} {
		if path, point := d.all(class)[0].attrs["d"], "L42 "+cost(value); !strings.HasSuffix(path, point) {
			t.Errorf("%s does not end with %s: %s", class, point, path)
		}
	}

	none := parsed(t, chart(grown(t, records[:1]), 1, points(drawnKey)))
	if !strings.Contains(none.text, "nothing was spent") {
		t.Errorf("of a log without answers: %q", none.text)
	}
}
