package adk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// compactedChat is a session of four turns in memory, in a service with the options.
func compactedChat(opts adk.Options) (*adk.Service, session.Session) {
	ctx := context.Background()
	db, err := store.OpenMemory(store.Options{})
	check(err)
	sessions, err := adk.NewService(db, opts)
	check(err)
	r, err := sessions.Create(ctx, &session.CreateRequest{AppName: "shop", UserID: "ann", SessionID: "chat"})
	check(err)
	for i := range 8 {
		e := session.NewEvent(ctx, fmt.Sprint("turn", i/2))
		e.Author = []string{"user", "clerk"}[i%2]
		e.Content = genai.NewContentFromText(fmt.Sprintf("Order %d is late, and what follows is of no importance, but long.", i), []genai.Role{"user", "model"}[i%2])
		check(sessions.AppendEvent(ctx, r.Session, e))
	}
	return sessions, r.Session
}

// One service for several apps: the model of the root agents summarises, one app is compacted
// more often, one never, and no summary may name a password.
func ExampleOptions() {
	opts := adk.Options{
		Compaction:    compaction.DefaultConfig(),
		Model:         counter{}, // the one that llmagent.Config has
		ContextWindow: adk.ContextWindow{Share: 0.5, Tokens: 128_000},
		Hooks: adk.Hooks{BeforeSummarise: func(_ context.Context, d adk.Draft) error {
			for _, s := range d.Summaries {
				if strings.Contains(s.Event.Content.Parts[0].Text, "password") {
					return errors.New("it names a password")
				}
			}
			return nil
		}},
	}
	fmt.Println(opts.Validate())
	// Output: <nil>
}

func ExampleService_Compact() {
	ctx := context.Background()
	sessions, sess := compactedChat(adk.Options{
		Compaction:        compaction.Config{Enabled: true, CompactionInterval: 50, TokenThreshold: 60, EventRetentionSize: 2},
		CompactionTimeout: -1,
	})
	check(sessions.Close(ctx)) // the background is quiet
	got, err := sessions.Get(ctx, &session.GetRequest{AppName: "shop", UserID: "ann", SessionID: sess.ID()})
	check(err)
	_, err = sessions.Compact(ctx, got.Session, adk.CompactOptions{})
	fmt.Println(err, got.Session.Events().Len() < 8)
	// Output: <nil> true
}

func ExampleService_LastCompaction() {
	ctx := context.Background()
	sessions, sess := compactedChat(adk.Options{
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2},
		Hooks:      adk.Hooks{BeforeSummarise: func(context.Context, adk.Draft) error { return errors.New("not today") }},
	})
	check(sessions.Close(ctx))
	last, ok := sessions.LastCompaction(sess)
	fmt.Println(ok, last.Outcome, last.Err)
	// Output: true vetoed vetoed: not today
}

// A summarizer of ADK's own compaction serves as this one's.
func ExampleEventsSummarizer() {
	theirs := func(_ context.Context, events []*session.Event) (*genai.Content, *genai.GenerateContentResponseUsageMetadata, error) {
		return genai.NewContentFromText(fmt.Sprintf("%d events about late orders.", len(events)), "model"), nil, nil
	}
	cfg := compaction.DefaultConfig()
	cfg.Summarizer = adk.EventsSummarizer(theirs)
	fmt.Println(cfg.Validate())
	// Output: <nil>
}

func ExampleSummarizeEvents() {
	_, sess := compactedChat(adk.Options{})
	var events []*session.Event
	for e := range sess.Events().All() {
		events = append(events, e)
	}
	content, _, err := adk.SummarizeEvents(context.Background(), compaction.Extractive{}, compaction.Config{}, events)
	check(err)
	fmt.Println(content.Role, strings.Contains(content.Parts[0].Text, "Order"))
	// Output: model true
}
