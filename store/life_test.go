package store_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func TestCreateRefusesState(t *testing.T) {
	onEach(t, func(e *env) {
		for k, v := range map[string]any{
			"nan": math.NaN(), "app:inf": math.Inf(1), "chan": make(chan int), "map": map[int]int{1: 1},
			"text": "\xff", "error": errors.New("x"), "struct": struct{ A int }{1}, "deep": map[string]any{"in": []any{math.NaN()}},
		} {
			_, err := e.store.Create(ctx, key, map[string]any{"fine": 1, k: v})
			e.is(err, store.ErrInvalid, k)
		}
		_, err := e.store.Create(ctx, key, map[string]any{"k\xff": 1})
		e.is(err, store.ErrInvalid, `k\xff`)
		_, err = e.store.Get(ctx, key)
		e.is(err, store.ErrNotFound)
		// What temp: keys hold does not matter, but it must not come by unseen.
		e.must(e.store.Create(ctx, key, map[string]any{"temp:x": 1, "v": mustValue(`{"a":1.0}`)}))
		e.same("state", e.state(), `{"v":{"a":1.0}}`)
	})
}

func mustValue(text string) patch.Value {
	v, err := patch.ParseValue([]byte(text))
	if err != nil {
		panic(err)
	}
	return v
}

func TestNotFound(t *testing.T) {
	onEach(t, func(e *env) {
		for name, err := range e.everyCall(key) {
			if name != "Create" && name != "Import" && name != "List" {
				e.is(err, store.ErrNotFound, key.String())
			}
		}
	})
}

// everyCall calls each method of the store and returns the errors.
func (e *env) everyCall(key store.Key) map[string]error {
	return e.everyCallWith(ctx, key)
}

func (e *env) everyCallWith(ctx context.Context, key store.Key) map[string]error {
	errs := map[string]error{}
	_, errs["Get"] = e.store.Get(ctx, key)
	_, errs["ViewAt"] = e.store.ViewAt(ctx, key, 0)
	_, errs["InitialState"] = e.store.InitialState(ctx, key)
	_, errs["AppendEvents"] = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("x"))
	_, errs["AppendEvents of nothing"] = e.store.AppendEvents(ctx, key, store.AppendOptions{})
	_, errs["AppendEvents of a partial event"] = e.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"partial":true}`))
	_, errs["ApplyPatch"] = e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 0, say("y")))
	_, errs["ApplyPatch of nothing"] = e.store.ApplyPatch(ctx, key, asOfNow)
	_, errs["Preview"] = e.store.Preview(ctx, key, asOfNow, patch.NewSplice(0, 0, say("y")))
	errs["Export"] = e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{})
	errs["Export of the visible"] = e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{Visible: true})
	for _, err := range e.store.RawEvents(ctx, key, 1) {
		errs["RawEvents"] = err
	}
	errs["List"] = nil
	for _, err := range e.store.List(ctx, store.ListOptions{App: key.App}) {
		errs["List"] = err
	}
	errs["Delete"] = e.store.Delete(ctx, key)
	_, errs["Create"] = e.store.Create(ctx, key, nil)
	_, errs["Import"] = e.store.Import(ctx, key, strings.NewReader(`{"id":"z"}`), store.ImportOptions{})
	return errs
}

func TestClosed(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		v := e.view() // also: it is in memory now
		if e.path == "" {
			// The backend in memory outlives its store here, so close it itself.
			b := e.backend.Backend.(unclosed).Backend
			e.no(b.Close())
			e.backend.Backend = b
		} else {
			e.no(e.store.Close())
		}
		for name, err := range e.everyCall(key) {
			if !errors.Is(err, store.ErrClosed) {
				e.Errorf("%s after Close: %v", name, err)
			}
		}
		e.is(e.store.Close(), store.ErrClosed)
		e.same("view", ids(v), "a1 a2 a3") // views stay usable
		if e.path == "" {
			e.engine = unclosed{&memory.Backend{}}
		}
	})
}

func TestCancelled(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		stored := e.dump()
		for name, err := range e.everyCallWith(cancelled, key) {
			if !errors.Is(err, context.Canceled) {
				e.Errorf("%s: %v", name, err)
			}
		}
		e.same("stored", e.dump(), stored)
	})
}

// A caller that is gone when the commit fails does not keep the store from finding out
// what became of it.
func TestCancelledWhileCommitting(t *testing.T) {
	onEach(t, func(e *env) {
		during := func(call func(ctx context.Context) error) {
			e.Helper()
			c, cancel := context.WithCancel(ctx)
			defer cancel()
			e.backend.Plan(storetest.Plan{Write: 1, Failure: storetest.Landed, During: cancel})
			err := call(c)
			if err == nil {
				e.no(err)
				return
			}
			// Asking may take long there: a caller who is gone is told so.
			e.is(err, store.ErrOutcomeUnknown)
			e.is(err, context.Canceled)
		}
		during(func(c context.Context) error {
			s, err := e.store.Create(c, key, map[string]any{"k": 1, "app:x": 1})
			if v, ok := s.Value("app:x"); err == nil && (!ok || v.String() != "1") {
				e.Error("app:x is not there")
			}
			return err
		})
		during(func(c context.Context) error {
			_, err := e.store.AppendEvents(c, key, store.AppendOptions{}, say("a1"))
			return err
		})
		during(func(c context.Context) error {
			_, err := e.store.Import(c, key, strings.NewReader(`{"id":"a2"}`), store.ImportOptions{})
			return err
		})
		e.same("visible", ids(e.view()), "a1 a2")
		during(func(c context.Context) error { return e.store.Delete(c, key) })
	})
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		opts  store.Options
		field string
	}{
		{store.Options{MaxRecordBytes: -1}, "MaxRecordBytes"},
		{store.Options{MaxRecordBytes: patch.MaxRecordBytes + 1}, "MaxRecordBytes"},
		{store.Options{LockTimeout: -time.Second}, "LockTimeout"},
	} {
		for _, open := range []func() (*store.Store, error){
			func() (*store.Store, error) { return store.OpenMemory(c.opts) },
			func() (*store.Store, error) { return store.Open(t.TempDir()+"/log.db", c.opts) },
		} {
			_, err := open()
			var field *patch.FieldError
			if !errors.Is(err, store.ErrInvalid) || !errors.As(err, &field) || field.Field != "Options."+c.field {
				t.Errorf("%+v: %v", c.opts, err)
			}
		}
	}
}

func TestLogsSettledOutcome(t *testing.T) {
	var b bytes.Buffer
	onEachWith(t, store.Options{Logger: slog.New(slog.NewTextHandler(&b, nil))}, func(e *env) {
		e.create(nil)
		e.backend.Plan(storetest.Plan{Write: 1, Failure: storetest.Landed})
		e.append(say("a1"))
		if !strings.Contains(b.String(), key.String()) || !strings.Contains(b.String(), "injected failure") {
			e.Errorf("the log says %q", b.String())
		}
		b.Reset()
	})
}
