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
		Key: []byte("a secret key"),
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
	// [ticket 167b9012]: charge [card 2ef54dce] and write to [email 463885e2]
}

// Text redacts a single text. Equal secrets get equal placeholders.
func ExampleRedactor_Text() {
	r, err := redact.New(redact.Options{Patterns: []redact.Pattern{redact.Emails()}, Key: []byte("a secret key")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Text("write to ada@example.com"), r.Text("ada@example.com") == r.Text(r.Text("ada@example.com")))
	// Output: write to [email 463885e2] true
}

// State redacts the values of a session's state.
func ExampleRedactor_State() {
	r, err := redact.New(redact.Options{Patterns: redact.All(), Key: []byte("a secret key")})
	if err != nil {
		fmt.Println(err)
		return
	}
	card, _ := patch.NewValue("4111 1111 1111 1111")
	state, err := r.State(map[string]patch.Value{"card": card})
	fmt.Println(state["card"], err)
	// Output: "[card 2ef54dce]" <nil>
}
