package standin

import (
	"os"
	"testing"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"
)

func TestInstall(t *testing.T) {
	for _, row := range []struct {
		backend, compact string
		events           int
	}{
		{Memory, "", 8}, {Bolt, "", 8}, {Memory, "1", 3},
	} {
		folder := t.TempDir()
		t.Setenv(BackendVariable, row.backend)
		t.Setenv(CompactVariable, row.compact)
		t.Setenv(FolderVariable, folder)
		var hook func() session.Service
		Install(&hook, "name")
		for n := 1; n <= 2; n++ {
			if got := converse(t, hook()); got != row.events {
				t.Errorf("%s %s: %d events are visible, want %d", row.backend, row.compact, got, row.events)
			}
			if made, err := os.ReadDir(folder); err != nil || len(made) != n {
				t.Errorf("%d services created %v, %v", n, made, err)
			}
		}
	}
}

func TestInstallNothing(t *testing.T) {
	t.Setenv(BackendVariable, "")
	var hook func() session.Service
	if Install(&hook, "name"); hook != nil {
		t.Error("a service was installed")
	}
	t.Setenv(BackendVariable, "floppy")
	t.Setenv(FolderVariable, t.TempDir())
	Install(&hook, "name")
	defer func() {
		if recover() == nil {
			t.Error("a service was created with an unknown backend")
		}
	}()
	hook()
}

// converse runs a conversation of four turns and returns the number of visible events.
func converse(t *testing.T, s session.Service) int {
	t.Helper()
	ctx := t.Context()
	made, err := s.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range []string{"1", "2", "3", "4"} {
		for _, author := range []string{"user", "agent"} {
			role := genai.Role(genai.RoleUser)
			if author == "agent" {
				role = genai.RoleModel
			}
			e := session.NewEvent(ctx, turn)
			e.Author = author
			e.LLMResponse = model.LLMResponse{Content: genai.NewContentFromText("a text that is long enough to be worth a summary, in turn "+turn, role)}
			if err := s.AppendEvent(ctx, made.Session, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := s.Get(ctx, &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return got.Session.Events().Len()
}
