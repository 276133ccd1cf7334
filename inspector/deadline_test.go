package inspector

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/store"
)

// slowServer serves an inspector, whose clients have little time for a body, from a program's own
// server without limits.
func slowServer(t *testing.T, timeout time.Duration, opts Options) *httptest.Server {
	t.Helper()
	s := teststore.Memory(t, store.Options{})
	i := testlog.Must(New(s, opts))(t)
	i.bodyTimeout = timeout
	mux := http.NewServeMux()
	mux.Handle("/inspector/", http.StripPrefix("/inspector", i))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// A client that does not send the body it has announced gets an answer, and its connection is closed,
// whether a handler reads the body or none does.
func TestSlowBody(t *testing.T) {
	server := slowServer(t, 50*time.Millisecond, Options{Write: true})
	for _, c := range []struct{ method, path, host, status string }{
		{"POST", "act", "localhost", "408"},
		{"POST", "nothing", "localhost", "405"},
		{"POST", "act", "elsewhere.example", "421"},
		{"GET", "nothing", "localhost", "404"},
	} {
		conn := testlog.Must(net.Dial("tcp", server.Listener.Addr().String()))(t)
		defer conn.Close()
		fmt.Fprintf(conn, "%s /inspector/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nact=", c.method, c.path, c.host)
		answer, err := io.ReadAll(conn) // until the server closes
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.status) {
			t.Errorf("%s %s of %s: %v, %.200s", c.method, c.path, c.host, err, answer)
		}
	}
}

// The deadline of a body does not end the request that it has arrived for.
func TestBodyThenSlowAnswer(t *testing.T) {
	const timeout = 200 * time.Millisecond
	asked := false
	server := slowServer(t, timeout, Options{Write: true, Authorize: func(r *http.Request, _ store.Key, _ Access) bool {
		asked = true
		select {
		case <-r.Context().Done():
			t.Error("the request was cancelled")
		case <-time.After(2 * timeout):
		}
		return false
	}})
	answer := testlog.Must(http.Post(server.URL+"/inspector/act", "application/x-www-form-urlencoded", strings.NewReader("act=pin&key=a/u/s")))(t)
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound || !asked {
		t.Errorf("status %d, authorized: %v", answer.StatusCode, asked)
	}
}
