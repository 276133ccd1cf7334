// Package fuzz tests implementations of the fold: it has a plain reference model of the fold, a generator
// of logs, and a comparison of the model with another fold.
//
// [Reference] is written from docs/SEMANTICS.md. It is slow, simple, and shares no code with package fold.
// Each rule has a file:
//
//	reference.go  nodes, runs and state: what each type of patch does
//	judge.go      refusals of patches, their order, and the smallest span that passes
//	orphans.go    pairing of calls and responses; pairs that a patch would break
//	revert.go     reverts of patches and groups, and the patches that block them
//	pins.go       pinned events
//	rewind.go     rewinds to before an invocation
//	history.go    the log as people see it, with the events behind summaries
//	erase.go      the records that an erasure covers
//
// [Records] generates logs of agents' sessions with patches of every type, well-formed and malformed.
// [Check] folds a log with the model and with another fold, and returns the first difference. A program
// tests its own fold as follows:
//
//	rapid.Check(t, func(t *rapid.T) {
//		records := fuzz.Records(fuzz.Options{}).Draw(t, "records")
//		if err := fuzz.Check(records, nil, myFold); err != nil {
//			t.Fatal(err)
//		}
//	})
package fuzz
