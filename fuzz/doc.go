// Package fuzz is the test kit of patchlog: a plain model of the fold, a generator of session logs,
// and the comparison of the model with another fold.
//
// [Reference] folds and judges as the semantics say it, slowly and without cleverness, and shares no
// code with package fold. Each rule has a file, which is the place to read what it means:
//
//	reference.go  nodes, runs and state: what each type of patch does (section 3)
//	judge.go      what a store must refuse, and in which order (sections 4 and 5)
//	orphans.go    how calls and responses pair, and what a patch would break of that (section 4)
//	suggest.go    the nearest span that passes (section 4)
//	revert.go     taking back patches and groups, and what is in the way (section 9)
//	pins.go       which events are pinned (section 9)
//	rewind.go     taking a session back to before an invocation (section 9)
//	history.go    what people see: summaries with what they stand for
//	erase.go      what an erasure covers (section 10)
//
// [Records] generates logs that look like agents' sessions, with patches of every kind, well-formed
// and not. [Check] folds a log with the model and with another fold and returns the first
// difference. So a program tests its own fold by
//
//	rapid.Check(t, func(t *rapid.T) {
//		records := fuzz.Records(fuzz.Options{}).Draw(t, "records")
//		if err := fuzz.Check(records, nil, myFold); err != nil {
//			t.Fatal(err)
//		}
//	})
package fuzz
