package inspector_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestConflict(t *testing.T) {
	for _, act := range []string{"splice", "revert", "rewind", "compact"} {
		t.Run(act, func(t *testing.T) {
			a := newActing(t, inspector.Options{Write: true})
			a.fill(10)
			f := map[string]url.Values{
				"splice": a.fields("splice", "index", "4", "index", "5", "index", "5", "index", "7"),
				"rewind": a.fields("rewind", "seq", "5"), "compact": a.fields("compact", "focus", "the lamp"),
			}[act]
			if act == "revert" {
				a.must(200, a.form(a.must(200, a.fields("splice", "index", "7")), "Do it"))
				f = a.fields("revert", "seq", fmt.Sprint(len(a.log())))
			}
			page := a.must(200, f)
			do := a.form(page, "Do it")
			base := a.view()
			other := make(chan error)
			go func() { // as an agent or a compactor would
				_, err := a.store.ApplyPatch(context.Background(), a.key, store.PatchOptions{On: base}, patch.NewSplice(5, 1).WithAuthor("somebody").WithID("other"))
				other <- err
			}()
			testlog.NoError(t, <-other)
			had := len(a.log())
			page = a.must(409, do)
			a.says(page, "Another patch was logged since the preview", "What changed since the preview", fmt.Sprintf("Record %d, which came between", had))
			a.shows(page, present.DifferenceOf(base, a.view()), 0)
			if n := len(a.log()); n != had {
				t.Fatalf("%d records were written", n-had)
			}
			page = a.must(200, a.form(page, "Preview it anew"))
			a.must(200, a.form(page, "Do it"))
			log := a.log()[had:]
			if act == "splice" { // the same events, which are elsewhere now
				a.says(page, "1 event of the selection cannot be seen any longer, and stay out of this: e5.", "4 e4 user", "6 e7 agent")
				if len(log) != 2 || log[0].Patch.Start() != 6 || log[1].Patch.Start() != 4 {
					t.Errorf("logged %v", log)
				}
			} else if len(log) == 0 {
				t.Error("nothing was logged")
			}
			if act == "compact" && !slices.ContainsFunc(log, func(r patch.Record) bool { _, ok := compaction.WrittenBy(r.Patch); return ok }) {
				t.Errorf("not compacted: %v", log)
			}
		})
	}
}

// A page that was made before a patch has other indices: the events that were ticked count.
func TestStalePage(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	f := a.fields("splice", "index", "4", "index", "5")
	testlog.Must(a.store.ApplyPatch(t.Context(), a.key, store.PatchOptions{AsOfNow: true}, patch.NewTruncateBefore("e4")))(t)
	page := a.must(200, f)
	a.says(page, "A patch was logged since the page was made", "0 e4 user", "1 e5 agent")
	a.must(200, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 2 || v.At(0).ID() != "e6" {
		t.Errorf("%d events, the first is %s", v.Len(), v.At(0).ID())
	}
	page = a.must(422, f)
	a.says(page, "None of the selected events is visible any longer.")
	if strings.Contains(page, ">Do it<") {
		t.Error("it offers to do nothing")
	}
}

func TestOrphansAreExplained(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	for _, c := range []struct {
		act, text string
		indices   []string
		passes    string
		first     int
		left      int
	}{
		{"splice", "", []string{"2"}, "events 1 to 2", 1, 6},
		{"splice", "", []string{"1", "6"}, "", 0, 0}, // of several stretches
		{"summarise", "what was found", []string{"2", "3"}, "events 1 to 3", 1, 6},
	} {
		f := a.fields(c.act, "text", c.text)
		f["index"] = c.indices
		page := a.must(422, f)
		a.says(page, `"c1" of function "find"`)
		if c.left > 0 {
			a.says(page, "What passes: "+c.passes+".")
			next := a.must(200, a.form(page, "Select these instead"))
			var ids []string
			if err := json.Unmarshal([]byte(a.form(next, "Do it").Get("ids")), &ids); err != nil || ids[0] != fmt.Sprintf("e%d", c.first) {
				t.Errorf("%v: ids %v, %v", c, ids, err)
			}
			a.says(next, fmt.Sprintf("8 -> %d", c.left))
		} else {
			a.says(page, "No wider stretch is known that passes.")
		}
		if n := len(a.log()); n != 8 {
			t.Fatalf("%d records", n)
		}
	}
	b := newActing(t, inspector.Options{Write: true})
	b.append(
		`{"id":"e8","author":"user","content":{"role":"user","parts":[{"text":"and order 5?"}]}}`,
		`{"id":"e9","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c2","name":"find"}}]}}`,
		`{"id":"e10","author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"c2","name":"find","response":{}}}]}}`)
	b.must(200, b.form(b.must(200, b.fields("splice", "from", "0", "through", "7")), "Do it"))
	b.append(`{"id":"e11","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c3","name":"ask"}}]},"longRunningToolIds":["c3"]}`)
	page := b.must(422, b.fields("splice", "index", "1", "index", "3")) // the second is open, and no stretch around it passes
	b.says(page, "No wider stretch is known that passes.")
	// All the same, if somebody ticks that.
	page = a.must(422, a.fields("splice", "index", "2"))
	f := a.form(page, "Preview it so")
	if !f.Has("allow_orphans") {
		t.Fatalf("no checkbox: %v", f)
	}
	f.Del("allow_orphans")
	a.must(422, f) // not ticked
	page = a.must(200, a.form(page, "Preview it so"))
	a.says(page, "Split calls are accepted.")
	a.must(200, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 7 {
		t.Errorf("%d events", v.Len())
	}
}

func TestPinsAreExplained(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.must(200, a.form(a.must(200, a.fields("pin", "index", "4")), "Do it"))
	page := a.must(422, a.fields("splice", "index", "4", "index", "5"))
	a.says(page, "This would hide 1 pinned event.", "event 4, id e4: and when does it come to me?")
	page = a.must(200, a.form(page, "Preview it so"))
	a.says(page, "Pinned events may be hidden.")
	a.must(200, a.form(page, "Do it"))
	if v := a.view(); v.Len() != 6 {
		t.Errorf("%d events", v.Len())
	}
}

func TestBlockedRevert(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.must(200, a.form(a.must(200, a.fields("summarise", "index", "4", "index", "5", "text", "Tuesday")), "Do it")) // 9
	a.must(200, a.form(a.must(200, a.fields("splice", "index", "4")), "Do it"))                                     // 10, cuts the summary
	page := a.must(409, a.fields("revert", "seq", "9"))
	a.says(page, "Record 10, patch "+a.log()[9].ID()+", stands on what this patch put in.", "Record 10")
	if !strings.Contains(page, `href="record?key=shop%2Fada%2F4711&amp;seq=10"`) {
		t.Error("no link to the record")
	}
	page = a.must(200, a.form(page, "Preview taking record 10 back"))
	a.must(200, a.form(page, "Do it"))
	a.must(200, a.form(a.must(200, a.fields("revert", "seq", "9")), "Do it"))
	if v := a.view(); v.Len() != 8 || v.At(4).ID() != "e4" {
		t.Errorf("%d events", v.Len())
	}
	page = a.must(409, a.fields("revert", "seq", "9"))
	a.says(page, "has been taken back already, by record 12")
	a.must(200, a.form(page, "Preview taking record 12 back"))
	a.says(a.must(422, a.fields("revert", "seq", "3")), "Record 3 is an event")
	a.must(404, a.fields("revert", "seq", "99"))
	a.must(400, a.fields("revert"))
}

func TestOnlyOneStretchForAText(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	page := a.must(422, a.fields("summarise", "index", "4", "index", "6", "text", "both"))
	a.says(page, "the selected ones are 2 stretches")
	a.says(a.must(200, a.form(page, "Select the whole stretch instead")), "5 e5 agent")
	a.says(a.must(422, a.fields("summarise", "index", "4", "text", " \r\n ")), "The text is missing")
	a.says(a.must(422, a.fields("splice")), "No event is selected")
}
