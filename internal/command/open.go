package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"sync"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/sources"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

func (a *app) openCommand() *cobra.Command {
	cmd := command(`open PATH...
Show session files in a browser, without a database or setup

PATH is a file, a folder or a pattern with *, in any format that 'patchlog import' reads, such as ~/.claude/projects. The
sessions are copied into a temporary database, and web pages on this machine show them until Ctrl-C. If a file grows, the
pages show its new events. The pages can compact and patch the copy. The files do not change.

With --json the first line is {"url", "sessions", "files"}.

$ patchlog open ~/.claude/projects
$ patchlog open session.jsonl --browser`)
	browser := cmd.Flags().Bool("browser", false, "open the address in the browser")
	addr := cmd.Flags().String("addr", "127.0.0.1:0", "the `HOST:PORT` of this machine to listen on; port 0 takes a free one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		host, _, err := net.SplitHostPort(*addr)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return usagef("--addr: %q is not HOST:PORT of this machine, such as 127.0.0.1:7070; 'patchlog serve' takes others", *addr)
		}
		return a.inTemporary("open", func(sub *app) error { return sub.open(cmd.Context(), args, *addr, *browser) })
	}
	return cmd
}

// open imports files into a temporary database and serves pages that show it.
func (a *app) open(ctx context.Context, paths []string, addr string, browser bool) (err error) {
	s, err := store.Open(a.db, a.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	files := a.follow(s, paths)
	if err := files.read(ctx, files.Changed()); err != nil {
		return err
	}
	sessions, err := database.CountSessions(ctx, s)
	if err != nil {
		return err
	}
	if sessions == 0 {
		return errors.New("no session was found; 'patchlog import --help' lists the formats")
	}
	cfg := compaction.DefaultConfig()
	cfg.Summarizer = a.extractive
	served, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	return a.servePages(ctx, s, addr, inspector.Options{Write: true, Compaction: cfg}, func(address string) error {
		a.receipt(struct {
			URL      string `json:"url"`
			Sessions int    `json:"sessions"`
			Files    int    `json:"files"`
		}{address, sessions, files.Len()},
			"%s of %s\npatchlog: %s (a temporary copy); Ctrl-C ends it", present.Counted(sessions, "session"), present.Counted(files.Len(), "file"), address)
		if err := a.out.Flush(); err != nil {
			return err
		}
		if browser {
			if err := openBrowser(ctx, address); err != nil {
				files.report(fmt.Errorf("no browser was opened: %w", err))
			}
		}
		running.Go(func() { files.run(served) })
		return nil
	})
}

// following imports files that may grow while the program runs.
type following struct {
	*importing
	*sources.Followed
}

// follow returns an importer for files and folders. It reports only problems and files that it cannot import.
func (a *app) follow(s *store.Store, paths []string) following {
	r := a.importing("read")
	r.target, r.quiet, r.many = s, true, true
	return following{r, r.Follow(paths)}
}

// run imports new and changed files until the context ends.
func (f following) run(ctx context.Context) {
	f.bar = &terminal.Progress{} // draw no bar, because it would mix with the lines of the server log
	f.Run(ctx, func(changed []migrate.Input) {
		if err := f.read(ctx, changed); err != nil && ctx.Err() == nil {
			f.report(err)
		}
	})
}

func (f following) read(ctx context.Context, changed []migrate.Input) error {
	report, err := f.inputs(ctx, changed)
	if err != nil {
		return err
	}
	f.errs.Lines(report.UnreadText())
	_, problems := report.Describe(f.opts)
	for _, p := range problems {
		f.report(errors.New(p))
	}
	return f.errs.Flush()
}

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
