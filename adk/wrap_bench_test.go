package adk_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
)

// BenchmarkWrap is what a service costs that wraps ADK's in memory, with that one alone beside
// it: a session is got, or got and appended to, as each turn does.
func BenchmarkWrap(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		for _, kind := range []string{"alone", "wrapped"} {
			make := func(b *testing.B) session.Service {
				var s session.Service = session.InMemoryService()
				if kind == "wrapped" {
					var err error
					if s, err = adk.Wrap(s, adk.Options{}); err != nil {
						b.Fatal(err)
					}
				}
				fill(b, s, n)
				return s
			}
			name := func(op string) string { return fmt.Sprintf("%s/events=%d/%s", op, n, kind) }
			b.Run(name("get"), func(b *testing.B) {
				s := make(b)
				for b.Loop() {
					got(b, s)
				}
			})
			b.Run(name("append"), func(b *testing.B) {
				s := make(b)
				sess := got(b, s)
				for i := 0; b.Loop(); i++ {
					appendTo(b, s, sess, n+i)
				}
			})
			b.Run(name("get and append"), func(b *testing.B) {
				s := make(b)
				for i := 0; b.Loop(); i++ {
					appendTo(b, s, got(b, s), n+i)
				}
			})
		}
	}
}

func fill(b *testing.B, s session.Service, n int) {
	r, err := s.Create(context.Background(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		appendTo(b, s, r.Session, i)
	}
}

func got(b *testing.B, s session.Service) session.Session {
	r, err := s.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
	if err != nil {
		b.Fatal(err)
	}
	return r.Session
}

func appendTo(b *testing.B, s session.Service, sess session.Session, i int) {
	err := s.AppendEvent(context.Background(), sess, &session.Event{
		ID: fmt.Sprintf("event-%d-of-a-session", i), InvocationID: fmt.Sprintf("invocation-%d", i/4), Author: "agent",
		Timestamp: time.Unix(1_700_000_000+int64(i), 0),
		LLMResponse: model.LLMResponse{
			Content: genai.NewContentFromText(fmt.Sprintf("The answer to question %d is that all is well, and that it will go on like this.", i), genai.RoleModel),
		},
		Actions: session.EventActions{StateDelta: map[string]any{"turn": i}},
	})
	if err != nil {
		b.Fatal(err)
	}
}
