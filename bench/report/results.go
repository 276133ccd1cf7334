package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// results has the values of benchmarks by name, without "Benchmark", and by unit.
type results map[string]map[string][]float64

var processors = regexp.MustCompile(`-\d+$`)

// read adds the results in the output of "go test".
func (r results) read(out io.Reader) error {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		if r[name] == nil {
			r[name] = map[string][]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%q: %w", lines.Text(), err)
			}
			r[name][fields[i+1]] = append(r[name][fields[i+1]], value)
		}
	}
	return lines.Err()
}

func (r results) median(name, unit string) (float64, error) {
	values := slices.Sorted(slices.Values(r[name][unit]))
	if len(values) == 0 {
		return 0, fmt.Errorf("no benchmark %s with %s has run", name, unit)
	}
	return values[len(values)/2], nil
}

// metric returns the median of a metric that is not a time.
func (r results) metric(name, unit string) (string, error) {
	value, err := r.median(name, unit)
	return figure(value), err
}

// figure formats a number below 10 with two significant digits, and any other number without decimals.
func figure(x float64) string {
	switch {
	case x >= 10_000:
		s := strconv.Itoa(int(x+50) / 100 * 100)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}

func duration(ns float64) string {
	switch d := time.Duration(ns); {
	case d < time.Microsecond:
		return figure(ns) + " ns"
	case d < time.Millisecond:
		return figure(ns/1e3) + " µs"
	case d < time.Second:
		return figure(ns/1e6) + " ms"
	}
	return figure(ns/1e9) + " s"
}
