package main

import (
	"bytes"
	"testing"
)

const want = `I see 3 messages, and the price is 40.
I see 7 messages, and the price is 40.
4 events are left
I see 7 messages, and the price is 40.
`

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("it prints\n%s\nnot\n%s", out.String(), want)
	}
}
