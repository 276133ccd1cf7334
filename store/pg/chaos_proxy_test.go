package pg_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fault is what a proxy does at an exchange: what a client says before the server answers.
type fault string

const (
	refuse      fault = "refused"     // the connection ends, and the next ones are not taken
	resetBefore fault = "reset"       // the connection ends, and the server gets nothing
	resetAfter  fault = "unanswered"  // the server gets it all, and its answer goes nowhere
	delay       fault = "slow"        // it takes a while to get there
	halfOpen    fault = "half-open"   // nothing gets anywhere any more on this connection
	allHalfOpen fault = "all is lost" // nor on any other
)

// proxy is between clients and a server's socket. It knows nothing of what they say.
type proxy struct {
	server string
	folder string
	listen net.Listener
	ends   sync.WaitGroup

	mu      sync.Mutex
	seen    int // exchanges so far
	at      int // the exchange at which the fault is
	what    fault
	refuses int // connections to come
	lost    bool
	conns   map[net.Conn]bool
	closed  bool

	// uncancelled: no request to cancel a statement gets to the server.
	uncancelled bool
}

// cancelRequest is all that a client says on a connection by which it cancels a statement of
// another one, but for which.
const cancelRequest = "\x00\x00\x00\x10\x04\xd2\x16\x2e"

// newProxy returns a proxy, and the connection string through it.
func newProxy(t testing.TB, dsn string) (*proxy, string) {
	t.Helper()
	fields := strings.Fields(dsn)
	p := &proxy{server: filepath.Join(strings.TrimPrefix(fields[0], "host="), ".s.PGSQL.5432"), conns: map[net.Conn]bool{}}
	var err error
	if p.folder, err = os.MkdirTemp("", "pgproxy"); err != nil {
		t.Fatal(err)
	}
	if p.listen, err = net.Listen("unix", filepath.Join(p.folder, ".s.PGSQL.5432")); err != nil {
		t.Fatal(err)
	}
	p.ends.Go(p.accept)
	t.Cleanup(p.close)
	fields[0] = "host=" + p.folder
	return p, strings.Join(fields, " ")
}

// close ends all connections and waits until they have ended.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	_ = p.listen.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.ends.Wait()
	_ = os.RemoveAll(p.folder)
}

// cut ends all connections on the clients' side only: the server does not notice.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, client := range p.conns {
		if client {
			_ = c.Close()
		}
	}
}

// plan makes the n-th exchange from now the one that something happens to.
func (p *proxy) plan(n int, what fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.at, p.what, p.lost, p.refuses = 0, n, what, false, 0
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// exchange counts one, and says what happens to it.
func (p *proxy) exchange() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	switch {
	case p.lost:
		return halfOpen
	case p.seen != p.at:
		return ""
	}
	p.lost = p.what == allHalfOpen
	if p.what == refuse {
		p.refuses = 8 // a call tries to connect four times
	}
	return p.what
}

// track keeps the connection to close it in the end.
func (p *proxy) track(c net.Conn, client bool) (kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = client
	return true
}

func (p *proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refused := p.refuses > 0
		if refused {
			p.refuses--
		}
		p.mu.Unlock()
		if refused {
			_ = client.Close()
			continue
		}
		if p.track(client, true) {
			p.ends.Go(func() { p.serve(client) })
		}
	}
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("unix", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	if !p.track(server, false) {
		return
	}
	var mu sync.Mutex
	answered, mute, dead := true, false, false // the server spoke last; its answer goes nowhere; nothing goes anywhere
	p.ends.Go(func() {                         // the server's words
		defer client.Close()
		b := make([]byte, 1<<16)
		for {
			n, err := server.Read(b)
			if n > 0 {
				mu.Lock()
				answered = true
				cut, lost := mute, dead
				mu.Unlock()
				if lost = lost || p.isLost(); cut {
					return
				}
				if !lost {
					if _, err := client.Write(b[:n]); err != nil {
						return
					}
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer p.drop(client, server)
	b := make([]byte, 1<<16)
	for {
		n, err := client.Read(b)
		if p.uncancelled && strings.HasPrefix(string(b[:n]), cancelRequest) {
			return
		}
		if n > 0 {
			mu.Lock()
			var f fault
			if dead {
				f = halfOpen
			} else if answered {
				answered = false
				f = p.exchange()
			}
			switch f {
			case halfOpen, allHalfOpen:
				dead = true
			case resetAfter:
				mute = true
			}
			mu.Unlock()
			switch f {
			case refuse, resetBefore:
				return
			case delay:
				time.Sleep(100 * time.Millisecond)
			case halfOpen, allHalfOpen:
				continue
			}
			if _, err := server.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
