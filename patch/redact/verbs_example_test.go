package redact_test

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
)

// Record also redacts the texts of a patch. Ids and structure do not change.
func ExampleRedactor_Record() {
	r, _ := redact.New(redact.Options{Key: []byte("a secret key")})
	record, err := patch.ParseRecord([]byte(`{"id":"p1","author":"ada@example.com","patchType":"revert","patchId":"p0"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	record, err = r.Record(record)
	fmt.Println(record.Patch, err)
	// Output: {"id":"p1","author":"[email 463885e2]","patchType":"revert","patchId":"p0"} <nil>
}

// Events redacts a list of events.
func ExampleRedactor_Events() {
	r, _ := redact.New(redact.Options{Key: []byte("a secret key")})
	e, err := patch.NewEvent(patch.Fields{Content: patch.Text("user", "write to ada@example.com")})
	if err != nil {
		fmt.Println(err)
		return
	}
	events, err := r.Events([]*patch.Event{e})
	for _, p := range events[0].Content().Parts() {
		fmt.Println(p.Text, err)
	}
	// Output: write to [email 463885e2] <nil>
}

// Names returns the names of the patterns. IP addresses are redacted only if the caller selects their pattern.
func ExampleRedactor_Names() {
	r, _ := redact.New(redact.Options{})
	all, _ := redact.New(redact.Options{Patterns: redact.All()})
	fmt.Println(r.Names())
	fmt.Println(all.Names())
	// Output:
	// [key card iban email phone]
	// [key card iban email phone ip]
}
