package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// TestNil checks that what is not there is refused at once, by name, and that nothing is
// written then.
func TestNil(t *testing.T) {
	ctx, key := t.Context(), store.Key{App: "a", User: "u", Session: "s"}
	s := teststore.Memory(t, store.Options{})
	must(t)(s.Create(ctx, key, nil))
	e, err := patch.ParseEvent([]byte(`{"author":"user"}`))
	no(t, err)
	opts := store.PatchOptions{AsOfNow: true}
	splice := patch.NewSplice(0, 0, e)
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"backend":          {func() error { _, err := store.New(nil, store.Options{}); return err }, "backend"},
		"bolt backend":     {func() error { _, err := store.New((*bolt.Backend)(nil), store.Options{}); return err }, "backend"},
		"memory backend":   {func() error { _, err := store.New((*memory.Backend)(nil), store.Options{}); return err }, "backend"},
		"event":            {func() error { _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, e, nil); return err }, "event 1"},
		"patch":            {func() error { _, err := s.ApplyPatch(ctx, key, opts, splice, nil); return err }, "patch 1"},
		"patch on a view":  {func() error { _, err := s.ApplyOn(ctx, key, fold.View{}, fold.CheckOptions{}, nil); return err }, "patch 0"},
		"preview":          {func() error { _, err := s.Preview(ctx, key, opts, nil); return err }, "patch"},
		"replacement":      {func() error { _, err := s.ApplyPatch(ctx, key, opts, patch.NewSplice(0, 0, nil)); return err }, "replacement/0"},
		"summary":          {func() error { _, err := s.ApplyPatch(ctx, key, opts, patch.NewSummarise(0, 1, nil)); return err }, "summaryEvent"},
		"view of a splice": {func() error { _, err := s.ApplyPatch(ctx, key, store.PatchOptions{}, splice); return err }, "base"},
		"view of a look":   {func() error { _, err := s.Preview(ctx, key, store.PatchOptions{}, splice); return err }, "base"},
		"reader":           {func() error { _, err := s.Import(ctx, key, nil, store.ImportOptions{}); return err }, "reader"},
		"writer":           {func() error { return s.Export(ctx, key, nil, store.ExportOptions{}) }, "writer"},
	} {
		if err := c.do(); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := s.Info(ctx, key); err != nil || info.Seq != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}
