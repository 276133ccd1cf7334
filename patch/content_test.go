package patch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/filler"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestText(t *testing.T) {
	for _, text := range []string{"hi", "a\x00\n\"\\\u2028𝄞", strings.Repeat("long ", 1000)} {
		for _, role := range []string{"user", "model", "", "\n"} {
			ours := newEvent(t, patch.Fields{Content: patch.Text(role, text)})
			theirs := newEvent(t, patch.Fields{Content: &sdkContent{Role: role, Parts: []*sdkPart{{Text: text}}}})
			wantEqual(t, "the content", canonical(t, ours.String()), canonical(t, theirs.String()))
			if ours.Role() != role {
				t.Errorf("the role is %q, want %q", ours.Role(), role)
			}
		}
	}
	if got := patch.Text("user", "").String(); got != `{"parts":[{"text":""}],"role":"user"}` {
		t.Errorf("an empty text is %s", got)
	}
}

// A text that is not UTF-8 is refused, not altered.
func TestTextRefusesInvalidUTF8(t *testing.T) {
	for field, c := range map[string]patch.Value{"parts/0/text": patch.Text("user", "a\xff"), "role": patch.Text("\xff", "a")} {
		_, err := patch.NewEvent(patch.Fields{Content: c})
		wantField(t, err, "content/"+field)
		_, err = patch.NewEvent(patch.Fields{Actions: patch.Actions{Compaction: &patch.EventCompaction{CompactedContent: c}}})
		wantField(t, err, "actions/compaction/compactedContent/"+field)
		_, err = patch.NewEvent(patch.Fields{Extra: map[string]any{"x": []any{patch.Value{}, c}}})
		wantField(t, err, "x/1/"+field)
		_, err = patch.NewValue(c)
		wantField(t, err, field)
		_, err = c.MarshalJSON()
		wantField(t, err, field)
		wantField(t, c.Decode(new(any)), field)
		if c.String() == "null" {
			t.Error("it passes for none")
		}
	}
}

func TestNullContentIsOmitted(t *testing.T) {
	var c *sdkContent
	var u *sdkUsage
	for _, none := range []any{nil, c, u, patch.Value{}, (*patch.Value)(nil), &patch.Value{}, map[string]any(nil), json.RawMessage("null")} {
		if got := newEvent(t, patch.Fields{Content: none, UsageMetadata: none}).String(); got != "{}" {
			t.Errorf("%T makes %s", none, got)
		}
		if got := newContent(t, none); got.String() != "null" {
			t.Errorf("%T is %s", none, got)
		}
	}
	for _, e := range []*patch.Event{newEvent(t, patch.Fields{}), parseEvent(t, `{"content":null}`)} {
		none := e.Content()
		if none.String() != "null" {
			t.Errorf("the content of %s is %s", e, none)
		}
		for range none.Parts() {
			t.Error("it has parts")
		}
		kept := 5
		if err := none.Decode(&kept); err != nil || kept != 5 {
			t.Errorf("decoded %v, %v", kept, err)
		}
	}
	if e := newEvent(t, patch.Fields{Content: &sdkContent{}}); e.Content().String() == "null" || e.String() != `{"content":{}}` || e.SaysSomething() {
		t.Errorf("an empty content makes %s", e)
	}
}

func TestContentRoundTrip(t *testing.T) {
	byKey := map[string]any{"role": "model", "parts": []map[string]any{{"text": "a"}, {"functionCall": map[string]any{"name": "f", "args": filler.OddMap(3)}}}}
	for name, v := range map[string]any{
		"a map": byKey, "a content": newContent(t, byKey),
		"a content of an event": newEvent(t, patch.Fields{Content: byKey}).Content(),
	} {
		t.Run(name, func(t *testing.T) {
			both(t, patch.Fields{Content: v, Actions: patch.Actions{Compaction: &patch.EventCompaction{CompactedContent: newContent(t, v)}}}, func(t *testing.T, e *patch.Event) {
				c := testlog.Must(e.Compaction())(t)
				for _, content := range []patch.Value{e.Content(), c.CompactedContent} {
					var got any
					testlog.NoError(t, content.Decode(&got))
					wantEqual(t, "content", got, any(byKey))
				}
				wantEqual(t, "the same content elsewhere", c.CompactedContent, e.Content())
			})
		})
	}
	struc := sdkContent{Role: "model", Parts: []*sdkPart{{Text: "a", ThoughtSignature: []byte{0, 255}}, {FunctionCall: &sdkCall{Name: "f", Args: map[string]any{"n": 1.5, "s": "<"}}}}}
	for _, v := range []any{struc, &struc} {
		var got sdkContent
		testlog.NoError(t, newContent(t, v).Decode(&got))
		wantEqual(t, "a struct", got, struc)
	}
	wantEqual(t, "raw JSON", newContent(t, json.RawMessage(` {"role":"user", "new":[1.0,1e400]} `)).String(), `{"role":"user","new":[1.0,1e400]}`)
	for field, v := range map[string]any{
		"": 5, "parts": map[string]any{"parts": 1}, "parts/1/text": map[string]any{"parts": []any{nil, map[string]any{"text": 1}}},
		"parts/0/functionCall/args/f": map[string]any{"parts": []any{map[string]any{"functionCall": map[string]any{"args": map[string]any{"f": errors.New("e")}}}}},
	} {
		_, err := patch.NewEvent(patch.Fields{Content: v})
		wantField(t, err, strings.TrimSuffix("content/"+field, "/"))
	}
}

func TestValueIsReadFromJSON(t *testing.T) {
	var c patch.Value
	if err := json.Unmarshal([]byte(` { "role" : "user" , "parts" : [ {"text":"a"} ] , "n":1e400}`), &c); err != nil || c.String() != `{"role":"user","parts":[{"text":"a"}],"n":1e400}` {
		t.Errorf("read as %s, %v", c, err)
	}
	was := c.String()
	for text, field := range map[string]string{
		`{"a":1,"a":2}`: "a", `{"parts":[{"text":"\ud800"}]}`: "parts/0/text", `{`: "",
		`{"a":` + strings.Repeat("[", 998) + strings.Repeat("]", 998) + `}`: "",
	} {
		wantField(t, c.UnmarshalJSON([]byte(text)), field)
	}
	if c.String() != was {
		t.Errorf("after the refused value, it is %s", c)
	}
	text := []byte(was)
	testlog.NoError(t, c.UnmarshalJSON(text))
	clear(text)
	if again, err := json.Marshal(struct{ C patch.Value }{c}); err != nil || string(again) != `{"C":`+was+`}` {
		t.Errorf("written %s, %v", again, err)
	}
	if text, err := json.Marshal(patch.EventCompaction{}); err != nil || strings.Contains(string(text), "Content") {
		t.Errorf("no compacted content is written as %s, %v", text, err)
	}
}

// NewEvent refuses a content of the maximum nesting depth inside actions, because the event would be nested too
// deeply.
func TestContentMaxDepth(t *testing.T) {
	c := parseEvent(t, `{"content":{"a":`+strings.Repeat("[", 996)+strings.Repeat("]", 996)+`}}`).Content()
	parseEvent(t, newEvent(t, patch.Fields{Content: c}).String())
	_, err := patch.NewEvent(patch.Fields{Actions: patch.Actions{Compaction: &patch.EventCompaction{CompactedContent: c}}})
	wantField(t, err, "actions")
}

func TestParts(t *testing.T) {
	for _, c := range []struct {
		parts string
		want  []string // index, kind and text of each part
	}{
		{`null`, nil},
		{`[]`, nil},
		{`[{"text":"a\nb"},{"text":""},{"text":"hm","thought":true},{"thought":false,"text":"x"}]`,
			[]string{`0 text "a\nb"`, `1 text ""`, `2 thought "hm" thought`, `3 text "x"`}},
		{`[{"functionCall":{"name":"f","args":{"a":[1.0]},"id":"c","response":{},"code":"x","mimeType":"m"}},{"functionCall":{},"thought":true}]`,
			[]string{`0 function call c f args={"a":[1.0]}`, `1 function call thought`}},
		{`[{"functionResponse":{"id":"c","name":"f","response":{"r":1},"args":{}}}]`, []string{`0 function response c f response={"r":1}`}},
		{`[{"inlineData":{"data":"QUJD","mimeType":"image/png","displayName":"d","fileUri":"u"}},{"inlineData":{"data":"QQ=="}},{"inlineData":{"data":"QUI="}},{"inlineData":{"data":""}},{"inlineData":{}}]`,
			[]string{`0 data d image/png 3 bytes`, `1 data 1 bytes`, `2 data 2 bytes`, `3 data`, `4 data`}},
		{`[{"inlineData":{"data":"\/w=="}}]`, []string{`0 data 1 bytes`}},
		{`[{"fileData":{"fileUri":"gs://x","mimeType":"text/plain","displayName":"d","data":"QUJD"}}]`, []string{`0 file d text/plain gs://x`}},
		{`[{"executableCode":{"code":"1+1","language":"PYTHON","id":"k"}},{"codeExecutionResult":{"output":"2","id":"k"}}]`,
			[]string{`0 code "1+1" k`, `1 code result "2" k`}},
		{`[{"toolCall":{"id":"t","args":{"a":1},"name":"n"}},{"new":[1]}]`, []string{`0 other t toolCall`, `1 other new`}},
		{`[{},null,{"text":null},{"thoughtSignature":"AAAA"},{"videoMetadata":{},"mediaResolution":{},"mediaProcessing":"STATIC","speechMetadata":{},"partMetadata":{}}]`,
			[]string{`0 empty`, `1 empty`, `2 empty`, `3 empty`, `4 empty`}},
		{`[{"text":"a"},{"functionCall":{"name":"f"},"text":"b","new":1,"functionResponse":{"name":"g"},"inlineData":null}]`,
			[]string{`0 text "a"`, `1 function call f`, `1 text "b"`, `1 other new`, `1 function response g`}},
	} {
		e := parseEvent(t, `{"content":{"role":"model","parts":`+c.parts+`}}`)
		var got []string
		for i, p := range e.Content().Parts() {
			said := fmt.Sprint(i, " ", p.Kind)
			say := func(format string, v any) {
				if !reflect.ValueOf(v).IsZero() {
					said += fmt.Sprintf(" "+format, v)
				}
			}
			if k := p.Kind; k == patch.PartText || k == patch.PartThought || k == patch.PartCode || k == patch.PartCodeResult {
				said += fmt.Sprintf(" %q", p.Text)
			} else if p.Text != "" {
				t.Errorf("a %s with a text", k)
			}
			say("%s", p.ID)
			say("%s", p.Name)
			say("%s", p.MIMEType)
			say("%s", p.URI)
			say("%d bytes", p.DataLen)
			say("args=%s", p.Args)
			say("response=%s", p.Response)
			if p.Thought {
				said += " thought"
			}
			got = append(got, said)
			if whole := p.JSON.String(); !strings.Contains(c.parts, whole) || p.Kind != patch.PartEmpty && !strings.Contains(whole, p.Value.String()) {
				t.Errorf("part %d is %s, its value %s", i, whole, p.Value)
			}
		}
		wantEqual(t, "parts of "+c.parts, got, c.want)
		if want := `{"content":{"role":"model","parts":` + c.parts + `}}`; e.String() != want {
			t.Errorf("the event has become %s, was %s", e, want)
		}
		for range e.Content().Parts() {
			break
		}
	}
}

// FunctionParts, EstimatedTokens and SaysSomething agree with the parts that Parts yields.
func TestIndexOfParts(t *testing.T) {
	const parts = `[{"text":"four","functionCall":{"id":"c","name":"f","args":{}}},{"text":null},{"functionResponse":{"id":"r","name":"g","response":{}}},{"fileData":{}}]`
	e := parseEvent(t, `{"content":{"parts":`+parts+`}}`)
	var got []patch.FunctionPart
	for p := range e.FunctionParts() {
		got = append(got, p)
	}
	wantEqual(t, "function parts", got, []patch.FunctionPart{{Index: 0, ID: "c", Name: "f"}, {Index: 2, Response: true, ID: "r", Name: "g"}})
	if want := patch.EstimateTextTokens("four" + "f" + "{}" + "g" + "{}"); !e.SaysSomething() || e.EstimatedTokens() != want+patch.DataTokens {
		t.Errorf("content %v, %d tokens, want %d", e.SaysSomething(), e.EstimatedTokens(), want+patch.DataTokens)
	}
	for _, nothing := range []string{`[null]`, `[]`, `[{}]`, `[{"text":""}]`, `[{"text":null,"thoughtSignature":"YQ=="}]`} {
		if e := parseEvent(t, `{"content":{"parts":`+nothing+`},"actions":{"stateDelta":{"a":1}}}`); e.SaysSomething() || e.EstimatedTokens() > 1 {
			t.Errorf("%s says something: %v, %d tokens", nothing, e.SaysSomething(), e.EstimatedTokens())
		}
	}
}

// Parts yields transcriptions as texts, in the order of the event's fields.
func TestTranscriptionsAreParts(t *testing.T) {
	e := parseEvent(t, `{"author":"user","inputTranscription":{"text":"four more","finished":true},"content":{"parts":[{"text":"seen"}]},"outputTranscription":{"text":""}}`)
	var got []string
	for i, p := range storedEvent(t, e).Parts() {
		got = append(got, fmt.Sprint(i, " ", p.Kind, " ", p.Text))
	}
	wantEqual(t, "parts", got, []string{"-1 text four more", "0 text seen"})
	alone := parseEvent(t, `{"inputTranscription":{"text":"four more"}}`)
	if want := patch.EstimateTextTokens("four more"); !alone.SaysSomething() || alone.EstimatedTokens() != want {
		t.Errorf("spoken words alone: %v, %d tokens, want %d", alone.SaysSomething(), alone.EstimatedTokens(), want)
	}
	for _, silent := range []string{`{"inputTranscription":null}`, `{"inputTranscription":{"text":7}}`, `{"outputTranscription":"x"}`} {
		if e := parseEvent(t, silent); e.SaysSomething() || e.EstimatedTokens() != 0 {
			t.Errorf("%s says something", silent)
		}
	}
}

// Parts yields the media in a function response as data. No text that Parts yields contains the media's bytes.
func TestMediaInResults(t *testing.T) {
	data := strings.Repeat("QUJD", 10_000)
	for name, c := range map[string]struct {
		response string // members of a function response, without its name
		media    int
		text     string
	}{
		"beside it":      {`"response":{"ok":true},"parts":[{"inlineData":{"mimeType":"image/png","data":"` + data + `"}},{"fileData":{"fileUri":"gs://b","mimeType":"image/png"}}]`, 2, `{"ok":true}`},
		"inside, MCP":    {`"response":{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"` + data + `"}]}`, 1, `{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"[image/png, 30000 bytes]"}]}`},
		"inside, others": {`"response":{"source":{"media_type":"image/jpeg","data":"` + data + `","type":"base64"}}`, 1, `{"source":{"media_type":"image/jpeg","data":"[image/jpeg, 30000 bytes]","type":"base64"}}`},
		"no medium":      {`"response":{"data":"abc","size":3}`, 0, `{"data":"abc","size":3}`},
		"twice":          {`"response":{"a":{"data":"a","mimeType":"x/y"},"b":{"data":"YWE=","mime_type":"a"},"a2":"a"}`, 2, `{"a":{"data":"[x/y, 0 bytes]","mimeType":"x/y"},"b":{"data":"[a, 2 bytes]","mime_type":"a"},"a2":"a"}`},
	} {
		e := parseEvent(t, `{"content":{"parts":[{"functionResponse":{"id":"c","name":"shot",`+c.response+`}}]}}`)
		kinds, text := 0, ""
		for _, p := range e.Parts() {
			switch p.Kind {
			case patch.PartResponse:
				text = p.Response.String()
			case patch.PartData, patch.PartFile:
				kinds++
			}
		}
		if text != c.text {
			t.Errorf("%s: the response is %s, want %s", name, text, c.text)
		}
		if n := e.EstimatedTokens(); n < c.media*patch.DataTokens || n > c.media*patch.DataTokens+120 {
			t.Errorf("%s: %d tokens for %d media", name, n, c.media)
		}
		if name == "beside it" && kinds != 2 {
			t.Errorf("%s: %d parts are media", name, kinds)
		}
	}
}

// Types with the JSON fields of a content, as a model's SDK might define them.
type (
	sdkContent struct {
		Parts []*sdkPart `json:"parts,omitempty"`
		Role  string     `json:"role,omitempty"`
	}
	sdkPart struct {
		Text             string     `json:"text,omitempty"`
		Thought          bool       `json:"thought,omitempty"`
		ThoughtSignature []byte     `json:"thoughtSignature,omitempty"`
		FunctionCall     *sdkCall   `json:"functionCall,omitempty"`
		FunctionResponse *sdkAnswer `json:"functionResponse,omitempty"`
		InlineData       *sdkBlob   `json:"inlineData,omitempty"`
		VideoMetadata    *sdkVideo  `json:"videoMetadata,omitempty"`
	}
	sdkCall struct {
		ID   string         `json:"id,omitempty"`
		Name string         `json:"name,omitempty"`
		Args map[string]any `json:"args,omitempty"`
	}
	sdkAnswer struct {
		ID       string         `json:"id,omitempty"`
		Name     string         `json:"name,omitempty"`
		Response map[string]any `json:"response,omitempty"`
	}
	sdkBlob struct {
		Data        []byte `json:"data,omitempty"`
		DisplayName string `json:"displayName,omitempty"`
		MIMEType    string `json:"mimeType,omitempty"`
	}
	sdkVideo struct {
		FPS *float64 `json:"fps,omitempty"`
	}
	sdkUsage struct {
		PromptTokenCount int32          `json:"promptTokenCount,omitempty"`
		Details          []*sdkModality `json:"promptTokensDetails,omitempty"`
		TrafficType      string         `json:"trafficType,omitempty"`
	}
	sdkModality struct {
		Modality   string `json:"modality,omitempty"`
		TokenCount int32  `json:"tokenCount,omitempty"`
	}
)

// A part with many values is read in one iteration, because one iteration per value would take minutes.
func TestPartsTakeLinearTime(t *testing.T) {
	const n = 100_000
	part := []byte{'{'}
	for i := range n {
		part = fmt.Appendf(part, `"k%d":0,`, i)
	}
	part = append(part, `"thought":true`...)
	e := parseEvent(t, `{"content":{"parts":[`+string(part)+`}]}}`)
	got := 0
	for i, p := range e.Parts() {
		if i != 0 || p.Kind != patch.PartOther || !p.Thought {
			t.Fatalf("%d: %+v", i, p)
		}
		got++
	}
	if got != n {
		t.Errorf("%d parts, want %d", got, n)
	}
}
