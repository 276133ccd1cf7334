package main

import "time"

// costs are what was measured, with the benchmark of bench/peers that measured it. They are
// of service=patchlog, which is patchlog as it comes: behind any pooler.
type costs struct {
	appendLone  time.Duration // server's processor: BenchmarkPostgresAppend/sessions=1/net=0s, server-µs/op
	appendGroup time.Duration // the same where many wait: BenchmarkPostgresWriters/sessions=1000/how=adk
	getLone     time.Duration // BenchmarkPostgresGet/events=100/rows=200000/read=none
	getGroup    time.Duration // BenchmarkPostgresGets
	getCold     time.Duration // BenchmarkPostgresGetCold/how=get
	pass        time.Duration // with an append and a Get: BenchmarkPostgresCompact/counted=false
	lease       time.Duration // BenchmarkPostgresLease

	walFirst int // bytes of log of the first append to a session after a checkpoint: BenchmarkPostgresWAL, first-wal-B/op
	walLater int // and of those after it: third-wal-B/op
	walPass  int // BenchmarkPostgresCompact, wal-B/op
	walLease int // BenchmarkPostgresLease, wal-B/op

	table int     // bytes of tables and indexes a record: BenchmarkPostgresSize, grown-B/event
	most  float64 // durable events a second, clients and server on 2 cores: BenchmarkPostgresWriters/sessions=1000/how=adk
	heap  int     // bytes in memory a visible event of a session in use: BenchmarkPostgresSize, heap-B/session / 100
}

var measured = costs{
	appendLone:  375 * time.Microsecond,
	appendGroup: 42 * time.Microsecond,
	getLone:     340 * time.Microsecond,
	getGroup:    25 * time.Microsecond,
	getCold:     1400 * time.Microsecond,
	pass:        3200 * time.Microsecond,
	lease:       140 * time.Microsecond,
	walFirst:    5080,
	walLater:    1170,
	walPass:     3640,
	walLease:    235,
	table:       790,
	most:        20_000,
	heap:        1210,
}

// profile is a session as the computation has it: none of this was measured.
type profile struct {
	events      int           // records of a session, in all
	invocations int           // runs of an agent: a Get, and a lease taken and given up, each
	passes      int           // of compaction
	colds       int           // Gets in a process that does not have the session in memory
	visible     int           // events that the model sees, on the average
	hot         time.Duration // from the first event to the last; and as long in memory
	peak        float64       // the load of the busiest hour, as a multiple of the day's mean
}

var assumed = profile{events: 200, invocations: 50, passes: 10, colds: 2, visible: 60, hot: time.Hour, peak: 3}

// server is what one server is taken to have: none of this was measured.
type server struct {
	cores       float64       // that may be busy in the peak hour
	log         float64       // bytes of log a second that the disk takes
	storage     float64       // bytes
	connections int           // for clients
	checkpoint  time.Duration // from one to the next
}

var one = server{cores: 12, log: 100e6, storage: 4e12, connections: 400, checkpoint: 5 * time.Minute}

// client is a process that serves sessions: the defaults of store.Options and pg.Options.
type client struct {
	cache       float64 // bytes for the views of sessions, Options.CacheBytes
	connections int     // Options.MaxConns
}

var each = client{cache: 256 << 20, connections: 10}
