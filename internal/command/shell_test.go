package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// shell runs commands whose clock stands still, whose summaries are short, and whose ids a
// test can expect.
type shell struct {
	env   func(string) string
	made  atomic.Int64
	shown map[string]string // by id
	code  int               // the last command's exit code, in a script
}

func newShell() *shell { return &shell{env: noEnv, shown: map[string]string{}} }

func noEnv(string) string { return "" }

// app returns an app that reads and writes what the test wants.
func (sh *shell) app(stdin string, stdout, stderr *bytes.Buffer) *app {
	return newApp(strings.NewReader(stdin), stdout, stderr, sh.env, Options{
		Store: store.Options{
			Logger: slog.New(slog.DiscardHandler),
			Now:    func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 600, time.UTC) },
			NewID:  func() string { return fmt.Sprintf("made-%d", sh.made.Add(1)) },
		},
		Extractive: compaction.SummarizerFunc(summariseInShort),
	})
}

// madeID matches the ids that a shell makes, and random UUIDs.
var madeID = regexp.MustCompile(`made-\d+|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

var duration = regexp.MustCompile(`("durationMs":)\d+`)

// show returns output as a test expects it: new ids are new-1, new-2 and so on, in the order
// in which they show first, and nothing takes any time.
func (sh *shell) show(text string) string {
	text = madeID.ReplaceAllStringFunc(text, func(id string) string {
		if sh.shown[id] == "" {
			sh.shown[id] = fmt.Sprintf("new-%d", len(sh.shown)+1)
		}
		return sh.shown[id]
	})
	return duration.ReplaceAllString(text, "${1}0")
}

// summariseInShort is a summarizer whose words do not change when the real one improves.
func summariseInShort(_ context.Context, r compaction.Request) (compaction.Response, error) {
	text := fmt.Sprintf("%s to %s in short", r.Events[0].ID(), r.Events[len(r.Events)-1].ID())
	return compaction.Response{Text: text, Model: "extractive"}, nil
}

// run is Run as users have it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	return Run(ctx, args, stdin, stdout, stderr, env, Options{})
}
