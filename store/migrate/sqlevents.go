package migrate

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/patch"
)

// goEvent makes an event of a row of ADK for Go's. What its service leaves out of an event
// that it reads, such as a boolean that is false, is left out.
func goEvent(cells map[string]any) (*patch.Event, error) {
	var o object
	for _, f := range []struct{ name, column string }{
		{"id", "id"}, {"invocationId", "invocation_id"}, {"author", "author"},
		{"branch", "branch"}, {"isolationScope", "isolation_scope"},
		{"errorCode", "error_code"}, {"errorMessage", "error_message"},
	} {
		o.texts(f.name, f.column, cells[f.column])
	}
	o.time("timestamp", "timestamp", cells["timestamp"])
	if isPickled(cells["actions"]) {
		return nil, errPickled()
	}
	for _, f := range []struct{ name, column string }{
		{"content", "content"}, {"actions", "actions"},
		{"groundingMetadata", "grounding_metadata"}, {"citationMetadata", "citation_metadata"},
		{"usageMetadata", "usage_metadata"}, {"customMetadata", "custom_metadata"},
		{"longRunningToolIds", "long_running_tool_ids_json"}, {"routes", "routes_json"},
		{"output", "output_json"}, {"nodeInfo", "node_info_json"}, {"requestedInput", "requested_input_json"},
	} {
		o.json(f.name, f.column, cells[f.column])
	}
	for _, f := range []struct{ name, column string }{
		{"partial", "partial"}, {"turnComplete", "turn_complete"}, {"interrupted", "interrupted"},
	} {
		o.truth(f.name, f.column, cells[f.column])
	}
	return o.event()
}

// pythonEvent makes an event of a row of ADK for Python's: event_data is the event, and the
// columns beside it repeat it, with the time in an unknown zone.
func pythonEvent(cells map[string]any) (*patch.Event, error) {
	data, err := jsonOf(cells["event_data"])
	if err == nil && data == nil {
		err = fmt.Errorf("%w: there is none", patch.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("event_data: %w", err)
	}
	var o object
	o.raw("event_data", data)
	o.texts("id", "id", cells["id"])
	o.texts("invocation_id", "invocation_id", cells["invocation_id"])
	o.time("timestamp", "timestamp", cells["timestamp"])
	return o.event()
}
