package migrate_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// This example migrates sessions exported from ADK's REST server. Repeating the migration adds nothing.
func ExampleRun() {
	const exports = `{"id":"4711","appName":"shop","userId":"ada","lastUpdateTime":1748772060,
		"state":{"cart":2,"theme":"dark","app:open":true},
		"events":[{"id":"e1","author":"user","timestamp":1748772000,
			"content":{"role":"user","parts":[{"text":"two lamps, please"}]},"actions":{"stateDelta":{"cart":2}}}]}`
	ctx := context.Background()
	db, err := store.OpenMemory(store.Options{})
	check(err)
	defer db.Close()
	for range 2 {
		_, err = migrate.Run(ctx, db, migrate.NewREST(strings.NewReader(exports), "exports"), migrate.Options{
			Session: func(r migrate.Result) error {
				fmt.Println(r.Key, r.Status, r.Added, r.Differences)
				return r.Err // nil unless the session failed or is in conflict
			},
		})
		check(err)
	}
	session, err := db.Get(ctx, store.Key{App: "shop", User: "ada", Session: "4711"})
	check(err)
	fmt.Println(session.State())
	// Output:
	// shop/ada/4711 created 1 []
	// shop/ada/4711 unchanged 0 []
	// map[app:open:true cart:2 theme:dark]
}

// This example checks an exported session before anything is written.
func ExampleNewREST() {
	const export = `{"id":"4711","appName":"shop","userId":"ada","lastUpdateTime":1748772060,"state":{},
		"events":[{"author":"user","content":{"parts":[{"text":"hello"}]}}]}`
	db, err := store.OpenMemory(store.Options{})
	check(err)
	defer db.Close()
	_, err = migrate.Run(context.Background(), db, migrate.NewREST(strings.NewReader(export), "export.json"), migrate.Options{
		DryRun: true,
		Session: func(r migrate.Result) error {
			for _, d := range r.Differences {
				fmt.Println(d)
			}
			return nil
		},
	})
	check(err)
	// Output:
	// event "9eac15aa-0c89-5765-a962-df749f8d1ad0": event 1 has no id; it gets this one
	// 1 of 1 events have no time; they get the time of the session's last update
}

// This example reads a database of ADK for Go or ADK for Python with the driver modernc.org/sqlite.
func ExampleOpenSQL() {
	ctx := context.Background()
	adk, err := sql.Open("sqlite", "file:adk.db?mode=ro")
	check(err)
	defer adk.Close()
	source, err := migrate.OpenSQL(ctx, adk, migrate.SQLite, migrate.SQLOptions{})
	check(err)
	db, err := store.Open("patchlog.db", store.Options{})
	check(err)
	defer db.Close()
	report, err := migrate.Run(ctx, db, source, migrate.Options{})
	check(err)
	fmt.Println(source, report.Sessions)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
