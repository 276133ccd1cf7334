// Package standin replaces ADK's in-memory service by a patchlog service in the binaries of ADK's tests. Command
// upstream links the package into these binaries and configures it by environment variables.
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

const (
	BackendVariable = "PATCHLOG_UPSTREAM_BACKEND" // name of a backend; if not set, ADK's service is used
	CompactVariable = "PATCHLOG_UPSTREAM_COMPACT" // if set, sessions are compacted
	FolderVariable  = "PATCHLOG_UPSTREAM_FOLDER"  // directory in which each created service creates a subdirectory
)

const (
	Memory = "memory"
	Bolt   = "bolt"
)

// Install sets the hook to a function that returns a new, empty service at each call. If BackendVariable is not
// set, Install does nothing. Each service creates a directory, whose name begins with the argument name.
func Install(hook *func() session.Service, name string) {
	if os.Getenv(BackendVariable) == "" {
		return
	}
	if err := cacheMissingErrors(); err != nil {
		panic(fmt.Sprint("patchlog: ", err))
	}
	*hook = func() session.Service {
		s, err := newService(name)
		if err != nil {
			panic(fmt.Sprint("patchlog: cannot create a service for ADK's tests: ", err))
		}
		return s
	}
}

// cacheMissingErrors makes package adk read the error of ADK's in-memory service for a missing session. Package adk
// reads the error only once. After the hook is installed, it would read the error of a patchlog service instead.
func cacheMissingErrors() error {
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
		return newCompactingService(db)
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
