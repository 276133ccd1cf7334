package adk_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// TestNil checks that what is not there is refused at once, by name.
func TestNil(t *testing.T) {
	ctx := t.Context()
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	svc, err := adk.NewService(db, adk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := svc.Create(ctx, &session.CreateRequest{AppName: "a", UserID: "u"})
	if err != nil {
		t.Fatal(err)
	}
	p := patch.NewSplice(0, 1)
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"store": {func() error { _, err := adk.NewService(nil, adk.Options{}); return err }, "store"},
		"summarizer": {func() error {
			cfg := compaction.DefaultConfig()
			cfg.Summarizer = compaction.SummarizerFunc(nil)
			_, err := adk.NewService(db, adk.Options{Compaction: cfg})
			return err
		}, "Summarizer"},
		"model": {func() error {
			cfg := compaction.DefaultConfig()
			cfg.Summarizer = adk.Summarizer(nil)
			_, err := adk.NewService(db, adk.Options{Compaction: cfg})
			return err
		}, "model"},
		"event":             {func() error { _, err := adk.NewEvent(nil); return err }, "event"},
		"event of the log":  {func() error { _, err := adk.SessionEvent(nil); return err }, "event"},
		"event to append":   {func() error { return svc.AppendEvent(ctx, made.Session, nil) }, "event"},
		"session to append": {func() error { return svc.AppendEvent(ctx, nil, &session.Event{}) }, "session"},
		"handle to append":  {func() error { return svc.AppendEvent(ctx, (*adk.Session)(nil), &session.Event{}) }, "session"},
		"patch":             {func() error { _, err := svc.ApplyPatch(ctx, made.Session, nil); return err }, "patch"},
		"session to patch":  {func() error { _, err := svc.ApplyPatch(ctx, nil, p); return err }, "session"},
		"preview":           {func() error { _, err := svc.Preview(ctx, made.Session, nil); return err }, "patch"},
		"session to see":    {func() error { _, err := svc.Preview(ctx, nil, p); return err }, "session"},
		"session to revert": {func() error { _, err := svc.Revert(ctx, nil, "p"); return err }, "session"},
		"session to rewind": {func() error { _, err := svc.Rewind(ctx, nil, "i"); return err }, "session"},
		"session to view":   {func() error { _, err := svc.ViewAt(ctx, nil, 0); return err }, "session"},
		"session to read": {func() error {
			for _, err := range svc.RawEvents(ctx, nil, 1) {
				return err
			}
			return nil
		}, "session"},
		"create": {func() error { _, err := svc.Create(ctx, nil); return err }, "request"},
		"get":    {func() error { _, err := svc.Get(ctx, nil); return err }, "request"},
		"list":   {func() error { _, err := svc.List(ctx, nil); return err }, "request"},
		"delete": {func() error { return svc.Delete(ctx, nil) }, "request"},
	} {
		if err := c.do(); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
