package migrate

import (
	"encoding/json"
	"slices"
	"strings"
)

var openAIChat = Format{
	Name: "openai-chat", Title: "messages of OpenAI's Chat Completions", Versions: "as an array, as lines, in requests and in responses; functions of 2023 too",
	Kept:    "messages, reasoning, calls, results, images, sounds, documents, usage and model where they are told",
	Omitted: "tools, parameters of requests, choices other than the first",
	count:   func(b *beginning) int { n, _ := messages(b); return n },
	reader:  func() reader { return reader{read: readChat} },
	lists:   true,
}

// responseMessage returns the message in the object of a response, or the object itself.
func responseMessage(o object) object {
	if choices := objectsOf(o.list("choices")); len(choices) > 0 {
		return choices[0].object("message")
	}
	return o
}

type chatMessage struct {
	Role, Name, Model string
	Content           json.RawMessage
	Refusal           json.RawMessage
	ReasoningContent  json.RawMessage `json:"reasoning_content"`
	ToolCalls         []chatCall      `json:"tool_calls"`
	FunctionCall      *chatFunction   `json:"function_call"`
	ToolCallID        string          `json:"tool_call_id"`

	// Of a response.
	Choices []struct{ Message *chatMessage }
	Created json.Number
	Usage   *chatUsage
}

type chatCall struct {
	ID               string
	Function, Custom *chatFunction
}

type chatFunction struct {
	Name             string
	Arguments, Input json.RawMessage
}

type chatUsage struct {
	Prompt     json.Number `json:"prompt_tokens"`
	Completion json.Number `json:"completion_tokens"`
	Total      json.Number `json:"total_tokens"`
	Details    struct {
		Cached json.Number `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func readChat(text []byte, t *tree) []entry {
	var m chatMessage
	if !decode(text, &m) {
		return nil
	}
	e := entry{place: true, goesOn: true}
	if len(m.Choices) > 0 && m.Choices[0].Message != nil {
		e.ModelVersion, e.time = m.Model, unixTime(m.Created, 1)
		if u := m.Usage; u != nil {
			e.UsageMetadata = usageOf(map[string][]json.Number{
				"promptTokenCount": {u.Prompt}, "candidatesTokenCount": {u.Completion}, "totalTokenCount": {u.Total}, "cachedContentTokenCount": {u.Details.Cached},
			})
		}
		m = *m.Choices[0].Message
	}
	e.role, e.parts = "user", partsOf(m.Content, nil)
	switch m.Role {
	case "system", "developer":
		e.Author = "system"
	case "user":
		e.Author, e.prompt = "user", true
	case "tool", "function":
		e.Author, e.known = t.agent, []string{m.ToolCallID}
		e.parts = responseOf(m.ToolCallID, firstOf(m.Name, t.names[m.ToolCallID]), m.Content, false)
	case "assistant":
		e.Author, e.role = t.agent, "model"
		m.assistant(&e, t)
	default:
		e.parts = nil
	}
	return []entry{e}
}

// assistant adds to an entry what only the model says.
func (m *chatMessage) assistant(e *entry, t *tree) {
	if textOf(m.ReasoningContent) != "" {
		e.parts = slices.Insert(e.parts, 0, part{Text: m.ReasoningContent, Thought: true})
	}
	if textOf(m.Refusal) != "" {
		e.parts = append(e.parts, part{Text: m.Refusal})
	}
	if m.FunctionCall != nil {
		m.ToolCalls = append(m.ToolCalls, chatCall{Function: m.FunctionCall})
	}
	for _, c := range m.ToolCalls {
		f, args, under := c.Function, json.RawMessage(nil), "arguments"
		if f == nil {
			if f, under = c.Custom, "input"; f == nil {
				continue
			}
			args = f.Input
		} else {
			args = f.Arguments
		}
		t.names[c.ID] = f.Name
		e.calls = append(e.calls, c.ID)
		e.parts = append(e.parts, callOf(c.ID, f.Name, args, under)...)
	}
}

var openAIResponses = Format{
	Name: "openai-responses", Title: "items of OpenAI's Responses API", Versions: "as an array, as lines, in requests (input) and in responses (output)",
	Kept:    "messages, reasoning as far as it can be read, calls, results, images, documents, usage and model of responses",
	Omitted: "instructions, tools, parameters of requests, encrypted reasoning",
	count: func(b *beginning) int {
		return b.count(func(o object) bool {
			items := append(objectsOf(o.list("input")), objectsOf(o.list("output"))...)
			return isResponsesItem(o) || o.text("object") == "response" || len(items) > 0 && 2*countOf(items, isResponsesItem) >= len(items)
		})
	},
	reader: func() reader { return reader{read: readResponses} },
}

// isResponsesItem reports whether an object is an item of the Responses API.
func isResponsesItem(o object) bool {
	kind := o.text("type")
	switch {
	case o.has("payload"):
		return false
	case kind == "reasoning":
		return o.has("summary")
	case strings.HasSuffix(kind, "_call"), strings.HasSuffix(kind, "_call_output"):
		return o.has("call_id", "id")
	case kind == "message" && o.text("role") != "" && !o.has("message"):
		return true
	}
	return o.text("role") != "" && slices.ContainsFunc(objectsOf(o.list("content")), func(o object) bool {
		return o.text("type") == "input_text" || o.text("type") == "output_text" || o.text("type") == "input_image"
	})
}

type responsesUnit struct {
	codexItem
	Output    []json.RawMessage
	Input     json.RawMessage
	CreatedAt json.Number `json:"created_at"`
	Usage     *struct {
		Input   json.Number `json:"input_tokens"`
		Output  json.Number `json:"output_tokens"`
		Total   json.Number `json:"total_tokens"`
		Details struct {
			Cached json.Number `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		Parts struct {
			Reasoning json.Number `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
}

func readResponses(text []byte, t *tree) (entries []entry) {
	var u responsesUnit
	if !decode(text, &u) {
		return nil
	}
	items := []json.RawMessage{text}
	if u.Type == "" && u.Role == "" {
		items = u.Output
		var input []json.RawMessage
		if json.Unmarshal(u.Input, &input) == nil {
			items = slices.Concat(input, items)
		} else if isString(u.Input) {
			entries = append(entries, entry{eventJSON: eventJSON{Author: "user"}, place: true, goesOn: true, role: "user", prompt: true, parts: partsOf(u.Input, nil)})
		}
	}
	for _, text := range items {
		var item codexItem
		if decode(text, &item) {
			e := entry{place: true, goesOn: true}
			if item.Type == "" {
				item.Type = "message"
			}
			if item.response(&e, t); item.Role == "system" || item.Role == "developer" {
				e.role, e.parts = "user", partsOf(item.Content, nil)
			}
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	last := &entries[len(entries)-1]
	last.time = unixTime(u.CreatedAt, 1)
	if u.Usage != nil {
		last.ModelVersion = u.Model
		last.UsageMetadata = usageOf(map[string][]json.Number{
			"promptTokenCount": {u.Usage.Input}, "candidatesTokenCount": {u.Usage.Output}, "totalTokenCount": {u.Usage.Total},
			"cachedContentTokenCount": {u.Usage.Details.Cached}, "thoughtsTokenCount": {u.Usage.Parts.Reasoning},
		})
	}
	return entries
}
