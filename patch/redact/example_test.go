package redact_test

import (
	"fmt"
	"regexp"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
)

func ExampleRedactor_Event() {
	tickets := regexp.MustCompile(`T-\d+`)
	r, err := redact.New(redact.Options{
		Patterns: append(redact.Default(), redact.Pattern{
			Name: "ticket", Find: func(text string) [][]int { return tickets.FindAllStringIndex(text, -1) },
		}),
		Key: []byte("one that is kept secret"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", "T-17: charge 4111 1111 1111 1111 and write to ada@example.com")})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err = r.Event(e)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range e.Content().Parts() {
		fmt.Println(p.Text)
	}
	// Output:
	// [ticket c5226463]: charge [card bf412b91] and write to [email d1624431]
}
