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

// No read transaction is open while the caller's code runs. Otherwise commits could not reuse free pages, and a
// stalled reader would make the file grow.
func TestNoTransactionWhileCallersRun(t *testing.T) {
	ctx := context.Background()
	b := testlog.Must(bolt.Open(filepath.Join(t.TempDir(), "log.db"), bolt.Options{NoSync: true}))(t)
	s := testlog.Must(store.New(b, store.Options{Snapshots: snapshot.Policy{Every: -1}}))(t)
	defer s.Close()
	looked := map[string]bool{}
	look := func(where string) {
		t.Helper()
		looked[where] = true
		if n := b.OpenReads(); n != 0 {
			t.Errorf("%s: %d read transactions are open", where, n)
		}
	}
	inFileOpen(t, b, func(*bbolt.Tx) {
		if n := b.OpenReads(); n != 1 {
			t.Fatalf("in a read transaction %d are open; the test tests nothing", n)
		}
	})
	key := store.Key{App: "a", User: "u", Session: "s"}
	if _, err := s.Import(ctx, key, lookingReader{strings.NewReader(strings.Repeat(`{"author":"a"}`+"\n", 1200)), func() { look("Import's reader") }},
		store.ImportOptions{Progress: func(int) { look("Import's progress") }}); err != nil {
		t.Fatal(err)
	}
	for r, err := range s.RawEvents(ctx, key, 1) {
		testlog.NoError(t, err)
		if r.Seq%100 == 0 {
			look("body of RawEvents")
			// The loop body may write.
			testlog.NoError(t, testlog.ErrorOf(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{AsOfNow: true})))
		}
	}
	for r, err := range s.Watch(ctx, key, 1) {
		testlog.NoError(t, err)
		look("body of Watch")
		if r.Seq == 1200 {
			break
		}
	}
	testlog.NoError(t, s.Export(ctx, key, lookingWriter{func() { look("Export's writer") }}, store.ExportOptions{}))
	testlog.NoError(t, s.Backup(ctx, lookingWriter{func() { look("Backup's writer") }}))
	for p, err := range s.Verify(ctx, store.VerifyOptions{Progress: func(store.Key) { look("Verify's progress") }}) {
		t.Error(p, err)
	}
	for i := range 3 {
		testlog.NoError(t, testlog.ErrorOf(s.Create(ctx, store.Key{App: "a", User: "u", Session: fmt.Sprint(i)}, nil, store.CreateOptions{})))
	}
	for _, err := range s.List(ctx, store.ListOptions{}) {
		testlog.NoError(t, err)
		look("body of List")
	}
	session := testlog.Must(s.Get(ctx, key))(t)
	for range session.View.Events() {
		look("body of View.Events")
		break
	}
	if len(looked) != 9 {
		t.Errorf("not all callers ran: %v", looked)
	}
}

type lookingReader struct {
	io.Reader
	look func()
}

func (r lookingReader) Read(p []byte) (int, error) {
	r.look()
	return r.Reader.Read(p[:min(len(p), 100)])
}

type lookingWriter struct{ look func() }

func (w lookingWriter) Write(p []byte) (int, error) {
	w.look()
	return len(p), nil
}
