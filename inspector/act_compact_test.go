package inspector_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

func TestCompactNow(t *testing.T) {
	var focus string
	fail := fmt.Errorf("the model <b>is</b> away")
	cfg := compaction.Config{Enabled: true, CompactionInterval: 5, Summarizer: compaction.SummarizerFunc(func(_ context.Context, req compaction.Request) (compaction.Response, error) {
		focus = req.Focus
		return compaction.Response{Text: "Ada asked for much.", Model: "m1"}, fail
	})}
	a := newActing(t, inspector.Options{Write: true, Compaction: cfg})
	page := a.must(200, a.fields("compact"))
	if strings.Contains(page, ">Do it<") {
		t.Error("it offers to do nothing")
	}
	a.fill(10)
	decision := testlog.Must(compaction.Plan(a.view(), cfg, compaction.Run{Force: true}))(t)
	plan := present.PlanOf(a.key, decision)
	page = a.must(200, a.fields("compact", "focus", "the lamp"))
	a.says(page, plan.Reason, plan.Outlook(), "What the next pass would make a summary of", "0 e0 user")
	for _, row := range plan.Rows() {
		a.says(page, row.Name+" "+row.Text)
	}
	had := len(a.log())
	do := a.form(page, "Do it")
	page = a.must(502, do)
	a.says(page, "The compaction failed", "the model <b>is</b> away", "Nothing was written")
	if focus != "the lamp" || len(a.log()) != had {
		t.Errorf("focus %q, %d records", focus, len(a.log())-had)
	}
	fail = nil
	page = a.must(200, a.form(a.must(200, a.form(page, "Preview it again")), "Do it"))
	passes := 0
	for _, r := range a.log()[had:] {
		if w, ok := compaction.WrittenBy(r.Patch); ok {
			passes++
			a.says(page, present.PassText(r, w))
		}
	}
	if passes == 0 {
		t.Error("no pass was logged")
	}
}

// While a summarizer is at work, a second click waits for the same answer. A reader who leaves ends it.
func TestCompactingAlready(t *testing.T) {
	began, end := make(chan bool, 9), make(chan bool)
	cfg := compaction.Config{Enabled: true, CompactionInterval: 5, Summarizer: compaction.SummarizerFunc(func(ctx context.Context, _ compaction.Request) (compaction.Response, error) {
		began <- true
		select {
		case <-end:
		case <-ctx.Done():
		}
		return compaction.Response{}, ctx.Err() // declines
	})}
	a := newActing(t, inspector.Options{Write: true, Compaction: cfg})
	a.fill(10)
	do := a.form(a.must(200, a.fields("compact")), "Do it")
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan bool)
	go func() { a.post(do, func(r *http.Request) { *r = *r.WithContext(ctx) }); close(gone) }()
	<-began
	leave()
	<-gone
	pages := make(chan string)
	for range 2 {
		go func() { _, page := a.post(do); pages <- page }()
	}
	<-began
	close(end)
	first := <-pages
	a.says(first, "The summarizer declined")
	if second := <-pages; second != first || len(began) > 0 {
		t.Errorf("the second click did something else, or asked again (%d)", len(began))
	}
}
