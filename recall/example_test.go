package recall_test

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// memoryLog is a [recall.Log] of sessions in memory.
type memoryLog map[string][]patch.Record

func (l memoryLog) View(_ context.Context, key string) (v fold.View, err error) {
	v = fold.New(key, nil)
	for _, r := range l[key] {
		if v, err = v.Apply(r); err != nil {
			break
		}
	}
	return v, err
}

func (l memoryLog) Records(_ context.Context, key string, _ fold.View, seqs []uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for _, seq := range seqs {
			if !yield(l[key][seq-1], nil) {
				return
			}
		}
	}
}

func ExampleFinder() {
	log := memoryLog{}
	for i, text := range []string{"I want to visit Lisbon.", "When do you travel?", "In spring. I took the night train last time."} {
		e, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", text)})
		if err != nil {
			fmt.Println(err)
			return
		}
		log["trip"] = append(log["trip"], patch.Record{Seq: uint64(i + 1), Event: e})
	}
	finder := recall.NewFinder(log, 0)
	hits, err := finder.Search(context.Background(), "trip", recall.Search{Query: "taking trains", Limit: 1})
	for _, h := range hits {
		fmt.Printf("record %d, visible at %d: %s\n", h.Seq, h.Place.Index, h.Snippet.Text)
	}
	fmt.Println(err)
	// Output:
	// record 3, visible at 2: In spring. I took the night train last time.
	// <nil>
}

// An agent logs a long tool result whole, but the model sees the shortened result.
func ExampleShortener() {
	long := patch.Record{Seq: 1, Event: exampleResult(strings.Repeat("line of a log\n", 1000))}
	v, _ := fold.New("s", nil).Apply(long)
	follow := recall.Shortener(500, func() string { return "short" }, func(r patch.Record) string { return fmt.Sprint(r.Seq) })
	p, err := follow(v, long) // a program sets this function as store.AppendOptions.Follow
	fmt.Println(p.Author(), p.Type(), err)
	// Output: recall splice <nil>
}

func exampleResult(text string) *patch.Event {
	e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":"e","content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"result":%q}}}]}}`, text))
	if err != nil {
		panic(err)
	}
	return e
}
