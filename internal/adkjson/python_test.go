package adkjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// Rows and a bare event of ADK for Python are translated to ADK's JSON. The result survives a round trip.
func TestPython(t *testing.T) {
	file := testlog.Must(os.ReadFile("testdata/adk-python.jsonl"))(t)
	want := testlog.Must(os.ReadFile("testdata/adk-python.want.jsonl"))(t)
	records, _, err := readAll(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, r := range records {
		testlog.NoError(t, patch.WriteRecord(&got, r))
		if again := marshal(t, stored(t, r)); again != marshal(t, r) {
			t.Errorf("came back from the store as %s", again)
		}
		if again := marshal(t, parse(t, marshal(t, r))); again != marshal(t, r) {
			t.Errorf("came back from the text form as %s", again)
		}
	}
	if got.String() != string(want) {
		t.Fatalf("got\n%swant\n%s", got.String(), want)
	}
	call, answer := records[1].Event, records[2].Event
	if p := slices.Collect(call.FunctionParts()); len(p) != 1 || p[0] != (patch.FunctionPart{ID: "adk-1", Name: "book_item"}) {
		t.Errorf("calls %v", p)
	}
	if p := slices.Collect(answer.FunctionParts()); len(p) != 1 || p[0] != (patch.FunctionPart{ID: "adk-1", Name: "book_item", Response: true}) {
		t.Errorf("responses %v", p)
	}
	if !slices.Contains(call.LongRunningToolIDs(), "adk-1") {
		t.Error("the call is not long-running")
	}
	if d := answer.StateDelta(); len(d) != 4 || d["last_order"] != int64(7) {
		t.Errorf("state delta %v", d)
	}
	var c struct {
		Parts []struct{ ThoughtSignature []byte }
	}
	if err := call.Decode("content", &c); err != nil || !bytes.Equal(c.Parts[0].ThoughtSignature, []byte{0xff, 0xef}) {
		t.Errorf("content %+v, %v", c, err)
	}
}

// Names of schema fields are translated, and keys of data are not.
func TestPythonSpelling(t *testing.T) {
	for in, want := range map[string]string{
		// Fields of events.
		`{"isolation_scope":"s","turn_complete":true,"error_code":"E","error_message":"m","avg_logprobs":-0.5,"interaction_id":"i","session_resumption_handle":"h"}`:                    `{"isolationScope":"s","turnComplete":true,"errorCode":"E","errorMessage":"m","avgLogprobs":-0.5,"interactionId":"i","sessionResumptionHandle":"h"}`,
		`{"grounding_metadata":{"grounding_chunks":[{"retrieved_context":{"document_name":"d"},"web":{"uri":"u_v"}}],"search_entry_point":{"rendered_content":"c","sdk_blob":"_w=="}}}`: `{"groundingMetadata":{"groundingChunks":[{"retrievedContext":{"documentName":"d"},"web":{"uri":"u_v"}}],"searchEntryPoint":{"renderedContent":"c","sdkBlob":"/w=="}}}`,
		`{"citation_metadata":{"citations":[{"start_index":1}]},"logprobs_result":{"top_candidates":[{"candidates":[{"log_probability":-1,"token_id":2}]}]}}`:                           `{"citationMetadata":{"citations":[{"startIndex":1}]},"logprobsResult":{"topCandidates":[{"candidates":[{"logProbability":-1,"tokenId":2}]}]}}`,
		`{"cache_metadata":{"expire_time":1.5,"contents_count":2,"created_at":3},"input_transcription":{"text":"a_b"},"actions":{"compaction":{"excluded_events":["e_1"]}}}`:            `{"cacheMetadata":{"expireTime":1.5,"contentsCount":2,"createdAt":3},"inputTranscription":{"text":"a_b"},"actions":{"compaction":{"excludedEvents":["e_1"]}}}`,
		`{"cache_metadata":{"cache_name":"n","invocations_used":1},"live_session_resumption_update":{"new_handle":"h"},"output_transcription":{"text":"a_b"}}`:                          `{"cacheMetadata":{"cacheName":"n","invocationsUsed":1},"liveSessionResumptionUpdate":{"newHandle":"h"},"outputTranscription":{"text":"a_b"}}`,
		`{"node_info":{"path":"a_b@1","output_for":["x_y"],"message_as_output":true},"output":{"node_info":1}}`:                                                                         `{"nodeInfo":{"path":"a_b@1","outputFor":["x_y"],"messageAsOutput":true},"output":{"node_info":1}}`,
		`{"requested_input":{"interrupt_id":"i","payload":{"interrupt_id":1},"response_schema":{"one_of":[]}}}`:                                                                         `{"requestedInput":{"interruptId":"i","payload":{"interrupt_id":1},"responseSchema":{"one_of":[]}}}`,
		// Fields of parts.
		`{"content":{"parts":[{"executable_code":{"code":"a_b","language":"PYTHON"}},{"code_execution_result":{"outcome":"OUTCOME_OK"}},{"file_data":{"file_uri":"u","mime_type":"m","display_name":"d"}},{"video_metadata":{"start_offset":"1s"}}]}}`: `{"content":{"parts":[{"executableCode":{"code":"a_b","language":"PYTHON"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK"}},{"fileData":{"fileUri":"u","mimeType":"m","displayName":"d"}},{"videoMetadata":{"startOffset":"1s"}}]}}`,
		`{"content":{"parts":[{"function_call":{"name":"f","will_continue":true,"partial_args":[{"json_path":"$.a_b","string_value":"x"}]}},{"function_response":{"name":"f","parts":[{"inline_data":{"data":"AA=="}}]}}]}}`:                           `{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true,"partialArgs":[{"jsonPath":"$.a_b","stringValue":"x"}]}},{"functionResponse":{"name":"f","parts":[{"inlineData":{"data":"AA=="}}]}}]}}`,
		`{"content":{"parts":[{"part_metadata":{"function_call":1},"tool_call":{"args":{"inline_data":{"data":"_w=="}}}}]}}`:                                                                                                                           `{"content":{"parts":[{"partMetadata":{"function_call":1},"toolCall":{"args":{"inline_data":{"data":"_w=="}}}}]}}`,
		// Fields of actions.
		`{"actions":{"compaction":{"start_timestamp":1.5,"end_timestamp":2.5,"compacted_content":{"parts":[{"thought_signature":"_w=="}]}},"rewind_before_invocation_id":"i"}}`: `{"actions":{"compaction":{"startTimestamp":1.5,"endTimestamp":2.5,"compactedContent":{"parts":[{"thoughtSignature":"/w=="}]}},"rewindBeforeInvocationId":"i"}}`,
		`{"actions":{"requested_tool_confirmations":{"call_id":{"hint":"h","payload":{"state_delta":1}}},"set_model_response":{"a_b":1},"render_ui_widgets":[{"a_b":1}]}}`:      `{"actions":{"requestedToolConfirmations":{"call_id":{"hint":"h","payload":{"state_delta":1}}},"setModelResponse":{"a_b":1},"renderUiWidgets":[{"a_b":1}]}}`,
		// Fields of patches, and of the events in patches.
		`{"patch_type":"splice","invocation_id":"i","start":0,"count":0,"replacement":[{"invocation_id":"j","actions":{"state_delta":{"a_b":1}}}]}`: `{"invocationId":"i","patchType":"splice","start":0,"count":0,"replacement":[{"invocationId":"j","actions":{"stateDelta":{"a_b":1}}}]}`,
		`{"patch_type":"summarise","start":0,"count":1,"summary_event":{"content":{"parts":[{"function_call":{"name":"f"}}]}}}`:                     `{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"content":{"parts":[{"functionCall":{"name":"f"}}]}}}`,
		`{"patch_type":"revert","patch_id":"p\u0031"}`:                                                          `{"patchType":"revert","patchId":"p1"}`,
		`{"patchType":"splice","start":0,"count":1,"patch_id":5}`:                                               `{"patchType":"splice","start":0,"count":1,"patch_id":5}`,
		`{"patch_type":"splice","start":0,"count":1,"replacement":[{"patch_type":"splice"},{"timestamp":1.5}]}`: `{"patchType":"splice","start":0,"count":1,"replacement":[{"patchType":"splice"},{"timestamp":"1970-01-01T00:00:01.5Z"}]}`,
		`{"patchType":"truncate_before","event_id":"e\u0031"}`:                                                  `{"patchType":"truncate_before","eventId":"e1"}`,
		// Unknown fields, and fields of unexpected types, do not change.
		`{"new_field":{"invocation_id":1},"content":{"new_field":{"function_call":1},"parts":[{"new_field":1}]}}`: `{"new_field":{"invocation_id":1},"content":{"new_field":{"function_call":1},"parts":[{"new_field":1}]}}`,
		`{"Invocation_id":"i","_invocation_id":"i","invocation__id":"i","Error_code":1}`:                          `{"Invocation_id":"i","_invocation_id":"i","invocation__id":"i","Error_code":1}`,
		`{"node_info":[{"output_for":1}],"cache_metadata":"cache_name"}`:                                          `{"nodeInfo":[{"output_for":1}],"cacheMetadata":"cache_name"}`,
		// Bytes in base64. ADK's REST servers write URL-safe base64 in fields with camelCase names.
		`{"content":{"parts":[{"inlineData":{"data":"-_-_"}},{"inlineData":{"data":"+/+/"}},{"text":"-_-_"}]}}`: `{"content":{"parts":[{"inlineData":{"data":"+/+/"}},{"inlineData":{"data":"+/+/"}},{"text":"-_-_"}]}}`,
	} {
		if got := marshal(t, parse(t, in)); got != want {
			t.Errorf("%s became\n%s, want\n%s", in, got, want)
		}
	}
}

// The error for malformed input names the field.
func TestPythonRefused(t *testing.T) {
	for line, field := range map[string]string{
		`{"invocationId":"i","invocation_id":"i"}`:                                              "invocation_id",
		`{"invocation_id":"i","invocationId":null}`:                                             "invocationId",
		`{"actions":{"state_delta":{},"stateDelta":{}}}`:                                        "actions/stateDelta",
		`{"content":{"parts":[{},{"functionCall":{"name":"f"},"function_call":{"name":"f"}}]}}`: "content/parts/1/function_call",
		`{"patchType":"pin","invocationId":"i","invocation_id":"i"}`:                            "invocation_id",
		`{"patchType":"splice","patch_type":"splice"}`:                                          "patchType",
		`{"patchType":"truncate_before","event_id":null,"eventId":"a"}`:                         "eventId",
		`{"patchType":"summarise","summaryEvent":{},"summary_event":{}}`:                        "summaryEvent",
		`{"patchType":"revert","patchId":"p","patch_id":"p"}`:                                   "patchId",
		`{"long_running_tool_ids":"x"}`:                                                         "longRunningToolIds",
		`{"content":{"parts":[{"inline_data":{"data":"_-8"}}]}}`:                                "content/parts/0/inlineData/data",
		`{"content":{"parts":[{"inline_data":{"data":"_+8="}}]}}`:                               "content/parts/0/inlineData/data",
		`{"actions":"gASV","long_running_tool_ids_json":null}`:                                  "long_running_tool_ids_json",
		`{"id":"s","app_name":"a","user_id":"u","events":[],"last_update_time":1.5}`:            "events",
		`{"id":"s","appName":"a","userId":"u","events":[],"lastUpdateTime":1.5}`:                "events",
		`{"event_data":null}`:                                      "event_data",
		`{"event_data":"[]"}`:                                      "event_data",
		`{"event_data":"{"}`:                                       "event_data",
		`{"event_data":"{\"a\":{\"b\":1,\"b\":2}}"}`:               "event_data/a/b",
		`{"event_data":{},"author":"a"}`:                           "author",
		`{"event_data":{},"app_name":1}`:                           "app_name",
		`{"event_data":{"id":"e1"},"id":"e2"}`:                     "id",
		`{"event_data":{"invocation_id":"i"},"invocation_id":"j"}`: "invocation_id",
		`{"event_data":{},"timestamp":"2025-06-01 10:00:00"}`:      "timestamp",
		`{"event_data":{"invocation_id":"i","invocationId":"i"}}`:  "invocationId",
		`{"event_data":{"event_data":{"author":"a"}}}`:             "event_data/event_data",
		`{"event_data":"{\"event_data\":1}"}`:                      "event_data/event_data",
	} {
		_, _, err := readAll(strings.NewReader(line))
		var f *patch.FieldError
		if !errors.As(err, &f) || f.Field != field || !errors.Is(err, patch.ErrInvalid) {
			t.Errorf("%s: %v, want an error that names %q", line, err, field)
		}
	}
}

// The columns of a row other than event_data are checked.
func TestPythonRows(t *testing.T) {
	for in, want := range map[string]string{
		`{"id":"e1","invocation_id":"i","timestamp":1.5,"event_data":{"author":"a"}}`:                                              `{"id":"e1","invocationId":"i","author":"a","timestamp":"1970-01-01T00:00:01.5Z"}`,
		`{"id":"e1","timestamp":"2025-06-01T10:00:00+02:00","event_data":"{\"author\":\"a\"}"}`:                                    `{"id":"e1","author":"a","timestamp":"2025-06-01T08:00:00Z"}`,
		`{"id":"e1","invocation_id":"i","timestamp":"2025-06-01 10:00","event_data":{"invocationId":"i","id":"e1","timestamp":2}}`: `{"id":"e1","invocationId":"i","timestamp":"1970-01-01T00:00:02Z"}`,
		`{"id":null,"event_data":{"id":"e1"}}`:                                                                                     `{"id":"e1"}`,
		`{"id":null,"timestamp":null,"event_data":{"author":"a"}}`:                                                                 `{"author":"a"}`,
	} {
		if got := marshal(t, parse(t, in)); got != want {
			t.Errorf("%s became\n%s, want\n%s", in, got, want)
		}
	}
	row := func(session string) string {
		text, err := json.Marshal(map[string]any{"app_name": "a", "user_id": "u", "session_id": session, "event_data": map[string]any{"author": "x"}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	if _, _, err := readAll(strings.NewReader(row("s") + `{"author":"x"}` + "\n" + row("s"))); err != nil {
		t.Error(err)
	}
	_, _, err := readAll(strings.NewReader(row("s") + row("other")))
	var line *patch.LineError
	if !errors.As(err, &line) || line.Line != 2 || !strings.Contains(err.Error(), `"session_id"`) || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("rows of two sessions: %v", err)
	}
}

func parse(t *testing.T, text string) patch.Record {
	t.Helper()
	own, err := adkjson.TranslateLines([]byte(text), "f")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	r, err := patch.ParseRecord(own)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func marshal(t *testing.T, r patch.Record) string {
	t.Helper()
	text := testlog.Must(r.MarshalJSON())(t)
	return string(text)
}

func stored(t *testing.T, r patch.Record) patch.Record {
	t.Helper()
	form := testlog.Must(patch.AppendRecord(nil, r))(t)
	r = testlog.Must(patch.DecodeRecord(form))(t)
	return r
}

// A file with a header is in patchlog's format. Only lines that package patch rejects are translated.
func TestHeaderIsNotTranslated(t *testing.T) {
	const line = `{"id":"e","error_code":"x"}`
	for header, want := range map[string]string{"": `{"id":"e","errorCode":"x"}`, `{"patchlog":1,"initialState":{}}` + "\n": line} {
		records, _, err := readAll(strings.NewReader(header + line))
		if err != nil || len(records) != 1 || marshal(t, records[0]) != want {
			t.Errorf("after %q: %v, %v, want %s", header, records, err, want)
		}
		records, _, err = readAll(strings.NewReader(header + `{"id":"p","patch_type":"pin","event_id":"e"}`))
		if err != nil || len(records) != 1 || marshal(t, records[0]) != `{"id":"p","patchType":"pin","eventId":"e"}` {
			t.Errorf("after %q: %v, %v", header, records, err)
		}
	}
}

func TestEpochSeconds(t *testing.T) {
	for literal, want := range map[string]string{
		`0`:                      "1970-01-01T00:00:00Z",
		`-0`:                     "1970-01-01T00:00:00Z",
		`1748509874.123456`:      "2025-05-29T09:11:14.123456Z",
		`1748509874.123456789`:   "2025-05-29T09:11:14.123456789Z",
		`1748509874.1234567899`:  "2025-05-29T09:11:14.123456789Z",
		`1.748509874e9`:          "2025-05-29T09:11:14Z",
		`-0.5`:                   "1969-12-31T23:59:59.5Z",
		`-1.000000001`:           "1969-12-31T23:59:58.999999999Z",
		`1e-9`:                   "1970-01-01T00:00:00.000000001Z",
		`1e-1000000`:             "1970-01-01T00:00:00Z",
		`0e999999999`:            "1970-01-01T00:00:00Z",
		`253402300799.999999999`: "9999-12-31T23:59:59.999999999Z",
		`-62135596800`:           "0001-01-01T00:00:00Z",
	} {
		if got := parse(t, `{"timestamp":`+literal+`}`).Event.Timestamp().Format(time.RFC3339Nano); got != want {
			t.Errorf("%s is %s, want %s", literal, got, want)
		}
	}
	for _, literal := range []string{`253402300800`, `-62135596801`, `1e400`, `1e999999999`, `-1e99`, `1` + strings.Repeat("0", 70) + `e-65`} {
		_, err := adkjson.ParseEvent([]byte(`{"timestamp":` + literal + `}`))
		if f := (*patch.FieldError)(nil); !errors.As(err, &f) || f.Field != "timestamp" {
			t.Errorf("%s: %v", literal, err)
		}
	}
}

// If the time is a short literal with a large exponent, the literal is not expanded.
func TestTimesCostLittle(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parse(t, `{"timestamp":1e-999999}`)
	runtime.ReadMemStats(&after)
	if cost := after.TotalAlloc - before.TotalAlloc; cost > 100<<10 { // the digits alone would need 400 KiB
		t.Errorf("it took %d bytes", cost)
	}
}

func readAll(r io.Reader) ([]patch.Record, map[string]patch.Value, error) {
	text, err := io.ReadAll(r)
	if err == nil {
		text, err = adkjson.TranslateLines(text, "f")
	}
	if err != nil {
		return nil, nil, err
	}
	return records.ReadAll(patch.NewDecoder(bytes.NewReader(text), "f"))
}
