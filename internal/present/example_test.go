package present_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

const lamp = `{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"a lamp, please"}]}}
{"id":"e2","author":"shop","content":{"role":"model","parts":[{"text":"brass or glass?"}]}}
{"id":"p1","patchType":"summarise","start":0,"count":2,"summaryEvent":{"id":"s1","author":"user","content":{"role":"user","parts":[{"text":"Ada wants a lamp."}]}}}
`

// lampStore returns a store in memory with a session of two events and a summary.
func lampStore(key store.Key) *store.Store {
	s, err := store.OpenMemory(store.Options{Now: func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC) }})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Import(context.Background(), key, strings.NewReader(lamp), store.ImportOptions{}); err != nil {
		log.Fatal(err)
	}
	return s
}

func ExampleMeasure() {
	key := store.Key{App: "shop", User: "ada", Session: "4711"}
	s := lampStore(key)
	defer s.Close()

	stats, err := present.Measure(context.Background(), s, key, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range stats.Rows() {
		fmt.Printf("%-17s  %s\n", row.Name, row.Text)
	}
	// Output:
	// session            shop/ada/4711
	// created            2025-01-02T03:04:05Z
	// records            3
	//   summaries        1
	// skipped patches    0
	// visible events     1
	// bytes              128 of 510 visible (25 %)
	// tokens, about      5 of 8 visible (62 %)
	// state keys         0
	// prompt             about 5 tokens, estimated
	// compactions        0
	// visible summaries  1: 1 of level 1
}

func ExampleEffectOf() {
	key := store.Key{App: "shop", User: "ada", Session: "4711"}
	s := lampStore(key)
	defer s.Close()

	before := fold.New("", nil)
	for r, err := range s.RawEvents(context.Background(), key, 1) {
		if err != nil {
			log.Fatal(err)
		}
		after, err := before.Apply(r)
		if err != nil {
			log.Fatal(err)
		}
		effect, err := present.EffectOf(before, after, r)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Seq, present.KindOfRecord(r), r.ID())
		for _, note := range effect.Notes() {
			fmt.Println("  " + note.Text)
		}
		before = after
	}
	// Output:
	// 1 user e1
	// 2 model e2
	// 3 patch p1
	//   hid 2 visible events: index 0 to 1
	//   added at index 0, id s1: summary: Ada wants a lamp.
}
