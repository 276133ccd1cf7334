package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
)

var exampleKey = store.Key{App: "shop", User: "ada", Session: "s1"}

// exampleStore returns a store in memory with a session of four events.
func exampleStore() *store.Store {
	s, err := store.OpenMemory(store.Options{Now: func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC) }})
	check(err)
	check(s.Create(context.Background(), exampleKey, map[string]any{"currency": "EUR"}, store.CreateOptions{}))
	for i, text := range []string{"hello", "hi, what can I do?", "a red bicycle, please", "I found three"} {
		e, err := patch.NewEvent(patch.Fields{
			ID:      fmt.Sprint("e", i+1),
			Author:  []string{"ada", "agent"}[i%2],
			Content: patch.Text("user", text),
			Actions: patch.Actions{StateDelta: map[string]any{"turn": i + 1}},
		})
		check(err)
		check(s.AppendEvents(context.Background(), exampleKey, []*patch.Event{e}, store.AppendOptions{}))
	}
	return s
}

// check ends the program if the last result of a call is an error.
func check(results ...any) {
	if err, failed := results[len(results)-1].(error); failed {
		log.Fatal(err)
	}
}

func printVisible(v interface{ Len() int }, at func(i int) *patch.Event) {
	for i := range v.Len() {
		e := at(i)
		for _, part := range e.Content().Parts() {
			fmt.Printf("%s: %s\n", e.ID(), part.Text)
		}
	}
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "patchlog")
	check(err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "sessions.db")

	s, err := store.Open(path, store.Options{})
	check(err)
	_, err = s.Create(context.Background(), exampleKey, nil, store.CreateOptions{})
	fmt.Println("created:", err == nil)

	// Only one store may have the file open for writing.
	_, err = store.Open(path, store.Options{LockTimeout: time.Millisecond})
	fmt.Println("locked:", errors.Is(err, store.ErrLocked))

	check(s.Close())
	// Output:
	// created: true
	// locked: true
}

func ExampleStore_Create() {
	s, err := store.OpenMemory(store.Options{})
	check(err)
	defer s.Close()
	session, err := s.Create(context.Background(), exampleKey, map[string]any{"currency": "EUR", "app:motd": "sale!", "temp:draft": 1}, store.CreateOptions{})
	check(err)
	fmt.Println(session.State())

	_, err = s.Create(context.Background(), exampleKey, nil, store.CreateOptions{})
	fmt.Println(err)
	// Output:
	// map[app:motd:sale! currency:EUR]
	// session shop/ada/s1: session exists
}

func ExampleStore_Get() {
	s := exampleStore()
	defer s.Close()
	session, err := s.Get(context.Background(), exampleKey)
	check(err)
	fmt.Println(session.State())
	for i := session.View.Len() - 2; i < session.View.Len(); i++ {
		fmt.Println(i, session.View.At(i).ID(), session.View.At(i).Author())
	}
	// Output:
	// map[currency:EUR turn:4]
	// 2 e3 ada
	// 3 e4 agent
}

func ExampleStore_AppendEvents() {
	s := exampleStore()
	defer s.Close()
	e, err := patch.NewEvent(patch.Fields{ID: "e5", Author: "ada", Content: patch.Text("user", "the second one")})
	check(err)
	// The second call is a retry and writes nothing.
	for range 2 {
		c, err := s.AppendEvents(context.Background(), exampleKey, []*patch.Event{e}, store.AppendOptions{})
		check(err)
		fmt.Println("record", c.Records[0].Seq, "of", c.View.Seq())
	}
	// Output:
	// record 5 of 5
	// record 5 of 5
}

func ExampleStore_ApplyPatch() {
	s := exampleStore()
	defer s.Close()
	seen, err := s.Get(context.Background(), exampleKey)
	check(err)
	summary, err := patch.NewEvent(patch.Fields{ID: "s1", Author: "summariser", Content: patch.Text("user", "They greeted.")})
	check(err)
	c, err := s.ApplyPatch(context.Background(), exampleKey, []*patch.PatchEvent{patch.NewSummarise(0, 2, summary)}, store.PatchOptions{On: seen.View})
	check(err)
	printVisible(c.View, c.View.At)

	// If the caller has not seen that patch, the next patch conflicts with it.
	_, err = s.ApplyPatch(context.Background(), exampleKey, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{On: seen.View})
	var conflict *fold.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println("conflict with record", conflict.Newest)
	}
	// Output:
	// s1: They greeted.
	// e3: a red bicycle, please
	// e4: I found three
	// conflict with record 5
}

func ExampleStore_Preview() {
	s := exampleStore()
	defer s.Close()
	p, err := s.Preview(context.Background(), exampleKey, []*patch.PatchEvent{patch.NewTruncateBefore("e3")}, store.PatchOptions{AsOfNow: true})
	check(err)
	fmt.Println("would remove", len(p.Removed), "events and leave", p.After.Len())
	session, err := s.Get(context.Background(), exampleKey)
	check(err)
	fmt.Println("there are", session.View.Len())
	// Output:
	// would remove 2 events and leave 2
	// there are 4
}

func ExampleStore_Revert() {
	ctx, s := context.Background(), exampleStore()
	defer s.Close()
	cut, err := s.ApplyPatch(ctx, exampleKey, []*patch.PatchEvent{patch.NewSplice(0, 3).WithID("p1")}, store.PatchOptions{AsOfNow: true})
	check(err)
	fmt.Println(cut.View.Len(), cut.View.State())
	back, err := s.Revert(ctx, exampleKey, "p1", store.UndoOptions{On: cut.View})
	check(err)
	fmt.Println(back.View.Len(), back.View.State())

	// Only an active patch can be reverted.
	_, err = s.Revert(ctx, exampleKey, "p1", store.UndoOptions{})
	fmt.Println(errors.Is(err, fold.ErrBlocked))
	// Output:
	// 1 map[currency:EUR turn:4]
	// 4 map[currency:EUR turn:4]
	// true
}

func ExampleStore_Rewind() {
	ctx, s := context.Background(), exampleStore()
	defer s.Close()
	for _, text := range []string{"a blue one", "I found two"} {
		e, err := patch.NewEvent(patch.Fields{InvocationID: "inv2", Content: patch.Text("user", text)})
		check(err)
		check(s.AppendEvents(ctx, exampleKey, []*patch.Event{e}, store.AppendOptions{}))
	}
	would, err := s.Rewind(ctx, exampleKey, "inv2", store.UndoOptions{DryRun: true})
	check(err)
	fmt.Println("would remove", len(would.Before.Diff(would.View).Removed), "events")
	c, err := s.Rewind(ctx, exampleKey, "inv2", store.UndoOptions{On: would.Before})
	check(err)
	printVisible(c.View, c.View.At)
	// Output:
	// would remove 2 events
	// e1: hello
	// e2: hi, what can I do?
	// e3: a red bicycle, please
	// e4: I found three
}

func ExampleStore_Fork() {
	ctx, s := context.Background(), exampleStore()
	defer s.Close()
	two := uint64(2)
	fork, err := s.Fork(ctx, exampleKey, store.Key{App: "shop", User: "ada", Session: "what if"}, store.ForkOptions{At: &two})
	check(err)
	printVisible(fork.View, fork.View.At)
	fmt.Println(fork.State())
	// Output:
	// e1: hello
	// e2: hi, what can I do?
	// map[currency:EUR turn:2]
}

func ExampleStore_ViewAt() {
	s := exampleStore()
	defer s.Close()
	check(s.ApplyPatch(context.Background(), exampleKey, []*patch.PatchEvent{patch.NewSplice(0, 3)}, store.PatchOptions{AsOfNow: true}))
	v, err := s.ViewAt(context.Background(), exampleKey, 2)
	check(err)
	printVisible(v, v.At)
	fmt.Println(v.State())
	// Output:
	// e1: hello
	// e2: hi, what can I do?
	// map[currency:EUR turn:2]
}

func ExampleStore_RawEvents() {
	s := exampleStore()
	defer s.Close()
	check(s.ApplyPatch(context.Background(), exampleKey, []*patch.PatchEvent{patch.NewSplice(0, 3).WithID("p1")}, store.PatchOptions{AsOfNow: true}))
	for r, err := range s.RawEvents(context.Background(), exampleKey, 3) {
		check(err)
		fmt.Println(r.Seq, r.ID(), r.Patch != nil)
	}
	// Output:
	// 3 e3 false
	// 4 e4 false
	// 5 p1 true
}

func ExampleStore_List() {
	s := exampleStore()
	defer s.Close()
	for _, key := range []store.Key{{App: "shop", User: "bob", Session: "s1"}, {App: "help", User: "ada", Session: "s1"}} {
		check(s.Create(context.Background(), key, nil, store.CreateOptions{}))
	}
	for info, err := range s.List(context.Background(), store.ListOptions{App: "shop"}) {
		check(err)
		fmt.Println(info.Key, info.Seq)
	}
	// Output:
	// shop/ada/s1 4
	// shop/bob/s1 0
}

func ExampleStore_Import() {
	s, err := store.OpenMemory(store.Options{})
	check(err)
	defer s.Close()
	const text = `{"patchlog":1,"initialState":{"currency":"EUR"}}
{"id":"e1","author":"ada"}
{"id":"e2","author":"agent"}
{"id":"p1","patchType":"splice","start":0,"count":1}
`
	for range 2 {
		done, err := s.Import(context.Background(), exampleKey, strings.NewReader(text), store.ImportOptions{Name: "s1.jsonl"})
		check(err)
		fmt.Println(done.Added, "added,", done.Present, "there already,", done.View.Len(), "visible")
	}
	_, err = s.Import(context.Background(), exampleKey, strings.NewReader(`{"id":"a"}`+"\nhello\n"), store.ImportOptions{Name: "broken.jsonl"})
	var line *patch.LineError
	if errors.As(err, &line) {
		fmt.Println(line.File, line.Line)
	}
	// Output:
	// 3 added, 0 there already, 1 visible
	// 0 added, 3 there already, 1 visible
	// broken.jsonl 2
}

func ExampleStore_Export() {
	s := exampleStore()
	defer s.Close()
	check(s.ApplyPatch(context.Background(), exampleKey, []*patch.PatchEvent{patch.NewTruncateBefore("e4").WithID("p1")}, store.PatchOptions{AsOfNow: true}))
	var whole, visible bytes.Buffer
	check(s.Export(context.Background(), exampleKey, &whole, store.ExportOptions{}))
	check(s.Export(context.Background(), exampleKey, &visible, store.ExportOptions{Visible: true}))
	fmt.Println(strings.Count(whole.String(), "\n"), "lines")
	fmt.Print(visible.String())
	// Output:
	// 6 lines
	// {"id":"e4","author":"agent","timestamp":"2025-01-02T03:04:05Z","content":{"parts":[{"text":"I found three"}],"role":"user"},"actions":{"stateDelta":{"turn":4}}}
}

func ExampleStore_Verify() {
	s := exampleStore()
	defer s.Close()
	problems := 0
	for p, err := range s.Verify(context.Background(), store.VerifyOptions{}) {
		check(err)
		fmt.Println(p)
		problems++
	}
	fmt.Println(problems, "problems")
	// Output: 0 problems
}

func ExampleSalvage() {
	dir, err := os.MkdirTemp("", "salvage")
	check(err)
	defer os.RemoveAll(dir)
	ctx := context.Background()
	path := filepath.Join(dir, "log.db")
	old, err := store.Open(path, store.Options{})
	check(err)
	check(old.Create(ctx, exampleKey, map[string]any{"currency": "EUR"}, store.CreateOptions{}))
	check(old.Close())
	data, err := os.ReadFile(path)
	check(err)
	clear(data[:8192]) // the two pages that name the last commit

	s, err := store.Open(filepath.Join(dir, "salvaged.db"), store.Options{})
	check(err)
	defer s.Close()
	found, err := store.Salvage(ctx, io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))), s, store.SalvageOptions{})
	check(err)
	for _, session := range found.Sessions {
		fmt.Println(session.Key, session.Whole)
	}
	// Output: shop/ada/s1 true
}

func ExampleNew() {
	s, err := store.New(&memory.Backend{}, store.Options{})
	check(err)
	defer s.Close()
	then := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	check(s.Create(context.Background(), exampleKey, map[string]any{"currency": "EUR", "user:name": "Ada"}, store.CreateOptions{Created: then}))
	info, err := s.Info(context.Background(), exampleKey)
	fmt.Println(info.Created, err)
	start, err := s.ViewAt(context.Background(), exampleKey, 0) // the initial state, without keys of shared scopes
	fmt.Println(start.State(), err)
	// Output:
	// 2024-05-06 07:08:09 +0000 UTC <nil>
	// map[currency:EUR] <nil>
}

func ExampleParseKey() {
	key, err := store.ParseKey("shop/ada/s1")
	fmt.Println(key == exampleKey, err)
	// Output: true <nil>
}

// A revert of one patch reverts all patches of its group.
func ExampleStore_Revert_dryRun() {
	ctx, s := context.Background(), exampleStore()
	defer s.Close()
	first, last := patch.NewSplice(0, 1).WithID("p1").WithGroup("tidy"), patch.NewSplice(2, 1).WithID("p2").WithGroup("tidy")
	check(s.ApplyPatch(ctx, exampleKey, []*patch.PatchEvent{first, last}, store.PatchOptions{AsOfNow: true}))
	would, err := s.Revert(ctx, exampleKey, "p1", store.UndoOptions{DryRun: true})
	check(err)
	fmt.Println(len(would.Records), "reverts would bring", len(would.Before.Diff(would.View).Added), "events back")
	done, err := s.Revert(ctx, exampleKey, "p1", store.UndoOptions{On: would.Before})
	check(err)
	fmt.Println(done.View.Len(), "events;", len(done.Records), "records")
	// Output:
	// 2 reverts would bring 2 events back
	// 4 events; 2 records
}

// The model sees the summary. People see the events that it covers.
func ExampleStore_History() {
	ctx, s := context.Background(), exampleStore()
	defer s.Close()
	summary, err := patch.NewEvent(patch.Fields{ID: "s1", Content: map[string]any{"parts": []any{map[string]any{"text": "They met."}}}})
	check(err)
	done, err := s.ApplyPatch(ctx, exampleKey, []*patch.PatchEvent{patch.NewSummarise(0, 2, summary)}, store.PatchOptions{AsOfNow: true})
	check(err)
	history, err := s.History(ctx, exampleKey, done.View)
	check(err)
	for _, e := range history {
		fmt.Print(e.Event.ID(), " ")
	}
	fmt.Println("and not", done.View.At(0).ID())
	// Output: e1 e2 e3 e4 and not s1
}

// Reading a page takes time linear in the length of the page, wherever the page is in the session.
func ExampleStore_HistoryPage() {
	ctx, s := context.Background(), exampleStore()
	defer s.Close()
	v, err := s.View(ctx, exampleKey)
	check(err)
	for before := ""; ; {
		page, err := s.HistoryPage(ctx, exampleKey, v, before, 3)
		check(err)
		if len(page) == 0 {
			break
		}
		before = page[0].Event.ID()
		fmt.Println(len(page), "events from", before)
	}
	_, err = s.HistoryPage(ctx, exampleKey, v, "e9", 3)
	fmt.Println(err)
	// Output:
	// 3 events from e2
	// 1 events from e1
	// event not found: the history has no event "e9"
}

// Read an exported log before opening the store, so that errors in the text are found while the store's file is not
// locked.
func ExampleReadText() {
	ctx := context.Background()
	text, err := store.ReadText(ctx, strings.NewReader(`{"id":"e1","author":"ada"}`), store.ImportOptions{})
	check(err)
	s, err := store.OpenMemory(store.Options{})
	check(err)
	defer s.Close()
	done, err := text.Import(ctx, s, exampleKey)
	fmt.Println(done.Added, done.Created, err)
	// Output: 1 true <nil>
}

// A lease prevents two processes from doing the same work.
func ExampleStore_Lease() {
	ctx, s := context.Background(), exampleStore()
	defer s.Close()
	held, err := s.Lease(ctx, exampleKey, "report", time.Minute)
	check(err)
	if held {
		fmt.Println("writing the report")
		_, err = s.Lease(ctx, exampleKey, "report", 0)
	}
	fmt.Println(err)
	// Output:
	// writing the report
	// <nil>
}

func ExampleStore_CopyFrom() {
	ctx := context.Background()
	from := exampleStore()
	defer from.Close()
	to, err := store.OpenMemory(store.Options{})
	check(err)
	defer to.Close()
	for range 2 { // the second copy adds nothing
		done, err := to.CopyFrom(ctx, exampleKey, from, store.CopyOptions{})
		check(err)
		fmt.Println(done.Created, done.Added, done.Present)
	}
	// Copy the shared values too, including those of users without a session.
	done, err := to.CopyFrom(ctx, store.Key{}, from, store.CopyOptions{})
	check(err)
	fmt.Println(done.Shared, "shared values")
	// Output:
	// true 4 0
	// false 0 4
	// 0 shared values
}

func ExampleStore_Records() {
	ctx := context.Background()
	s := exampleStore()
	defer s.Close()
	v, err := s.View(ctx, exampleKey)
	check(err)
	for r, err := range s.Records(ctx, exampleKey, v, []uint64{1, 3}) {
		fmt.Println(r.Seq, r.Event.Author(), err)
	}
	// Output:
	// 1 ada <nil>
	// 3 ada <nil>
}

// The loop yields the existing records, then each new record until the loop ends.
func ExampleStore_Watch() {
	ctx := context.Background()
	s := exampleStore()
	defer s.Close()
	for r, err := range s.Watch(ctx, exampleKey, 4) {
		if err != nil {
			log.Print(err) // the error may be temporary; if not, the loop ends
			continue
		}
		fmt.Println(r.Seq, r.Event.Author())
		if r.Seq == 5 {
			break
		}
		// The body may write. Other goroutines may write at any time.
		e, err := patch.NewEvent(patch.Fields{Author: "watcher"})
		if err == nil {
			_, err = s.AppendEvents(ctx, exampleKey, []*patch.Event{e}, store.AppendOptions{})
		}
		check(err)
	}
	// Output:
	// 4 agent
	// 5 watcher
}

// A backup is a file that Open can open. Other goroutines may use the store during the backup.
func ExampleStore_Backup() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "patchlog")
	check(err)
	defer os.RemoveAll(dir)
	s, err := store.Open(filepath.Join(dir, "log.db"), store.Options{})
	check(err)
	defer s.Close()
	check(s.Create(ctx, exampleKey, nil, store.CreateOptions{}))
	file, err := os.Create(filepath.Join(dir, "backup.db"))
	check(err)
	check(errors.Join(s.Backup(ctx, file), file.Sync(), file.Close()))
	saved, err := store.Open(file.Name(), store.Options{ReadOnly: true})
	check(err)
	defer saved.Close()
	info, err := saved.Info(ctx, exampleKey)
	fmt.Println(info.Key, err)
	// Output: shop/ada/s1 <nil>
}

func ExampleStore_Vacuum() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "patchlog")
	check(err)
	defer os.RemoveAll(dir)
	s, err := store.Open(filepath.Join(dir, "log.db"), store.Options{})
	check(err)
	defer s.Close()
	note := map[string]any{"note": strings.Repeat("long ", 100_000)}
	check(s.Create(ctx, exampleKey, note, store.CreateOptions{}))
	check(s.Delete(ctx, exampleKey))
	before, err := s.Vacuum(ctx, store.VacuumOptions{DryRun: true})
	check(err)
	after, err := s.Vacuum(ctx, store.VacuumOptions{})
	fmt.Println(before.Free > 500_000, after.File < 100_000, err)
	// Output: true true <nil>
}

func ExampleStore_Erase() {
	s := exampleStore()
	defer s.Close()
	ctx := context.Background()
	selection := store.EraseSelection{Match: "bicycle"}
	opts := store.EraseOptions{Author: "privacy@example.com", Reason: "request 812"}
	dry := opts
	dry.DryRun = true
	plan, err := s.Erase(ctx, exampleKey, selection, dry)
	check(err)
	fmt.Println(len(plan.Sessions[0].Events), "event would go:", plan.Sessions[0].Events[0].ID)
	done, err := s.Erase(ctx, exampleKey, selection, opts)
	check(err)
	v, err := s.View(ctx, exampleKey)
	check(err)
	fmt.Println(v.At(2).Content())
	receipt := done.Sessions[0].Receipt.Patch
	of, _ := receipt.Erasure()
	fmt.Println(receipt.Author(), of.Reason, of.Seqs)
	// Output:
	// 1 event would go: e3
	// {"parts":[{"text":"[erased]"}],"role":"user"}
	// privacy@example.com request 812 [{3 3}]
}

func ExampleStore_EraseUser() {
	s := exampleStore()
	defer s.Close()
	ctx := context.Background()
	opts := store.EraseOptions{ID: "request 813", Reason: "the account is closed"} // after a crash, a call with the same id continues the erase
	dry := opts
	dry.DryRun = true
	plan, err := s.EraseUser(ctx, "shop", "ada", dry)
	check(err)
	done, err := s.EraseUser(ctx, "shop", "ada", opts)
	check(err)
	fmt.Println(len(plan.Sessions[0].Events), len(done.Sessions[0].Events))
	session, err := s.Get(ctx, exampleKey)
	check(err)
	fmt.Println(session.State())
	// Output:
	// 4 4
	// map[currency:<nil> turn:<nil>]
}

func ExampleStore_Retain() {
	s := exampleStore()
	defer s.Close()
	policies := map[string]store.Retention{"shop": {DeleteAfter: 90 * 24 * time.Hour, KeepPinned: true}}
	created := time.Date(2024, 8, 1, 0, 0, 0, 0, time.UTC)
	if _, err := s.Create(context.Background(), store.Key{App: "shop", User: "bob", Session: "s0"}, nil, store.CreateOptions{Created: created}); err != nil {
		fmt.Println(err)
		return
	}
	for r, err := range s.Retain(context.Background(), policies, store.RetainOptions{DryRun: true}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Key, r.Used.Format(time.DateOnly), r.Deleted)
	}
	// Output:
	// shop/bob/s0 2024-08-01 true
}

func ExampleOpenMemory() {
	s, err := store.OpenMemory(store.Options{})
	check(err)
	defer s.Close()
	_, err = s.Get(context.Background(), exampleKey)
	fmt.Println(err)
	// Output: session shop/ada/s1: not found
}

func ExampleStore_View() {
	s := exampleStore()
	defer s.Close()
	v, err := s.View(context.Background(), exampleKey)
	fmt.Println(v.Len(), "visible events,", v.Seq(), "records", err)
	// Output: 4 visible events, 4 records <nil>
}

func ExampleStore_Info() {
	s := exampleStore()
	defer s.Close()
	info, err := s.Info(context.Background(), store.Key{App: "shop", User: "ada", Session: "s1"})
	fmt.Println(info.Key, info.Seq, err)
	_, err = s.Info(context.Background(), store.Key{App: "shop", User: "ada", Session: "s2"})
	fmt.Println(errors.Is(err, store.ErrNotFound))
	// Output:
	// shop/ada/s1 4 <nil>
	// true
}

func ExampleStore_Delete() {
	s := exampleStore()
	defer s.Close()
	check(s.Delete(context.Background(), exampleKey))
	_, err := s.Get(context.Background(), exampleKey)
	fmt.Println(errors.Is(err, store.ErrNotFound))
	// Output: true
}
