// Package pgtest runs PostgreSQL servers for tests. Each server has its own cluster in a temporary folder, and
// listens only on a Unix socket in that folder. The server ends with the test process. On Linux, the server ends
// even if the test process is killed.
//
// If PostgreSQL is not installed, the test is skipped. If the environment variable PATCHLOG_NEED_POSTGRES is also
// set, the test fails instead.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Need is the environment variable that makes a test fail if PostgreSQL is not installed.
const Need = "PATCHLOG_NEED_POSTGRES"

// Options are the options of [Start]. The zero value means the defaults.
type Options struct {
	// NoSync turns fsync off. Commits then do not survive a crash of the machine.
	NoSync bool

	// Settings are server settings in the form name=value. Start passes them on the server's command line.
	Settings []string
}

// Server is a PostgreSQL server that a test started.
type Server struct {
	folder   string
	settings []string
	programs string

	mu      sync.Mutex
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

// Start creates a cluster and starts its server. Both are removed when the test ends.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	s := blank(t)
	t.Cleanup(s.remove)
	if err := s.start(opts); err != nil {
		t.Fatal(err)
	}
	return s
}

func blank(t testing.TB) *Server {
	t.Helper()
	const missing = "no PostgreSQL server is installed (apt-get install postgresql, or put initdb and postgres in PATH)"
	initdb, err := find("initdb")
	switch {
	case err != nil && os.Getenv(Need) != "":
		t.Fatalf("%s, and %s is set", missing, Need)
	case err != nil:
		t.Skip(missing)
	}
	return &Server{folder: newFolder(t), programs: filepath.Dir(initdb)} // the folder of initdb also has the other programs
}

// newFolder creates a temporary folder that belongs to the user of the servers.
func newFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "pgtest") // a short path, because the path of a socket has a maximum length
	if uid, gid, ok := unprivileged(); ok && err == nil {
		err = os.Chown(folder, uid, gid)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// find returns the path of a program. It searches PATH and the folders where Debian installs servers. On Windows it
// finds no program, because this package stops servers with signals.
func find(program string) (string, error) {
	if runtime.GOOS == "windows" {
		return "", exec.ErrNotFound
	}
	if path, err := exec.LookPath(program); err == nil {
		return filepath.EvalSymlinks(path) // without symbolic links, because the other programs are in the same folder
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	more, _ := filepath.Glob("/usr/sbin/" + program)
	if found = append(more, found...); len(found) == 0 {
		return "", exec.ErrNotFound
	}
	return found[len(found)-1], nil
}

func (s *Server) start(opts Options) error {
	if err := s.run("initdb", "-D", s.Data(), "-U", "postgres", "-A", "trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"); err != nil {
		return err
	}
	s.settings = opts.Settings
	if opts.NoSync {
		s.settings = append(slices.Clone(s.settings), "fsync=off")
	}
	return s.Start()
}

// Data returns the data folder of the cluster.
func (s *Server) Data() string { return filepath.Join(s.folder, "data") }

// DSN returns the connection string of a database of this server, as the superuser.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("host=%s port=5432 user=postgres dbname=%s sslmode=disable", s.folder, database)
}

// Start starts the server. The server must not be running.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := []string{"-D", s.Data(), "-k", s.folder, "-c", "listen_addresses=", "-c", "max_connections=200", "-c", "shared_buffers=64MB"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	process := command(filepath.Join(s.programs, "postgres"), args...)
	process.Dir, process.Stdout, process.Stderr = s.folder, log, log
	if err := launch(process); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	s.process, s.ended = process, ended
	if err := awaitAnswer(s.DSN("postgres"), ended); err != nil {
		return fmt.Errorf("the server: %w: %s", err, s.Log())
	}
	return nil
}

// awaitAnswer waits until the server accepts connections. It fails if the server ends or five minutes pass.
func awaitAnswer(dsn string, ended chan struct{}) error {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute) // enough time on a busy machine
	defer stop()
	for {
		c, err := pgx.Connect(ctx, dsn)
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop shuts the server down and closes its connections.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Kill kills the server and all its processes, like a crash.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(how syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return
	}
	pid := s.process.Process.Pid
	if how == syscall.SIGKILL { // without this, the processes that serve connections would run for a while
		stopAndKill(pid)
	} else {
		_ = s.process.Process.Signal(how)
	}
	<-s.ended
	s.process = nil
}

// Restart stops the server and starts it again.
func (s *Server) Restart() error {
	s.Stop()
	return s.Start()
}

// Log returns the content of the server's log.
func (s *Server) Log() string {
	log, _ := os.ReadFile(filepath.Join(s.folder, "log"))
	return string(log)
}

func (s *Server) remove() {
	s.end(syscall.SIGQUIT)
	_ = os.RemoveAll(s.folder)
}

// Standby starts a synchronous standby of the server, and restarts the server. The server then acknowledges a
// commit only when the commit is visible on the standby.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	standby := blank(t)
	t.Cleanup(standby.remove)
	if err := standby.follow(s); err != nil {
		t.Fatal(err)
	}
	return standby
}

func (s *Server) follow(primary *Server) error {
	if err := s.run("pg_basebackup", "-D", s.Data(), "-h", primary.folder, "-p", "5432", "-U", "postgres", "-R", "-c", "fast", "--no-sync", "-X", "stream"); err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(s.Data(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(conf, "\nprimary_conninfo = 'host=%s port=5432 user=postgres application_name=standby'\n", primary.folder)
		err = errors.Join(err, conf.Close())
	}
	if err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	primary.settings = append(slices.Clone(primary.settings), "synchronous_standby_names=standby", "synchronous_commit=remote_apply")
	return primary.Restart()
}

// Promote makes the standby a primary, which accepts writes.
func (s *Server) Promote() error {
	s.settings = append(slices.Clone(s.settings), "synchronous_standby_names=")
	return s.run("pg_ctl", "promote", "-w", "-D", s.Data())
}

// run runs a PostgreSQL program and waits until it ends.
func (s *Server) run(program string, args ...string) error {
	c := command(filepath.Join(s.programs, program), args...)
	var out bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = s.folder, &out, &out
	err := launch(c)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out.String())
	}
	return nil
}

// command returns a command that runs in its own process group and ends with this process.
func command(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") }), "LC_ALL=C")
	c.SysProcAttr = attributes()
	return c
}

// unprivileged returns the ids of an unprivileged user if this process runs as root, because PostgreSQL refuses to
// run as root.
func unprivileged() (uid, gid int, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, err1 := strconv.Atoi(u.Uid)
			gid, err2 := strconv.Atoi(u.Gid)
			if err1 == nil && err2 == nil {
				return uid, gid, true
			}
		}
	}
	return 0, 0, false
}

// starter returns a channel for functions that start processes. All functions run on one thread, which lives as
// long as this process. The kernel ends a process when the thread that started it ends.
var starter = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func launch(c *exec.Cmd) error {
	result := make(chan error)
	starter() <- func() { result <- c.Start() }
	return <-result
}
