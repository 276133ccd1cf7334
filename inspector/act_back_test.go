package inspector_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Something like it was logged since, but not the same.
func TestNotDoneAlready(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	a.must(200, a.form(a.must(200, a.fields("splice", "index", "4", "index", "6")), "Do it"))
	do := a.form(a.must(200, a.fields("revert", "seq", "9")), "Do it")
	newest := a.log()[9].ID()
	testlog.Must(a.store.ApplyPatch(t.Context(), a.key, store.PatchOptions{AsOfNow: true}, patch.NewRevert(newest).WithAuthor("inspector")))(t)
	a.says(a.must(409, do), "Another patch was logged since the preview", "What changed since the preview", "Record 11, which came between")
	if n := len(a.log()); n != 11 {
		t.Errorf("%d records", n)
	}
}

func TestRewind(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true})
	foretold := testlog.Must(a.store.PreviewRewind(t.Context(), a.key, store.UndoOptions{}, "i2"))(t)
	page := a.must(200, a.fields("rewind", "seq", "6"))
	a.shows(page, present.DifferenceOf(foretold.Before, foretold.After), 0)
	do := a.form(page, "Do it")
	a.append(`{"id":"e8","invocationId":"i4","author":"user","content":{"role":"user","parts":[{"text":"late"}]}}`)
	a.must(200, do)
	if v := a.view(); v.Len() != 4 {
		t.Errorf("%d events", v.Len())
	}
	a.says(a.must(200, a.fields("rewind", "seq", "6")), "there is nothing to do")
	a.append(`{"id":"e9","author":"user","content":{"role":"user","parts":[{"text":"of no invocation"}]}}`)
	a.says(a.must(422, a.fields("rewind", "seq", fmt.Sprint(len(a.log())))), "belongs to no turn")
}

func TestFork(t *testing.T) {
	a := newActing(t, inspector.Options{Write: true, Authorize: func(_ *http.Request, key store.Key, want inspector.Access) bool {
		return key.User == "ada" || key.User == "bob" && want == inspector.Read || key.User == "carol" && want == inspector.Write
	}})
	page := a.must(200, a.fields("fork", "seq", "5"))
	a.says(page, "the first 5 records of this one; 5 visible events.")
	do := a.form(page, "Do it")
	if to := do.Get("to"); to != "shop/ada/4711-fork-5" {
		t.Errorf("suggested %q", to)
	}
	for _, user := range []string{"bob", "carol", "dave"} {
		do.Set("to", "shop/"+user+"/x")
		a.must(403, do)
	}
	do.Set("to", "nonsense")
	a.must(400, do)
	do.Set("to", "shop/ada/new")
	a.says(a.must(200, do), "shop/ada/new forked from shop/ada/4711 with 5 records; 5 visible events.")
	other := a.form(a.must(200, a.fields("fork", "seq", "5")), "Do it")
	other.Set("to", "shop/ada/new")
	a.says(a.must(409, other), "is there already. Choose another name.")
	info, err := a.store.Info(t.Context(), store.Key{App: "shop", User: "ada", Session: "new"})
	if err != nil || info.Seq != 5 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := a.store.Info(t.Context(), store.Key{App: "shop", User: "bob", Session: "x"}); err == nil {
		t.Error("a session was made that may not be")
	}
}
