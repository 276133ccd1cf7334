package pg_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
)

// Any number of processes may do this at once. The password is in a password file or in
// PGPASSWORD.
func ExampleOpen() {
	ctx := context.Background()
	db, err := pg.Open(ctx, os.Getenv("PATCHLOG_DB"), store.Options{}, pg.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	key := store.Key{App: "shop", User: "ann", Session: "1"}
	event, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", "hello")})
	if err != nil {
		log.Fatal(err)
	}
	done, err := db.AppendEvents(ctx, key, []*patch.Event{event}, store.AppendOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.View.Len(), "events")
}

// A role that may make tables prepares the schema, so that the service's own need not.
func ExampleCreateSchema() {
	if err := pg.CreateSchema(context.Background(), "postgres://owner@db.internal/agents", pg.Options{}); err != nil {
		log.Fatal(err)
	}
}
