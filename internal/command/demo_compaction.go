package command

import (
	"bytes"
	_ "embed"
)

//go:embed demo/booking.jsonl
var demoBooking []byte

const demoBookingKey = "airline/mia_li/booking"

// demoBookingBegins is the number of events of the first five invocations of the booking.
const demoBookingBegins = 22

// demoCompaction is the demo's second part: a session that grows, and is compacted. The
// summaries are made offline, so that they are the same each time.
func demoCompaction() []demoStep {
	first := demoBooking[:bytesOfLines(demoBooking, demoBookingBegins)]
	compact := []string{"compact", demoBookingKey, "--summarizer", extractive, "--max-summary-tokens", "300"}
	return []demoStep{{
		name: "booking",
		text: `Nobody has to write patches by hand. Another customer books a flight; this is her session
after five turns.`,
		args:  []string{"import", demoBookingKey, "-"},
		stdin: first,
		shell: "head -n 22 booking.jsonl | patchlog import " + demoBookingKey + " -",
	}, {
		name: "plan",
		text: `Compaction is due after every five turns, unless told otherwise. This is what it would do:`,
		args: []string{"compact", demoBookingKey, "--dry-run"},
	}, {
		name: "compact",
		text: `So let it. Here sentences are picked offline, and only as many as take 300 tokens; with an
API key, Gemini writes the summary.`,
		args: compact,
	}, {
		name: "booking goes on",
		text: `The session goes on for five more turns, as if nothing had happened: importing adds what
is new. The model sees the summary and what came since.`,
		args:  []string{"import", demoBookingKey, "-"},
		stdin: demoBooking,
		shell: "patchlog import " + demoBookingKey + " - < booking.jsonl",
	}, {
		name: "compact again",
		text: `Compaction is due again. The summary that is there already is left as it is, so that what
was said early is not retold each time; only when four stand side by side, they are merged.`,
		args: compact,
	}, {
		name: "end",
		text: `What the model sees now:`,
		args: []string{"log", demoBookingKey},
	}}
}

// bytesOfLines returns how many bytes the first n lines of a text take.
func bytesOfLines(text []byte, n int) int {
	at := 0
	for range n {
		at += bytes.IndexByte(text[at:], '\n') + 1
	}
	return at
}
