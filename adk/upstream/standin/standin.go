// Package standin gives a service on patchlog the place of ADK's service in memory, in the
// binaries of ADK's own tests. The command upstream links it into them, and says by the
// environment what it is to do.
package standin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/store"
)

// What the environment says.
const (
	BackendVariable = "PATCHLOG_UPSTREAM_BACKEND" // a backend's name; if not set, ADK's service stays
	CompactVariable = "PATCHLOG_UPSTREAM_COMPACT" // if set, sessions are compacted
	FolderVariable  = "PATCHLOG_UPSTREAM_FOLDER"  // gets a folder for each service that was made
)

// Backends.
const (
	Memory = "memory"
	Bolt   = "bolt"
)

// Install puts a function into a hook that makes a service, an empty one with each call, if
// the environment says so. Each makes a folder whose name begins with the given one.
func Install(hook *func() session.Service, name string) {
	if os.Getenv(BackendVariable) == "" {
		return
	}
	if err := meetMissing(); err != nil {
		panic(fmt.Sprint("patchlog: ", err))
	}
	*hook = func() session.Service {
		s, err := newService(name)
		if err != nil {
			panic(fmt.Sprint("patchlog: there is no service for ADK's tests: ", err))
		}
		return s
	}
}

// meetMissing has the adapter ask ADK's service in memory what it says of a session that is not there, which it does once:
// behind the hook it would ask itself.
func meetMissing() error {
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		return err
	}
	s, err := adk.NewService(db, adk.Options{})
	if err == nil {
		_, _ = s.Get(context.Background(), &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"})
		_ = s.Delete(context.Background(), &session.DeleteRequest{AppName: "a", UserID: "u", SessionID: "s"})
		err = db.Close()
	}
	return err
}

func newService(name string) (session.Service, error) {
	folder, err := os.MkdirTemp(os.Getenv(FolderVariable), name+".*")
	if err != nil {
		return nil, err
	}
	db, err := open(os.Getenv(BackendVariable), folder)
	if err != nil {
		return nil, err
	}
	if os.Getenv(CompactVariable) != "" {
		return newCompacted(db)
	}
	return adk.NewService(db, adk.Options{KeepInterruptedCalls: true})
}

func open(backend, folder string) (*store.Store, error) {
	switch backend {
	case Memory:
		return store.OpenMemory(store.Options{})
	case Bolt:
		return store.Open(filepath.Join(folder, "sessions.db"), store.Options{})
	}
	return nil, fmt.Errorf("%s is %q, not %q or %q", BackendVariable, backend, Memory, Bolt)
}
