// Package fuzz tests implementations of the fold. It has a plain reference model of the fold, generators of
// logs, and a comparison of the model with another fold.
//
// [Reference] is written from docs/SEMANTICS.md. It is slow and simple, and shares no code with package fold.
// Each part has a file:
//
//	reference.go  nodes, runs and state: the effect of each patch type
//	judge.go      which patches are refused, in which order of checks, and the span suggested instead
//	orphans.go    pairing of calls and responses, and the pairs that a patch would break
//	revert.go     reverts of patches and groups, and the patches that block them
//	pins.go       pinned events
//	rewind.go     rewinds to before an invocation
//	history.go    the log with the events behind its summaries
//	erase.go      the records that an erasure covers
//
// [Records] generates logs of agents' sessions, with well-formed and malformed patches of every type. [Check]
// folds a log with the model and with another fold, and returns the first difference. A program tests its own
// fold as follows:
//
//	rapid.Check(t, func(t *rapid.T) {
//		records := fuzz.Records(fuzz.Options{}).Draw(t, "records")
//		if err := fuzz.Check(records, nil, myFold); err != nil {
//			t.Fatal(err)
//		}
//	})
package fuzz
