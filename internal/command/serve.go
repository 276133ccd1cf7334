package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

const defaultAddress = "127.0.0.1:7070"

func (a *app) serveCommand() *cobra.Command {
	cmd := command(`serve
Serve the inspector: web pages that show the sessions

Without --write and --erase, the pages only read. Ctrl-C stops the server. Port 0 selects a free port. With --json the
first line is {"url", "write", "erase"}.

If another program has a database file open, that program can serve the inspector (docs/INSPECTOR.md). On PostgreSQL,
several programs can have the database open.

If other machines can reach the address, requests need a token: the environment variable PATCHLOG_TOKEN or, if it is not
set, a new token, which is printed with the address. There is no TLS. Requests must name the host of the address or a host
of --host. --redact puts placeholders into downloads and into texts for a summarizer, but not into pages.

$ patchlog serve --write`)
	var opts inspector.Options
	var compact compactFlags
	fs := cmd.Flags()
	addr := fs.String("addr", defaultAddress, "the `HOST:PORT` to listen on")
	fs.StringArrayVar(&opts.Hosts, "host", nil, "also answer requests for the host `NAME`; may be repeated")
	fs.BoolVar(&opts.Write, "write", false, "let the pages write")
	fs.BoolVar(&opts.Erase, "erase", false, "let the pages erase")
	fs.Float64Var(&opts.Price, "price", 0, "the `PRICE` of a million input tokens, to show what hidden events save per prompt")
	compact.declareSummarizer(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := compact.check(); err != nil {
			return err
		}
		if !opts.Write && compact.summarizer+compact.model != "" {
			return usagef("--summarizer and --model need --write")
		}
		if _, _, err := net.SplitHostPort(*addr); err != nil {
			return usagef("--addr: %q is not HOST:PORT, such as %s", *addr, defaultAddress)
		}
		opts.Token = a.env("PATCHLOG_TOKEN")
		if opts.Redact, err = a.redactor(compact.redacted); err != nil {
			return err
		}
		if err := opts.Validate(); err != nil {
			return usagef("%v", namedAsTyped(err))
		}
		if opts.Write {
			if _, err := a.useSummarizer(cmd.Context(), &compact); err != nil {
				return err
			}
			opts.Compaction = compact.cfg
		}
		a.options.LockTimeout = 100 * time.Millisecond // a short timeout, because another program that has the file open probably keeps it open
		return a.withStore(cmd.Context(), writingUnless(!opts.Write && !opts.Erase), func(s *store.Store) error {
			return a.servePages(cmd.Context(), s, *addr, opts, func(address string) error { return a.announce(address, opts) })
		})
	}
	return cmd
}

// namedAsTyped replaces the name of an [inspector.Options] field in an error by the flag or the variable that sets
// the field.
func namedAsTyped(err error) error {
	wrong := (*patch.FieldError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	field, _, _ := strings.Cut(wrong.Field, "[")
	typed := map[string]string{"Options.Hosts": "--host", "Options.Price": "--price", "Options.Token": "PATCHLOG_TOKEN"}[field]
	return fmt.Errorf("%s: %s", cmp.Or(typed, wrong.Field), wrong.Problem)
}

// servePages serves the pages of a store until the context ends. After it has opened the listener, it calls announce
// with the address. If other machines can reach the address and opts has no token, it generates a token, which the
// address contains.
func (a *app) servePages(ctx context.Context, s *store.Store, addr string, opts inspector.Options, announce func(address string) error) error {
	logs := slog.NewTextHandler(flushed{a.errs}, nil)
	opts.Logger = slog.New(logs)
	listener, address, others, err := listen(ctx, addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	opts.Hosts = append(opts.Hosts, others...)
	if len(others) > 0 && opts.Token == "" {
		opts.Token = rand.Text()
		address.RawQuery = url.Values{"token": {opts.Token}}.Encode()
	}
	pages, err := inspector.New(s, opts)
	if err != nil {
		return err
	}
	if err := announce(address.String()); err != nil {
		return err
	}
	return serveUntilDone(ctx, listener, pages, slog.NewLogLogger(logs, slog.LevelWarn))
}

func (a *app) announce(address string, opts inspector.Options) error {
	how := map[[2]bool]string{{}: "read-only", {true, true}: "may write and erase", {true}: "may write", {false, true}: "may erase"}[[2]bool{opts.Write, opts.Erase}]
	if opts.Token != "" {
		how += ", demands the token"
	}
	a.receipt(struct {
		URL   string `json:"url"`
		Write bool   `json:"write"`
		Erase bool   `json:"erase"`
	}{address, opts.Write, opts.Erase}, "patchlog: %s (%s); Ctrl-C ends it", address, how)
	return a.out.Flush()
}

// listen returns a listener and its address. If other machines can reach the listener, hosts contains the names by
// which they reach it.
func listen(ctx context.Context, addr string) (_ net.Listener, at url.URL, hosts []string, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, at, nil, fmt.Errorf("%s is in use, perhaps by another 'patchlog serve'; --addr 127.0.0.1:0 takes a free port", addr)
	case err != nil:
		return nil, at, nil, err
	}
	host, hosts := reachedBy(addr, listener)
	port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	return listener, url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/"}, hosts, nil
}

// reachedBy returns the host to print for a listener, and all host names by which other machines reach the
// listener.
func reachedBy(addr string, listener net.Listener) (host string, hosts []string) {
	ip := listener.Addr().(*net.TCPAddr).IP
	host, _, _ = net.SplitHostPort(addr)
	switch {
	case ip.IsLoopback():
		return cmp.Or(host, ip.String()), nil
	case !ip.IsUnspecified():
		return host, []string{host}
	}
	host, hosts = "127.0.0.1", []string{"127.0.0.1"}
	addrs, _ := net.InterfaceAddrs() // after an error, the user can set --host
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			if len(hosts) == 1 {
				host = n.IP.String()
			}
			hosts = append(hosts, n.IP.String())
		}
	}
	return host, hosts
}

// endTimeout limits how long a shutdown waits for requests in flight.
const endTimeout = 5 * time.Second

// Timeouts for reading the header of a request, for reading the whole request, and for writing the response. Every
// action of the inspector takes less time than writeTimeout. An endless response sets its own timeouts.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = time.Minute
	writeTimeout  = 15 * time.Minute
)

// serveUntilDone serves requests until the context ends. It then ends the contexts of requests in flight. After
// endTimeout, it closes the connections that are still open.
func serveUntilDone(ctx context.Context, listener net.Listener, h http.Handler, logger *log.Logger) error {
	server := newServer(ctx, h, logger)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if server.Shutdown(end) != nil {
		server.Close()
	}
	return nil
}

func newServer(ctx context.Context, h http.Handler, logger *log.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          logger,
	}
}

// flushed is an output that is flushed after each write.
type flushed struct{ *terminal.Output }

func (f flushed) Write(text []byte) (int, error) {
	n, err := f.Output.Write(text)
	return n, cmp.Or(err, f.Flush())
}
