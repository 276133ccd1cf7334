package peers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

// BenchmarkLangGraph measures LangGraph's checkpointer in JavaScript on PostgreSQL, for a comparison with the
// services of BenchmarkPostgresAppend. It appends to a session of 1,000 messages, and gets and reads such a session.
// To append, LangGraph updates the state of a thread, which means that it reads the state and writes one checkpoint.
// A message in a graph costs at least that much. The times exclude the start of Node.js.
func BenchmarkLangGraph(b *testing.B) {
	const messages = 1000
	b.Run("service=langgraph", func(b *testing.B) {
		folder := installLangGraph(b)
		for _, operation := range []string{"append", "get"} {
			b.Run(operation, func(b *testing.B) {
				operations := 50 * b.N // enough that the start of Node.js and filling the thread take a small part of the time
				took := runLangGraph(b, folder, pgtest.New(b), operation, messages, operations)
				b.ReportMetric(float64(took.Nanoseconds())/float64(operations), "ns/op")
			})
		}
	})
	uncached := onServer{"patchlog-uncached", func(tb testing.TB, dsn string) (session.Service, func()) {
		return openPG(tb, dsn, store.Options{CacheBytes: -1}, adk.Options{})
	}}
	for _, p := range append(onServers[:len(onServers):len(onServers)], uncached) {
		b.Run("service="+p.name, func(b *testing.B) {
			dsn := pgtest.New(b)
			s, done := p.open(b, dsn)
			defer done()
			fillMany(b, s, dsn, messages, "append", "get")
			handle := get(b, s, "append")
			next := messages
			b.Run("append", func(b *testing.B) {
				inParallel(b, 1, warm, func(int, int) error {
					next++
					return s.AppendEvent(ctx, handle, event(next))
				})
			})
			b.Run("get", func(b *testing.B) { getRepeatedly(b, s, "get", messages) })
		})
	}
}

// installLangGraph installs the packages that the folder langgraph specifies. It returns the path of the
// installation.
func installLangGraph(b *testing.B) string {
	b.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		b.Skip("there is no npm, with which LangGraph is installed")
	}
	folder := b.TempDir()
	no(b, os.CopyFS(folder, os.DirFS("langgraph")))
	install := exec.Command(npm, "ci", "--no-audit", "--no-fund")
	install.Dir = folder
	if out, err := install.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return folder
}

// runLangGraph runs an operation count times on a thread with the given number of messages. It returns the total time
// of the operations.
func runLangGraph(b *testing.B, folder, dsn, operation string, messages, count int) time.Duration {
	b.Helper()
	config, err := pgx.ParseConfig(dsn)
	no(b, err)
	cmd := exec.Command("node", "measure.mjs", operation, fmt.Sprint(messages), fmt.Sprint(count))
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PGHOST="+config.Host, fmt.Sprint("PGPORT=", config.Port), "PGUSER="+config.User, "PGDATABASE="+config.Database)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%v: %s", err, &failure)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	no(b, err)
	return time.Duration(ns)
}
