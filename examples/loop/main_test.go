package main

import (
	"bytes"
	"testing"
)

const want = `The weather is {"sky":"clear"}
The weather is {"sky":"clear"}
Message 1 cannot be hidden alone. Hiding 2 messages from 1 on.
{"role":"user","content":[{"type":"text","text":"Will it rain?"}]}
{"role":"assistant","content":[{"type":"text","text":"The weather is {\"sky\":\"clear\"}"}]}
{"role":"user","content":[{"type":"text","text":"And tomorrow?"}]}
{"role":"assistant","content":[{"type":"tool_use","id":"use5","name":"weather","input":{"city":"Oslo"}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"use5","name":"weather","content":{"sky":"clear"}}]}
{"role":"assistant","content":[{"type":"text","text":"The weather is {\"sky\":\"clear\"}"}]}
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
