package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

func (a *app) openCommand() *cobra.Command {
	cmd := command(`open PATH...
Show session files in a browser, without a database or setup

PATH is a file, a folder or a pattern with *, in any format that 'patchlog import' reads: ~/.claude/projects, a folder of
Codex, an ADK database. The sessions are copied into a temporary database and served to this machine only, until Ctrl-C.
Files that grow are followed. The pages can compact and patch the copy; the files do not change.

With --json the first line is {"url", "sessions", "files"}.

$ patchlog open ~/.claude/projects
$ patchlog open session.jsonl --browser`)
	browser := cmd.Flags().Bool("browser", false, "open the address in the browser")
	addr := cmd.Flags().String("addr", "127.0.0.1:0", "the `HOST:PORT` of this machine to listen on; port 0 takes a free one")
	cmd.ValidArgsFunction = completeFile
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		host, _, err := net.SplitHostPort(*addr)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return usagef("--addr: %q is not HOST:PORT of this machine, such as 127.0.0.1:7070; 'patchlog serve' takes others", *addr)
		}
		return a.open(cmd.Context(), args, *addr, *browser)
	}
	return cmd
}

// open imports files into a temporary database and serves it.
func (a *app) open(ctx context.Context, paths []string, addr string, browser bool) (err error) {
	dir, err := os.MkdirTemp("", "patchlog-open-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sub := *a
	sub.db = filepath.Join(dir, "sessions.db")
	s, err := store.Open(sub.db, sub.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	following := sub.follow(s, paths)
	if err := following.read(ctx); err != nil {
		return err
	}
	sessions, err := countSessions(ctx, s)
	if err != nil {
		return err
	}
	if sessions == 0 {
		return errors.New("no session was found; 'patchlog import --help' lists the formats")
	}
	logs := slog.NewTextHandler(flushed{a.errs}, nil)
	cfg := compaction.DefaultConfig()
	cfg.Summarizer = a.extractive
	pages, err := inspector.New(s, inspector.Options{Write: true, Compaction: cfg, Logger: slog.New(logs)})
	if err != nil {
		return err
	}
	listener, at, _, err := listen(ctx, addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	a.receipt(struct {
		URL      string `json:"url"`
		Sessions int    `json:"sessions"`
		Files    int    `json:"files"`
	}{at.String(), sessions, len(following.seen)},
		"%s of %s\npatchlog: %s (a temporary copy); Ctrl-C ends it", present.Counted(sessions, "session"), present.Counted(len(following.seen), "file"), &at)
	if err := a.out.flush(); err != nil {
		return err
	}
	if browser {
		if err := openBrowser(ctx, at.String()); err != nil {
			a.errs.problem(fmt.Sprintf("no browser was opened: %v", err))
			a.errs.flush()
		}
	}
	untilServed, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		following.run(untilServed)
	}()
	defer func() { stop(); <-done }()
	return serveUntilDone(ctx, listener, pages, slog.NewLogLogger(logs, slog.LevelWarn))
}

// following is an import of files that may grow.
type following struct {
	importing
	paths []string
	seen  map[string]os.FileInfo // of each file when it was read last
}

// follow returns an import of files and folders into a store. It reports only problems and the files that are not read.
// [following.read] reads them for the first time.
func (a *app) follow(s *store.Store, paths []string) *following {
	quiet := *a
	quiet.out, quiet.json = newOutput(io.Discard, a.env), false
	return &following{
		importing: importing{app: &quiet, maxBytes: store.DefaultImportBytes, target: s, many: true, bar: a.progress("read")},
		paths:     paths, seen: map[string]os.FileInfo{},
	}
}

// followEvery is the shortest interval at which files are checked. It grows if checking takes long.
const followEvery = time.Second

// run imports files that change, and new ones, until the context is done. A problem is reported once for each change.
func (f *following) run(ctx context.Context) {
	f.bar = &progress{} // a bar would be drawn between the lines of the log
	for wait := followEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		begun := time.Now()
		if err := f.read(ctx); err != nil && ctx.Err() == nil {
			f.problem(err)
		}
		wait = max(followEvery, 10*time.Since(begun))
	}
}

// read imports the files that have changed since they were read.
func (f *following) read(ctx context.Context) error {
	changed := slices.DeleteFunc(migrate.Inputs(f.paths), func(in migrate.Input) bool {
		info, err := os.Stat(in.Name)
		if err != nil {
			return false // opening it gives the error
		}
		was := f.seen[in.Name]
		f.seen[in.Name] = info // before the file is read: what is added meanwhile is read next time
		return was != nil && was.Size() == info.Size() && was.ModTime().Equal(info.ModTime())
	})
	if len(changed) == 0 {
		return nil
	}
	report, err := f.inputs(ctx, changed)
	if err != nil {
		return err
	}
	for _, line := range report.UnreadText() {
		f.errs.line(present.Printable(line))
	}
	_, problems := report.Words(f.opts)
	for _, p := range problems {
		f.problem(errors.New(p))
	}
	return f.errs.flush()
}

// openBrowser opens an address in the system's default browser.
func openBrowser(ctx context.Context, address string) error {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	return exec.CommandContext(ctx, name, args...).Start()
}
