package peers

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// poolPing is the query with which a connection pool checks a connection after a second of idle time.
var poolPing = []byte("-- ping")

// link simulates a network between clients and a server. It is a TCP proxy that delays the data of each direction by
// half of the round-trip time, and delivers it in order. It counts round trips, except those of [poolPing].
type link struct {
	listener net.Listener
	server   string // Unix socket of the server
	delay    time.Duration
	trips    atomic.Int64
	pumps    sync.WaitGroup
}

// newLink starts a link to the database of dsn, and returns it with a connection string that uses the link. The
// caller must close the connections before the test ends.
func newLink(tb testing.TB, dsn string, delay time.Duration) (*link, string) {
	tb.Helper()
	config, err := pgconn.ParseConfig(dsn)
	no(tb, err)
	l := &link{server: filepath.Join(config.Host, fmt.Sprintf(".s.PGSQL.%d", config.Port)), delay: delay}
	l.listener, err = net.Listen("tcp", "127.0.0.1:0")
	no(tb, err)
	l.pumps.Go(l.accept)
	tb.Cleanup(func() {
		l.listener.Close()
		l.pumps.Wait()
	})
	return l, fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s sslmode=disable", l.listener.Addr().(*net.TCPAddr).Port, config.User, config.Database)
}

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", l.server)
		if err != nil {
			client.Close()
			continue
		}
		// A round trip begins when the client sends data after it has received data. If the client sends more data
		// without waiting for an answer, no new round trip begins.
		heard := new(atomic.Bool)
		heard.Store(true)
		l.pumps.Go(func() {
			l.pump(server, client, func(data []byte) {
				if heard.Swap(false) && !bytes.Contains(data, poolPing) {
					l.trips.Add(1)
				}
			})
		})
		l.pumps.Go(func() { l.pump(client, server, func([]byte) { heard.Store(true) }) })
	}
}

type chunk struct {
	due  time.Time
	data []byte
}

// pump copies data from one connection to the other. Before it delivers data, it calls sent with the data.
func (l *link) pump(to, from net.Conn, sent func(data []byte)) {
	chunks := make(chan chunk, 1024)
	l.pumps.Go(func() {
		defer to.Close()
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			sent(c.data)
			_, _ = to.Write(c.data) // no error check; if to is closed, from will be closed too
		}
	})
	defer close(chunks)
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if n > 0 {
			chunks <- chunk{time.Now().Add(l.delay / 2), data[:n]}
		}
		if err != nil {
			return
		}
	}
}
