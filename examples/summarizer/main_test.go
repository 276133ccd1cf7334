package main

import (
	"bytes"
	"testing"
)

const want = `turn 5: 8 events became 1
user: {"parts":[{"text":"They spoke of order 4711, order 4712, order 4713, order 4714."}],"role":"user"}
user: original event, record 9
clerk: original event, record 10
10 events after the revert
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
