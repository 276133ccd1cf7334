package migrate

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// obj is a JSON object written by a program. Versions of a program differ, so a missing member and a member of an
// unexpected type both read as the zero value.
type obj map[string]json.RawMessage

// parse returns a JSON object, or nil if the text is not an object.
func parse(text json.RawMessage) (o obj) {
	if isObject(text) {
		json.Unmarshal(text, &o)
	}
	return o
}

// get returns the member at a path of names separated by dots, or nil if the member is missing or null.
func (o obj) get(path string) json.RawMessage {
	name, rest, more := strings.Cut(path, ".")
	value := o[name]
	switch {
	case more:
		return parse(value).get(rest)
	case string(value) == "null":
		return nil
	}
	return value
}

// has reports whether one of the members exists. It may be null.
func (o obj) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return o[name] != nil })
}

func (o obj) text(path string) string    { return unquote(o.get(path)) }
func (o obj) object(path string) obj     { return parse(o.get(path)) }
func (o obj) isTrue(path string) bool    { return string(o.get(path)) == "true" }
func (o obj) time(path string) time.Time { return rfcTime(o.text(path)) }

func (o obj) list(path string) []json.RawMessage { return arrayElements(o.get(path)) }

func arrayElements(value json.RawMessage) (list []json.RawMessage) {
	if isArray(value) {
		json.Unmarshal(value, &list)
	}
	return list
}

// firstValue returns the value at the first path that exists and is not null.
func (o obj) firstValue(paths ...string) json.RawMessage {
	for _, path := range paths {
		if value := o.get(path); value != nil {
			return value
		}
	}
	return nil
}

// firstString returns, as JSON, the value at the first path that is a non-empty string.
func (o obj) firstString(paths ...string) json.RawMessage {
	for _, path := range paths {
		if o.text(path) != "" {
			return o.get(path)
		}
	}
	return nil
}

// unquote returns the value of a JSON string, or "".
func unquote(raw json.RawMessage) (s string) {
	if isString(raw) {
		json.Unmarshal(raw, &s)
	}
	return s
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
func isArray(raw json.RawMessage) bool  { return len(raw) > 0 && raw[0] == '[' }

func rfcTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return time.Time{}
	}
	return t
}

// unixTime returns the time of a Unix timestamp. The argument second is the number of timestamp units in a second.
func unixTime(n json.RawMessage, second float64) time.Time {
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || f == 0 {
		return time.Time{}
	}
	t, _ := unixSeconds(f / second)
	return t
}

// block is an element of a message's content, as written by any of the programs.
type block struct {
	obj
	raw json.RawMessage
}

// blocksOf returns the blocks of a content. A string is one block.
func blocksOf(content json.RawMessage) (blocks []block) {
	if isString(content) {
		return []block{{obj{"type": json.RawMessage(`"text"`), "text": content}, content}}
	}
	for _, text := range arrayElements(content) {
		blocks = append(blocks, block{parse(text), text})
	}
	return blocks
}

// textValue returns the text of a text block, or nil.
func (b block) textValue() json.RawMessage {
	name := "text"
	if b.text("type") == "refusal" {
		name = "refusal"
	}
	if text := b.get(name); strings.HasSuffix(b.text("type"), name) && isString(text) {
		return text
	}
	return nil
}

// media returns the image, audio or document of a block. The block has inline data, a URL or a data URL.
func (b block) media() (part, bool) {
	url := ""
	for _, path := range []string{"image_url", "image_url.url", "file_data", "file_url", "file.file_data", "source.url"} {
		url = cmp.Or(url, b.text(path))
	}
	mime := ""
	if b.text("type") == "file" { // opencode has files in such blocks
		url, mime = cmp.Or(url, b.text("url")), b.text("mime")
	}
	kind, data, inline := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	sound, source, image := b.get("input_audio.data"), b.get("source.data"), b.get("data")
	switch {
	case inline:
		return part{InlineData: &blob{quote(cmp.Or(mime, kind)), quote(data)}}, true
	case url != "":
		return part{FileData: &fileData{url}}, true
	case isString(sound):
		return part{InlineData: &blob{quote("audio/" + b.text("input_audio.format")), sound}}, true
	case isString(source) && b.text("source.type") == "base64":
		return part{InlineData: &blob{b.get("source.media_type"), source}}, true
	case isString(source) && b.text("source.type") == "text":
		return part{Text: source}, true
	case isString(image) && strings.HasSuffix(b.text("type"), "image"):
		return part{InlineData: &blob{b.get("mimeType"), image}}, true
	}
	return part{}, false
}

// addContent adds the blocks of a content to an entry. Blocks are texts, thoughts, media, calls, and results of
// calls.
func (e *entry) addContent(t *tree, content json.RawMessage) {
	for _, b := range blocksOf(content) {
		kind, text := b.text("type"), b.textValue()
		media, isMedia := b.media()
		switch {
		case text != nil:
			e.parts = append(e.parts, part{Text: text})
		case isMedia:
			e.parts = append(e.parts, media)
		case kind == "thinking" && isString(b.get("thinking")):
			e.parts = append(e.parts, part{Text: b.get("thinking"), Thought: true})
		case strings.HasSuffix(kind, "tool_use"):
			e.addCall(t, b.text("id"), b.text("name"), b.get("input"), "input")
		case kind == "toolCall":
			e.addCall(t, b.text("id"), b.text("name"), b.get("arguments"), "arguments")
		case strings.HasSuffix(kind, "tool_result"):
			e.addResult(t, b.text("tool_use_id"), "", b.get("content"), b.isTrue("is_error"))
		}
	}
}

// addCall adds a call. The argument args may be an object, or a string with the JSON of an object. If args is
// neither, the call gets an object in which args is the value of member.
func (e *entry) addCall(t *tree, id, name string, args json.RawMessage, member string) {
	if parsed := json.RawMessage(unquote(args)); isObject(parsed) && json.Valid(parsed) {
		args = parsed
	}
	if len(args) > 0 && !isObject(args) {
		args = slices.Concat([]byte("{"), quote(member), []byte(":"), args, []byte("}"))
	}
	t.callNames[id] = name
	e.callIDs, e.parts = append(e.callIDs, id), append(e.parts, part{Call: &call{id, name, args}})
}

// addResult adds the result of a call. The texts of the result are in the member "result" or, if the call failed, in
// "error". Images become parts. Other blocks are added to the texts as JSON. If name is empty, addResult uses the
// name of the call.
func (e *entry) addResult(t *tree, id, name string, content json.RawMessage, failed bool) {
	r := &response{ID: id, Name: cmp.Or(name, t.callNames[id]), Response: map[string]any{}}
	var texts []json.RawMessage
	for _, b := range blocksOf(content) {
		text := b.textValue()
		media, isMedia := b.media()
		switch {
		case text != nil:
			texts = append(texts, text)
		case isMedia:
			r.Parts = append(r.Parts, media)
		default:
			texts = append(texts, b.raw)
		}
	}
	member := "result"
	if failed {
		member = "error"
	}
	switch {
	case isObject(content):
		r.Response[member] = content
	case len(texts) == 1:
		r.Response[member] = texts[0]
	case len(texts) > 1:
		r.Response[member] = texts
	}
	e.resultIDs, e.parts = append(e.resultIDs, id), append(e.parts, part{Response: r})
}

// readMessage reads a message with a role and a content into the entry. Several APIs share this form.
func (e *entry) readMessage(t *tree, o obj) {
	e.role = "user"
	switch role := o.text("role"); role {
	case "user":
		e.Author, e.prompt = "user", true
		if e.addContent(t, o.get("content")); e.hasResults() {
			e.Author, e.prompt = t.agent, false
		}
	case "assistant":
		e.Author, e.role, e.ModelVersion, e.UsageMetadata = t.agent, "model", o.text("model"), parseUsage(o.object("usage"))
		e.addContent(t, o.get("content"))
	case "system", "developer":
		e.Author = "system"
		e.addContent(t, o.get("content"))
	case "tool", "function", "toolResult":
		e.Author = t.agent
		id := cmp.Or(o.text("tool_call_id"), o.text("toolCallId"))
		e.addResult(t, id, cmp.Or(o.text("name"), o.text("toolName")), o.get("content"), o.isTrue("isError"))
	}
}

func (e *entry) hasResults() bool {
	return slices.ContainsFunc(e.parts, func(p part) bool { return p.Response != nil })
}

// splitResults splits an entry of a model that includes results of calls. The results become separate entries,
// because they are not from the model.
func (e entry) splitResults(t *tree) (all []entry) {
	if e.role != "model" || !e.hasResults() {
		return []entry{e}
	}
	for first, rest := true, e.parts; len(rest) > 0; first = false {
		n := slices.IndexFunc(rest[1:], func(p part) bool { return (p.Response == nil) != (rest[0].Response == nil) }) + 1
		if n == 0 {
			n = len(rest)
		}
		next := e
		if !first {
			next = entry{time: e.time, role: "model", inTree: e.inTree, followsLeaf: e.inTree, eventJSON: eventJSON{Author: e.Author, Branch: e.Branch, ModelVersion: e.ModelVersion}}
		}
		if next.parts, rest = rest[:n:n], rest[n:]; next.parts[0].Response != nil {
			next.role, next.Author, next.ModelVersion = "user", t.agent, ""
			next.resultIDs = e.resultIDs
		}
		all = append(all, next)
	}
	return all
}

// part is a part of a content. The values of a part are JSON from the file.
type part struct {
	Text       json.RawMessage `json:"text,omitempty"`
	Thought    bool            `json:"thought,omitempty"`
	InlineData *blob           `json:"inlineData,omitempty"`
	FileData   *fileData       `json:"fileData,omitempty"`
	Call       *call           `json:"functionCall,omitempty"`
	Response   *response       `json:"functionResponse,omitempty"`
}

type blob struct {
	MimeType json.RawMessage `json:"mimeType,omitempty"`
	Data     json.RawMessage `json:"data"`
}

type fileData struct {
	URI string `json:"fileUri"`
}

type call struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
}

type response struct {
	ID       string         `json:"id,omitempty"`
	Name     string         `json:"name,omitempty"`
	Response map[string]any `json:"response"`
	Parts    []part         `json:"parts,omitempty"`
}

func quote(s string) json.RawMessage {
	text, err := marshalJSON(s)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return text
}

// usageNames maps ADK's names of token counts to the names that other programs use. If several names of a list
// occur, their counts are summed.
var usageNames = map[string][]string{
	"promptTokenCount": {
		"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "prompt_tokens",
		"input", "cacheRead", "cacheWrite", "cache.read", "cache.write",
	},
	"cachedContentTokenCount": {
		"cache_read_input_tokens", "cached_input_tokens", "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
		"cacheRead", "cached", "cache.read",
	},
	"candidatesTokenCount":    {"output_tokens", "completion_tokens", "output"},
	"thoughtsTokenCount":      {"reasoning_output_tokens", "output_tokens_details.reasoning_tokens", "thoughts", "reasoning"},
	"toolUsePromptTokenCount": {"tool"},
	"totalTokenCount":         {"total_tokens", "totalTokens", "total"},
}

// parseUsage returns usage metadata. It ignores counts that are not integers from 0 to the maximum int32.
func parseUsage(counts obj) map[string]int64 {
	out := map[string]int64{}
	for name, paths := range usageNames {
		for _, path := range paths {
			if n, err := strconv.ParseInt(string(counts.get(path)), 10, 32); err == nil && n >= 0 {
				out[name] += n
			}
		}
	}
	maps.DeleteFunc(out, func(_ string, n int64) bool { return n > math.MaxInt32 })
	return out
}
