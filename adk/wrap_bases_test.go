package adk_test

import (
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/patchlog-dev/patchlog/adk"
)

// bases are ADK's own services, to be wrapped.
var bases = []struct {
	name string
	make func(t *testing.T) session.Service
}{
	{"memory", func(*testing.T) session.Service { return session.InMemoryService() }},
	{"sqlite", func(t *testing.T) session.Service {
		return onSQLite(t, filepath.Join(t.TempDir(), "sessions.sqlite"))
	}},
}

// onSQLite is ADK's service on a file of SQLite's.
func onSQLite(t *testing.T, path string) session.Service {
	t.Helper()
	s, err := database.NewSessionService(sqlite.Open(path+"?_pragma=synchronous(off)&_pragma=journal_mode(memory)&_pragma=foreign_keys(on)"), &gorm.Config{Logger: logger.Discard, PrepareStmt: true, SkipDefaultTransaction: true})
	no(t, err)
	no(t, database.AutoMigrate(s))
	return s
}

func wrap(t *testing.T, base session.Service, opts adk.Options) *adk.Service {
	t.Helper()
	s, err := adk.Wrap(base, opts)
	no(t, err)
	return s
}

// onEachBase runs a test on each of the bases, wrapped.
func onEachBase(t *testing.T, test func(t *testing.T, base session.Service, s *adk.Service)) {
	for _, b := range bases {
		t.Run(b.name, func(t *testing.T) {
			base := b.make(t)
			test(t, base, wrap(t, base, adk.Options{}))
		})
	}
}
