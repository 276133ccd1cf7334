package migrate_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// If the tables are empty, a database with the old schema of ADK for Python is refused as pickled, and a database of
// ADK for Go is accepted.
func TestEmptyDatabase(t *testing.T) {
	for texts, want := range map[string]error{"VARCHAR(128)": migrate.ErrPickled, "text": nil} {
		db := testlog.Must(sql.Open("sqlite", ":memory:"))(t)
		db.SetMaxOpenConns(1)
		for _, table := range []string{
			"sessions (app_name " + texts + ", user_id " + texts + ", id " + texts + ", state TEXT, create_time DATETIME, update_time DATETIME)",
			"events (id " + texts + ", app_name " + texts + ", user_id " + texts + ", session_id " + texts + ", invocation_id " + texts +
				", author " + texts + ", actions BLOB, timestamp DATETIME, content TEXT)",
			"app_states (app_name " + texts + ", state TEXT)", "user_states (app_name " + texts + ", user_id " + texts + ", state TEXT)",
		} {
			testlog.Must(db.Exec("CREATE TABLE " + table))(t)
		}
		if _, err := migrate.OpenSQL(context.Background(), db, migrate.SQLite, migrate.SQLOptions{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", texts, err, want)
		}
		testlog.NoError(t, db.Close())
	}
}
