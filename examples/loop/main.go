// Command loop runs an agent without a framework. Its model API represents a message as text, tool_use and
// tool_result blocks. The program converts messages to events and back. At the end, it hides part of the
// session without separating a call from its result.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Message is a message in the form of the model API.
type Message struct {
	Role   string  `json:"role"` // user or assistant; messages with tool results have the role user
	Blocks []Block `json:"content"`
}

// Block is a part of a message.
type Block struct {
	Type      string          `json:"type"` // text, tool_use or tool_result
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`          // only in tool_use
	ToolUseID string          `json:"tool_use_id,omitempty"` // only in tool_result
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"` // only in tool_result; an object
}

// Types for the JSON of an event's content.
type (
	content struct {
		Role  string `json:"role"`
		Parts []part `json:"parts"`
	}
	part struct {
		Text     *string   `json:"text,omitempty"`
		Call     *call     `json:"functionCall,omitempty"`
		Response *response `json:"functionResponse,omitempty"`
	}
	call struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	}
	response struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
	}
)

func toEvent(turn string, m Message) (*patch.Event, error) {
	c := content{Role: "user"}
	if m.Role == "assistant" {
		c.Role = "model"
	}
	for _, b := range m.Blocks {
		switch b.Type {
		case "text":
			c.Parts = append(c.Parts, part{Text: &b.Text})
		case "tool_use":
			c.Parts = append(c.Parts, part{Call: &call{b.ID, b.Name, b.Input}})
		case "tool_result":
			c.Parts = append(c.Parts, part{Response: &response{b.ToolUseID, b.Name, b.Content}})
		default:
			return nil, fmt.Errorf("a block of type %q cannot be converted; use text, tool_use or tool_result", b.Type)
		}
	}
	text, err := json.Marshal(map[string]any{"author": m.Role, "invocationId": turn, "content": c})
	if err != nil {
		return nil, err
	}
	return patch.ParseEvent(text)
}

func toMessage(e *patch.Event) (Message, error) {
	var c content
	text, _ := e.Field("content")
	if err := json.Unmarshal(text, &c); err != nil {
		return Message{}, err
	}
	m := Message{Role: "user"}
	if c.Role == "model" {
		m.Role = "assistant"
	}
	for _, p := range c.Parts {
		switch {
		case p.Call != nil:
			m.Blocks = append(m.Blocks, Block{Type: "tool_use", ID: p.Call.ID, Name: p.Call.Name, Input: p.Call.Args})
		case p.Response != nil:
			m.Blocks = append(m.Blocks, Block{Type: "tool_result", ToolUseID: p.Response.ID, Name: p.Response.Name, Content: p.Response.Response})
		case p.Text != nil:
			m.Blocks = append(m.Blocks, Block{Type: "text", Text: *p.Text})
		}
	}
	return m, nil
}

// complete simulates the model. It calls the tool once per turn and then answers.
func complete(prompt []Message) Message {
	last := prompt[len(prompt)-1].Blocks[0]
	if last.Type == "tool_result" {
		return Message{"assistant", []Block{{Type: "text", Text: "The weather is " + string(last.Content)}}}
	}
	id := fmt.Sprintf("use%d", len(prompt))
	return Message{"assistant", []Block{{Type: "tool_use", ID: id, Name: "weather", Input: json.RawMessage(`{"city":"Oslo"}`)}}}
}

// agent runs a conversation in one session.
type agent struct {
	db  *store.Store
	key store.Key
}

func (a agent) appendMessage(ctx context.Context, turn string, m Message) error {
	e, err := toEvent(turn, m)
	if err != nil {
		return err
	}
	_, err = a.db.AppendEvents(ctx, a.key, []*patch.Event{e}, store.AppendOptions{})
	return err
}

// prompt returns the visible log as messages.
func (a agent) prompt(ctx context.Context) ([]Message, error) {
	v, err := a.db.View(ctx, a.key)
	if err != nil {
		return nil, err
	}
	var out []Message
	for _, e := range v.Events() {
		m, err := toMessage(e)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// runTurn answers a question. It calls tools until the model returns text.
func (a agent) runTurn(ctx context.Context, id, question string) (Message, error) {
	next := Message{"user", []Block{{Type: "text", Text: question}}}
	for {
		if err := a.appendMessage(ctx, id, next); err != nil {
			return Message{}, err
		}
		prompt, err := a.prompt(ctx)
		if err != nil {
			return Message{}, err
		}
		answer := complete(prompt)
		if err := a.appendMessage(ctx, id, answer); err != nil {
			return Message{}, err
		}
		use := answer.Blocks[0]
		if use.Type != "tool_use" {
			return answer, nil
		}
		next = Message{"user", []Block{{Type: "tool_result", ToolUseID: use.ID, Name: use.Name, Content: json.RawMessage(`{"sky":"clear"}`)}}}
	}
}

func run(ctx context.Context, w io.Writer) error {
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	a := agent{db, store.Key{App: "weather", User: "ann", Session: "1"}}
	if _, err := db.Create(ctx, a.key, nil, store.CreateOptions{}); err != nil {
		return err
	}
	for i, question := range []string{"Will it rain?", "And tomorrow?"} {
		answer, err := a.runTurn(ctx, fmt.Sprint("turn", i+1), question)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, answer.Blocks[0].Text)
	}

	// Hiding the call of the first turn fails, because its result would remain without a call. The error
	// suggests a span that can be hidden.
	v, err := db.View(ctx, a.key)
	if err != nil {
		return err
	}
	_, err = db.ApplyPatch(ctx, a.key, []*patch.PatchEvent{patch.NewSplice(1, 1)}, store.PatchOptions{On: v})
	var refused *fold.OrphanError
	if !errors.As(err, &refused) || !refused.Suggested {
		return fmt.Errorf("the store did not refuse to hide a call without its result: %w", err)
	}
	fmt.Fprintf(w, "Message 1 cannot be hidden alone. Hiding %d messages from %d on.\n", refused.Count, refused.Start)
	if _, err := db.ApplyPatch(ctx, a.key, []*patch.PatchEvent{patch.NewSplice(refused.Start, refused.Count)}, store.PatchOptions{On: v}); err != nil {
		return err
	}
	prompt, err := a.prompt(ctx)
	if err != nil {
		return err
	}
	for _, m := range prompt {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, string(text))
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
