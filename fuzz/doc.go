// Package fuzz is the test kit of patchlog: a plain model of the fold, a generator of
// session logs, and the comparison of the two with a fold that is in use.
//
// [Reference] folds and judges as the semantics say it, sentence by sentence, slowly
// and without cleverness. [Records] generates logs that look like agents' sessions,
// with patches of every kind, well-formed and not. [Check] folds a log with the model
// and with another fold and says the first difference. So a program that stores or
// folds logs in its own way fuzzes it by
//
//	rapid.Check(t, func(t *rapid.T) {
//		records := fuzz.Records(fuzz.Options{}).Draw(t, "records")
//		if err := fuzz.Check(records, nil, myFold); err != nil {
//			t.Fatal(err)
//		}
//	})
package fuzz
