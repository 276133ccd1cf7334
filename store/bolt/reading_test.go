package bolt_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// The backend has no read transaction open while the caller's code runs. A slow caller would otherwise prevent
// commits from reusing free pages, and the file would grow.
func TestNoTransactionDuringCallbacks(t *testing.T) {
	ctx := context.Background()
	b := testlog.Must(bolt.Open(filepath.Join(t.TempDir(), "log.db"), bolt.Options{NoSync: true}))(t)
	s := testlog.Must(store.New(b, store.Options{Snapshots: snapshot.Policy{Every: -1}}))(t)
	defer s.Close()
	checked := map[string]bool{}
	checkNoReads := func(where string) {
		t.Helper()
		checked[where] = true
		if n := b.OpenReads(); n != 0 {
			t.Errorf("%s: %d read transactions are open", where, n)
		}
	}
	inReadTx(t, b, func(*bbolt.Tx) {
		if n := b.OpenReads(); n != 1 {
			t.Fatalf("%d read transactions are open within one, so the test proves nothing", n)
		}
	})
	key := store.Key{App: "a", User: "u", Session: "s"}
	if _, err := s.Import(ctx, key, observedReader{strings.NewReader(strings.Repeat(`{"author":"a"}`+"\n", 1200)), func() { checkNoReads("Import's reader") }},
		store.ImportOptions{Progress: func(int) { checkNoReads("Import's progress") }}); err != nil {
		t.Fatal(err)
	}
	for r, err := range s.RawEvents(ctx, key, 1) {
		testlog.NoError(t, err)
		if r.Seq%100 == 0 {
			checkNoReads("body of RawEvents")
			// The loop body may write.
			testlog.NoError(t, testlog.ErrorOf(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{AsOfNow: true})))
		}
	}
	for r, err := range s.Watch(ctx, key, 1) {
		testlog.NoError(t, err)
		checkNoReads("body of Watch")
		if r.Seq == 1200 {
			break
		}
	}
	testlog.NoError(t, s.Export(ctx, key, observedWriter{func() { checkNoReads("Export's writer") }}, store.ExportOptions{}))
	testlog.NoError(t, s.Backup(ctx, observedWriter{func() { checkNoReads("Backup's writer") }}))
	for p, err := range s.Verify(ctx, store.VerifyOptions{Progress: func(store.Key) { checkNoReads("Verify's progress") }}) {
		t.Error(p, err)
	}
	for i := range 3 {
		testlog.NoError(t, testlog.ErrorOf(s.Create(ctx, store.Key{App: "a", User: "u", Session: fmt.Sprint(i)}, nil, store.CreateOptions{})))
	}
	for _, err := range s.List(ctx, store.ListOptions{}) {
		testlog.NoError(t, err)
		checkNoReads("body of List")
	}
	session := testlog.Must(s.Get(ctx, key))(t)
	for range session.View.Events() {
		checkNoReads("body of View.Events")
		break
	}
	if len(checked) != 9 {
		t.Errorf("not all callers ran: %v", checked)
	}
}

type observedReader struct {
	io.Reader
	observe func()
}

func (r observedReader) Read(p []byte) (int, error) {
	r.observe()
	return r.Reader.Read(p[:min(len(p), 100)])
}

type observedWriter struct{ observe func() }

func (w observedWriter) Write(p []byte) (int, error) {
	w.observe()
	return len(p), nil
}
