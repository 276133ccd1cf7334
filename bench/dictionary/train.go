package main

import (
	"cmp"
	_ "embed"
	"math"
	"slices"
	"strings"
)

// session is the bodies of one session's records, as version 1 of a record has them.
type session struct {
	family string   // whose sessions are alike
	forms  [][]byte // of the records, plain
	bodies [][]byte // of the forms
	json   int      // bytes of the records' JSON lines
}

const (
	gram    = 8   // bytes: what has to come again to be worth a place
	segment = 128 // bytes that are taken at a time
	often   = 4   // a gram that a session has more often counts as so often
)

// general is text that agents' sessions have in general: names of JSON fields, and how tools,
// code and people talk. It is in every dictionary, without its line ends.
//
//go:embed general.txt
var general string

// train returns a dictionary of size bytes, made from sessions: the general text, and the stretches of bodies that have
// most of what comes again elsewhere, the best one last. What one of them has does not count
// for those that are picked after it.
func train(size int, sessions []session) []byte {
	text := []byte(strings.ReplaceAll(general, "\n", ""))
	worth := worths(sessions)
	spend(worth, text)
	type candidate struct {
		body  []byte
		value int // of its best part, or more: it only falls
	}
	var left []candidate // by value, the best last
	for _, s := range sessions {
		for _, body := range s.bodies {
			left = append(left, candidate{body, math.MaxInt})
		}
	}
	var picked [][]byte
	for room := size - len(text); room >= gram && len(left) > 0; {
		last := len(left) - 1
		part, value := bestPart(left[last].body, min(segment, room), worth)
		left[last].value = value
		switch {
		case value == 0:
			left = left[:last]
		case last > 0 && left[last-1].value > value:
			slices.SortStableFunc(left, func(a, b candidate) int { return cmp.Compare(a.value, b.value) })
		default:
			picked = append(picked, part)
			room -= len(part)
			spend(worth, part)
		}
	}
	slices.Reverse(picked)
	return append(text, slices.Concat(picked...)...)
}

// worths says how much it saves to have a gram at hand: for all that come twice, how often they
// do, times in how many sessions.
func worths(sessions []session) map[[gram]byte]int {
	type sum struct{ times, sessions int }
	sums := map[[gram]byte]sum{}
	for _, s := range sessions {
		times := map[[gram]byte]int{}
		for _, body := range s.bodies {
			for g := range grams(body) {
				times[g]++
			}
		}
		for g, n := range times {
			sums[g] = sum{sums[g].times + min(n, often), sums[g].sessions + 1}
		}
	}
	worth := map[[gram]byte]int{}
	for g, s := range sums {
		if s.times > 1 {
			worth[g] = s.times * s.sessions
		}
	}
	return worth
}

func spend(worth map[[gram]byte]int, text []byte) {
	for g := range grams(text) {
		delete(worth, g)
	}
}

func grams(text []byte) func(func([gram]byte) bool) {
	return func(yield func([gram]byte) bool) {
		for i := 0; i+gram <= len(text) && yield([gram]byte(text[i:])); i++ {
		}
	}
}

// bestPart returns the part of a body, of at most n bytes, whose grams are worth most.
func bestPart(body []byte, n int, worth map[[gram]byte]int) (part []byte, value int) {
	within := map[[gram]byte]int{} // how often each is in the part that is looked at
	sum := 0
	for end := gram; end <= len(body); end++ {
		in := [gram]byte(body[end-gram:])
		if within[in]++; within[in] == 1 {
			sum += worth[in]
		}
		from := end - n
		if from > 0 {
			out := [gram]byte(body[from-1:])
			if within[out]--; within[out] == 0 {
				sum -= worth[out]
			}
		}
		if sum > value {
			part, value = body[max(from, 0):end], sum
		}
	}
	return part, value
}
