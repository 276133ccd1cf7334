// Command scaling computes, from measured costs and an assumed session, what one PostgreSQL
// server carries and which limit comes first. It measures nothing.
//
//	go run ./bench/scaling
package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

func main() { report(os.Stdout) }

// load is what so many sessions a day ask for, in the busiest hour.
type load struct {
	events    float64 // a second
	lone      float64 // busy cores if no two calls share a statement
	group     float64 // and if as many do as when they were measured
	commits   float64 // a second, if no two calls share one
	log       float64 // bytes a second
	hot       float64 // sessions in memory, each in one process
	memory    float64 // bytes that these take in the clients, all together
	processes float64 // that hold them, at the default of store.Options.CacheBytes
	stored    float64 // bytes a day
}

func compute(sessions float64, c costs, p profile, s server) load {
	rate := sessions / (24 * time.Hour).Seconds() * p.peak // sessions a second
	per := func(n int, d time.Duration) float64 { return float64(n) * d.Seconds() }
	same := per(p.passes, c.pass) + per(p.colds, c.getCold) + per(2*p.invocations, c.lease)
	// Of the events between two checkpoints, the first pays for the pages.
	between := float64(p.events) * min(1, s.checkpoint.Seconds()/p.hot.Seconds())
	first := 1 / max(1, between)
	wal := float64(p.events)*(first*float64(c.walFirst)+(1-first)*float64(c.walLater)) +
		float64(p.passes*c.walPass) + float64(2*p.invocations*c.walLease)
	l := load{
		events: rate * float64(p.events),
		lone:   rate * (same + per(p.events, c.appendLone) + per(p.invocations, c.getLone)),
		group:  rate * (same + per(p.events, c.appendGroup) + per(p.invocations, c.getGroup)),
		// A pass is a patch, and a lease that is taken and given up.
		commits: rate * float64(p.events+3*p.passes+2*p.invocations),
		log:     rate * wal,
		hot:     rate * 2 * p.hot.Seconds(),
		stored:  sessions * float64((p.events+p.passes)*c.table),
	}
	l.memory = l.hot * float64(p.visible*c.heap)
	l.processes = max(1, l.memory/each.cache)
	return l
}

// limit is a limit of one server, and how many sessions a day bring it there.
type limit struct {
	what     string
	sessions float64
}

// limits are those of a server whose sessions are removed after so many days.
func limits(c costs, p profile, s server, days float64) []limit {
	l := compute(1e6, c, p, s)
	return []limit{
		{fmt.Sprintf("%.0f cores, each call by itself", s.cores), 1e6 * s.cores / l.lone},
		{fmt.Sprintf("%.0f cores, calls that share statements", s.cores), 1e6 * s.cores / l.group},
		{fmt.Sprintf("%s events a second, as on 2 cores", count(c.most)), 1e6 * c.most / l.events},
		{fmt.Sprintf("%s of log a second", bytes(s.log)), 1e6 * s.log / l.log},
		{fmt.Sprintf("%d connections, %d a process", s.connections, each.connections), 1e6 * float64(s.connections/each.connections) * each.cache / l.memory},
		{fmt.Sprintf("%s stored, removed after %.0f days", bytes(s.storage), days), 1e6 * s.storage / (l.stored * days)},
	}
}

func report(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(cells ...any) {
		for _, c := range cells {
			fmt.Fprintf(w, "%v\t", c)
		}
		fmt.Fprintln(w)
	}
	p := assumed
	fmt.Fprintf(out, "A session: %d events in %.0f h, %d invocations, %d compactions, %d cold Gets, %d events visible.\n", p.events, p.hot.Hours(), p.invocations, p.passes, p.colds, p.visible)
	fmt.Fprintf(out, "The busiest hour has %.0f times the mean. A checkpoint every %.0f minutes.\n\n", p.peak, one.checkpoint.Minutes())
	scales := []float64{1e4, 1e6, 1e8}
	loads := make([]load, len(scales))
	heads := []any{"sessions a day"}
	for i, n := range scales {
		loads[i] = compute(n, measured, p, one)
		heads = append(heads, count(n))
	}
	line(heads...)
	row := func(what string, of func(load) string) {
		cells := []any{what}
		for _, l := range loads {
			cells = append(cells, of(l))
		}
		line(cells...)
	}
	row("events a second", func(l load) string { return count(l.events) })
	row("busy cores, each call by itself", func(l load) string { return figure(l.lone) })
	row("busy cores, calls that share statements", func(l load) string { return figure(l.group) })
	row("commits a second, if none are shared", func(l load) string { return count(l.commits) })
	row("log a second", func(l load) string { return bytes(l.log) })
	row("sessions in memory", func(l load) string { return count(l.hot) })
	row("memory of these, all processes", func(l load) string { return bytes(l.memory) })
	row("processes, by that memory alone", func(l load) string { return count(l.processes) })
	row("stored after 30 days", func(l load) string { return bytes(30 * l.stored) })
	row("stored after a year, nothing removed", func(l load) string { return bytes(365 * l.stored) })
	w.Flush()
	fmt.Fprintf(out, "\nOne server of %.0f cores, %s of disk:\n\n", one.cores, bytes(one.storage))
	line("its limit", "is reached at sessions a day")
	for _, l := range append(limits(measured, p, one, 30), limits(measured, p, one, 365)[5]) {
		line(l.what, count(l.sessions))
	}
	w.Flush()
}

// figure writes a number with two digits that count, or whole.
func figure(x float64) string {
	switch {
	case x < 1:
		return fmt.Sprintf("%.2g", x)
	case x < 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func count(x float64) string {
	switch {
	case x >= 1e6:
		return figure(x/1e6) + " million"
	case x >= 1e4:
		return figure(x/1e3) + ",000"
	}
	return figure(x)
}

func bytes(x float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e15, "PB"}, {1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}} {
		if x >= u.size {
			return figure(x/u.size) + " " + u.name
		}
	}
	return figure(x/1e3) + " kB"
}
