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

// fault is a network fault that a proxy causes at one exchange. An exchange is the data that a client sends before
// the server answers.
type fault string

const (
	refuse      fault = "refused"     // the connection ends, and the next connection attempts are refused
	resetBefore fault = "reset"       // the connection ends before the server receives the data
	resetAfter  fault = "unanswered"  // the server receives the data, but its answer is lost
	delay       fault = "slow"        // the data arrives late
	halfOpen    fault = "half-open"   // this connection drops all later data in both directions
	allHalfOpen fault = "all is lost" // all connections drop all later data
)

// proxy forwards data between clients and a server's socket. It does not parse the protocol.
type proxy struct {
	server string
	folder string
	listen net.Listener
	ends   sync.WaitGroup

	mu      sync.Mutex
	seen    int // number of exchanges so far
	at      int // number of the exchange at which the fault occurs
	what    fault
	refuses int // number of connection attempts that are still to be refused
	lost    bool
	conns   map[net.Conn]bool
	closed  bool

	// uncancelled makes the proxy drop all requests to cancel a statement.
	uncancelled bool
}

// cancelRequest is the beginning of a message that cancels the statement of another connection. The key of that
// connection follows.
const cancelRequest = "\x00\x00\x00\x10\x04\xd2\x16\x2e"

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

// cut closes all connections to clients. The connections to the server stay open.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, client := range p.conns {
		if client {
			_ = c.Close()
		}
	}
}

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

// exchange counts an exchange, and returns the fault to cause at it, or "".
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
		p.refuses = 8 // a call makes at most four attempts, so all of its attempts can be refused
	}
	return p.what
}

// track registers the connection, so that close also closes it. If the proxy is already closed, track closes the
// connection and returns false.
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
	answered, mute, dead := true, false, false // answered: the last data came from the server; mute: answers are lost; dead: all data is dropped
	p.ends.Go(func() {                         // forwards the server's data
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
