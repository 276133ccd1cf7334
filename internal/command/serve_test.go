package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

// served is a running command that serves pages.
type served struct {
	t    *testing.T
	line string // the first line of the command's output
	end  func() (code int, errs string)
}

// startServe starts the command serve and waits until it writes its address.
func startServe(t *testing.T, env map[string]string, args ...string) *served {
	t.Helper()
	return startCommand(t, env, append([]string{"serve"}, args...)...)
}

// startCommand starts a command that serves pages, and waits until it writes its first line.
func startCommand(t *testing.T, env map[string]string, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stdout, w := io.Pipe()
	var errs strings.Builder
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, args, strings.NewReader(""), w, &errs, func(name string) string { return env[name] })
		w.Close()
	}()
	s := &served{t: t, end: func() (int, string) {
		cancel()
		return <-code, errs.String()
	}}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil {
		code, text := s.end()
		t.Fatalf("it said nothing: exit code %d: %s", code, text)
	}
	s.line = line
	go io.Copy(io.Discard, lines)
	return s
}

// address returns the address in the first output line.
func (s *served) address() *url.URL {
	s.t.Helper()
	u, err := url.Parse(regexp.MustCompile(`http://[^ "]*`).FindString(s.line))
	if err != nil {
		s.t.Fatalf("%s: %v", s.line, err)
	}
	return u
}

// get requests a page through the local port, with the given host and token in the request header.
func (s *served) get(path, host, token string) (status int, body string) {
	s.t.Helper()
	r := testlog.Must(http.NewRequestWithContext(s.t.Context(), "GET", "http://127.0.0.1:"+s.address().Port()+path, nil))(s.t)
	r.Host = host
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	got := testlog.Must(http.DefaultTransport.RoundTrip(r))(s.t)
	defer got.Body.Close()
	text := testlog.Must(io.ReadAll(got.Body))(s.t)
	return got.StatusCode, string(text)
}

// onWrite is a writer that calls a function at each write.
type onWrite func()

func (f onWrite) Write(text []byte) (int, error) {
	f()
	return len(text), nil
}

func TestServe(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	s := startServe(t, nil, "--addr", "127.0.0.1:0")
	if !regexp.MustCompile(`^patchlog: http://127\.0\.0\.1:[1-9]\d*/ \(read-only\); Ctrl-C ends it\n$`).MatchString(s.line) {
		t.Errorf("it says %q", s.line)
	}
	if status, page := s.get("/session?key=a/u/s", "127.0.0.1:1", ""); status != http.StatusOK || !strings.Contains(page, "read-only") || !strings.Contains(page, "hello") {
		t.Errorf("status %d:\n%s", status, page)
	}
	if status, _ := s.get("/session?key=a/u/s", "evil.example", ""); status != http.StatusMisdirectedRequest {
		t.Errorf("for another host: status %d", status)
	}

	// The search page shows the same events as the command search.
	_, page := s.get("/search?key=a/u/s&q=hello", "127.0.0.1", "")
	page = strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " ")
	found := strings.Split(must(t, "", "search", "a/u/s", "hello"), "\n\n")[1:]
	for _, hit := range found {
		_, said, _ := strings.Cut(hit, "\n") // the first line of hit names the place, and the other lines contain the found text
		if want := strings.Join(strings.Fields(said), " "); want == "" || !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
	if len(found) == 0 {
		t.Error("the command finds nothing")
	}

	// While the server runs, other processes can read the database, but a second server on the same port fails.
	must(t, "", "log", "a/u/s")
	var errs strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	out := onWrite(cancel) // stops the second server if it writes an address
	if code := run(ctx, []string{"serve", "--addr", s.address().Host}, nil, out, &errs, noEnv); code != exitFailed || !strings.Contains(errs.String(), "is in use, perhaps by another 'patchlog serve'") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	if code, text := s.end(); code != exitDone || text != "" {
		t.Errorf("exit code %d: %s", code, text)
	}

	// A server with --write announces that it may write, and then no other process can open the database.
	s = startServe(t, nil, "--addr", "localhost:0", "--write", "--json")
	var said struct {
		URL   string
		Write bool
	}
	if err := json.Unmarshal([]byte(s.line), &said); err != nil || !said.Write || said.URL != s.address().String() || s.address().Hostname() != "localhost" {
		t.Errorf("it says %q (%v)", s.line, err)
	}
	if _, page := s.get("/session?key=a/u/s", "localhost", ""); !strings.Contains(page, "may write") {
		t.Errorf("it does not write:\n%s", page)
	}
	errs.Reset()
	if code := run(ctx, []string{"serve", "--addr", "127.0.0.1:0"}, nil, out, &errs, noEnv); code != exitFailed ||
		!strings.Contains(errs.String(), "locked") || !strings.Contains(errs.String(), "Stop that program, or read through an inspector in it: --db http://") {
		t.Errorf("a file that is held: exit code %d: %s", code, &errs)
	}
	if code, text := s.end(); code != exitDone || text != "" {
		t.Errorf("exit code %d: %s", code, text)
	}
	db, err := store.Open(defaultDatabase, store.Options{})
	if err != nil {
		t.Fatalf("it still holds the file: %v", err)
	}
	db.Close()
}

// Users can erase on the pages only if serve has the flag --erase.
func TestServeErases(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "(read-only)"}, {[]string{"--write"}, "(may write)"}, {[]string{"--erase"}, "(may erase)"}, {[]string{"--erase", "--write"}, "(may write and erase)"},
		{[]string{"--erase", "--json"}, `"write":false,"erase":true}`},
	} {
		s := startServe(t, nil, append([]string{"--addr", "127.0.0.1:0"}, c.args...)...)
		_, page := s.get("/session?key=a/u/s", "127.0.0.1", "")
		if !strings.Contains(s.line, c.says) || strings.Contains(page, "may erase") != slices.Contains(c.args, "--erase") || strings.Contains(page, "may write") != slices.Contains(c.args, "--write") {
			t.Errorf("%v: it says %q, and its page:\n%s", c.args, s.line, page)
		}
		if slices.Contains(c.args, "--json") {
			act := url.Values{"act": {"erase"}, "key": {"a/u/s"}, "creation": {regexp.MustCompile(`data-creation="([^"]*)"`).FindStringSubmatch(page)[1]}, "at": {"2"}, "seq": {"1"}}
			status, preview := s.get("/act?"+act.Encode(), "127.0.0.1", "")
			plan := regexp.MustCompile(`name="plan" value="([^"]*)"`).FindStringSubmatch(preview)
			if status != http.StatusOK || plan == nil {
				t.Fatalf("status %d:\n%s", status, preview)
			}
			act.Set("plan", plan[1])
			act.Set("reason", "x")
			done := testlog.Must(http.PostForm("http://"+s.address().Host+"/act", act))(t)
			done.Body.Close()
			if done.StatusCode != http.StatusOK || done.Request.URL.Path != "/session" {
				t.Errorf("status %d, at %s", done.StatusCode, done.Request.URL)
			}
		}
		s.end()
	}
	if text := must(t, "", "log", "a/u/s"); strings.Contains(text, "hello") {
		t.Errorf("it was not erased:\n%s", text)
	}
}

// If other machines can reach the address, requests need a token. By default, the token is random.
func TestServeToOthers(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	s := startServe(t, nil, "--addr", ":0", "--host", "agents.example.com")
	token := s.address().Query().Get("token")
	if len(token) < 26 {
		t.Fatalf("it says %q", s.line)
	}
	for _, c := range []struct {
		host, token string
		want        int
	}{
		{s.address().Host, token, http.StatusOK},
		{"agents.example.com", token, http.StatusOK},
		{"127.0.0.1", token, http.StatusOK},
		{"127.0.0.1", "", http.StatusUnauthorized},
		{"127.0.0.1", token + "x", http.StatusUnauthorized},
		{"evil.example", token, http.StatusMisdirectedRequest},
	} {
		if status, page := s.get("/session?key=a/u/s", c.host, c.token); status != c.want {
			t.Errorf("%+v: status %d:\n%.300s", c, status, page)
		}
	}
	s.end()
	if again := startServe(t, nil, "--addr", ":0"); again.address().Query().Get("token") == token {
		t.Error("the same token is drawn again")
	}

	// A token that the user has set is required on every address, and the command does not print it.
	for _, args := range [][]string{{"--addr", "0.0.0.0:0"}, {"--addr", "127.0.0.1:0"}} {
		s = startServe(t, map[string]string{"PATCHLOG_TOKEN": "given-secret"}, args...)
		if strings.Contains(s.line, "secret") || s.address().RawQuery != "" || !strings.Contains(s.line, "demands the token") {
			t.Errorf("%v: it says %q", args, s.line)
		}
		if status, _ := s.get("/session?key=a/u/s", "127.0.0.1", "given-secret"); status != http.StatusOK {
			t.Errorf("%v: with the token: status %d", args, status)
		}
		if status, _ := s.get("/session?key=a/u/s", "127.0.0.1", ""); status != http.StatusUnauthorized {
			t.Errorf("%v: without: status %d", args, status)
		}
		s.end()
	}
}

// When the server shuts down, the contexts of requests in flight end, so that these requests do not delay the
// shutdown.
func TestServeEnds(t *testing.T) {
	errServed := errors.New("served enough")
	listener := testlog.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	streaming, told := make(chan bool), make(chan bool, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- serveUntilDone(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			close(streaming)
			<-r.Context().Done()
			told <- context.Cause(r.Context()) == errServed
		}), nil)
	}()
	go func() {
		got, err := http.Get("http://" + listener.Addr().String())
		if err == nil {
			io.Copy(io.Discard, got.Body)
			got.Body.Close()
		}
	}()
	<-streaming
	cancel(errServed)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !<-told { // the request ended because its context ended, and not only after endTimeout
		t.Error("a request is not told of the end, but cut off")
	}
	broken := testlog.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	broken.Close()
	if err := serveUntilDone(t.Context(), broken, nil, nil); err == nil {
		t.Error("a listener that fails is no error")
	}
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	net.Listener
	conns chan net.Conn
}

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l oneConn) Close() error   { return nil }
func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// The server closes the connection of a client that sends its body too slowly or does not read the response.
func TestServeCutsSlowClients(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		handle  func(w http.ResponseWriter, r *http.Request) error
	}{
		"slow body": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nslow", func(_ http.ResponseWriter, r *http.Request) error {
			_, err := io.ReadAll(r.Body)
			return err
		}},
		"slow reader": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) error {
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return err
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				server := newServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ended <- c.handle(w, r) }), nil)
				client, conn := net.Pipe()
				l := oneConn{conns: make(chan net.Conn, 1)}
				l.conns <- conn
				go server.Serve(l)
				began := time.Now()
				go client.Write([]byte(c.request))
				if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("it ends with %v", err)
				}
				if took := time.Since(began); took > time.Hour {
					t.Errorf("it ends after %v", took)
				}
				client.Close()
				close(l.conns)
				server.Close()
			})
		})
	}
}

// Commands that read give the same output through an inspector as from the database file. Commands that write
// fail.
func TestReadThroughInspector(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, twoEvents, "import", "a/u/s", "-")
	must(t, strings.ReplaceAll(twoEvents, "hello", "a lamp"), "import", "a/u/Ü%2F2", "-")
	must(t, "", "patch", "a/u/s", "0", "1", "--allow-orphans")
	reads := [][]string{
		{"log", "a/u/s"}, {"log", "a/u/Ü%2F2"}, {"log", "a/u/s", "--at", "2"}, {"audit", "a/u/s"}, {"diff", "a/u/s", "1"}, {"loss", "a/u/s"}, {"export", "a/u/s"},
		{"sessions"}, {"search", "a/u/s", "lamp", "--all"},
	}
	var want []string
	for _, args := range reads {
		want = append(want, must(t, "", args...))
	}
	s := startServe(t, map[string]string{"PATCHLOG_TOKEN": "secret"}, "--addr", "127.0.0.1:0")
	try := func(token string, args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		env := func(name string) string {
			return map[string]string{"PATCHLOG_TOKEN": token, "PATCHLOG_DB": s.address().String()}[name]
		}
		code := run(t.Context(), args, strings.NewReader(""), &out, &errs, env)
		return code, out.String(), errs.String()
	}
	for n, args := range reads {
		if code, got, errs := try("secret", args...); code != 0 || got != want[n] {
			t.Errorf("%v: exit code %d, %s; got\n%s\nwant\n%s", args, code, errs, got, want[n])
		}
	}
	if code, got, errs := try("secret", "sessions", "a/none"); code != 0 || got != "no sessions\n" {
		t.Errorf("sessions of a user who has none: exit code %d, %q, %q", code, got, errs)
	}
	for wrong, call := range map[string][]string{
		"demands a token; set the environment":  {"", "sessions"},
		"refuses the token; check that of":      {"bad", "sessions"},
		"a database is only read":               {"secret", "pin", "a/u/s", "2"},
		"a/u/none: not found":                   {"secret", "log", "a/u/none"},
		"not the address":                       {"secret", "sessions", "--db", "http://"},
		"no inspector answers at 127.0.0.1:1: ": {"secret", "sessions", "--db", "http://127.0.0.1:1/"},
		"is it the address of an in":            {"secret", "sessions", "--db", s.address().String() + "elsewhere/"},
	} {
		if code, out, errs := try(call[0], call[1:]...); code != exitFailed || out != "" || !strings.Contains(errs, wrong) || strings.Contains(errs, "secret") {
			t.Errorf("%v: exit code %d, %q, %q", call, code, out, errs)
		}
	}
	for _, args := range [][]string{{"verify"}, {"verify", "a/u/s"}, {"stats"}, {"backup", "saved.db"}, {"vacuum"}} {
		if code, out, errs := try("secret", args...); code != exitFailed || out != "" || !strings.Contains(errs, "not the database as a whole") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errs)
		}
	}
	if code, text := s.end(); code != exitDone || text != "" {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// If one session is damaged, commands can read the other sessions through an inspector.
func TestReadThroughInspectorBesideADamagedOne(t *testing.T) {
	runWithDamagedSession(t, "sessions")
	s := startServe(t, nil, "--addr", "127.0.0.1:0")
	if out := must(t, "", "sessions", "--db", s.address().String()); !strings.Contains(out, "a/u/t") || strings.Contains(out, "a/u/s") {
		t.Errorf("it lists\n%s", out)
	}
	s.end()
}

// The command sessions copies no session when it lists the sessions of an inspector.
func TestListThroughInspector(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked += r.URL.Path
		fmt.Fprintln(w, `{"key":"a/u/s","seq":7,"visible":3,"tokens":1200,"visibleTokens":40}`)
	}))
	defer server.Close()
	out := must(t, "", "sessions", "a", "--db", server.URL)
	if asked != "/list" || !strings.Contains(out, "a/u/s") || !strings.Contains(out, "1,200") {
		t.Errorf("it asks %s, and says\n%s", asked, out)
	}
}
