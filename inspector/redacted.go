package inspector

import (
	"cmp"
	"context"
	"io"
	"math"
	"time"

	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/store"
)

// redactedKey is a session's key as it may leave.
func redactedKey(key store.Key, by *redact.Redactor) store.Key {
	return store.Key{App: by.Text(key.App), User: by.Text(key.User), Session: by.Text(key.Session)}
}

// redacted writes the report of a session that has its secrets redacted: that of a redacted copy in
// memory.
func (i *Inspector) redacted(ctx context.Context, w io.Writer, key store.Key, opts ReportOptions) error {
	by := opts.Redact
	opts.Redact = nil
	info, err := i.store.Info(ctx, key)
	if err != nil {
		return err
	}
	copied, err := store.OpenMemory(store.Options{
		MaxRecordBytes: patch.MaxRecordBytes, Logger: i.opts.Logger,
		Now: func() time.Time { return info.Created },
	})
	if err != nil {
		return err
	}
	defer copied.Close()
	as := redactedKey(key, by)
	if err := i.copyRedacted(ctx, copied, key, as, by); err != nil {
		return err
	}
	of, err := New(copied, Options{CacheBytes: -1, Logger: i.opts.Logger})
	if err != nil {
		return err
	}
	return of.report(ctx, w, as, opts)
}

func (i *Inspector) copyRedacted(ctx context.Context, to *store.Store, key, as store.Key, by *redact.Redactor) error {
	session, err := i.store.Get(ctx, key)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		err := i.store.Export(ctx, key, w, store.ExportOptions{Redact: by})
		w.CloseWithError(err)
		exported <- err
	}()
	_, err = to.Import(ctx, as, r, store.ImportOptions{MaxBytes: math.MaxInt64, MaxRecords: math.MaxInt})
	r.CloseWithError(err)
	if err := cmp.Or(<-exported, err); err != nil {
		return err
	}
	values, err := by.State(session.Values())
	if err != nil {
		return err
	}
	shared := map[string]any{}
	for name, v := range values {
		if statekey.ScopeOf(name) != statekey.Session {
			shared[name] = v
		}
	}
	// Sessions of one user share these: another one brings them.
	other := as
	other.Session = "shared by " + as.Session[:min(len(as.Session), store.MaxKeyPartBytes/2)]
	_, err = to.Create(ctx, other, shared)
	return err
}
