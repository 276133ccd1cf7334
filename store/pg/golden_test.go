package pg_test

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// writeGolden rewrites the golden files, which is necessary after a change of the schema.
var writeGolden = flag.Bool("write-golden", false, "write the golden schema and its rows")

const (
	goldenSchema = "testdata/golden.sql"  // the schema of version 1
	goldenRows   = "testdata/golden.copy" // rows of each table: a line with the table's name, then the output of COPY
	goldenFile   = "../testdata/golden.db.gz"
	goldenText   = "../testdata/golden.jsonl"
)

var (
	goldenKey  = store.Key{App: "app", User: "a user/b", Session: "golden"}
	goldenFork = store.Key{App: "app", User: "a user/b", Session: "fork"} // a fork of the session golden, with one erased event
)

// The backend can read a schema of version 1 with ids, shared values, a snapshot, a fork and an erasure.
func TestGoldenSchema(t *testing.T) {
	t.Parallel()
	if *writeGolden {
		makeGolden(t)
	}
	dsn := pgtest.New(t)
	schema := testlog.Must(os.ReadFile(goldenSchema))(t)
	pgtest.Exec(t, dsn, string(schema))
	readRows(t, dsn)

	s := testlog.Must(pg.Open(ctx, dsn, store.Options{}, pg.Options{NoCreate: true}))(t)
	defer s.Close()
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v (%v)", p, err)
	}
	session := testlog.Must(s.Get(ctx, goldenKey))(t)
	if v, ok := session.Value("user:name"); !ok || v.Any() != "Ann" {
		t.Errorf("user:name is %v", v)
	}
	erasure := testlog.Must(s.Erase(ctx, goldenKey, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{DryRun: true}))(t)
	testlog.Equal(t, "sessions that have the first event", len(erasure.Sessions), 2)
	fork := testlog.Must(s.Get(ctx, goldenFork))(t)
	if by, erased := fork.View.At(fork.View.Len() - 1).ErasedBy(); !erased {
		t.Errorf("the last event of the fork is not erased (%q)", by)
	}
	var text bytes.Buffer
	testlog.NoError(t, s.Export(ctx, goldenKey, &text, store.ExportOptions{}))
	want := testlog.Must(os.ReadFile(goldenText))(t)
	if !bytes.Equal(text.Bytes(), want) {
		t.Errorf("it exports\n%s\nwant\n%s", text.Bytes(), want)
	}
	again, err := s.Import(ctx, goldenKey, bytes.NewReader(want), store.ImportOptions{})
	if err != nil || again.Added != 0 {
		t.Errorf("a second import adds %d records: %v", again.Added, err)
	}
}

// readRows copies the golden rows into the tables, and sets the sequence of the column num to its maximum.
func readRows(t *testing.T, dsn string) {
	t.Helper()
	data := testlog.Must(os.ReadFile(goldenRows))(t)
	c := testlog.Must(pgx.Connect(ctx, dsn))(t)
	defer c.Close(ctx)
	for part := range strings.SplitSeq(strings.TrimPrefix(string(data), "COPY "), "\nCOPY ") {
		table, rows, _ := strings.Cut(part, "\n")
		if _, err := c.PgConn().CopyFrom(ctx, strings.NewReader(rows), "COPY "+table+" FROM STDIN"); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}
	testlog.NoError(t, testlog.ErrorOf(c.Exec(ctx, `SELECT setval(pg_get_serial_sequence('patchlog.sessions', 'num'), max(num)) FROM patchlog.sessions`)))
}

func makeGolden(t *testing.T) {
	t.Helper()
	dsn := pgtest.New(t)
	target := testlog.Must(pg.Open(ctx, dsn, store.Options{Snapshots: snapshot.Policy{Every: 6, MinPercent: 1}}, pg.Options{}))(t)
	source := testlog.Must(store.Open(teststore.Gunzip(t, goldenFile), store.Options{}))(t)
	testlog.NoError(t, testlog.ErrorOf(target.CopyFrom(ctx, goldenKey, source, store.CopyOptions{})))
	_, err := target.CopyFrom(ctx, store.Key{}, source, store.CopyOptions{})
	testlog.NoError(t, err)
	testlog.Must(target.Fork(ctx, goldenKey, goldenFork, store.ForkOptions{}))(t)
	e := testlog.New(patch.Fields{ID: "f1", Author: "user", Content: patch.Text("user", "erased")})
	testlog.Must(target.AppendEvents(ctx, goldenFork, []*patch.Event{e}, store.AppendOptions{}))(t)
	testlog.Must(target.Erase(ctx, goldenFork, store.EraseSelection{EventIDs: []string{"f1"}}, store.EraseOptions{}))(t)
	testlog.NoError(t, target.Close())
	testlog.NoError(t, source.Close())
	tables := testlog.Must(os.ReadFile("schema.sql"))(t)
	schema := "CREATE SCHEMA patchlog;\nCREATE TABLE patchlog.schema_version (one boolean PRIMARY KEY CHECK (one), version integer NOT NULL);\n" + string(tables)
	testlog.NoError(t, os.WriteFile(goldenSchema, []byte(schema), 0o644))
	c := testlog.Must(pgx.Connect(ctx, dsn))(t)
	defer c.Close(ctx)
	file := testlog.Must(os.Create(goldenRows))(t)
	w := bufio.NewWriter(file)
	for _, table := range []string{"schema_version", "sessions", "metas", "records", "ids", "snapshots", "shared", "scopes"} {
		io.WriteString(w, "COPY patchlog."+table+"\n")
		testlog.NoError(t, testlog.ErrorOf(c.PgConn().CopyTo(ctx, w, "COPY patchlog."+table+" TO STDOUT")))
	}
	testlog.NoError(t, w.Flush())
	testlog.NoError(t, file.Close())
}
