package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// meter reads what a server has used.
type meter struct {
	tb   testing.TB
	conn *pgx.Conn
	pid  string // of the process that all others of the server are children of
}

func newMeter(tb testing.TB, dsn string) *meter {
	tb.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	no(tb, err)
	tb.Cleanup(func() { conn.Close(context.Background()) })
	m := &meter{tb: tb, conn: conn}
	var file string
	no(tb, conn.QueryRow(context.Background(), "SELECT pg_read_file('postmaster.pid')").Scan(&file))
	m.pid, _, _ = strings.Cut(file, "\n")
	return m
}

// cpu is the processor time of all the server's processes, those that have ended too.
func (m *meter) cpu() time.Duration {
	m.tb.Helper()
	own := stat(m.pid)
	if own == nil {
		m.tb.Skip("the server's processes are not in /proc")
	}
	ticks := number(own[11]) + number(own[12]) + number(own[13]) + number(own[14]) // with the children that ended
	entries, err := os.ReadDir("/proc")
	no(m.tb, err)
	for _, e := range entries {
		if f := stat(e.Name()); f != nil && f[1] == m.pid {
			ticks += number(f[11]) + number(f[12])
		}
	}
	return time.Duration(ticks) * time.Second / 100 // Linux counts in hundredths, whatever its clock
}

// stat returns the fields of a process from its state on, or nil.
func stat(pid string) []string {
	if _, err := strconv.Atoi(pid); err != nil {
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	i := bytes.LastIndexByte(text, ')') // the name may hold anything
	if err != nil || i < 0 {
		return nil
	}
	return strings.Fields(string(text[i+1:]))
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// wal is how many bytes the server has logged.
func (m *meter) wal() (n int64) {
	m.tb.Helper()
	no(m.tb, m.conn.QueryRow(context.Background(), "SELECT (pg_current_wal_lsn() - '0/0')::bigint").Scan(&n))
	return n
}

// used is what a server used between two moments.
type used struct {
	m    *meter
	link *link // nil if there is none

	cpu        time.Duration
	wal, trips int64
}

func (m *meter) begin(l *link) *used {
	u := &used{m: m, link: l, wal: m.wal()}
	if l != nil {
		u.trips = l.trips.Load()
	}
	u.cpu = m.cpu()
	return u
}

// end reports what each of n operations took.
func (u *used) end(b *testing.B, n int) {
	b.Helper()
	cpu := u.m.cpu() - u.cpu
	b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(n), "server-µs/op")
	if u.link != nil {
		b.ReportMetric(float64(u.link.trips.Load()-u.trips)/float64(n), "trips/op")
	}
	b.ReportMetric(float64(u.m.wal()-u.wal)/float64(n), "wal-B/op")
}
