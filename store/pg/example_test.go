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

// Several processes may open the same database. The password comes from a password file or from PGPASSWORD.
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

// A privileged role creates the schema in advance. The service's own role then needs no right to create
// schemas.
func ExampleCreateSchema() {
	if err := pg.CreateSchema(context.Background(), "postgres://owner@db.internal/agents", pg.Options{}); err != nil {
		log.Fatal(err)
	}
}
