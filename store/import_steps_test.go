package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// longText is a file of several pages, with a patch in it.
func longText() string {
	var b strings.Builder
	fmt.Fprintln(&b, `{"patchlog":1,"initialState":{"k":1}}`)
	for i := range 1800 {
		fmt.Fprintf(&b, "{\"id\":\"e%d\",\"actions\":{\"stateDelta\":{\"app:x\":%d}}}\n", i, i)
		if i == 900 {
			fmt.Fprintln(&b, `{"id":"p","patchType":"splice","start":10,"count":800}`)
		}
	}
	return b.String()
}

// A long file becomes a new session in steps, between which nobody sees it; a refusal, a
// failure or the end of the context leaves nothing.
func TestImportInSteps(t *testing.T) {
	text := longText()
	for name, c := range map[string]struct {
		text string
		at   func(e *env, cancel func())
		want error
		says string
	}{
		"whole":      {text, nil, nil, ""},
		"cancelled":  {text, func(_ *env, cancel func()) { cancel() }, context.Canceled, ""},
		"wrong seq":  {text + `{"seq":3,"id":"z"}`, nil, store.ErrInvalid, "f:1803"},
		"large line": {text + `{"id":"z","author":"` + strings.Repeat("x", 60_000) + `"}`, nil, store.ErrTooLarge, "f:1803"},
		"created meanwhile, alike": {text, func(e *env, _ func()) {
			e.must(e.store.Create(ctx, forkKey, map[string]any{"k": 1}))
		}, nil, ""},
		"created meanwhile, other": {text, func(e *env, _ func()) {
			e.must(e.store.Create(ctx, forkKey, map[string]any{"k": 2}))
		}, store.ErrConflict, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(e *env) {
				s := &stepped{}
				e.opts.MaxRecordBytes = 50_000
				e.reopenOn(func(engine backend.Backend) backend.Backend { s.Faulty = &storetest.Faulty{Backend: engine}; return s })
				cut, cancel := context.WithCancel(ctx)
				defer cancel()
				s.between = func(step int) {
					e.absentFork()
					if step == 2 && c.at != nil {
						c.at(e, cancel)
						s.between = nil
					}
				}
				imported, err := e.store.Import(cut, forkKey, strings.NewReader(c.text), store.ImportOptions{Name: "f"})
				least := 3
				if c.want == context.Canceled { // in the second step
					least = 2
				}
				if s.steps < least || s.most > 512 {
					e.Errorf("%d steps, of up to %d records", s.steps, s.most)
				}
				s.between = nil
				if s.staged(e) > 0 {
					e.Error("something is still staged")
				}
				if c.want != nil {
					e.is(err, c.want, c.says)
					if c.want != store.ErrConflict {
						e.absentFork()
					}
					return
				}
				e.no(err)
				if imported.Added != 1801 || imported.Present != 0 || imported.Created != (c.at == nil) || len(imported.Records) != 1801 {
					e.Errorf("%d added, %d present, created %t", imported.Added, imported.Present, imported.Created)
				}
				e.same("shared", e.shared(forkKey), "")
				there := sessionOf(e, e.store, forkKey)
				e.same("view", e.viewText(imported.View), e.viewText(there.View))
				again, err := e.store.Import(ctx, forkKey, strings.NewReader(text), store.ImportOptions{})
				e.no(err)
				if again.Added != 0 || again.Present != 1801 {
					e.Errorf("again: %d added, %d present", again.Added, again.Present)
				}
			})
		})
	}
}

// A step that fails fails the import, and importing again lands it once.
func TestImportWhoseStepsFail(t *testing.T) {
	text := longText()
	for _, how := range []storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed} {
		if testlog.Race && how == storetest.Lost {
			continue
		}
		onEach(t, func(e *env) {
			e.backend.Plan(storetest.Plan{Write: 2, Failure: how})
			_, err := e.importInto(forkKey, text, store.ImportOptions{})
			e.is(err, storetest.ErrInjected)
			if errors.Is(err, store.ErrOutcomeUnknown) {
				e.Errorf("error %v, but the outcome is known", err)
			}
			e.absentFork()
			imported, err := e.importInto(forkKey, text, store.ImportOptions{})
			e.no(err)
			if imported.Added != 1801 {
				e.Errorf("%d added", imported.Added)
			}
		})
	}
}

// The whole input has a limit, which counts each of its bytes.
func TestImportLimit(t *testing.T) {
	text := "{\"id\":\"a\"}\n{\"id\":\"b\"}\n"
	onEach(t, func(e *env) {
		for _, most := range []int64{1, int64(len(text)) / 2, int64(len(text)) - 1} {
			read := 0
			_, err := e.store.Import(ctx, key, &countedReader{strings.NewReader(text + strings.Repeat(" ", 1<<20)), &read}, store.ImportOptions{Name: "f", MaxBytes: most})
			e.is(err, store.ErrTooLarge, "f:", fmt.Sprint(most, " bytes"))
			if read > int(most)+1 {
				e.Errorf("%d bytes were read of %d", read, most)
			}
			_, err = e.store.Get(ctx, key)
			e.is(err, store.ErrNotFound)
		}
		_, err := e.importInto(key, text, store.ImportOptions{MaxBytes: -1})
		e.is(err, store.ErrInvalid, "MaxBytes")
		for _, most := range []int64{int64(len(text)), math.MaxInt64} {
			e.must(e.importInto(key, text, store.ImportOptions{MaxBytes: most}))
		}
	})
}

type countedReader struct {
	io.Reader
	n *int
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	*r.n += n
	return n, err
}

// What was read can be imported into any store.
func TestReadText(t *testing.T) {
	onEach(t, func(e *env) {
		text, err := store.ReadText(ctx, strings.NewReader(longText()), store.ImportOptions{})
		e.no(err)
		for _, k := range []store.Key{key, elsewhere} {
			imported, err := e.store.ImportText(ctx, k, text)
			e.no(err)
			if imported.Added != 1801 {
				e.Errorf("%d added", imported.Added)
			}
		}
		_, err = e.store.ImportText(ctx, store.Key{}, text)
		e.is(err, store.ErrInvalid)
		_, err = store.ReadText(ctx, strings.NewReader("{\nx"), store.ImportOptions{Name: "f"})
		e.is(err, store.ErrInvalid, "f:1")
	})
}
